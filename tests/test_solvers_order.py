"""Order, tolerance, stability regions and statistics of the schemes that march."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from conftest import D, make_diffusivity, make_equation, make_graph, normal, scatter_parameters
from scipy.integrate import solve_ivp
from torch import Tensor
from torchdiffeq import odeint

from graphdiffusion.diffusivity import TimeVarying
from graphdiffusion.equation import Coefficient, Diffusion, Flow, Source
from graphdiffusion.solvers import (
    ESDIRK4,
    RK4,
    AdamsBashforth4,
    AdamsMoulton4,
    BogackiShampine,
    DormandPrince,
    Euler,
    FixedRungeKutta,
    Heun,
    HeunEuler,
    Midpoint,
    RK4ThreeEighths,
    SemiImplicitEuler,
    Trapezoid,
    integrate,
)

FIXED: dict[str, Callable[[float], Any]] = {
    "euler": Euler,
    "midpoint": Midpoint,
    "heun": Heun,
    "rk4": RK4,
    "three eighths": RK4ThreeEighths,
    "adams-bashforth": AdamsBashforth4,
    "adams-moulton": lambda h: AdamsMoulton4(h, rtol=1e-13, atol=1e-14),
    "semi-implicit": SemiImplicitEuler,
}
ADAPTIVE = (HeunEuler, BogackiShampine, DormandPrince)


def problem(kind: str) -> tuple[Flow, Tensor]:
    graph = make_graph("random")
    x = normal(graph.num_nodes, 3)
    if "time-dependent" in kind:
        equation = Diffusion(
            scatter_parameters(TimeVarying(make_diffusivity("dot/sqrt"), horizon=2.0), scale=0.1),
            linear=kind.startswith("linear"),
            alpha=scatter_parameters(Coefficient(0.8, terms=3, horizon=2.0), scale=0.2),
            terms=[Source(scatter_parameters(Coefficient(0.3, terms=2, horizon=2.0), scale=0.2))],
        ).to(D)
    else:
        equation = make_equation(linear=kind == "linear")
    return equation.requires_grad_(False).bind(graph, x), x


def reference(flow: Flow, x: Tensor, time: float) -> Tensor:
    """scipy's DOP853, to near machine precision."""

    def f(t: float, y: np.ndarray) -> np.ndarray:
        state = torch.from_numpy(y).reshape(x.shape)
        return flow(torch.tensor([[t]], dtype=D), state).flatten().numpy()

    found = solve_ivp(f, (0, time), x.flatten().numpy(), "DOP853", rtol=3e-14, atol=1e-14)
    return torch.from_numpy(found.y[:, -1]).reshape(x.shape)


@pytest.mark.parametrize("kind", ["linear", "nonlinear", "time-dependent", "linear, time-dependent"])
@pytest.mark.parametrize("name", FIXED)
def test_measured_order(name: str, kind: str) -> None:
    flow, x = problem(kind)
    exact = reference(flow, x, 1.0)
    order = FIXED[name](0.1).order
    # multistep schemes need more steps until the start by Runge-Kutta no longer shows
    count = 64 if name.startswith("adams") else {1: 32, 2: 20, 4: 12}[order]
    first, second = (
        float((integrate(flow, x, 1.0, FIXED[name](1.0 / n), check=False).state - exact).norm())
        for n in (count, 2 * count)
    )
    assert abs(np.log2(first / second) - order) < 0.2


@pytest.mark.parametrize("kind", ["linear", "nonlinear", "time-dependent"])
@pytest.mark.parametrize("scheme", ADAPTIVE)
def test_adaptive_meets_its_tolerance(scheme: type, kind: str) -> None:
    flow, x = problem(kind)
    exact, errors = reference(flow, x, 1.0), []
    for tolerance in (1e-3, 1e-4, 1e-5) if scheme is HeunEuler else (1e-4, 1e-6, 1e-8):
        solution = integrate(flow, x, 1.0, scheme(rtol=tolerance, atol=tolerance))
        errors.append(float((solution.state - exact).abs().max()))
        assert errors[-1] < 10 * tolerance * float(exact.abs().max() + 1)
    assert errors[0] > errors[1] > errors[2]


@pytest.mark.parametrize("kind", ["linear", "nonlinear", "time-dependent"])
def test_agrees_with_torchdiffeq(kind: str) -> None:
    flow, x = problem(kind)
    times = torch.tensor([0.0, 2.0], dtype=D)

    def f(t: Tensor, y: Tensor) -> Tensor:
        return flow(t.reshape(1, 1), y)

    dopri5 = odeint(f, x, times, rtol=1e-10, atol=1e-12, method="dopri5")[-1]
    ours = integrate(flow, x, 2.0, DormandPrince(rtol=1e-10, atol=1e-12)).state
    torch.testing.assert_close(ours, dopri5, rtol=1e-8, atol=1e-9)
    # torchdiffeq's "rk4" is the 3/8 rule: equal to ours to rounding, and not to the classical scheme
    theirs = odeint(f, x, times, method="rk4", options={"step_size": 0.25})[-1]
    same = integrate(flow, x, 2.0, RK4ThreeEighths(0.25)).state
    torch.testing.assert_close(same, theirs, rtol=1e-13, atol=1e-13)
    classical = integrate(flow, x, 2.0, RK4(0.25)).state
    if kind != "linear":  # on a linear equation all Runge-Kutta schemes of order 4 and 4 stages agree
        assert float((classical - theirs).abs().max()) > 1e-9


RUNGE_KUTTA = (Euler, Midpoint, Heun, RK4, RK4ThreeEighths, *ADAPTIVE, Trapezoid, ESDIRK4)


def order_conditions(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> list[list[float]]:
    """Residuals of the order conditions by rooted trees, one list for each order up to 5."""
    ac, ac2, aac = a @ c, a @ c**2, a @ (a @ c)
    return [
        [b.sum() - 1],
        [b @ c - 1 / 2],
        [b @ c**2 - 1 / 3, b @ ac - 1 / 6],
        [b @ c**3 - 1 / 4, b @ (c * ac) - 1 / 8, b @ ac2 - 1 / 12, b @ aac - 1 / 24],
        [
            b @ c**4 - 1 / 5,
            b @ (c**2 * ac) - 1 / 10,
            b @ (c * ac2) - 1 / 15,
            b @ (c * aac) - 1 / 30,
            b @ ac**2 - 1 / 20,
            b @ (a @ c**3) - 1 / 20,
            b @ (a @ (c * ac)) - 1 / 40,
            b @ (a @ ac2) - 1 / 60,
            b @ (a @ aac) - 1 / 120,
        ],
    ]


@pytest.mark.parametrize("scheme", RUNGE_KUTTA)
def test_order_conditions(scheme: Any) -> None:
    tableau = scheme.tableau
    stages = len(tableau.b)
    a = np.zeros((stages, stages))
    for i, row in enumerate(tableau.a):
        a[i + 1, : len(row) + 1] = (*row, tableau.diagonal)
    b, c = np.array(tableau.b), np.array(tableau.c)

    def order(weights: np.ndarray) -> int:
        met = [max(map(abs, rest)) < 1e-14 for rest in order_conditions(a, weights, c)]
        return met.index(False) if False in met else 5

    assert order(b) == tableau.order
    if tableau.error is not None:
        assert order(b - np.array(tableau.error)) == tableau.order - 1
    assert tableau.first_same_as_last == (scheme not in (*RUNGE_KUTTA[:5], HeunEuler))


def growth(scheme: Any, size: float) -> float:
    """Largest amplification over the disc |z + size| ≤ size, which holds the spectrum of τα(A − I)."""
    z = size * (np.exp(1j * np.linspace(0, 2 * np.pi, 721)) - 1)
    if issubclass(scheme, FixedRungeKutta):
        tableau = scheme.tableau
        stages: list[np.ndarray] = [np.ones_like(z)]
        for row in tableau.a:
            stages.append(1 + z * sum(w * k for w, k in zip(row, stages, strict=False)))
        result = 1 + z * sum(w * k for w, k in zip(tableau.b, stages, strict=True))
        return float(np.abs(result).max())
    if scheme is AdamsMoulton4:
        now, *past = scheme.weights
    else:
        now, past = 0.0, list(scheme.weights)
    largest = 0.0
    for value in z:
        polynomial = np.array([1 - value * now, -1, *[0] * (len(past) - 1)], dtype=complex)
        polynomial[1:] -= value * np.array(past)
        largest = max(largest, float(np.abs(np.roots(polynomial)).max()))
    return largest


@pytest.mark.parametrize(
    "scheme",
    [*RUNGE_KUTTA[:5], AdamsBashforth4, AdamsMoulton4],
)
def test_limit_is_the_edge_of_stability(scheme: Any) -> None:
    limit = scheme(0.1).limit
    assert growth(scheme, limit) <= 1 + 1e-4
    assert growth(scheme, 0.5 * limit) <= 1 + 1e-9
    assert growth(scheme, 1.01 * limit) > 1.001


@pytest.mark.parametrize(
    ("solver", "evaluations"),
    [(Euler(0.25), 8), (Midpoint(0.25), 16), (RK4(0.25), 32), (AdamsBashforth4(0.25), 8 + 9)],
)
def test_statistics_of_fixed_steps(solver: Any, evaluations: int) -> None:
    flow, x = problem("nonlinear")
    stats = integrate(flow, x, 2.0, solver, check=False).stats
    assert (stats.evaluations, stats.accepted, stats.rejected) == (evaluations, 8, 0)
    assert float(stats.last_step) == 0.25
    # fewest equal steps no longer than the step size
    assert float(integrate(flow, x, 0.6, solver, check=False).stats.last_step) == pytest.approx(0.2)


def test_statistics_of_adaptive_steps() -> None:
    flow, x = problem("nonlinear")
    calls, steps = [], []

    def f(t: Tensor, y: Tensor) -> Tensor:
        calls.append(float(t))
        return flow(t, y)

    for scheme, stages in ((DormandPrince, 6), (BogackiShampine, 3)):
        calls.clear()
        stats = integrate(f, x, 2.0, scheme(rtol=1e-5, atol=1e-7)).stats
        assert stats.evaluations == len(calls) == 2 + stages * (stats.accepted + stats.rejected)
        assert 0 < float(stats.last_step) <= 2.0
        assert max(calls) == 2.0
        steps.append(stats.accepted)
    assert steps[1] > steps[0]  # order 3 needs more steps than order 5
    sharp = integrate(lambda t, y: -200 * torch.tanh(50 * (t - 1)) * y, x, 1.2, DormandPrince())
    assert sharp.stats.rejected > 0


def test_statistics_of_implicit_schemes() -> None:
    flow, x = problem("nonlinear")
    moulton = integrate(flow, x, 2.0, AdamsMoulton4(0.25)).stats
    assert moulton.inner_iterations >= 5  # five steps after the start
    assert moulton.evaluations == 3 * 4 + 5 + moulton.inner_iterations
    implicit = integrate(flow, x, 2.0, SemiImplicitEuler(0.5)).stats
    assert implicit.accepted == 4 and implicit.inner_iterations >= 4


@pytest.mark.parametrize("solver", [RK4(0.1), DormandPrince(), AdamsMoulton4(0.1), SemiImplicitEuler(0.1)])
def test_backward_pass_does_not_touch_the_statistics(solver: Any) -> None:
    graph = make_graph("random")
    x = normal(graph.num_nodes, 3).requires_grad_()
    solution = integrate(make_equation().bind(graph, x), x, 1.0, solver, gradient="checkpoint")
    before = (solution.stats.evaluations, solution.stats.inner_iterations)
    solution.state.sum().backward()
    assert (solution.stats.evaluations, solution.stats.inner_iterations) == before


@pytest.mark.parametrize("solver", [RK4(0.1), DormandPrince(1e-7, 1e-8), SemiImplicitEuler(0.125)])
def test_output_times(solver: Any) -> None:
    flow, x = problem("time-dependent")
    solution = integrate(flow, x, 2.0, solver, at=[0.5, 1.25, 2.0])
    assert solution.states is not None and solution.states.shape == (3, *x.shape)
    first_order = isinstance(solver, SemiImplicitEuler)
    loose = {"rtol": 1e-2, "atol": 1e-2} if first_order else {"rtol": 1e-4, "atol": 1e-4}
    for t, state in zip((0.5, 1.25, 2.0), solution.states, strict=True):
        torch.testing.assert_close(state, integrate(flow, x, t, solver).state, **loose)
    assert torch.equal(solution.states[-1], solution.state)
    with_members = integrate(flow, x.expand(2, *x.shape), torch.tensor([1.0, 2.0]), solver, at=[0.5, 0.75])
    assert with_members.states is not None and with_members.states.shape == (2, 2, *x.shape)
    each = torch.tensor([[0.5, 1.0]])
    own = integrate(flow, x.expand(2, *x.shape), torch.tensor([1.0, 2.0]), solver, at=each)
    assert own.states is not None
    torch.testing.assert_close(own.states[0, 1], integrate(flow, x, 1.0, solver).state, **loose)


def test_any_function_and_module_can_be_integrated() -> None:
    x = normal(3, 2)
    rotation = torch.tensor([[0.0, 1.0], [-1.0, 0.0]], dtype=D)
    end = integrate(lambda t, y: y @ rotation, x, np.pi / 2, DormandPrince(1e-10, 1e-12)).state
    torch.testing.assert_close(end, x @ rotation, rtol=1e-8, atol=1e-8)
    layer = torch.nn.Linear(2, 2).to(D)

    class Field(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, t: Tensor, y: Tensor) -> Tensor:
            return self.layer(y)

    torch.testing.assert_close(
        integrate(Field(), x, 1.0, RK4(0.1)).state, integrate(lambda t, y: layer(y), x, 1.0, RK4(0.1)).state
    )


def test_float32_steps_stay_close_to_float64() -> None:
    flow, x = problem("nonlinear")
    exact = integrate(flow, x, 2.0, DormandPrince(1e-10, 1e-12)).state
    equation = make_equation().float().requires_grad_(False)
    single = integrate(equation.bind(flow.graph, x.float()), x.float(), 2.0, DormandPrince(1e-5, 1e-6))
    assert single.state.dtype == torch.float32
    torch.testing.assert_close(single.state.double(), exact, rtol=1e-4, atol=1e-4)
