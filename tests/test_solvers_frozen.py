"""Exponential schemes: a frozen equation in closed form, orders, the bound of equation (3), refusals."""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import D, make_diffusivity, make_equation, make_graph, normal, scatter_parameters
from reads import Unread
from scipy.linalg import expm
from scipy.stats import poisson
from test_cli_basics import SMALL, write_graph
from test_solvers_order import problem, reference
from torch import Tensor, func, nn

from graphdiffusion import GRAND, GraphDiffusion
from graphdiffusion.cli import main
from graphdiffusion.equation import Coefficient, Diffusion, Flow, Source, Term
from graphdiffusion.errors import ArgumentError, NonFiniteError, SolverError
from graphdiffusion.solvers import (
    RK4,
    ExponentialCF4,
    ExponentialCF42,
    ExponentialEuler,
    ExponentialMidpoint,
    ExponentialMidpointEuler,
    ExponentialTwoStep,
    Stats,
    integrate,
)
from graphdiffusion.solvers.frozen import Cut, Frozen, mixed

GRAPH = make_graph("random")
FIXED: tuple[Any, ...] = (ExponentialEuler, ExponentialMidpoint, ExponentialTwoStep, ExponentialCF4)
WEIGHTS = (1 / 4, 1 / 6, 1 / 6, -1 / 12)


class AllenCahn(Term):
    """A reaction, c(x − x³)."""

    members = True

    def __init__(self) -> None:
        super().__init__()
        self.c = Coefficient(0.2)

    def forward(self, context: Any) -> tuple[Tensor, Tensor]:
        return self.c(), context.x - context.x**3


def strong(**how: Any) -> Diffusion:
    """Attention that follows the state closely."""
    equation = make_equation(**how)
    with torch.no_grad():
        for p in equation.diffusivity.parameters():
            p.mul_(2.5)
    return equation


def flow_of(kind: str) -> tuple[Flow, Tensor]:
    if kind in ("nonlinear", "time-dependent", "linear, time-dependent"):
        return problem(kind)
    x = normal(9, 3)
    if kind == "strong":
        equation = strong()
    elif kind == "reaction":
        equation = Diffusion(make_diffusivity("dot/sqrt"), alpha=0.8, terms=[AllenCahn(), Source(0.3)])
    else:  # an α(t) for each channel: every channel has a matrix of its own
        alpha = scatter_parameters(Coefficient(0.8, channels=3, terms=3, horizon=2.0), scale=0.2)
        equation = Diffusion(make_diffusivity("dot/sqrt"), alpha=alpha, terms=[Source(0.3)])
    return equation.to(D).requires_grad_(False).bind(GRAPH, x), x


KINDS = ("nonlinear", "strong", "time-dependent", "linear, time-dependent", "reaction", "channels")


@pytest.mark.parametrize("kind", KINDS)
def test_measured_order(kind: str) -> None:
    flow, x = flow_of(kind)
    exact = reference(flow, x, 1.0)
    for scheme, count in zip(FIXED, (32, 16, 32, 12), strict=True):
        first, second = (
            float((integrate(flow, x, 1.0, scheme(1.0 / n)).state - exact).norm())
            for n in (count, 2 * count)
        )
        assert abs(math.log2(first / second) - scheme.order) < 0.2, scheme


@pytest.mark.parametrize("kind", KINDS)
def test_adaptive_steps_meet_their_tolerance(kind: str) -> None:
    flow, x = flow_of(kind)
    exact = reference(flow, x, 1.0)
    for scheme, sharp in ((ExponentialMidpointEuler, (1e-2, 1e-3, 1e-4)), (ExponentialCF42, (1e-3, 1e-6))):
        errors = []
        for tolerance in sharp:
            found = integrate(flow, x, 1.0, scheme(tolerance, tolerance)).state
            errors.append(float((found - exact).abs().max()))
            assert errors[-1] < 10 * tolerance * float(exact.abs().max() + 1)
        assert errors == sorted(errors, reverse=True)


@pytest.mark.parametrize("scheme", [*FIXED, ExponentialMidpointEuler, ExponentialCF42])
def test_the_linear_model_is_exact_in_one_step(scheme: Any) -> None:
    flow, x = problem("linear")
    solver = scheme(3.0) if scheme in FIXED else scheme()
    at = [0.4, 1.5, 2.9]
    found, exact = (integrate(flow, x, 3.0, own, at=at) for own in (solver, None))
    torch.testing.assert_close(found.state, exact.state, rtol=1e-10, atol=1e-11)
    torch.testing.assert_close(found.states, exact.states, rtol=1e-10, atol=1e-11)  # between, too
    assert scheme not in FIXED or found.stats.accepted == 1


@pytest.mark.parametrize("source", [False, True])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("weights", [(1.0,), (1.0, -0.5), WEIGHTS])
def test_a_frozen_equation_is_solved(weights: tuple[float, ...], channels: int, source: bool) -> None:
    """Against the dense exponential of the affine map, for rates that differ from matrix to matrix."""
    h, x, count = torch.tensor([[1.7]], dtype=D), normal(9, 3), len(weights)
    matrices = [
        make_diffusivity("dot/sqrt", seed=k)(GRAPH, normal(9, 3, seed=k)).detach() for k in range(count)
    ]
    rates = [0.2 + normal(1, channels, seed=k).abs() for k in range(count)]
    sources = [normal(9, 3, seed=20 + k) if source else None for k in range(count)]
    parts = [Frozen(GRAPH, (a,), (), c, c, g) for a, c, g in zip(matrices, rates, sources, strict=True)]
    frozen = parts[0] if count == 1 else mixed(weights, parts)
    cut = Cut(float(h * max(c.max() for c in rates)), 1e-14)
    stats = Stats()
    found = frozen.solve(h, x, cut, stats)
    halfway = frozen.curve(h, x, found, cut)(torch.tensor([[0.5]], dtype=D))
    for channel in range(3):
        total = np.zeros((10, 10))
        for w, values, c, g in zip(weights, matrices, rates, sources, strict=True):
            total[:9, :9] += (
                w * float(c[0, channel % channels]) * (GRAPH.dense(values) - torch.eye(9, dtype=D)).numpy()
            )
            total[:9, 9] += 0 if g is None else w * g[:, channel].numpy()
        start = np.append(x[:, channel].numpy(), 1.0)
        np.testing.assert_allclose(
            found[:, channel], (expm(1.7 * total) @ start)[:9], rtol=1e-11, atol=1e-11
        )
        np.testing.assert_allclose(
            halfway[:, channel], (expm(0.85 * total) @ start)[:9], rtol=1e-11, atol=1e-11
        )
    assert stats.inner_iterations == cut.terms(sum(map(abs, weights)))


def outside(states: Tensor, x: Tensor) -> float:
    """How far states lie beyond the range of x in their channel."""
    low, high = x.amin(-2, keepdim=True), x.amax(-2, keepdim=True)
    return float(torch.maximum(low - states, states - high).max())


@pytest.mark.parametrize("dtype", [torch.float32, D])
@pytest.mark.parametrize("size", [0.3, 5.0, 500.0])
def test_no_step_leaves_the_range_of_the_start(size: float, dtype: torch.dtype) -> None:
    """Equation (3), for steps of every size, and without a warning."""
    equation = strong(source=False, alpha=1.0).to(dtype).requires_grad_(False)
    x = normal(9, 3, dtype=dtype)
    flow, rounding = equation.bind(GRAPH, x), 40 * torch.finfo(dtype).eps
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for solver in (
            ExponentialEuler(size),
            ExponentialMidpoint(size),
            ExponentialTwoStep(size),
            ExponentialMidpointEuler(0.1, 0.1),
        ):
            found = integrate(flow, x, 1.5 * size, solver, at=[0.3 * size, 1.1 * size])
            assert found.states is not None
            assert outside(found.states, x) < rounding and outside(found.state, x) < rounding, solver


def test_cf4_may_leave_the_range_but_keeps_constants() -> None:
    """Its negative weights: where A changes much, a step is no convex combination."""
    beyond = []
    for seed in range(4):
        x = 3 * normal(9, 3, seed=seed)
        flow = strong(source=False, alpha=1.0, seed=seed).requires_grad_(False).bind(GRAPH, x)
        beyond.append(outside(integrate(flow, x, 3.0, ExponentialCF4(3.0)).state, x))
        assert outside(integrate(flow, x, 3.0, ExponentialMidpoint(3.0)).state, x) < 1e-13
        ones = torch.ones_like(x)
        kept = integrate(flow, ones, 3.0, ExponentialCF4(3.0)).state
        torch.testing.assert_close(kept, ones, rtol=0, atol=1e-10)
    assert max(beyond) > 1e-2


@pytest.mark.parametrize("scheme", FIXED)
def test_statistics(scheme: Any) -> None:
    """Evaluations are those of the attention; a series has the fewest products for its tolerance."""
    flow, x = problem("nonlinear")
    alpha, calls = float(flow.rate), []
    own = flow.equation.diffusivity.forward
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flow.equation.diffusivity, "forward", lambda *a: calls.append(1) or own(*a))
        stats = integrate(flow, x, 2.0, scheme(0.5, tolerance=1e-4)).stats
    start = scheme is ExponentialTwoStep  # the first midpoint has no step before it
    assert stats.evaluations == len(calls) == 4 * scheme.evaluations + start and stats.accepted == 4

    def products(rate: float) -> int:
        enough = (k for k in range(100) if poisson.sf(k, rate) <= 1e-4 and poisson.pmf(k, rate) <= 1e-3)
        return next(enough)

    taken = 4 * sum(products(s * 0.5 * alpha) for s in scheme.series)
    if start:  # and the last step predicts none
        taken += products(0.25 * alpha) - products(0.75 * alpha) + products(0.5 * alpha)
    assert stats.inner_iterations == taken
    assert scheme(0.5, tolerance=1e-4).products(2.0) == 4 * sum(products(s * 0.5) for s in scheme.series)


@pytest.mark.parametrize("scheme", [*FIXED, ExponentialMidpointEuler, ExponentialCF42])
def test_a_source_that_is_detached(scheme: Any) -> None:
    """The gradient is that of the equation's own definition."""
    grads = []
    for solver in (scheme(0.05) if scheme in FIXED else scheme(1e-4, 1e-5), RK4(0.02)):
        equation = make_equation()
        equation.terms[0].detach_source = True
        x = normal(9, 3).requires_grad_()
        state = integrate(equation.bind(GRAPH, x), x, 1.0, solver).state
        leaves = [x, equation.terms[0].beta.raw, equation.alpha.raw]
        grads.append(torch.autograd.grad((state * normal(9, 3, seed=4)).sum(), leaves))
    loose = 3e-2 if scheme is ExponentialEuler else 1e-3
    for found, exact in zip(*grads, strict=True):
        torch.testing.assert_close(found, exact, rtol=loose, atol=loose * float(exact.abs().max()))


@pytest.mark.parametrize("scheme", FIXED)
@pytest.mark.parametrize("source", [False, True])
def test_a_rate_of_zero_has_a_gradient(scheme: Any, source: bool) -> None:
    equation = make_equation(alpha=Coefficient(0.0), source=source)
    x = normal(9, 3)
    slopes = []
    for solver in (scheme(0.5), RK4(0.5)):
        state = integrate(equation.bind(GRAPH, x), x, 1.0, solver).state
        slopes += torch.autograd.grad((state * normal(9, 3, seed=4)).sum(), equation.alpha.raw)
    # the source moves the state: an error of the first order is left in A
    torch.testing.assert_close(*slopes, rtol=2e-2 if source else 1e-12, atol=0)


def test_members_with_coefficients_and_times_of_their_own() -> None:
    times = torch.tensor([0.7, 2.3, 1.1], dtype=D)
    x = normal(3, 9, 3)
    model = make_equation().requires_grad_(False)
    model.alpha.raw = nn.Parameter(torch.tensor([0.2, 0.9, 1.6], dtype=D)[:, None, None, None])
    model.terms[0].beta.raw = nn.Parameter(torch.tensor([0.5, 0.0, -0.3], dtype=D)[:, None, None, None])
    for solver in (*(scheme(0.8) for scheme in FIXED), ExponentialMidpointEuler(), ExponentialCF42()):
        together = integrate(model.bind(GRAPH, x), x, times, solver)
        for k in range(3):
            alone = make_equation().requires_grad_(False)
            alone.alpha.raw, alone.terms[0].beta.raw = (
                nn.Parameter(c.raw[k].detach()) for c in (model.alpha, model.terms[0].beta)
            )
            found = integrate(alone.bind(GRAPH, x[k]), x[k], times[k], solver)
            torch.testing.assert_close(together.state[k], found.state, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("scheme", [*FIXED, RK4])
@pytest.mark.parametrize("learn", [False, True])
@pytest.mark.parametrize("source", [False, True])
def test_members_with_times_of_their_own_bit_for_bit(scheme: Any, learn: bool, source: bool) -> None:
    """float32, a width that 8 divides: alone, among members that go on, and with room for more steps."""
    diffusivity, terms = make_diffusivity("dot/sqrt", channels=8), [Source(0.3, detach_source=False)]
    model = Diffusion(diffusivity, alpha=Coefficient(0.7), terms=terms if source else []).float()
    fields, ends = normal(3, 9, 8, dtype=torch.float32), torch.tensor([0.7, 1.9, 3.1])

    def run(members: list[int], solver: Any) -> list[Tensor]:
        x, time = (t[members].clone().requires_grad_(learn) for t in (fields, ends))
        with torch.set_grad_enabled(learn):
            state = integrate(model.bind(GRAPH, x), x, time, solver).state
        return [state, *(torch.autograd.grad(state.square().sum(), [x, time]) if learn else ())]

    together = run([0, 1, 2], scheme(0.5))
    for k in range(3):
        for alone in (run([k], scheme(0.5)), run([k], scheme(0.5, max_steps=9))):
            for one, found in zip(alone, together, strict=True):
                assert torch.equal(one[0], found[k])


def test_float32_stays_close_to_float64() -> None:
    flow, x = problem("nonlinear")
    exact = integrate(flow, x, 2.0, ExponentialCF4(0.1)).state
    equation = make_equation().float().requires_grad_(False)
    for solver in (ExponentialMidpoint(0.05), ExponentialCF4(0.25), ExponentialCF42()):
        found = integrate(equation.bind(GRAPH, x.float()), x.float(), 2.0, solver).state
        assert found.dtype == torch.float32
        torch.testing.assert_close(found.double(), exact, rtol=2e-4, atol=2e-4)


def test_refusals(tmp_path: Path) -> None:
    x = normal(9, 3)
    flow = make_equation(normaliser="signed").bind(GRAPH, x)
    for scheme in (*FIXED, ExponentialMidpointEuler, ExponentialCF42):
        for field, name in ((flow, "Diffusion"), (lambda t, y: -y, "function")):
            with pytest.raises(ArgumentError, match=f"stochastic matrix, apart from .* got {name}"):
                integrate(field, x, 1.0, scheme())
        with pytest.raises(SolverError, match=r"need α ≥ 0, got -0\.5"):
            integrate(make_equation(alpha=-0.5).bind(GRAPH, x), x, 1.0, scheme())
        with pytest.raises(ArgumentError, match=r"tolerance must lie between 0 and 1, got 2\.0"):
            scheme(tolerance=2.0)
    # a polynomial that is positive only at first
    sinking = Coefficient(0.1, terms=2, horizon=1.0)
    with torch.no_grad():
        sinking.raw[1] = -0.5
    with pytest.raises(NonFiniteError):
        integrate(make_equation(alpha=sinking).bind(GRAPH, x), x, 1.0, ExponentialMidpoint(0.1))


@pytest.mark.parametrize("fastest", [0.6, 1.0, 3.0])
def test_a_capacity_follows_the_rate(fastest: float) -> None:
    """The series have room for the fastest member, and not for one that is much faster."""
    solver, times = ExponentialMidpoint(0.5), torch.tensor([1.0, 2.2], dtype=D)
    room, x = solver.capacity(times, torch.tensor([0.3, fastest], dtype=D)), normal(2, 9, 3)
    assert room == (5, math.ceil(8 * 0.44 * fastest))
    model = make_equation().requires_grad_(False)
    for alpha, good in ((fastest, True), (fastest + 2.5, False)):
        model.alpha.raw = nn.Parameter(torch.tensor([0.3, alpha], dtype=D)[:, None, None, None])
        found = integrate(model.bind(GRAPH, x), x, times, solver.with_capacity(room), check=False).state
        exact = integrate(model.bind(GRAPH, x), x, times, solver).state
        torch.testing.assert_close(found[0], exact[0], rtol=1e-11, atol=1e-11)
        if good:
            torch.testing.assert_close(found[1], exact[1], rtol=1e-11, atol=1e-11)
        else:
            assert bool(found[1].isnan().all())
    # steps given by hand: room for α ≤ 1
    model.alpha.raw = nn.Parameter(torch.tensor([0.3, 1.0], dtype=D)[:, None, None, None])
    given = ExponentialMidpoint(0.5, max_steps=5)
    found = integrate(model.bind(GRAPH, x), x, times, given, check=False).state
    torch.testing.assert_close(found, integrate(model.bind(GRAPH, x), x, times, solver).state)


@pytest.mark.parametrize("scheme", FIXED)
def test_nothing_is_read_where_a_capacity_is_given(scheme: Any) -> None:
    x, times = normal(2, 9, 3), torch.tensor([1.0, 2.2], dtype=D)
    solver = scheme(0.5)
    model = make_equation().requires_grad_(False)
    with Unread():
        integrate(
            model.bind(GRAPH, x), x, times, solver.with_capacity((5, 4)), at=times[None] / 2, check=False
        )
        with pytest.raises(AssertionError):
            integrate(model.bind(GRAPH, x), x, times, solver, check=False)


@pytest.mark.parametrize("solver", ["exponential-euler", "exponential-midpoint", "exponential-two-step"])
def test_the_layer_under_transforms(solver: str) -> None:
    layer = GraphDiffusion(
        3, 2.0, variant="nonlinear", solver=solver, step_size=0.7, heads=1, attention_dim=4, start=0.3
    ).double()
    assert layer.warnings() == []
    both = normal(2, 9, 3)
    apart = torch.stack([layer(x, GRAPH) for x in both])
    torch.testing.assert_close(func.vmap(lambda v: layer(v, GRAPH))(both), apart)
    along, small = normal(9, 3, seed=5), 1e-5
    _, slope = func.jvp(lambda v: layer(v, GRAPH), (both[0],), (along,))
    ends = [layer(both[0] + sign * small * along, GRAPH) for sign in (1, -1)]
    torch.testing.assert_close(slope, (ends[0] - ends[1]) / (2 * small), rtol=1e-6, atol=1e-8)
    model = GRAND(4, 2, hidden=4, variant="nonlinear", solver=solver, heads=1, attention_dim=4)
    assert model.capturable and model.learns_capacity()


def test_from_the_command_line(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    write_graph(Path("toy"))
    how = ["--variant", "nonlinear", "--solver", "exponential-midpoint", "--step-size", "1.5"]
    assert main(["train", "toy", *SMALL, *how, "--splits", "1", "--out", "run"]) == 0
