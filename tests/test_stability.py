"""Theorems 1 and 2, the bound of equation (3), mass, and equivariance, as properties."""

from __future__ import annotations

import math
import warnings
from typing import Any

import pytest
import torch
from conftest import D, graphs, make_diffusivity, make_equation, make_graph, normal, seeds
from hypothesis import given, settings
from hypothesis import strategies as st

from graphdiffusion.diffusivity import ConstantLaplacian
from graphdiffusion.equation import Diffusion
from graphdiffusion.errors import NonFiniteError, NotConverged, StabilityWarning
from graphdiffusion.graph import Graph
from graphdiffusion.solvers import (
    RK4,
    AdamsBashforth4,
    AdamsMoulton4,
    DormandPrince,
    Euler,
    Exponential,
    Heun,
    Midpoint,
    RK4ThreeEighths,
    SemiImplicitEuler,
    integrate,
)

EXPLICIT = (Euler, Midpoint, Heun, RK4, RK4ThreeEighths)


def bounded(state: torch.Tensor, x: torch.Tensor, slack: float = 1e-11) -> bool:
    """Equation (3): channel by channel between the smallest and the largest initial entry."""
    return bool((state <= x.amax(-2) + slack).all() and (state >= x.amin(-2) - slack).all())


@given(graphs(), seeds, st.floats(0.05, 0.999))
def test_theorem_1_stable_below_the_bound(graph: Graph, seed: int, step: float) -> None:
    """Below τ = 1 Euler's step is a stochastic matrix: the bound holds for any number of steps."""
    x = normal(graph.num_nodes, 3, seed=seed)
    for linear in (True, False):
        flow = make_equation(linear=linear, source=False, alpha=1.0, seed=seed).bind(graph, x)
        for scheme in (Euler, Heun):  # Heun is a mean of Euler steps, so it keeps the bound as well
            with warnings.catch_warnings():
                warnings.simplefilter("error", StabilityWarning)
                assert bounded(integrate(flow, x, 30 * step, scheme(step)).state, x)


@given(graphs(), seeds, st.floats(0.05, 0.999))
def test_linear_explicit_schemes_keep_the_bound(graph: Graph, seed: int, step: float) -> None:
    x = normal(graph.num_nodes, 3, seed=seed)
    flow = make_equation(linear=True, source=False, alpha=1.0, seed=seed).bind(graph, x)
    for scheme in EXPLICIT:
        assert bounded(integrate(flow, x, 20 * step, scheme(step)).state, x)


def two_nodes(alpha: float = 1.0) -> tuple[Any, torch.Tensor]:
    """0 ↔ 1 without loops: the eigenvalue −2 of A − I, the most that a stochastic matrix can have."""
    graph = Graph.from_edge_index(torch.tensor([[0, 1], [1, 0]]))
    x = torch.tensor([[1.0], [-1.0]], dtype=D)
    return Diffusion(ConstantLaplacian(over="rows"), linear=True, alpha=alpha).to(D).bind(graph, x), x


@pytest.mark.parametrize("scheme", [*EXPLICIT, AdamsBashforth4])
def test_theorem_1_unstable_above(scheme: type) -> None:
    flow, x = two_nodes()
    limit = scheme(1.0).limit
    over, under = 1.2 * limit, 0.9 * limit
    with pytest.warns(StabilityWarning, match="[Tt]heorem 1"):
        wild = integrate(flow, x, 200 * over, scheme(over)).state
    assert float(wild.abs().max()) > 10
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StabilityWarning)  # theorem 1 guarantees τ < 1; RK4 reaches further
        tame = integrate(flow, x, 200 * under, scheme(under)).state
    assert float(tame.abs().max()) < 1


@pytest.mark.parametrize(("step", "alpha"), [(1.0, 1.0), (2.5, 1.0), (0.5, 2.0)])
def test_warning_names_step_and_bound(step: float, alpha: float) -> None:
    flow, x = two_nodes(alpha)
    with pytest.warns(
        StabilityWarning, match=rf"τ = {step:g} .*α = {alpha:g} .*Theorem 1.*τα < 1"
    ) as caught:
        integrate(flow, x, 2 * step, Euler(step))
    assert caught[0].filename == __file__  # points at the caller
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        integrate(flow, x, 2 * step, Euler(step), check=False)
        integrate(flow, x, 2.0, Euler(0.45))
        integrate(flow, x, 2 * step, SemiImplicitEuler(step))
        integrate(flow, x, 2 * step, DormandPrince())


def test_overflow_is_reported() -> None:
    flow, x = two_nodes()
    with pytest.warns(StabilityWarning), pytest.raises(NonFiniteError, match="theorem 1"):
        integrate(flow, x, 5000.0, Euler(5.0))


@settings(max_examples=15)
@given(graphs(), seeds, st.sampled_from([0.1, 1.0, 10.0, 100.0, 1000.0]))
def test_theorem_2_semi_implicit_keeps_the_bound(graph: Graph, seed: int, step: float) -> None:
    x = normal(graph.num_nodes, 3, seed=seed)
    for linear in (True, False):
        flow = make_equation(linear=linear, source=False, alpha=1.0, seed=seed).bind(graph, x)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert bounded(integrate(flow, x, 4 * step, SemiImplicitEuler(step)).state, x, 1e-8)


@pytest.mark.parametrize("step", [1.0, 30.0, 1000.0])
def test_semi_implicit_solves_equation_8(graph: Graph, step: float) -> None:
    x = normal(graph.num_nodes, 3)
    flow = make_equation(linear=True, source=True).bind(graph, x)
    assert flow.context.attention is not None
    a, alpha = graph.dense(flow.context.attention), flow.equation.alpha()
    eye = torch.eye(graph.num_nodes, dtype=D)
    want = torch.linalg.solve(eye - step * alpha * (a - eye), x + step * flow.stiff(None, x).rest)
    got = integrate(flow, x, step, SemiImplicitEuler(step)).state
    torch.testing.assert_close(got, want, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("step", [1.0, 1000.0])
def test_semi_implicit_in_float32(graph: Graph, step: float) -> None:
    x = normal(graph.num_nodes, 3, dtype=torch.float32)
    flow = make_equation(linear=True, source=False).float().bind(graph, x)
    assert bounded(integrate(flow, x, 3 * step, SemiImplicitEuler(step)).state, x, 1e-3)


@given(graphs(), seeds)
def test_adaptive_and_multistep_keep_the_bound_to_their_tolerance(graph: Graph, seed: int) -> None:
    x = normal(graph.num_nodes, 3, seed=seed)
    for linear in (True, False):
        flow = make_equation(linear=linear, source=False, alpha=1.0, seed=seed).bind(graph, x)
        assert bounded(integrate(flow, x, 5.0, DormandPrince(1e-6, 1e-7)).state, x, 1e-4)
        assert bounded(integrate(flow, x, 3.0, AdamsMoulton4(0.25)).state, x, 1e-2)


@given(graphs(), seeds)
def test_columns_keep_the_mass(graph: Graph, seed: int) -> None:
    """Left-stochastic attention: every scheme conserves the sum over nodes, linear or not."""
    x = normal(graph.num_nodes, 3, seed=seed)
    for linear in (True, False):
        equation = make_equation(linear=linear, source=False, alpha=1.0, seed=seed, over="columns")
        flow = equation.bind(graph, x)
        solvers = [Euler(0.5), RK4(0.5), SemiImplicitEuler(3.0), DormandPrince(), AdamsMoulton4(0.25)]
        for solver in [*solvers, Exponential()] if linear else solvers:
            total = integrate(flow, x, 3.0, solver).state.sum(0)
            torch.testing.assert_close(total, x.sum(0), rtol=1e-9, atol=1e-9)


@settings(max_examples=15)
@given(graphs(), seeds, st.sampled_from(["rows", "columns"]))
def test_equivariant_under_permutation(graph: Graph, seed: int, over: str) -> None:
    """Renaming the nodes renames the solution, for whole integrations."""
    order = torch.randperm(graph.num_nodes, generator=torch.Generator().manual_seed(seed))
    place = torch.argsort(order)
    moved = Graph.from_edge_index(place[graph.edge_index], graph.num_nodes, graph.weight)
    x = normal(graph.num_nodes, 3, seed=seed)
    for linear in (True, False):
        equation = make_equation(linear=linear, seed=seed, over=over, reweight=True)
        solvers = [RK4(0.5), SemiImplicitEuler(1.0), DormandPrince()]
        for solver in [*solvers, Exponential()] if linear else solvers:
            here = integrate(equation.bind(graph, x), x, 2.0, solver).state
            there = integrate(equation.bind(moved, x[order]), x[order], 2.0, solver).state
            torch.testing.assert_close(there, here[order], rtol=1e-8, atol=1e-9)


def test_long_times_reach_the_stationary_state() -> None:
    graph = make_graph("random")
    x = normal(graph.num_nodes, 2)
    flow = Diffusion(ConstantLaplacian(over="rows"), linear=True).to(D).bind(graph, x)
    assert flow.context.attention is not None
    values, vectors = torch.linalg.eig(graph.dense(flow.context.attention).mT)
    stationary = vectors[:, values.real.argmax()].real
    want = (stationary / stationary.sum()) @ x
    for solver in (Exponential(max_evaluations=200_000), SemiImplicitEuler(1000.0)):
        state = integrate(flow, x, 1e5, solver).state
        torch.testing.assert_close(state, want.expand_as(x), rtol=1e-6, atol=1e-6)
    assert math.isfinite(float(state.sum()))


@pytest.mark.parametrize("over", ["rows", "columns"])
@pytest.mark.parametrize("size", [1.0, 1e2, 1e4, 1e6, 1e8])
def test_semi_implicit_step_in_float32(size: float, over: Any) -> None:
    """Against a dense float64 solve: float32 loses no more than its own rounding, however large τα is."""
    graph = make_graph("random")
    single = make_diffusivity("dot/sqrt", over=over).float()
    x = normal(graph.num_nodes, 3) + 2
    state = integrate(
        Diffusion(single, linear=True).bind(graph, x.float()), x.float(), size, SemiImplicitEuler(size)
    ).state
    a = graph.dense(make_diffusivity("dot/sqrt", over=over)(graph, x).detach())
    eye = torch.eye(graph.num_nodes, dtype=D)
    exact = torch.linalg.solve(eye - size * (a - eye), x)
    assert float((state.detach() - exact).abs().max()) < 3e-6 * float(exact.abs().max())


def test_semi_implicit_step_beyond_rounding() -> None:
    graph = make_graph("random")
    x = normal(graph.num_nodes, 3)
    flow = Diffusion(make_diffusivity("dot/sqrt"), linear=True).bind(graph, x)
    with pytest.raises(NotConverged, match=r"τα = 1e\+12 is too large"):
        integrate(flow, x, 1e12, SemiImplicitEuler(1e12))


def test_semi_implicit_system_that_is_too_hard() -> None:
    """A long path and a long step: no result is better than one with no digit right."""
    path = torch.stack([torch.arange(999), torch.arange(1, 1000)])
    graph = Graph.from_edge_index(torch.cat([path, path.flip(0)], 1), self_loops=1.0)
    x = normal(graph.num_nodes, 1)
    flow = Diffusion(ConstantLaplacian(over="rows"), linear=True).to(D).bind(graph, x)
    with pytest.raises(NotConverged, match=r"in 100 iterations at τα = 10000 .*smaller step"):
        integrate(flow, x, 1e4, SemiImplicitEuler(1e4, max_iterations=100))
