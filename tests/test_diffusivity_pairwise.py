"""Diffusivities of any form, on nodes and edge attributes; matrices that are signed or not normalised."""

from __future__ import annotations

import warnings
from itertools import product
from typing import Any

import pytest
import torch
from conftest import D, graphs, make_diffusivity, make_graph, normal, scatter_parameters, seeds
from hypothesis import given, settings
from torch import Tensor, nn
from torch.autograd import gradcheck
from torch.func import functional_call, stack_module_state
from torch_geometric.nn import GATv2Conv

from graphdiffusion.diffusivity import GATv2, Pairwise
from graphdiffusion.equation import Diffusion
from graphdiffusion.errors import ArgumentError, StabilityWarning
from graphdiffusion.graph import Graph
from graphdiffusion.nn import GraphDiffusion
from graphdiffusion.solvers import (
    RK4,
    DormandPrince,
    Euler,
    Exponential,
    Heun,
    SemiImplicitEuler,
    integrate,
)

NORMALISERS, OVER = ("softmax", "squareplus", "signed", "none"), ("rows", "columns")
ROWS: dict[str, Any] = {"normaliser": "softmax", "over": "rows"}


def with_attributes(width: int = 2) -> Graph:
    bare = make_graph("directed")
    attributes = normal(bare.num_edges, width, seed=5)
    return Graph.from_edge_index(bare.edge_index, bare.num_nodes, bare.weight, edge_attr=attributes)


class Distance(Pairwise):
    """−θ‖x_i − x_j‖² + ⟨w, e_ij⟩, one head for each θ: no inner product."""

    members = True

    def __init__(self, heads: int = 2, edge_channels: int = 0, **how: Any) -> None:
        super().__init__(**how)
        self.theta = nn.Parameter(torch.linspace(0.3, 0.9, heads))
        self.edge = nn.Parameter(torch.ones(edge_channels)) if edge_channels else None

    def scores(self, x_i: Tensor, x_j: Tensor, edge_attr: Tensor | None) -> Tensor:
        square = (x_i - x_j).square().sum(-1, keepdim=True)
        found = -self.theta.unsqueeze(-2) * square
        if self.edge is not None:
            assert edge_attr is not None
            found = found + (edge_attr * self.edge.unsqueeze(-2)).sum(-1, keepdim=True)
        return found


def dense(scores: Tensor, graph: Graph, weight: Tensor, kind: str, over: str) -> Tensor:
    """The mean over heads of normalised scores ``(n, n, heads)``, edge by edge on the whole matrix."""
    edge = graph.dense(torch.ones(graph.num_edges, dtype=D)) > 0
    w = graph.dense(weight).unsqueeze(-1)
    phi = {"softmax": scores.exp, "squareplus": lambda: (scores + (scores**2 + 4).sqrt()) / 2}
    values = torch.where(edge.unsqueeze(-1), w * phi.get(kind, lambda: scores)(), 0.0)
    if kind != "none":
        values = values / values.abs().sum(1 if over == "rows" else 0, keepdim=True)
    return values.mean(-1)


@pytest.mark.parametrize("attributes", [False, True])
@pytest.mark.parametrize("heads", [1, 3])
def test_gatv2_is_that_of_pyg(attributes: bool, heads: int) -> None:
    graph = with_attributes() if attributes else make_graph("directed")
    width = 2 if attributes else 0
    ours = scatter_parameters(GATv2(3, heads, 4 * heads, edge_channels=width, reweight=False, **ROWS))
    theirs = GATv2Conv(3, 4, heads, edge_dim=width or None, add_self_loops=False).to(D)
    with torch.no_grad():
        theirs.lin_l.weight.copy_(ours.weight_j)
        theirs.lin_r.weight.copy_(ours.weight_i)
        theirs.lin_l.bias.zero_()
        theirs.lin_r.bias.copy_(ours.bias)
        theirs.att.copy_(ours.vector.unsqueeze(0))
        if attributes:
            theirs.lin_edge.weight.copy_(ours.weight_e)
    x = normal(graph.num_nodes, 3)
    _, (index, attention) = theirs(x, graph.edge_index, graph.edge_attr, return_attention_weights=True)
    assert torch.equal(index, graph.edge_index)
    torch.testing.assert_close(ours(graph, x), attention.mean(-1))


def test_gatv2_names_the_attributes_it_needs() -> None:
    a = GATv2(3, 1, 4, edge_channels=2).to(D)
    for graph, got in ((make_graph("directed"), "none"), (with_attributes(3), "3")):
        with pytest.raises(ArgumentError, match=f"2 attributes an edge .*got {got}"):
            a(graph, normal(graph.num_nodes, 3))


def test_edge_attributes_reach_the_layer() -> None:
    graph = make_graph("random")
    torch.manual_seed(0)
    layer = GraphDiffusion(3, 1.0, diffusivity="gatv2", edge_channels=2, heads=1, attention_dim=4).to(D)
    x = normal(graph.num_nodes, 3)
    attributes = normal(graph.num_edges, 2, seed=1).requires_grad_()
    out = layer(x, graph.edge_index, edge_attr=attributes)
    (slope,) = torch.autograd.grad(out.square().sum(), attributes)
    loops = graph.row == graph.col  # replaced by loops of the layer's own, whose attributes are zero
    assert bool((slope[~loops] != 0).all()) and float(slope[loops].abs().max()) == 0
    again = layer(x, graph.edge_index.flip(1), edge_attr=attributes.flip(0))
    torch.testing.assert_close(again, out)  # attributes follow their edges


@pytest.mark.parametrize(("kind", "over"), list(product(NORMALISERS, OVER)))
def test_a_function_of_ones_own(kind: str, over: str) -> None:
    graph = with_attributes()
    assert graph.weight is not None and graph.edge_attr is not None
    a = Distance(edge_channels=2, normaliser=kind, over=over).to(D)  # type: ignore[arg-type]
    x = normal(graph.num_nodes, 3)
    square = (x[:, None] - x[None]).square().sum(-1, keepdim=True)
    scores = -a.theta.detach() * square + graph.dense(graph.edge_attr.sum(-1)).unsqueeze(-1)
    want = dense(scores, graph, graph.weight, kind, over)
    torch.testing.assert_close(graph.dense(a(graph, x)), want)
    torch.testing.assert_close(a.diffuse(graph, x), want @ x - x)
    mask = torch.ones(graph.num_edges, dtype=D)
    if kind in ("signed", "none"):  # a group may be empty
        mask[:3] = 0
        masked = dense(scores, graph, graph.weight * mask, kind, over).nan_to_num(0.0)
        torch.testing.assert_close(graph.dense(a(graph, x, mask)), masked)


@pytest.mark.parametrize(("kind", "over"), list(product(NORMALISERS, OVER)))
def test_an_inner_product_either_way(kind: Any, over: Any) -> None:
    """The same scores edge by edge and as node features: equal matrices for every normaliser."""
    graph, x = make_graph("directed"), normal(9, 3)
    bilinear = make_diffusivity("cosine", normaliser=kind, over=over, reweight=True)

    class Cosines(Pairwise):
        def scores(self, x_i: Tensor, x_j: Tensor, edge_attr: Tensor | None) -> Tensor:
            q, k = bilinear.query(x_i), bilinear.key(x_j)
            return torch.cosine_similarity(q, k, dim=-1).mT

    pairwise = Cosines(normaliser=kind, over=over)
    torch.testing.assert_close(pairwise(graph, x), bilinear(graph, x))
    torch.testing.assert_close(bilinear.diffuse(graph, x), pairwise.diffuse(graph, x))


@pytest.mark.parametrize("kind", NORMALISERS)
def test_gradients(kind: Any) -> None:
    graph = Graph.from_edge_index(
        torch.tensor([[0, 1, 2, 0], [1, 2, 0, 2]]), 3, edge_attr=normal(4, 2, seed=1)
    )
    for a in (GATv2(2, 2, 4, edge_channels=2, normaliser=kind), Distance(edge_channels=2, normaliser=kind)):
        scatter_parameters(a)
        names = [name for name, _ in a.named_parameters()]

        def run(x: Tensor, *parameters: Tensor, a: Any = a, names: list[str] = names) -> Tensor:
            return functional_call(a, dict(zip(names, parameters, strict=True)), (graph, x))

        inputs = (normal(3, 2), *(p.detach().clone() for p in a.parameters()))
        assert gradcheck(run, [v.requires_grad_() for v in inputs])


@pytest.mark.parametrize("members", [2, 9])
def test_members_equal_each_alone(members: int) -> None:
    """Also as many members as nodes."""
    graph = with_attributes()
    x = normal(members, graph.num_nodes, 3)
    for build in (lambda: GATv2(3, 2, 4, edge_channels=2), lambda: Distance(edge_channels=2)):
        each = [scatter_parameters(build(), seed=k) for k in range(members)]
        stacked, _ = stack_module_state(each)  # type: ignore[arg-type]
        together = functional_call(each[0], stacked, (graph, x))
        for k, a in enumerate(each):
            torch.testing.assert_close(together[k], a(graph, x[k]), rtol=1e-12, atol=1e-14)


def signed(graph: Graph, seed: int, over: Any, linear: bool = True) -> Any:
    a = make_diffusivity("cosine", seed=seed, normaliser="signed", over=over)
    x = normal(graph.num_nodes, 3, seed=seed)
    return Diffusion(a, linear=linear).to(D).requires_grad_(False).bind(graph, x), x


def norm(x: Tensor, over: str) -> Tensor:
    """The norm in which a matrix whose rows (columns) sum to at most one does not expand."""
    return x.abs().amax(0) if over == "rows" else x.abs().sum(0)


@settings(max_examples=15)
@given(graphs(), seeds)
def test_signed_matrices_contract(graph: Graph, seed: int) -> None:
    for over in OVER:
        flow, x = signed(graph, seed, over)
        matrix = graph.dense(flow.context.attention)
        total = matrix.abs().sum(1 if over == "rows" else 0)
        assert float(total.max()) <= 1 + 1e-12
        with warnings.catch_warnings():
            warnings.simplefilter("error", StabilityWarning)  # theorem 1 holds in that norm
            for solver in (Euler(0.99), Heun(0.99), Exponential()):
                state = integrate(flow, x, 9.9, solver).state
                assert bool((norm(state, over) <= norm(x, over) + 1e-12).all())


def test_signed_matrices_repel() -> None:
    """Two nodes of equal sign move apart from zero's side: the range of the initial values is left."""
    graph = make_graph("random")
    flow, x = signed(graph, 0, "rows")
    assert bool((flow.context.attention < 0).any())
    x = x.abs() + 1.0
    flow = flow.equation.bind(graph, x)
    state = integrate(flow, x, 5.0).state
    assert bool((state < x.amin(0)).any())
    matrix = graph.dense(flow.context.attention)
    want = torch.linalg.matrix_exp(5.0 * (matrix - torch.eye(9, dtype=D))) @ x
    torch.testing.assert_close(state, want)


@pytest.mark.parametrize("over", OVER)
def test_matrices_that_are_not_normalised(over: Any) -> None:
    graph, x = make_graph("random"), normal(9, 3)
    a = make_diffusivity("dot/sqrt", normaliser="none", over=over)
    flow = Diffusion(a, linear=True, alpha=0.5).to(D).requires_grad_(False).bind(graph, x)
    matrix = graph.dense(flow.context.attention)
    largest = float(matrix.abs().sum(1 if over == "rows" else 0).max())
    assert largest > 1 and not flow.stable
    state = integrate(flow, x, 2.0).state  # the default follows the equation: no closed form
    want = torch.linalg.matrix_exp(2.0 * 0.5 * (matrix - torch.eye(9, dtype=D))) @ x
    torch.testing.assert_close(
        integrate(flow, x, 2.0, DormandPrince(1e-10, 1e-12)).state, want, rtol=1e-7, atol=1e-8
    )
    torch.testing.assert_close(state, want, rtol=1e-2, atol=1e-2)
    growth = torch.exp(torch.tensor(0.5 * (largest - 1) * 2.0, dtype=D))
    assert bool((norm(want, over) <= growth * norm(x, over)).all())
    with pytest.warns(StabilityWarning, match="not normalised"):
        integrate(flow, x, 2.0, RK4(0.01))
    for solver, says in (
        (Exponential(), "a normalised A"),
        (SemiImplicitEuler(0.5), "softmax or squareplus"),
    ):
        with pytest.raises(ArgumentError, match=says):
            integrate(flow, x, 2.0, solver)


def test_signed_is_refused_by_the_semi_implicit_scheme() -> None:
    flow, x = signed(make_graph("random"), 0, "rows")
    with pytest.raises(ArgumentError, match="softmax or squareplus; got Diffusion"):
        integrate(flow, x, 1.0, SemiImplicitEuler(0.5))
