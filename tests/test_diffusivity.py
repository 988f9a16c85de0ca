"""Each diffusivity against its formula, written out edge by edge; stochasticity; gradients; members."""

from __future__ import annotations

import math
from copy import deepcopy
from itertools import product

import numpy as np
import pytest
import torch
from conftest import (
    DIFFUSIVITIES,
    LEARNT,
    PAPER,
    D,
    graphs,
    make_diffusivity,
    make_graph,
    normal,
    scatter_parameters,
    seeds,
)
from hypothesis import given
from torch import Tensor
from torch.autograd import gradcheck
from torch.func import functional_call, stack_module_state

from graphdiffusion import diffusivity as module
from graphdiffusion import ops
from graphdiffusion.diffusivity import (
    ConstantLaplacian,
    Diffusivity,
    Pearson,
    ScaledDotProduct,
    TimeVarying,
)
from graphdiffusion.diffusivity.timebasis import legendre
from graphdiffusion.errors import ArgumentError
from graphdiffusion.graph import Graph

KINDS, OVER = ("softmax", "squareplus"), ("rows", "columns")


def one_score(name: str, p: dict[str, Tensor], head: int, xi: Tensor, xj: Tensor) -> Tensor:
    """The score of one head on one edge, before the normaliser, as the paper writes it."""
    part = slice(3 * head, 3 * head + 3)

    def project(which: str, x: Tensor) -> Tensor:
        bias = p.get(f"{which}.bias")
        return p[f"{which}.weight"][part] @ x + (0 if bias is None else bias[part])

    if name == "constant":
        return xi.new_zeros(())
    if name == "bahdanau":
        vector = torch.cat([p["vector"][head, :, 0], p["vector"][head, :, 1]])
        s = vector @ torch.cat([project("project", xi), project("project", xj)])
        return s if s > 0 else 0.2 * s
    q, k = project("query", xi), project("key", xj)
    if name.startswith("dot"):
        return (q * k).sum() / (3 if name == "dot/dim" else math.sqrt(3))
    if name == "kernel":
        amplitude, length = p["log_amplitude"][head].exp(), p["log_length"][head].exp()
        return (amplitude**2 * torch.exp(-((q - k) ** 2).sum() / (2 * length**2))).squeeze()
    if name == "pearson":
        return torch.corrcoef(torch.stack([q, k]))[0, 1]
    return (q * k).sum() / (q.norm() * k.norm())


def naive(name: str, a: Diffusivity, graph: Graph, x: Tensor, weight: Tensor | None) -> Tensor:
    p, heads = dict(a.named_parameters()), 1 if name == "constant" else 2
    total = torch.zeros(graph.num_nodes, graph.num_nodes, dtype=D)
    for head in range(heads):
        phi = torch.zeros_like(total)
        for e, (i, j) in enumerate(zip(graph.row.tolist(), graph.col.tolist(), strict=True)):
            s = one_score(name, p, head, x[i], x[j])
            phi[i, j] = s.exp() if a.normaliser == "softmax" else (s + (s * s + 4).sqrt()) / 2
            phi[i, j] *= 1 if weight is None else weight[e]
        total += phi / phi.sum(1 if a.over == "rows" else 0, keepdim=True) / heads
    return total


@pytest.mark.parametrize(
    ("name", "kind", "over"),
    # the constant Laplacian has no scores to normalise
    [case for case in product(DIFFUSIVITIES, KINDS, OVER) if case[:2] != ("constant", "squareplus")],
)
def test_formula(name: str, kind: str, over: str) -> None:
    graph = make_graph("directed")
    x = normal(graph.num_nodes, 3)
    mask = torch.ones(graph.num_edges, dtype=D)
    mask[1 if graph.row[1] == graph.row[2] else 2] = 0
    for reweight, m in ((False, None), (True, None), (False, mask), (True, mask)):
        a = make_diffusivity(name, normaliser=kind, over=over, reweight=reweight)
        weight = torch.ones_like(mask) if m is None else m.clone()
        if reweight:
            assert graph.weight is not None
            weight = weight * graph.weight
        dense = naive(name, a, graph, x, weight).detach()
        if not bool(torch.isfinite(dense).all()):  # the masked edge was the only one of its group
            continue
        torch.testing.assert_close(graph.dense(a(graph, x, m)), dense)
        torch.testing.assert_close(a.diffuse(graph, x, m), dense @ x - x)


@given(graphs(), seeds)
def test_stochastic(graph: Graph, seed: int) -> None:
    x = 3 * normal(graph.num_nodes, 3, seed=seed)
    for name, kind, over, reweight in product(DIFFUSIVITIES, KINDS, OVER, (False, True)):
        a = make_diffusivity(name, seed=seed, normaliser=kind, over=over, reweight=reweight)
        dense = graph.dense(a(graph, x))
        assert bool((dense >= 0).all())
        torch.testing.assert_close(
            dense.sum(1 if over == "rows" else 0), torch.ones(graph.num_nodes, dtype=D)
        )


def test_constant_laplacian_is_the_random_walk() -> None:
    graph = make_graph("directed")
    assert graph.weight is not None
    w = graph.dense(graph.weight)
    x = normal(graph.num_nodes, 1)
    torch.testing.assert_close(
        graph.dense(ConstantLaplacian(over="rows")(graph, x)), w / w.sum(1, keepdim=True)
    )
    plain = ConstantLaplacian(over="rows", reweight=False)(graph, x)
    degree = graph.rowptr.diff()[graph.row.long()]
    torch.testing.assert_close(plain, 1 / degree.to(D))


@pytest.mark.parametrize("name", LEARNT)
def test_starts_uniform(name: str) -> None:
    """With the constant initialisation training starts from nearly uniform diffusion."""
    graph = make_graph("random")
    a = DIFFUSIVITIES[name](3, heads=2, attention_dim=6, **PAPER)
    weights = [p for n, p in a.named_parameters() if n.endswith("weight")]
    assert weights and all(bool((w == 1e-5).all()) for w in weights)
    values = a(graph, normal(graph.num_nodes, 3, dtype=torch.float32))
    torch.testing.assert_close(
        values, ConstantLaplacian(over="rows")(graph, values[:, None]), atol=1e-3, rtol=1e-3
    )
    with torch.no_grad():
        for p in a.parameters():
            p.add_(1.0)
    a.reset_parameters()
    assert all(bool((w == 1e-5).all()) for w in weights)


@pytest.mark.parametrize(("name", "kind", "over"), list(product(LEARNT, KINDS, OVER)))
def test_gradients(name: str, kind: str, over: str) -> None:
    graph = Graph.from_edge_index(torch.tensor([[0, 1, 2, 0], [1, 2, 0, 2]]), self_loops=1.0)
    a = make_diffusivity(name, channels=2, normaliser=kind, over=over)
    names = [n for n, _ in a.named_parameters()]
    x = normal(3, 2)

    def run(x: Tensor, *parameters: Tensor) -> Tensor:
        return functional_call(a, dict(zip(names, parameters, strict=True)), (graph, x))

    inputs = (x.requires_grad_(), *(p.detach().clone().requires_grad_() for p in a.parameters()))
    assert gradcheck(run, inputs)


@pytest.mark.parametrize("name", LEARNT)
@pytest.mark.parametrize("varying", [False, True])
def test_population_equals_each_alone(name: str, varying: bool) -> None:
    graph = make_graph("random")
    members = [make_diffusivity(name, seed=s) for s in range(3)]
    if varying:
        members = [
            scatter_parameters(TimeVarying(a, horizon=2.0), seed=9 + k) for k, a in enumerate(members)
        ]
    stacked, _ = stack_module_state(members)  # type: ignore[arg-type]
    template = deepcopy(members[0])
    x, t = normal(3, graph.num_nodes, 3), torch.tensor([0.2, 0.9, 1.7], dtype=D)
    for when in (None, t[1], t[:, None, None]):
        together = functional_call(template, stacked, (graph, x, None, when))
        for k, a in enumerate(members):
            own = when if when is None or when.dim() == 0 else t[k]
            torch.testing.assert_close(together[k], a(graph, x[k], None, own), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", LEARNT)
def test_time_varying(name: str) -> None:
    graph = make_graph("random")
    x, base = normal(graph.num_nodes, 3), make_diffusivity(name)
    a = TimeVarying(deepcopy(base), horizon=4.0, terms=3).to(D)
    for t in (None, torch.tensor(0.0, dtype=D), torch.tensor(3.3, dtype=D)):  # starts constant in time
        torch.testing.assert_close(a(graph, x, None, t), base(graph, x))
        torch.testing.assert_close(a.diffuse(graph, x, None, t), base.diffuse(graph, x))
    scatter_parameters(a)
    s = 2 * 3.3 / 4.0 - 1
    legendre_at = (1.0, s, (3 * s * s - 1) / 2)
    with torch.no_grad():
        for n, p in base.named_parameters():
            theta = a.coefficients[n.replace(".", "_")]
            p.copy_(sum(w * theta[b] for b, w in enumerate(legendre_at)))
    torch.testing.assert_close(a(graph, x, None, torch.tensor(3.3, dtype=D)), base(graph, x))
    a(graph, x, None, torch.tensor(3.3, dtype=D)).square().sum().backward()
    assert all(p.grad is not None and float(p.grad.abs().max()) > 0 for p in a.parameters())
    a.reset_parameters()
    assert all(float(c[1:].detach().abs().max()) == 0 for c in a.coefficients.values())


def test_legendre_is_orthogonal() -> None:
    s, w = np.polynomial.legendre.leggauss(8)
    nodes, weights = torch.tensor((s + 1) * 1.5), torch.tensor(w)
    basis = legendre(nodes, 3.0, 5)
    gram = basis.t() @ (weights[:, None] * basis)
    torch.testing.assert_close(gram, torch.diag(2 / (2 * torch.arange(5, dtype=D) + 1)))


def test_refusals() -> None:
    for build, says in (
        (lambda: ScaledDotProduct(3, heads=3, attention_dim=4), "attention_dim=4 and heads=3"),
        (lambda: module.Bahdanau(3, heads=0, attention_dim=4), "heads=0"),
        (lambda: ScaledDotProduct(3, scale="cube"), "'cube'"),
        (lambda: Pearson(3, heads=2, attention_dim=4), "d_k=2"),
        (lambda: TimeVarying(ScaledDotProduct(3), horizon=0.0), "got 3 and 0.0"),
        (lambda: TimeVarying(ScaledDotProduct(3), horizon=1.0, terms=1), "got 1 and 1.0"),
    ):
        with pytest.raises(ArgumentError, match=says):
            build()


def test_reads_in_one_line() -> None:
    assert "heads=2, d_k=3, softmax over rows" in repr(make_diffusivity("cosine"))
    assert "reweighted" in repr(ConstantLaplacian(over="rows"))


@pytest.mark.parametrize("offset", [0.0, 30.0, 3e3])
def test_kernel_of_features_with_an_offset(small: Graph, offset: float) -> None:
    """In float32, against the distances themselves: what all features have in common does not cancel."""
    a = make_diffusivity("kernel").float()
    with torch.no_grad():  # one map for both sides, so that an offset changes no distance
        a.key.weight.copy_(a.query.weight)
        a.key.bias.copy_(a.query.bias)
    x = normal(small.num_nodes, 3, dtype=torch.float32) + offset
    q, k = (p(x.double()) for p in (deepcopy(a).double().query, deepcopy(a).double().key))
    square = (q[:, small.row.long()] - k[:, small.col.long()]).square().sum(-1)
    scores = (2 * a.log_amplitude.double().flatten(1)).exp() * torch.exp(
        -square / (2 * (2 * a.log_length.double().flatten(1)).exp())
    )
    want = ops.normalise(small, scores).mean(0)
    # rounding of x itself is all that an offset may cost
    assert float((a(small, x) - want).abs().max()) < 2e-6 * (1 + offset)
