"""Edge weights: learnt, placed on the edges of the graph, and never those of an earlier call."""

from __future__ import annotations

import gc
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from conftest import D, make_diffusivity, normal, scatter_parameters
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from graphdiffusion import (
    GRAND,
    Diffusion,
    DormandPrince,
    Exponential,
    Graph,
    GraphDiffusion,
    integrate,
    ops,
)
from graphdiffusion.equation import Coefficient, Source
from graphdiffusion.errors import ArgumentError, GraphError
from graphdiffusion.graph import _built, as_graph
from graphdiffusion.solvers import RK4, SemiImplicitEuler

# 0→1 twice, a self-loop at 2, node 4 has no edge
EDGES = torch.tensor([[0, 1, 0, 2, 2, 3, 1], [1, 0, 1, 2, 3, 2, 2]])
NODES = 5


def weights(seed: int = 0) -> Tensor:
    return normal(EDGES.shape[1], seed=seed).abs() + 0.2


@pytest.mark.parametrize("self_loops", [None, 0.0, 1.0, 2.5])
def test_gradient_of_the_placed_weights(self_loops: float | None) -> None:
    def place(weight: Tensor) -> Tensor:
        graph = Graph.from_edge_index(EDGES, NODES, weight, self_loops)
        assert graph.weight is not None
        return graph.dense(graph.weight)

    assert gradcheck(place, weights().requires_grad_())


@pytest.mark.parametrize("kind", ["softmax", "squareplus"])
@pytest.mark.parametrize("over", ["rows", "columns"])
def test_gradient_of_the_normaliser(kind: Any, over: Any) -> None:
    graph = Graph.from_edge_index(EDGES, NODES, self_loops=1.0)
    scores, weight = normal(2, graph.num_edges), normal(graph.num_edges, seed=1).abs() + 0.1

    def run(scores: Tensor, weight: Tensor) -> Tensor:
        return ops.normalise(graph, scores, weight, kind=kind, over=over)

    inputs = [scores.requires_grad_(), weight.requires_grad_()]
    assert gradcheck(run, inputs) and gradgradcheck(run, inputs)
    q, k = normal(2, 3, NODES, 4, seed=2), normal(2, 3, NODES, 4, seed=3)
    x = normal(2, NODES, 2, seed=4)

    def diffuse(weight: Tensor) -> Tensor:
        return ops.diffuse(graph, q, k, x, weight, kind=kind, over=over)

    assert gradcheck(diffuse, weight)


def test_an_edge_of_weight_zero_has_no_gradient() -> None:
    graph = Graph.from_edge_index(EDGES, NODES, self_loops=1.0)
    weight = torch.ones(graph.num_edges, dtype=D)
    weight[0] = 0.0
    weight.requires_grad_()
    out = ops.normalise(graph, normal(graph.num_edges), weight)
    (grad,) = torch.autograd.grad((out * normal(graph.num_edges, seed=1)).sum(), weight)
    assert float(grad[0]) == 0 and bool(torch.isfinite(grad).all()) and float(grad.abs().max()) > 0


@pytest.mark.parametrize("gradient", ["backprop", "checkpoint", "adjoint"])
@pytest.mark.parametrize("linear", [True, False])
@pytest.mark.parametrize("name", ["dot/sqrt", "constant"])
def test_every_gradient_mode_reaches_the_weights(name: str, linear: bool, gradient: Any) -> None:
    x, found = normal(NODES, 3), []
    solvers = [DormandPrince(1e-9, 1e-10), RK4(0.1), SemiImplicitEuler(0.5)]
    for solver in [*solvers, Exponential()] if linear else solvers:
        equation = Diffusion(
            make_diffusivity(name, reweight=True),
            linear=linear,
            alpha=Coefficient(0.7),
            terms=[Source(0.3)],
        ).to(D)
        weight = weights().requires_grad_()
        graph = Graph.from_edge_index(EDGES, NODES, weight)
        state = integrate(equation.bind(graph, x), x, 1.5, solver, gradient=gradient).state
        (grad,) = torch.autograd.grad((state**3).sum(), weight)
        found.append(grad)
        if isinstance(solver, SemiImplicitEuler):
            assert float(grad.abs().max()) > 1e-3
        else:
            torch.testing.assert_close(grad, found[0], rtol=1e-3, atol=1e-5)

    def central(place: int) -> float:
        values = []
        for sign in (1, -1):
            moved = weights()
            moved[place] += sign * 1e-5
            own = Graph.from_edge_index(EDGES, NODES, moved)
            values.append(float((integrate(equation.bind(own, x), x, 1.5, solvers[0]).state ** 3).sum()))
        return (values[0] - values[1]) / 2e-5

    with torch.no_grad():
        assert central(5) == pytest.approx(float(found[0][5]), rel=1e-3)


@pytest.mark.parametrize("variant", ["linear", "nonlinear", "nonlinear-rewired"])
def test_weights_are_learnt(variant: Any) -> None:
    layer = scatter_parameters(GraphDiffusion(3, 2.0, variant=variant, heads=1, attention_dim=4))
    weight = weights().requires_grad_()
    x, target = normal(NODES, 3), normal(NODES, 3, seed=7)
    losses = []
    for _ in range(30):
        loss = (layer(x, EDGES, weight) - target).square().mean()
        (grad,) = torch.autograd.grad(loss, weight)
        with torch.no_grad():
            weight.sub_(0.05 * grad).clamp_(min=1e-3)
        losses.append(float(loss))
    assert losses[-1] < losses[0] - 1e-4


def test_one_structure_for_all_weights() -> None:
    layer = GraphDiffusion(2, 1.0, heads=1, attention_dim=2)
    edge_index, x = EDGES.clone(), normal(NODES, 2, dtype=torch.float32)
    seen = []
    for k in range(60):
        weight = weights(k).float().requires_grad_()
        layer(x, edge_index, weight).sum().backward()
        seen.append(layer.graph(edge_index, NODES, weight))
    assert all(graph.derived is seen[0].derived for graph in seen)
    assert _built[edge_index][1].bare.derived is seen[0].derived
    seen = [weakref.ref(graph.weight) for graph in seen]
    gc.collect()
    assert sum(weight() is not None for weight in seen) == 0  # nor is any of them kept


def test_one_build_for_an_edge_index() -> None:
    """Whatever the settings it is asked for with: a build that is replaced is freed."""
    edge_index = EDGES.clone()
    seen = [weakref.ref(as_graph(edge_index, NODES + k % 7, None, 1.0 * (k % 2))) for k in range(30)]
    gc.collect()
    assert sum(graph() is not None for graph in seen) == 1


def test_threads() -> None:
    """Layers in several threads, each with weights of its own on the same edges."""
    edge_index = EDGES.clone()
    layer = GraphDiffusion(2, 1.0, heads=1, attention_dim=2)
    x = normal(NODES, 2, dtype=torch.float32)
    own = [weights(k).float() * (normal(len(weights()), seed=k) > 0) for k in range(6)]

    def wrong(k: int) -> int:
        with torch.no_grad():
            expected = layer(x, edge_index.clone(), own[k])
            return sum(not torch.equal(layer(x, edge_index, own[k]), expected) for _ in range(100))

    with ThreadPoolExecutor(len(own)) as pool:
        assert list(pool.map(wrong, range(len(own)))) == [0] * len(own)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("variant", ["linear", "nonlinear"])
def test_training_after_inference_mode(variant: str, weighted: bool) -> None:
    """What is kept from a forward pass in inference mode serves a training as well."""
    layer = GraphDiffusion(2, 1.0, variant=variant, heads=1, attention_dim=2, self_loops=2.0).double()
    x, edge_index = normal(3, NODES, 2), EDGES.clone()
    weight = weights().requires_grad_() if weighted else None
    with torch.inference_mode():
        layer(x, edge_index, weight)
        made = Graph.from_edge_index(EDGES, NODES, weight, 2.0)
        layer(x, made)
        inside = EDGES.clone()
        found = as_graph(inside, NODES, weight, 2.0)
    for place in (edge_index, inside):
        layer(x, place, weight).sum().backward()
    layer(x, made).sum().backward()
    layer(x, found).sum().backward()
    assert layer.equation.diffusivity.query.weight.grad is not None
    for graph in (made, made.transposed, found):
        kept = [v for v in (*vars(graph).values(), *graph.derived.values()) if isinstance(v, torch.Tensor)]
        assert len(kept) >= 5 and not any(tensor.is_inference() for tensor in kept)


def test_loops_are_as_exact_as_the_layer() -> None:
    """Without edge weights too: a third is no number of float32."""
    ring = torch.tensor([[0, 1, 2, 3, 4], [1, 2, 3, 4, 0]])
    looped = torch.cat([ring, torch.arange(NODES).expand(2, -1)], 1)
    weight = torch.tensor([1.0] * NODES + [1 / 3] * NODES, dtype=torch.float64)
    x, layer = normal(NODES, 2), GraphDiffusion(2, 2.0, heads=1, attention_dim=2, self_loops=1 / 3).double()
    given = Graph.from_edge_index(looped, NODES, weight)
    assert torch.equal(layer(x, ring), layer(x, given))
    assert layer.float()(x.float(), ring).dtype == torch.float32


def test_weights_of_now_and_edges_of_now() -> None:
    edge_index, weight = EDGES.clone(), weights()
    before = as_graph(edge_index, NODES, weight, 1.0)
    weight.data.mul_(2.0)
    assert before.weight is not None
    doubled = as_graph(edge_index, NODES, weight, 0.0).weight
    halved = as_graph(edge_index, NODES, weights(), 0.0).weight
    assert doubled is not None and halved is not None
    torch.testing.assert_close(doubled[:-1], 2 * halved[:-1])  # but the loop of the lone node
    weight.numpy()[:] = 3.0
    assert set(as_graph(edge_index, NODES, weight, 0.0).weight.tolist()) == {3.0, 6.0, 1.0}
    for write in (
        lambda e: e.data.copy_(e.flip(0)),
        lambda e: e.numpy().__setitem__((0, 0), 4),
        lambda e: e.__setitem__((1, 1), 4),
    ):
        write(edge_index)
        found, fresh = (as_graph(e, NODES, weight, 1.0) for e in (edge_index, edge_index.clone()))
        assert torch.equal(found.edge_index, fresh.edge_index) and torch.equal(found.weight, fresh.weight)
    with torch.inference_mode():
        inside = EDGES.clone()
        first = as_graph(inside, NODES)
        inside[1, 0] = 3
        assert not torch.equal(as_graph(inside, NODES).edge_index, first.edge_index)


def test_the_pattern_of_zeros_may_change() -> None:
    edge_index, weight = EDGES.clone(), weights()
    full = as_graph(edge_index, NODES, weight)
    weight[1] = 0.0
    less = as_graph(edge_index, NODES, weight)
    assert less.num_edges == full.num_edges - 1 + 1  # node 0 is left without an incoming edge: a loop
    weight[1] = 0.5
    assert torch.equal(as_graph(edge_index, NODES, weight).edge_index, full.edge_index)
    weight[2] = -1.0
    with pytest.raises(GraphError, match=r"edge_weight\[2\] is -1\.0"):
        as_graph(edge_index, NODES, weight)


def test_weights_beside_a_graph_are_refused() -> None:
    graph = Graph.from_edge_index(EDGES, NODES, self_loops=1.0)
    x = normal(NODES, 2, dtype=torch.float32)
    with pytest.raises(ArgumentError, match=r"with_weight\(edge_weight\)"):
        GraphDiffusion(2, heads=1, attention_dim=2)(x, graph, weights().float())
    with pytest.raises(ArgumentError, match=r"with_weight\(edge_weight\)"):
        GRAND(2, 2, hidden=2, heads=1, attention_dim=2)(x, graph, weights().float())
    with pytest.raises(GraphError, match=r"edge_weight\[0\] is 0\.0: .* positive"):
        graph.with_weight(torch.zeros(graph.num_edges))
