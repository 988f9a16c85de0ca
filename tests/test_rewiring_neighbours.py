"""Graphs from features: k nearest neighbours, exact and approximate."""

from __future__ import annotations

import os
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from threadpoolctl import threadpool_limits

from graphdiffusion.errors import ArgumentError, DataError, ShapeError
from graphdiffusion.graph import Graph
from graphdiffusion.rewiring import knn_graph


def plain(x: np.ndarray, k: int, metric: str) -> np.ndarray:
    """Dense weights, from all distances."""
    if metric == "cosine":
        unit = x / np.linalg.norm(x, axis=1, keepdims=True)
        distance = 1 - unit @ unit.T
    else:
        distance = np.linalg.norm(x[:, None] - x[None], axis=2)
    np.fill_diagonal(distance, np.inf)
    nearest = np.argsort(distance, axis=1)[:, :k]
    near = np.zeros_like(distance, dtype=bool)
    np.put_along_axis(near, nearest, True, axis=1)
    scale = np.sort(distance, axis=1)[:, k - 1]
    return np.where(near | near.T, np.exp(-(distance**2) / np.outer(scale, scale)), 0)


@given(
    st.integers(3, 30), st.integers(1, 5), st.integers(0, 10**6), st.sampled_from(["euclidean", "cosine"])
)
@settings(max_examples=40, deadline=None)
def test_equals_all_distances(n, k, seed, metric):
    k = min(k, n - 1)
    x = np.random.default_rng(seed).normal(size=(n, 4))
    edge_index, weight = knn_graph(torch.from_numpy(x), k, metric=metric)
    graph = Graph.from_edge_index(edge_index, n, weight.double())
    assert graph.is_symmetric and (graph.row != graph.col).all()
    np.testing.assert_allclose(graph.dense(graph.weight).numpy(), plain(x, k, metric), atol=1e-5)


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_sparse_features(metric):
    rng = np.random.default_rng(0)
    x = sparse.csr_array(np.where(rng.random((40, 60)) < 0.2, rng.random((40, 60)), 0))
    dense = knn_graph(x.toarray(), 4, metric=metric)
    torch_csr = torch.from_numpy(x.toarray()).to_sparse_csr()
    for features in (x, torch_csr, torch_csr.to_sparse_coo()):
        for got, expected in zip(knn_graph(features, 4, metric=metric), dense, strict=True):
            torch.testing.assert_close(got, expected)


def test_coinciding_points():
    """Copies are neighbours of weight 1, and a node is never its own."""
    x = torch.tensor([[0.0, 0.0]] * 4 + [[1.0, 0.0], [5.0, 0.0]])
    edge_index, weight = knn_graph(x, 2)
    assert (edge_index[0] != edge_index[1]).all() and torch.isfinite(weight).all()
    assert (weight > 0).all() and (weight <= 1).all()
    assert (weight[(edge_index < 4).all(0)] == 1).all()


def test_scale_does_not_matter():
    x = torch.randn(30, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for got, expected in zip(knn_graph(1000 * x, 3), knn_graph(x, 3), strict=True):
        torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("kind", ["binary", "copies"])
def test_ties_do_not_depend_on_threads(kind):
    """Features of zeros and ones, or copies of points: many nodes are equally near."""
    rng = np.random.default_rng(0)
    binary = (rng.random((1500, 50)) < 0.1).astype(np.float32)
    x = binary if kind == "binary" else np.repeat(rng.random((200, 30)), 8, axis=0)
    results = []
    for threads in (1, 2, 3):
        with threadpool_limits(threads):
            results.append(knn_graph(x, 5)[0])
    assert torch.equal(results[0], results[1]) and torch.equal(results[0], results[2])


class Descent:
    """Stands in for pynndescent's search: exact, the node itself somewhere among the nearest."""

    def __init__(self, x, metric, n_neighbors, random_state):
        distance = np.linalg.norm(x[:, None] - x[None], axis=2)
        nearest = np.argsort(distance, axis=1)[:, :n_neighbors]
        nearest = nearest[:, np.random.default_rng(random_state).permutation(n_neighbors)]
        self.neighbor_graph = nearest.astype(np.int32), np.take_along_axis(distance, nearest, 1)


def test_approximate_drops_the_node_itself(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynndescent", SimpleNamespace(NNDescent=Descent))
    x = np.random.default_rng(0).normal(size=(30, 4))
    for got, expected in zip(knn_graph(x, 5, approximate=True), knn_graph(x, 5), strict=True):
        torch.testing.assert_close(got, expected)


def test_approximate_skips_what_was_not_found(monkeypatch):
    class Blind(Descent):
        def __init__(self, *args, **options):
            super().__init__(*args, **options)
            self.neighbor_graph[0][7, 1:] = -1
            self.neighbor_graph[1][7, 1:] = np.inf

    monkeypatch.setitem(sys.modules, "pynndescent", SimpleNamespace(NNDescent=Blind))
    edge_index, weight = knn_graph(np.random.default_rng(0).normal(size=(30, 4)), 5, approximate=True)
    assert edge_index.min() >= 0 and (weight > 0).all() and (weight <= 1).all()


@pytest.mark.skipif(
    not os.environ.get("GRAND_SLOW_TESTS"), reason="compiles for a minute: GRAND_SLOW_TESTS=1"
)
@pytest.mark.parametrize("layout", ["dense", "sparse"])
def test_approximate(layout):
    pytest.importorskip("pynndescent")
    x = np.random.default_rng(0).normal(size=(500, 6)).astype(np.float32)
    features = sparse.csr_array(x) if layout == "sparse" else x
    edge_index, weight = knn_graph(features, 8, approximate=True)
    graph = Graph.from_edge_index(edge_index, 500, weight)
    assert graph.is_symmetric and (graph.row != graph.col).all()
    exact = Graph.from_edge_index(*knn_graph(x, 8)[:1], 500)
    common = (graph.dense(graph.weight) > 0) & (exact.dense(torch.ones(exact.num_edges)) > 0)
    assert common.sum() > 0.95 * exact.num_edges


def test_approximate_names_what_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynndescent", None)
    with pytest.raises(ImportError, match="pip install pynndescent"):
        knn_graph(torch.rand(5, 2), 2, approximate=True)


def test_bad_input():
    x = torch.rand(5, 2)
    for k in (0, 5):
        with pytest.raises(ArgumentError, match=f"between 1 and 4.*{k}"):
            knn_graph(x, k)
    with pytest.raises(ArgumentError, match="'manhattan'"):
        knn_graph(x, 2, metric="manhattan")
    with pytest.raises(ShapeError, match=r"\(5,\)"):
        knn_graph(x[:, 0], 2)
    x[3, 1] = float("nan")
    with pytest.raises(DataError, match="NaN"):
        knn_graph(x, 2)
