"""Output times do not change the steps; states between steps have the order of the scheme; norms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from conftest import D, make_equation, make_graph, normal
from scipy.integrate import solve_ivp
from torch import Tensor

from graphdiffusion.solvers import (
    RK4,
    AdamsBashforth4,
    AdamsMoulton4,
    BogackiShampine,
    DormandPrince,
    Euler,
    ExponentialCF4,
    ExponentialCF42,
    ExponentialEuler,
    ExponentialMidpoint,
    ExponentialMidpointEuler,
    ExponentialTwoStep,
    Heun,
    HeunEuler,
    Midpoint,
    RK4ThreeEighths,
    SemiImplicitEuler,
    Stats,
    integrate,
    rms,
)

FIXED: dict[str, Any] = {
    "euler": Euler,
    "midpoint": Midpoint,
    "heun": Heun,
    "rk4": RK4,
    "three eighths": RK4ThreeEighths,
    "adams-bashforth": AdamsBashforth4,
    "adams-moulton": lambda h: AdamsMoulton4(h, rtol=1e-13, atol=1e-14),
    "semi-implicit": SemiImplicitEuler,
    "exponential euler": ExponentialEuler,
    "exponential midpoint": ExponentialMidpoint,
    "exponential two-step": ExponentialTwoStep,
    "exponential cf4": ExponentialCF4,
}
ADAPTIVE = (HeunEuler, BogackiShampine, DormandPrince, ExponentialMidpointEuler, ExponentialCF42)
SOLVERS = [*(build(0.2) for build in FIXED.values()), *(scheme(1e-2, 1e-3) for scheme in ADAPTIVE)]
AT = (0.17, 0.43, 0.901)  # between the steps


def problem() -> tuple[Any, Tensor]:
    graph = make_graph("random")
    x = normal(graph.num_nodes, 3)
    return make_equation().requires_grad_(False).bind(graph, x), x


def reference(flow: Any, x: Tensor, at: tuple[float, ...]) -> Tensor:
    def f(t: float, y: np.ndarray) -> np.ndarray:
        return flow(torch.tensor([[t]], dtype=D), torch.from_numpy(y).reshape(x.shape)).flatten().numpy()

    found = solve_ivp(f, (0, max(at)), x.flatten().numpy(), "DOP853", t_eval=at, rtol=3e-14, atol=1e-14)
    return torch.from_numpy(found.y.T).reshape(len(at), *x.shape)


@pytest.mark.parametrize(
    ("solver", "mode"),
    [*((s, "backprop") for s in SOLVERS), (RK4(0.25), "checkpoint"), (DormandPrince(), "checkpoint")],
    ids=repr,
)
def test_outputs_do_not_change_the_steps(solver: Any, mode: Any) -> None:
    graph = make_graph("random")
    for lead in ((), (2,)):
        x = normal(*lead, 9, 3).requires_grad_()
        model = make_equation()
        plain, seen = (
            integrate(model.bind(graph, x), x, 1.0, solver, gradient=mode, at=at) for at in (None, AT)
        )
        assert torch.equal(plain.state, seen.state)
        assert (plain.stats.accepted, plain.stats.rejected) == (seen.stats.accepted, seen.stats.rejected)
        leaves = [x, *model.parameters()]
        for a, b in zip(
            torch.autograd.grad(plain.state.square().sum(), leaves),
            torch.autograd.grad(seen.state.square().sum(), leaves, retain_graph=True),
            strict=True,
        ):
            torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-13)
        with torch.no_grad():  # the same states without the steps taken again for the gradient
            again = integrate(model.bind(graph, x), x, 1.0, solver, at=AT)
        torch.testing.assert_close(seen.states, again.states, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", FIXED)
def test_order_between_the_steps(name: str) -> None:
    flow, x = problem()
    exact = reference(flow, x, AT)
    order = FIXED[name](0.1).order
    count = 64 if name.startswith("adams") else {1: 32, 2: 20, 4: 16}[order]
    first, second = (
        float((integrate(flow, x, 1.0, FIXED[name](1.0 / n), at=AT, check=False).states - exact).norm())
        for n in (count, 4 * count)
    )
    assert np.log2(first / second) / 2 > order - 0.35


@pytest.mark.parametrize("scheme", ADAPTIVE)
def test_order_of_the_interpolant(scheme: Any) -> None:
    """One step from the exact start: the error between is O(h⁵) with an interpolant, else O(h⁴) at most."""
    flow, x = problem()
    solver, errors = scheme(), []
    for h in (0.4, 0.2):
        start, size = (torch.full((1, 1), v, dtype=D) for v in (0.0, h))
        step = solver.step(flow, start, size, solver.begin(flow, start, x), 0, Stats())
        shares = (0.2, 0.5, 0.8)
        found = torch.stack([step.between(torch.full((1, 1), s, dtype=D)) for s in shares])
        errors.append(float((found - reference(flow, x, tuple(s * h for s in shares))).norm()))
        torch.testing.assert_close(step.between(torch.zeros(1, 1, dtype=D)), x)
        assert torch.equal(step.between(torch.ones(1, 1, dtype=D)), step.state[0])
    # A of the midpoint is frozen: between, the error is that of another A
    orders = (3, 4, 5, 2, 4)
    expected = dict(zip(ADAPTIVE, orders, strict=True))[scheme]
    assert abs(np.log2(errors[0] / errors[1]) - expected) < 0.4


@pytest.mark.parametrize("scheme", ADAPTIVE)
def test_adaptive_outputs_meet_the_tolerance(scheme: Any) -> None:
    flow, x = problem()
    found = integrate(flow, x, 1.0, scheme(1e-6, 1e-6), at=AT)
    assert found.states is not None
    assert float((found.states - reference(flow, x, AT)).abs().max()) < 2e-5


@pytest.mark.parametrize("solver", [RK4(0.1), DormandPrince(1e-6, 1e-8)])
def test_members_have_outputs_of_their_own(solver: Any) -> None:
    """As many outputs as members, and each member at its own times."""
    flow, _ = problem()
    x, times = normal(3, 9, 3), torch.tensor([1.0, 2.0, 0.7], dtype=D)
    at = torch.tensor([[0.1, 0.9, 0.2], [0.2, 1.0, 0.5], [1.0, 2.0, 0.7]], dtype=D)
    together = integrate(flow, x, times, solver, at=at)
    shared = integrate(flow, x, 1.0, solver, at=[0.2, 0.5, 0.8])
    assert together.states is not None and shared.states is not None
    assert together.states.shape == shared.states.shape == (3, 3, 9, 3)
    assert torch.equal(together.states[2], together.state)
    for k in range(3):
        alone = integrate(flow, x[k], float(times[k]), solver, at=at[:, k])
        torch.testing.assert_close(together.states[:, k], alone.states, rtol=1e-12, atol=1e-12)
        alone = integrate(flow, x[k], 1.0, solver, at=[0.2, 0.5, 0.8])
        torch.testing.assert_close(shared.states[:, k], alone.states, rtol=1e-12, atol=1e-12)


def test_the_norm_is_an_argument() -> None:
    """One fast entry among many slow ones: the mean hides its error, the largest does not."""
    rates = torch.ones(50, 2, dtype=D)
    rates[7, 1] = 40.0
    x = normal(50, 2) + 3

    def field(t: Tensor, y: Tensor) -> Tensor:
        return -rates * y

    def largest(v: Tensor) -> Tensor:
        return v.abs().amax((-2, -1), keepdim=True)

    mean, maximum = (integrate(field, x, 1.0, DormandPrince(1e-5, 1e-5, norm=n)) for n in (rms, largest))
    assert maximum.stats.accepted > mean.stats.accepted
    default = integrate(field, x, 1.0, DormandPrince(1e-5, 1e-5))
    assert torch.equal(default.state, mean.state)
    errors = [float((s.state - x * torch.exp(-rates)).abs().max()) for s in (mean, maximum)]
    assert errors[1] < errors[0]
    members = integrate(field, x.expand(2, 50, 2), 1.0, DormandPrince(1e-5, 1e-5, norm=largest))
    torch.testing.assert_close(members.state[1], maximum.state, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("solver", [RK4(0.25), DormandPrince(1e-9, 1e-10)])
@pytest.mark.parametrize("members", [(), (2,)])
def test_an_output_at_the_end_has_the_gradient_of_its_own_time(
    solver: Any, members: tuple[int, ...]
) -> None:
    flow, _ = problem()
    x = normal(*members, 9, 3)
    end = torch.tensor(1.0, dtype=D, requires_grad=True)
    at = torch.tensor([0.5, 1.0], dtype=D, requires_grad=True)
    solution = integrate(flow, x, end, solver, at=at)
    assert solution.states is not None and torch.equal(solution.states[1], solution.state)
    by_end, by_time = torch.autograd.grad(solution.states[1].sum(), [end, at], allow_unused=True)
    slope = float(flow(end.detach(), solution.state.detach()).sum())
    total = float(by_time[1]) + (0.0 if by_end is None else float(by_end))
    assert total == pytest.approx(slope, rel=1e-2)
