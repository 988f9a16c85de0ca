"""The sparse verbs against dense arithmetic, their derivatives, members and refusals."""

from __future__ import annotations

from collections.abc import Callable

import hypothesis.strategies as st
import pytest
import torch
from conftest import D, graphs, normal, seeds
from hypothesis import given
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch_geometric.utils import scatter

from graphdiffusion import ops
from graphdiffusion.errors import ArgumentError, DtypeError, ShapeError
from graphdiffusion.graph import Graph
from graphdiffusion.ops.dense import affine

KINDS, SIDES = ("softmax", "squareplus"), ("rows", "columns")
OVER = (*SIDES, "symmetric")


def on_edges(graph: Graph, dense: Tensor) -> Tensor:
    return dense[..., graph.row.long(), graph.col.long()]


def dense_normalise(graph: Graph, scores: Tensor, weight: Tensor | None, kind: str, over: str) -> Tensor:
    phi = scores.exp() if kind == "softmax" else (scores + (scores**2 + 4).sqrt()) / 2
    phi = graph.dense(phi if weight is None else phi * weight)
    if over == "symmetric":
        return on_edges(graph, phi / (phi.sum(-1, keepdim=True) * phi.sum(-2, keepdim=True)).sqrt())
    return on_edges(graph, phi / phi.sum(-1 if over == "rows" else -2, keepdim=True))


@given(graphs(), seeds)
def test_verbs_against_dense(graph: Graph, seed: int) -> None:
    n, e = graph.num_nodes, graph.num_edges
    values, x, q, k = (normal(*s, seed=seed + m) for m, s in enumerate([(e,), (n, 3), (n, 2), (n, 2)]))
    a = graph.dense(values)
    torch.testing.assert_close(ops.propagate(graph, values, x), a @ x)
    torch.testing.assert_close(ops.propagate(graph, values, x, transpose=True), a.mT @ x)
    torch.testing.assert_close(ops.score(graph, q, k), on_edges(graph, q @ k.mT))
    torch.testing.assert_close(ops.group_sum(graph, values, "rows"), a.sum(1))
    torch.testing.assert_close(ops.group_sum(graph, values, "columns"), a.sum(0))
    assert torch.equal(ops.spread(graph, x[:, 0], "rows"), x[graph.row.long(), 0])
    assert torch.equal(ops.spread(graph, x[:, 0], "columns"), x[graph.col.long(), 0])
    weight = values.abs() + 0.1
    for kind in KINDS:
        for over in OVER:
            for w in (None, weight):
                got = ops.normalise(graph, 3 * values, w, kind=kind, over=over)
                torch.testing.assert_close(got, dense_normalise(graph, 3 * values, w, kind, over))


@given(graphs(), seeds, st.booleans())
def test_pool_against_dense(graph: Graph, seed: int, loops: bool) -> None:
    """With many ties, among which the gradient is split evenly, and with empty rows, which give 0.

    PyG counts the zeros that it starts from as ties; here no entry is 0.
    """
    pattern = graph if loops else graph.neighbours
    there = torch.zeros(graph.num_nodes, graph.num_nodes, dtype=torch.bool)
    there[pattern.row.long(), pattern.col.long()] = True
    x = normal(2, graph.num_nodes, 3, seed=seed).mul(2).round().add(0.5).requires_grad_()
    grad = normal(2, graph.num_nodes, 3, seed=seed + 1)
    largest = torch.where(there.unsqueeze(-1), x.unsqueeze(-3), -torch.inf).amax(-2)
    dense = torch.where(there.any(1)[:, None], largest, 0.0)
    found = ops.pool(pattern, x)
    assert torch.equal(found, dense)
    exact = torch.autograd.grad(dense, x, grad)[0]
    torch.testing.assert_close(torch.autograd.grad(found, x, grad)[0], exact)
    row, col = pattern.row.long(), pattern.col.long()
    theirs = scatter(x[:, col], row, 1, graph.num_nodes, "max")
    assert torch.equal(found, theirs)
    torch.testing.assert_close(exact, torch.autograd.grad(theirs, x, grad)[0])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("over", OVER)
@pytest.mark.parametrize("activation", ["identity", "leaky_relu", "exp"])
def test_attention_and_diffuse(graph: Graph, kind: str, over: str, activation: str) -> None:
    n = graph.num_nodes
    q, k, x = normal(2, n, 3) / 2, normal(2, n, 3, seed=1), normal(n, 4, seed=2)
    scores = on_edges(graph, q @ k.mT)
    act = {
        "identity": lambda s: s,
        "leaky_relu": lambda s: torch.where(s > 0, s, 0.2 * s),
        "exp": torch.exp,
    }
    want = dense_normalise(graph, act[activation](scores), None, kind, over).mean(0)
    how = {"activation": activation, "kind": kind, "over": over}
    torch.testing.assert_close(ops.attention(graph, q, k, **how), want)
    torch.testing.assert_close(ops.diffuse(graph, q, k, x, **how), graph.dense(want) @ x - x)


def test_weights_count_edges_and_zero_leaves_out(small: Graph) -> None:
    scores = 40 * normal(small.num_edges)
    weight = torch.ones(small.num_edges, dtype=D)
    weight[small.row != small.col] = 0.0  # only the loops are left
    for kind in KINDS:
        values = ops.normalise(small, scores, weight, kind=kind)
        assert torch.equal(values, weight)
    weight = torch.ones(small.num_edges, dtype=D)
    largest = int(scores.argmax())
    weight[largest] = 0.0  # the largest score must not make the others underflow
    values = ops.normalise(small, 1e3 * scores, weight)
    assert values[largest] == 0 and bool(torch.isfinite(values).all())
    torch.testing.assert_close(ops.group_sum(small, values), torch.ones(small.num_nodes, dtype=D))


@pytest.mark.parametrize("dtype", [torch.float32, D])
def test_extreme_scores_stay_finite(small: Graph, dtype: torch.dtype) -> None:
    scores = torch.linspace(-1e4, 1e4, small.num_edges, dtype=dtype)
    for kind in KINDS:
        for over in SIDES:
            values = ops.normalise(small, scores, kind=kind, over=over)
            total = ops.group_sum(small, values, over)
            assert bool((values >= 0).all())
            torch.testing.assert_close(total, torch.ones_like(total))


def test_squareplus_does_not_cancel(small: Graph) -> None:
    scores = torch.full((small.num_edges,), -5e3) - torch.arange(small.num_edges)
    s = scores.double()
    phi = small.dense(2 / ((s**2 + 4).sqrt() - s))
    want = on_edges(small, phi / phi.sum(-1, keepdim=True))
    got = ops.normalise(small, scores, kind="squareplus")
    torch.testing.assert_close(got.double(), want, rtol=1e-5, atol=0)


Verb = Callable[..., Tensor]


def verbs(graph: Graph) -> dict[str, tuple[Verb, tuple[tuple[int, ...], ...]]]:
    """Each verb as a function of tensors, with the shapes of one member."""
    n, e = graph.num_nodes, graph.num_edges
    weight = torch.linspace(0.5, 2, e, dtype=D)
    table: dict[str, tuple[Verb, tuple[tuple[int, ...], ...]]] = {
        "propagate": (lambda v, x: ops.propagate(graph, v, x), ((e,), (n, 2))),
        "propagate transposed": (lambda v, x: ops.propagate(graph, v, x, transpose=True), ((e,), (n, 2))),
        "score": (lambda q, k: ops.score(graph, q, k), ((n, 2), (n, 2))),
        "pool": (lambda x: ops.pool(graph.neighbours, x), ((n, 2),)),
    }
    for over in SIDES:
        table[f"sum {over}"] = (lambda v, o=over: ops.group_sum(graph, v, o), ((e,),))
        table[f"spread {over}"] = (lambda v, o=over: ops.spread(graph, v, o), ((n,),))
        for kind in KINDS:
            table[f"{kind} {over}"] = (
                lambda s, o=over, m=kind: ops.normalise(graph, s, weight.to(s.dtype), kind=m, over=o),
                ((e,),),
            )
            table[f"attention {kind} {over}"] = (
                lambda q, k, o=over, m=kind: ops.attention(graph, q, k, kind=m, over=o, activation="exp"),
                ((2, n, 2), (2, n, 2)),
            )
            table[f"diffuse {kind} {over}"] = (
                lambda q, k, x, o=over, m=kind: ops.diffuse(graph, q, k, x, kind=m, over=o),
                ((2, n, 2), (2, n, 2), (n, 2)),
            )
    return table


NAMES = tuple(verbs(Graph.from_edge_index(torch.tensor([[0, 1], [1, 0]]))))


@pytest.mark.parametrize("name", NAMES)
def test_derivatives(name: str) -> None:
    graph = Graph.from_edge_index(torch.tensor([[0, 1, 2, 0, 3], [1, 2, 0, 2, 3]]), self_loops=1.0)
    verb, shapes = verbs(graph)[name]
    inputs = tuple(normal(2, *s, seed=k).requires_grad_() for k, s in enumerate(shapes))
    assert gradcheck(verb, inputs)
    assert gradgradcheck(verb, inputs)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [torch.float32, D])
def test_members_and_determinism(small: Graph, name: str, dtype: torch.dtype) -> None:
    """A member of a batch equals the verb alone, bit for bit, and so does a second run."""
    verb, shapes = verbs(small)[name]
    inputs = [normal(2, 3, *s, seed=k, dtype=dtype).requires_grad_() for k, s in enumerate(shapes)]

    def results(tensors: list[Tensor], weight: Tensor | None = None) -> list[Tensor]:
        out = verb(*tensors)
        if weight is None:
            weight = torch.cos(torch.arange(out.numel(), dtype=dtype)).reshape(out.shape)
        return [out.detach(), *torch.autograd.grad((out * weight).sum(), tensors), weight]

    batch, again = results(inputs), results(inputs)
    assert batch[0].dtype == dtype and batch[0].shape[:2] == (2, 3)
    assert all(torch.equal(a, b) for a, b in zip(batch, again, strict=True))
    for i, j in ((0, 0), (1, 2)):
        alone = results([v[i, j].detach().requires_grad_() for v in inputs], batch[-1][i, j])
        assert all(torch.equal(a, b[i, j]) for a, b in zip(alone, batch, strict=True))


def test_leading_dimensions_broadcast(small: Graph) -> None:
    n, e = small.num_nodes, small.num_edges
    values, x = normal(4, 1, e).requires_grad_(), normal(3, n, 2).requires_grad_()
    out = ops.propagate(small, values, x)
    assert out.shape == (4, 3, n, 2)
    torch.testing.assert_close(out, small.dense(values) @ x)
    out.square().sum().backward()
    v, y = values.detach().requires_grad_(), x.detach().requires_grad_()
    (small.dense(v) @ y).square().sum().backward()
    torch.testing.assert_close(values.grad, v.grad)
    torch.testing.assert_close(x.grad, y.grad)
    assert ops.score(small, normal(4, 1, n, 2), normal(3, n, 2)).shape == (4, 3, e)
    weight = torch.rand(5, 1, e, dtype=D)
    assert ops.normalise(small, normal(2, e), weight).shape == (5, 2, e)
    assert ops.attention(small, normal(2, n, 3), normal(2, n, 3), weight).shape == (5, 1, e)


def test_strided_inputs(small: Graph) -> None:
    n = small.num_nodes
    wide, values = normal(4, n), normal(2, small.num_edges).t()[:, 0]
    torch.testing.assert_close(ops.propagate(small, values, wide.t()), small.dense(values) @ wide.t())
    torch.testing.assert_close(ops.score(small, wide.t(), wide.t()), on_edges(small, wide.t() @ wide))


@pytest.mark.parametrize("lead", [(), (2,), (3, 2)])
def test_affine(lead: tuple[int, ...]) -> None:
    x, w, b = normal(*lead, 5, 3), normal(*lead, 4, 3, seed=1), normal(*lead, 4, seed=2)
    torch.testing.assert_close(affine(x, w), x @ w.mT)
    torch.testing.assert_close(affine(x, w, b), x @ w.mT + b.unsqueeze(-2))
    shared = x.flatten(0, -3)[0] if lead else x  # one state, a map for each member
    torch.testing.assert_close(affine(shared, w, b), shared @ w.mT + b.unsqueeze(-2))


def test_refusals(small: Graph) -> None:
    n, e = small.num_nodes, small.num_edges
    v, x = normal(e), normal(n, 2)
    cases = [
        (lambda: ops.propagate(small, v[1:], x), ShapeError, rf"values.*{e - 1},"),
        (lambda: ops.propagate(small, v, x[1:]), ShapeError, rf"x must.*\({n - 1}, 2\)"),
        (lambda: ops.propagate(small, v, x[:, 0]), ShapeError, rf"\({n},\)"),
        (lambda: ops.propagate(small, v, x.float()), DtypeError, "float64 and torch.float32"),
        (lambda: ops.propagate(small, v.half(), x.half()), DtypeError, "float16"),
        (lambda: ops.propagate(small, v.long(), x), DtypeError, "int64"),
        (lambda: ops.propagate(small, v, x.bfloat16()), DtypeError, "beside a bfloat16 x"),
        (lambda: ops.score(small, x, x[:, :1]), ShapeError, "2 and 1"),
        (lambda: ops.score(small, x, x.float()), DtypeError, "float64 and torch.float32"),
        (lambda: ops.normalise(small, v[1:]), ShapeError, f"{e - 1}"),
        (lambda: ops.normalise(small, v, v[1:]), ShapeError, "weight"),
        (lambda: ops.normalise(small, v, kind="max"), ArgumentError, "'max'"),
        (lambda: ops.normalise(small, v, over="all"), ArgumentError, "'all'"),
        (lambda: ops.attention(small, x, x), ShapeError, rf"heads.*\({n}, 2\)"),
        (lambda: ops.attention(small, x[None], x[None], activation="relu"), ArgumentError, "'relu'"),
        (lambda: ops.group_sum(small, v[1:]), ShapeError, f"{e - 1}"),
        (lambda: ops.pool(small, x[1:]), ShapeError, rf"x must.*\({n - 1}, 2\)"),
        (lambda: ops.pool(small.neighbours, x.half()), DtypeError, "float16"),
        (lambda: ops.spread(small, x), ShapeError, rf"\({n}, 2\)"),
        (lambda: ops.spread(small, v[:n], "both"), ArgumentError, "'both'"),
    ]
    for call, error, says in cases:
        with pytest.raises(error, match=says):
            call()
