"""What docs/equations.md says about growth: each statement holds, and the bounds of growth are reached."""

from __future__ import annotations

import math
from typing import Any, Literal

import pytest
import torch
from conftest import D, both_ways, graphs, make_diffusivity, make_graph, normal, scatter_parameters, seeds
from hypothesis import given, settings
from torch import Tensor

from graphdiffusion.diffusivity import ConstantLaplacian
from graphdiffusion.equation import (
    ACMP,
    ADC,
    AllenCahn,
    Blend,
    BlurringSharpening,
    Convection,
    Diffusion,
    Fisher,
    LabelledSource,
    Repulsion,
    Term,
    Zeldovich,
)
from graphdiffusion.graph import Graph
from graphdiffusion.solvers import DormandPrince, Strang, integrate

CLOSE = DormandPrince(1e-7, 1e-9)
Over = Literal["rows", "columns", "symmetric"]
AT = [0.5, 1.0, 2.0]


def along(model: Diffusion, graph: Graph, x: Tensor) -> list[tuple[float, Tensor]]:
    flow = model.bind(graph, x)
    states = integrate(flow, model.initial(x, flow.context), AT[-1], CLOSE, at=AT).states
    assert states is not None
    return list(zip(AT, states.detach(), strict=True))


def constant(*terms: Term, alpha: float = 0.5, over: Over = "rows") -> Diffusion:
    return Diffusion(ConstantLaplacian(over=over), linear=True, alpha=alpha, terms=terms).to(D)


def gathered(model: Diffusion, graph: Graph, x: Tensor) -> float:
    """α(ρ − 1), with the largest row sum ρ of A."""
    sums = graph.dense(model.bind(graph, x).context.attention).sum(1)  # type: ignore[arg-type]
    return 0.5 * (float(sums.max()) - 1)


def test_fisher() -> None:
    """At most β a unit of time with saturation; without it infinite at the time that the solution says."""
    graph, x = make_graph("directed"), 3 * normal(9, 3)
    model = constant(Fisher(reaction=0.9))
    for t, state in along(model, graph, x):
        assert float(state.min()) >= float(x.min()) - 0.9 * t - 1e-6
        assert float(state.max()) <= max(1.0, float(x.max())) + 1e-6
    alone, start = Graph.from_edge_index(torch.zeros(2, 0, dtype=torch.long), 1), -torch.ones(1, 1, dtype=D)
    flow = constant(Fisher(reaction=0.5, saturate=False)).bind(alone, start)
    end = math.log(2) / 0.5  # of x' = β(x − x²) from −1
    assert float(integrate(flow, start, 0.98 * end, CLOSE).state.detach()) < -20
    late = integrate(flow, start, 1.02 * end, DormandPrince(1e-7, 1e-9, max_evaluations=2000), check=False)
    assert not bool(torch.isfinite(late.state).all())


@pytest.mark.parametrize(("beta", "shift"), [(0.5, 1), (1 / 6, -1), (0.9, 1), (0.3, -1)])
def test_sharpening(beta: float, shift: int) -> None:
    """On a cycle, whose modes are orthogonal: one with both directions has real eigenvalues."""
    n = 24
    forth = torch.stack([torch.arange(n), (torch.arange(n) + 1) % n])
    graph = Graph.from_edge_index(torch.cat([forth, forth.flip(0)], 1) if shift > 0 else forth)
    model = constant(BlurringSharpening(reaction=beta))
    grows = beta > (0.5 if shift > 0 else 0.5 / 3) + 1e-9
    x = normal(n, 3)
    found = {t: float(state.norm(dim=0).max()) for t, state in along(model, graph, x)}
    speeds = []
    for k in range(n):
        wave = torch.cos(2 * math.pi * k * torch.arange(n, dtype=D) / n)[:, None]
        state = integrate(model.bind(graph, wave), wave, 2.0).state.detach()
        speeds.append(math.log(float(state.norm() / wave.norm())) / 2)
    assert (max(speeds) > 1e-3) is grows
    most = (beta - 0.5) ** 2 / (4 * beta) if grows else 0.0
    if shift > 0:
        assert max(speeds) <= most + 1e-6 and (not grows or max(speeds) > 0.8 * most)
        for t, size in found.items():
            assert size <= float(x.norm(dim=0).max()) * math.exp(t * most) + 1e-6


@pytest.mark.parametrize("over", ["rows", "symmetric"])
def test_sums_of_sharpened_features_may_grow_for_a_while(over: Over) -> None:
    """For β = α on a path: the largest value, over rows, by a fifth; the Euclidean norm, symmetric, not."""
    graph, x = make_graph("path"), torch.eye(8, dtype=D)
    flow = constant(BlurringSharpening(reaction=0.5), over=over).bind(graph, x)
    found = [integrate(flow, x, t).state.detach() for t in (0.3, 1.0, 3.0, 10.0)]
    if over == "rows":
        assert 1.15 < max(float(matrix.abs().sum(1).max()) for matrix in found) < 1.25
    else:
        assert all(float(torch.linalg.matrix_norm(matrix, 2)) <= 1 + 1e-9 for matrix in found)


@pytest.mark.parametrize("saturate", [True, False])
@pytest.mark.parametrize("reaction", [AllenCahn, Zeldovich])
def test_reactions_stay_in_the_interval_of_well_and_start(reaction: type, saturate: bool) -> None:
    """Longer than either: without edges one feature comes to the well, outside the range at the start."""
    x = torch.tensor([[-2.0], [0.5]], dtype=D)
    graph = Graph.from_edge_index(torch.zeros(2, 0, dtype=torch.long), 2)
    found = along(constant(reaction(reaction=0.9, saturate=saturate)), graph, x)
    assert all(-2 - 1e-6 <= float(v) <= 1 + 1e-6 for _, state in found for v in state)
    assert float(found[-1][1].max()) > 0.6


def test_the_labelled_source_needs_a_connected_graph() -> None:
    """The mass of a component grows at a constant rate where its sources do not add up to 0."""
    graph = Graph.from_edge_index(both_ways([(0, 1), (2, 3)]), 4, self_loops=1.0)
    x, seen = torch.tensor([[1.0], [0.0], [-1.0], [0.0]], dtype=D), torch.zeros(4, 2, dtype=D)
    seen[0, 0] = seen[2, 1] = 1
    flow = constant(LabelledSource(labelled=0.5), over="columns").bind(graph, x, observed=seen)
    for t in (10.0, 100.0):
        state = integrate(flow, x, t).state.detach()
        torch.testing.assert_close(state[:2].sum(), torch.tensor(1 + 0.5 * t, dtype=D))
        assert abs(float(state.sum())) < 1e-8


@settings(max_examples=6)
@given(graphs(), seeds)
def test_growth_of_convection_and_repulsion(graph: Graph, seed: int) -> None:
    x = normal(graph.num_nodes, 3, seed=seed)
    weights = torch.ones(graph.num_edges, dtype=D) if graph.weight is None else graph.weight.to(D)
    degree = float(graph.dense(weights).sum(1).max())
    for over in ("rows", "columns"):
        for speed, term in (
            (1, Convection(3, convection=0.5)),
            (degree, Convection(3, convection=0.5, flux="sum")),
            (2, Repulsion(repulsion=0.5)),
            (2 * degree, Repulsion(repulsion=0.5, repel="sum")),
        ):
            if isinstance(term, Convection):
                term.weight.data = 3 * normal(3, 3, seed=seed)
            model = constant(term, over=over)
            more = gathered(model, graph, x)
            for t, state in along(model, graph, x)[:2]:
                limit = float(x.abs().max()) * math.exp((0.5 * speed + more) * t)
                assert float(state.abs().max()) <= limit * (1 + 1e-6)


def test_bounds_of_growth_are_reached() -> None:
    graph = Graph.from_edge_index(torch.tensor([[0, 1], [1, 0]]))
    x = torch.tensor([[1.0], [-1.0]], dtype=D)
    for t, state in along(constant(Repulsion(repulsion=0.5), alpha=0), graph, x):
        torch.testing.assert_close(state, x * math.exp(t), rtol=1e-5, atol=0)
    apart = Convection(1, convection=0.5)
    apart.weight.data.fill_(50.0)
    slope = constant(apart, alpha=0).bind(graph, x)(None, x).detach()
    assert float(slope[0]) == pytest.approx(0.5)  # of the largest feature


@pytest.mark.parametrize("over", ["rows", "columns"])
@pytest.mark.parametrize("graph", ["star", "random"])
def test_features_of_acmp_return(over: Over, graph: str) -> None:
    g = make_graph(graph)
    x = 30 * normal(g.num_nodes, 3)
    for beta in (0.45, 0.05):
        model = ACMP(ConstantLaplacian(over=over), linear=True, alpha=0.5, repulsion=beta, reaction=0.25)
        model.to(D)
        edge = math.sqrt(1 + (2 * beta + gathered(model, g, x)) / 0.25)
        for start in (x, x.abs()):
            state = integrate(model.bind(g, start), start, 10.0, Strang(0.1)).state.detach()
            assert float(state.abs().max()) <= edge + 1e-2
        level = torch.full_like(x, math.sqrt(1 + 2 * beta / 0.25) + 0.01)  # beyond the edge for rows
        grows = bool((model.bind(g, level)(None, level) > 0).any())
        assert not grows if over == "rows" else grows or graph != "star"


@settings(max_examples=6)
@given(graphs(), seeds)
def test_adc_and_blend_keep_the_range(graph: Graph, seed: int) -> None:
    """For columns the sums of absolute values do not grow."""
    x = normal(graph.num_nodes, 3, seed=seed)
    for over in ("rows", "columns"):
        for linear in (True, False):
            attention = make_diffusivity("dot/sqrt", seed=seed, over=over)
            models: list[Any] = [
                scatter_parameters(ADC(attention, 3, linear=linear, pace=0.7), seed, 0.2),
                Blend(attention, 3, positions=2, walks=3, linear=linear, near=0.6).to(D),
            ]
            for model in models:
                flow = model.bind(graph, x)
                start = model.initial(x, flow.context).detach()
                for _, state in along(model, graph, x):
                    if over == "columns":
                        assert bool((state.abs().sum(0) <= start.abs().sum(0) + 1e-6).all())
                        continue
                    assert bool((state <= start.amax(0) + 1e-6).all())
                    assert bool((state >= start.amin(0) - 1e-6).all())
