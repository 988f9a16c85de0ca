"""Gradient, divergence, Laplacian and energy of section 3.1, against dense matrices and as properties."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from conftest import D, graphs, make_graph, normal, seeds
from hypothesis import given
from torch.autograd import gradcheck

from graphdiffusion.calculus import (
    dirichlet_energy,
    divergence,
    gradient,
    inner_edges,
    inner_nodes,
    laplacian,
)
from graphdiffusion.diffusivity import ConstantLaplacian
from graphdiffusion.equation import Diffusion
from graphdiffusion.errors import GraphError, ShapeError
from graphdiffusion.graph import Graph
from graphdiffusion.solvers import Euler, integrate


def weights(graph: Graph) -> torch.Tensor:
    return graph.dense(torch.ones(graph.num_edges, dtype=D) if graph.weight is None else graph.weight.to(D))


def alternating(graph: Graph, seed: int) -> torch.Tensor:
    """A random alternating edge field (E, 2) of an undirected graph."""
    full = normal(graph.num_nodes, graph.num_nodes, 2, seed=seed)
    full = full - full.transpose(0, 1)
    return full[graph.row.long(), graph.col.long()]


@given(graphs(), seeds)
def test_operators_against_dense(graph: Graph, seed: int) -> None:
    x, field = normal(graph.num_nodes, 2, seed=seed), normal(graph.num_edges, 2, seed=seed + 1)
    row, col, w = graph.row.long(), graph.col.long(), weights(graph)
    torch.testing.assert_close(gradient(graph, x), x[col] - x[row])
    full = graph.dense(field.t())  # (2, n, n)
    torch.testing.assert_close(divergence(graph, field), (w * full).sum(-1).t())
    torch.testing.assert_close(laplacian(graph, x), w @ x - w.sum(1, keepdim=True) * x)


@given(graphs(undirected=True), seeds)
def test_adjoint_up_to_the_sign(graph: Graph, seed: int) -> None:
    x, field = normal(graph.num_nodes, 2, seed=seed), alternating(graph, seed + 1)
    left = inner_edges(graph, gradient(graph, x), field)
    torch.testing.assert_close(left, -inner_nodes(x, divergence(graph, field)))


@given(graphs(undirected=True), seeds)
def test_laplacian_symmetric_and_negative(graph: Graph, seed: int) -> None:
    x, y = normal(graph.num_nodes, 1, seed=seed), normal(graph.num_nodes, 1, seed=seed + 1)
    torch.testing.assert_close(inner_nodes(laplacian(graph, x), y), inner_nodes(x, laplacian(graph, y)))
    full = laplacian(graph, torch.eye(graph.num_nodes, dtype=D))
    assert float(torch.linalg.eigvalsh(full).max()) < 1e-10
    torch.testing.assert_close(inner_nodes(x, laplacian(graph, x)), -2 * dirichlet_energy(graph, x))
    assert float(laplacian(graph, torch.ones_like(x)).abs().max()) < 1e-12


@given(graphs(undirected=True), seeds)
def test_laplacian_descends_the_energy(graph: Graph, seed: int) -> None:
    x = normal(graph.num_nodes, 2, seed=seed).requires_grad_()
    (slope,) = torch.autograd.grad(dirichlet_energy(graph, x), x)
    torch.testing.assert_close(slope, -laplacian(graph, x.detach()))


@given(graphs(undirected=True), seeds)
def test_energy_decreases_along_diffusion(graph: Graph, seed: int) -> None:
    x = normal(graph.num_nodes, 2, seed=seed)
    flow = Diffusion(ConstantLaplacian(over="rows"), linear=True).bind(graph, x)
    states = integrate(flow, x, 3.0, at=[0.1, 0.5, 1.0, 2.0]).states
    assert states is not None
    energy = [float(dirichlet_energy(graph, s)) for s in (x, *states)]
    assert all(b <= a + 1e-12 for a, b in pairwise(energy))
    stepped = integrate(flow, x, 0.5, Euler(0.5)).state
    assert float(dirichlet_energy(graph, stepped)) <= energy[0] + 1e-12


@given(graphs(undirected=True), seeds)
def test_equivariant_under_permutation(graph: Graph, seed: int) -> None:
    order = torch.randperm(graph.num_nodes, generator=torch.Generator().manual_seed(seed))
    place = torch.argsort(order)  # node v is called place[v] afterwards
    moved = Graph.from_edge_index(place[graph.edge_index], graph.num_nodes, graph.weight)
    x = normal(graph.num_nodes, 2, seed=seed)
    torch.testing.assert_close(laplacian(moved, x[order]), laplacian(graph, x)[order])
    torch.testing.assert_close(dirichlet_energy(moved, x[order]), dirichlet_energy(graph, x))


def test_members_and_derivatives() -> None:
    graph = make_graph("path")
    x = normal(2, 3, graph.num_nodes, 2)
    assert gradient(graph, x).shape == (2, 3, graph.num_edges, 2)
    assert torch.equal(laplacian(graph, x)[1, 2], laplacian(graph, x[1, 2]))
    assert dirichlet_energy(graph, x).shape == inner_nodes(x, x).shape == (2, 3)
    torch.testing.assert_close(dirichlet_energy(graph, x)[1, 2], dirichlet_energy(graph, x[1, 2]))
    assert gradcheck(lambda v: dirichlet_energy(graph, v), x[0].requires_grad_())
    assert gradcheck(lambda v: laplacian(graph, v), x[0, 0].detach().requires_grad_())


def test_self_loops_do_not_count() -> None:
    x, bare = normal(5, 2), make_graph("loops")
    edges = bare.edge_index[:, bare.row != bare.col]
    heavy = Graph.from_edge_index(edges, 5, torch.ones(edges.shape[1], dtype=D), self_loops=9.0)
    light = Graph.from_edge_index(edges, 5, torch.ones(edges.shape[1], dtype=D), self_loops=0.0)
    torch.testing.assert_close(laplacian(heavy, x), laplacian(light, x))
    torch.testing.assert_close(dirichlet_energy(heavy, x), dirichlet_energy(light, x))


def test_refusals() -> None:
    graph, directed = make_graph("path"), make_graph("directed")
    with pytest.raises(ShapeError, match=rf"\({graph.num_edges - 1}, 1\)"):
        divergence(graph, normal(graph.num_edges - 1, 1))
    with pytest.raises(GraphError, match="undirected"):
        dirichlet_energy(directed, normal(directed.num_nodes, 1))
