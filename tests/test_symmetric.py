"""The symmetric normaliser: against dense matrices, its norm, saturated scores, and what builds on it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from conftest import LEARNT, D, graphs, make_diffusivity, make_graph, normal, seeds
from hypothesis import given
from torch import Tensor, func
from torch.autograd import gradcheck, gradgradcheck
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from graphdiffusion import ops
from graphdiffusion.diffusivity import Bilinear, ConstantLaplacian, GATv2, ScaledDotProduct, TimeVarying
from graphdiffusion.equation import Coefficient, Diffusion, Source
from graphdiffusion.equation.mask import attention_mask
from graphdiffusion.errors import ArgumentError, NotConverged
from graphdiffusion.graph import Graph
from graphdiffusion.nn import GraphDiffusion
from graphdiffusion.nn.baselines.gcn import symmetric_weights
from graphdiffusion.ops.torch.pointwise import activate
from graphdiffusion.solvers import RK4, Adjoint, DormandPrince, Euler, SemiImplicitEuler, integrate

KINDS = ("softmax", "squareplus", "signed")
SYMMETRIC = {"over": "symmetric", "reweight": True}


def dense(graph: Graph, scores: Tensor, weight: Tensor | None, kind: str) -> Tensor:
    """Mean of the heads, (..., heads, E) → (..., n, n); softmax in log space, where nothing underflows."""
    weight = scores.new_ones(graph.num_edges) if weight is None else weight.to(scores.dtype)
    weight = weight.unsqueeze(-2).expand_as(scores)
    if kind == "softmax":
        absent = graph.dense(torch.ones_like(scores)) * graph.dense(weight) == 0
        logs = graph.dense(scores + torch.where(weight > 0, weight, 1.0).log())
        logs = torch.where(absent, -torch.inf, logs)
        sums = (logs.logsumexp(-1, keepdim=True) + logs.logsumexp(-2, keepdim=True)) / 2
        return (logs - sums).exp().mean(-3)
    phi = scores if kind == "signed" else (scores + (scores**2 + 4).sqrt()) / 2
    matrix = graph.dense(phi * weight)
    size = matrix.abs()
    return (matrix / (size.sum(-1, keepdim=True) * size.sum(-2, keepdim=True)).sqrt()).mean(-3)


def scores_of(a: Any, graph: Graph, x: Tensor) -> Tensor:
    if isinstance(a, Bilinear):
        q, k = a.features(x)
        return activate((q @ k.mT)[..., graph.row.long(), graph.col.long()], a.activation)
    return a.scores(x[..., graph.row.long(), :], x[..., graph.col.long(), :], None).mT


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", [*LEARNT, "gatv2"])
def test_every_diffusivity(graph: Graph, name: str, kind: Any) -> None:
    """On directed, weighted and disconnected graphs, with a mask, for two members."""
    if name == "gatv2":
        a: Any = GATv2(3, heads=2, attention_dim=6, normaliser=kind, **SYMMETRIC).to(D)
    else:
        a = make_diffusivity(name, normaliser=kind, **SYMMETRIC)
    x = normal(2, graph.num_nodes, 3)
    weight, scores = graph.weight, scores_of(a, graph, x)
    torch.testing.assert_close(graph.dense(a(graph, x)), dense(graph, scores, weight, kind))
    torch.testing.assert_close(a.diffuse(graph, x), dense(graph, scores, weight, kind) @ x - x)
    mask = attention_mask(graph, a(graph, x).detach(), keep=0.6, over="symmetric")
    both = mask if weight is None else weight * mask
    masked = a(graph, x, mask)
    torch.testing.assert_close(graph.dense(masked), dense(graph, scores, both, kind))
    assert not bool(masked[mask == 0].any()) and a.contracts


@given(graphs(), seeds)
def test_the_norm_is_at_most_one(graph: Graph, seed: int) -> None:
    x = 3 * normal(graph.num_nodes, 3, seed=seed)
    for kind in KINDS:
        a = make_diffusivity("dot/sqrt", seed=seed, normaliser=kind, **SYMMETRIC)
        matrix = graph.dense(a(graph, x)).detach()
        largest = float(torch.linalg.matrix_norm(matrix, 2))
        assert largest <= 1 + 1e-12
        # theorem 1 in this norm
        flow = Diffusion(a, linear=True).requires_grad_(False).bind(graph, x)
        state = integrate(flow, x, 5.0, Euler(0.9)).state
        assert bool((state.norm(dim=0) <= x.norm(dim=0) * (1 + 1e-12)).all())
    constant = graph.dense(ConstantLaplacian(over="symmetric").to(D)(graph, x))
    assert float(torch.linalg.matrix_norm(constant, 2)) == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("kind", ["softmax", "squareplus"])
@pytest.mark.parametrize("size", [1.0, 60.0, 1e4])
def test_saturated_scores_in_single_precision(kind: Any, size: float) -> None:
    """Values and gradients in float32 against float64 in log space, where entries underflow to 0."""
    graph = make_graph("directed")
    scores, grad = size * normal(2, graph.num_edges), normal(graph.num_edges, seed=1)
    weight = normal(graph.num_edges, seed=2).abs() + 0.1
    found = []
    for dtype in (torch.float32, D):
        s, w = scores.to(dtype).requires_grad_(), weight.to(dtype).requires_grad_()
        if dtype == D:
            s = scores.float().to(D).requires_grad_()
            out = dense(graph, s, w, kind)[graph.row.long(), graph.col.long()]
        else:
            out = ops.normalise(graph, s, w, kind=kind, over="symmetric").mean(0)
        found.append((out, *torch.autograd.grad(out, (s, w), grad.to(dtype))))
    for ours, exact in zip(*found, strict=True):
        assert bool(torch.isfinite(ours).all())
        torch.testing.assert_close(ours.double(), exact, rtol=1e-4, atol=2e-6)


@pytest.mark.parametrize("kind", ["softmax", "squareplus"])
def test_derivatives_with_edges_that_are_left_out(kind: Any) -> None:
    """Scores and weights, once and twice; some entries are nearly 0, and some weights are."""
    graph = Graph.from_edge_index(torch.tensor([[0, 1, 2, 0, 3, 1], [1, 2, 0, 2, 3, 3]]), self_loops=1.0)
    scores = normal(2, graph.num_edges)
    scores[0] *= 12
    kept = (torch.arange(graph.num_edges) % 3 != 1) | (graph.row == graph.col)

    def run(s: Tensor, w: Tensor) -> Tensor:
        return ops.normalise(graph, s, w * kept, kind=kind, over="symmetric")

    inputs = (scores.requires_grad_(), (normal(graph.num_edges, seed=3).abs() + 0.2).requires_grad_())
    assert gradcheck(run, inputs) and gradgradcheck(run, inputs)
    slopes = torch.autograd.grad(run(*inputs).square().sum(), inputs)
    assert not bool(slopes[0][:, ~kept].any()) and not bool(slopes[1][~kept].any())


def test_the_constant_matrix_is_that_of_gcn() -> None:
    edges = make_graph("random").edge_index
    weight = torch.rand(edges.shape[1], generator=torch.Generator().manual_seed(0), dtype=D) + 0.1
    dense_weight = torch.zeros(9, 9, dtype=D).index_put_(tuple(edges), weight)
    weight = (dense_weight + dense_weight.mT)[tuple(edges)]
    for given_weight in (None, weight):
        graph = Graph.from_edge_index(edges, 9, given_weight, self_loops=1.0)
        x = normal(9, 2)
        ours = ConstantLaplacian(over="symmetric").to(D)(graph, x)
        torch.testing.assert_close(ours, symmetric_weights(graph, x))
        index = graph.edge_index
        theirs = gcn_norm(index, graph.weight, 9, add_self_loops=False, dtype=D)[1]
        torch.testing.assert_close(
            graph.dense(ours), torch.zeros(9, 9, dtype=D).index_put_((index[1], index[0]), theirs)
        )


def test_no_bias_is_idle() -> None:
    graph, x = make_graph("random"), normal(9, 3)
    a = make_diffusivity("dot/sqrt", **SYMMETRIC)
    assert isinstance(a, ScaledDotProduct) and a.query.bias is not None and a.key.bias is not None
    slopes = torch.autograd.grad(a(graph, x).square().sum(), (a.query.bias, a.key.bias))
    assert all(bool((g.abs() > 1e-6).any()) for g in slopes)


def test_mass_of_rows_and_columns(graph: Graph) -> None:
    """Each row and each column keeps its share, by the fewest edges of one of them."""
    values = ops.normalise(graph, 3 * normal(graph.num_edges), over="symmetric")
    rows, columns, both = (
        attention_mask(graph, values, mass=0.6, over=over) for over in ("rows", "columns", "symmetric")
    )
    assert torch.equal(both, torch.maximum(rows, columns))
    for side in ("rows", "columns"):
        kept, total = (ops.group_sum(graph, v, side) for v in (values * both, values))
        assert bool((kept >= 0.6 * total - 1e-12).all())


@pytest.mark.parametrize("size", [0.7, 30.0, 1e4])
def test_semi_implicit_against_a_dense_solve(graph: Graph, size: float) -> None:
    x = normal(graph.num_nodes, 3).requires_grad_()
    a = make_diffusivity("dot/sqrt", **SYMMETRIC)
    alpha = Coefficient(0.7).to(D)
    equation = Diffusion(a, linear=True, alpha=alpha, terms=[Source(0.3)]).to(D)
    state = integrate(equation.bind(graph, x), x, size, SemiImplicitEuler(size, tolerance=1e-14)).state
    eye = torch.eye(graph.num_nodes, dtype=D)
    matrix = eye - size * alpha() * (graph.dense(a(graph, x)) - eye)
    exact = torch.linalg.solve(matrix, x + size * equation.terms[0].beta() * x)
    torch.testing.assert_close(state, exact, rtol=1e-9, atol=1e-9)
    leaves = [x, *equation.parameters()]
    for ours, theirs in zip(
        torch.autograd.grad(state.square().sum(), leaves),
        torch.autograd.grad(exact.square().sum(), leaves),
        strict=True,
    ):
        assert float((ours - theirs).norm()) <= 1e-8 * float(theirs.norm()) + 1e-9
    assert float(torch.linalg.matrix_norm(torch.linalg.inv(matrix.detach()), 2)) <= 1 + 1e-9  # theorem 2


def test_a_step_beyond_the_rounding_of_the_matrix_is_refused() -> None:
    graph = make_graph("random")
    x = normal(9, 3, dtype=torch.float32)
    flow = Diffusion(ConstantLaplacian(over="symmetric"), linear=True).bind(graph, x)
    assert bool(torch.isfinite(integrate(flow, x, 1e4, SemiImplicitEuler(1e4)).state).all())
    with pytest.raises(NotConverged, match=r"τα = 1e\+06 is too large .* beyond 8e\+04 rounding"):
        integrate(flow, x, 1e6, SemiImplicitEuler(1e6))


def test_the_closed_form_against_a_dense_exponential(graph: Graph) -> None:
    x = normal(graph.num_nodes, 3)
    for kind in KINDS:
        layer = GraphDiffusion(
            3, 4.0, heads=1, attention_dim=4, start=0.4, normaliser=kind, over="symmetric"
        )
        layer.to(D)
        assert "Exponential" in repr(layer)
        attention = graph.dense(layer.equation.diffusivity(graph, x)).detach()
        alpha = layer.equation.alpha().detach()
        eye = torch.eye(graph.num_nodes, dtype=D)
        exact = torch.linalg.matrix_exp(4 * alpha * (attention - eye)) @ x
        torch.testing.assert_close(layer(x, graph), exact, rtol=1e-11, atol=1e-12)


def test_gradients_through_an_integral() -> None:
    """Backprop, the adjoint, weights that are learnt, parameters that follow time."""
    graph, x = make_graph("directed"), normal(9, 3)
    a = TimeVarying(make_diffusivity("dot/sqrt", **SYMMETRIC), horizon=1.0, terms=2).to(D)
    assert a.over == "symmetric"
    equation = Diffusion(a, alpha=0.8).to(D)
    found = []
    for mode in ("backprop", Adjoint(DormandPrince(1e-9, 1e-10))):
        weight = graph.weight.clone().requires_grad_()
        own = graph.with_weight(weight)
        state = integrate(equation.bind(own, x), x, 1.0, RK4(0.05), gradient=mode).state
        learnt = [p for p in equation.parameters() if p.requires_grad]
        found.append(torch.autograd.grad(state.square().sum(), [weight, *learnt]))
    for one, other in zip(*found, strict=True):
        assert bool(one.any())
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-7)


def test_transforms_of_the_layer() -> None:
    graph = make_graph("random")
    torch.manual_seed(0)
    layer = GraphDiffusion(3, 2.0, heads=2, attention_dim=4, start=0.4, over="symmetric")
    x = normal(2, 9, 3, dtype=torch.float32)
    torch.testing.assert_close(func.vmap(lambda v: layer(v, graph))(x), layer(x, graph))
    loss = func.grad(lambda v: layer(v, graph).square().sum())
    own = x.clone().requires_grad_()
    torch.testing.assert_close(loss(x), torch.autograd.grad(layer(own, graph).square().sum(), own)[0])


def test_sums_have_two_sides() -> None:
    graph = make_graph("random")
    for verb, field in ((ops.group_sum, graph.num_edges), (ops.spread, graph.num_nodes)):
        with pytest.raises(ArgumentError, match="over must be one of rows, columns, got 'symmetric'"):
            verb(graph, normal(field), "symmetric")
