"""Densify and sparsify: every combination against the dense formula, the sparse path against its bound."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.linalg import expm
from threadpoolctl import threadpool_limits
from torch_geometric.data import Data
from torch_geometric.transforms import GDC

from graphdiffusion.data import DATASETS, find_raw, load_data
from graphdiffusion.graph import Graph
from graphdiffusion.rewiring import Rewire, exact
from graphdiffusion.rewiring import push as push_module
from graphdiffusion.rewiring.push import heat_blocks, pagerank_blocks
from graphdiffusion.rewiring.sparsify import sparsify
from graphdiffusion.rewiring.transition import adjacency, transition

RULES = ({"top_k": 4}, {"eps": 0.02}, {"avg_degree": 3.0})


def random_graph(n: int, edges: int, seed: int, directed: bool) -> Data:
    """Random weights, so that no two entries of the diffusion tie."""
    rng = torch.Generator().manual_seed(seed)
    edge_index = torch.randint(n, (2, edges), generator=rng)
    weight = torch.rand(edges, generator=rng, dtype=torch.float64) + 0.1
    if not directed:
        edge_index, weight = torch.cat([edge_index, edge_index.flip(0)], 1), weight.repeat(2)
    return Data(edge_index=edge_index, edge_weight=weight, num_nodes=n)


def graphs() -> dict[str, Data]:
    path = torch.stack([torch.arange(14), torch.arange(1, 15)])
    star = torch.stack([torch.zeros(14, dtype=torch.long), torch.arange(1, 15)])
    weight = torch.rand(28, generator=torch.Generator().manual_seed(7), dtype=torch.float64) + 0.5
    two = random_graph(9, 15, 3, directed=False)
    return {
        "random": random_graph(15, 30, 0, directed=False),
        "directed": random_graph(15, 30, 1, directed=True),
        "path": Data(edge_index=torch.cat([path, path.flip(0)], 1), edge_weight=weight, num_nodes=15),
        "star": Data(edge_index=torch.cat([star, star.flip(0)], 1), edge_weight=weight, num_nodes=15),
        # two components and an isolated node
        "disconnected": Data(
            edge_index=torch.cat([two.edge_index, two.edge_index + 9], 1),
            edge_weight=torch.cat([two.edge_weight, 2 * two.edge_weight + 0.3]),
            num_nodes=19,
        ),
    }


GRAPHS = graphs()


def matrix(data: Data) -> np.ndarray:
    """Rows are targets; float64."""
    out = np.zeros((data.num_nodes,) * 2)
    np.add.at(out, (data.edge_index[1].numpy(), data.edge_index[0].numpy()), data.edge_weight.numpy())
    return out


def dense_diffusion(weights: np.ndarray, method: str, kind: str, alpha: float = 0.15, t: float = 3.0):
    degree = weights.sum(1)
    if kind == "rw":
        walk = weights / degree[:, None]
    else:
        walk = weights / np.sqrt(degree[:, None] * degree[None, :])
    eye = np.eye(len(weights))
    return alpha * np.linalg.inv(eye - (1 - alpha) * walk) if method == "ppr" else expm(t * (walk - eye))


def dense_rule(full: np.ndarray, top_k=None, eps=None, avg_degree=None) -> np.ndarray:
    """The rules, written as plainly as possible."""
    full = np.where(full > 1e-14, full, 0)
    n = len(full)
    keep = np.zeros_like(full, dtype=bool)
    keep[np.arange(n), full.argmax(1)] = True
    if top_k is not None:
        for i in range(n):
            keep[i, np.argsort(-full[i], kind="stable")[:top_k]] = True
    elif eps is not None:
        keep |= full >= eps
    else:
        room = round(avg_degree * n) - keep.sum()
        for place in np.argsort(-full.ravel(), kind="stable"):
            if room > 0 and not keep.flat[place]:
                keep.flat[place], room = True, room - 1
    return np.where(keep, full, 0)


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("method", ["ppr", "heat"])
@pytest.mark.parametrize("path", ["exact", "sparse"])
@pytest.mark.parametrize("kind", ["sym", "rw"])
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: next(iter(rule)))
@pytest.mark.parametrize("out", ["rw", "sym"])
def test_equals_the_dense_formula(name, method, path, kind, rule, out):
    data = GRAPHS[name]
    rewire = Rewire(
        method=method,
        t=3.0,
        path=path,
        normalise_in=kind,
        normalise_out=out,
        tolerance=1e-12,
        cache=False,
        **rule,
    )
    full = dense_diffusion(matrix(data) + np.eye(data.num_nodes), method, kind)
    kept = dense_rule(full, **rule)
    degree = kept.sum(1)
    scale = degree[:, None] if out == "rw" else np.sqrt(degree[:, None] * degree[None, :])
    np.testing.assert_allclose(matrix(rewire(data)), kept / scale, atol=1e-6)


@pytest.mark.parametrize("self_loops", [0.0, 2.5])
@pytest.mark.parametrize("path", ["exact", "sparse"])
def test_self_loop_weight(self_loops, path):
    data = GRAPHS["random"]
    weights = matrix(data) + self_loops * np.eye(data.num_nodes)
    assert (weights.sum(1) > 0).all()
    rewire = Rewire(self_loops=self_loops, path=path, tolerance=1e-12, eps=1e-9, cache=False)
    full = dense_diffusion(weights, "ppr", "sym")
    np.testing.assert_allclose(matrix(rewire(data)), full / full.sum(1, keepdims=True), atol=1e-6)


def check_bound(
    weights: sparse.csr_array, full: np.ndarray, method: str, tolerance: float
) -> sparse.csr_array:
    """0 ≤ S - P ≤ ε u with u = max_k wᵀTᵏ, which is w on an undirected graph; returns P."""
    walk, degree = transition(weights, "rw"), weights.sum(1)
    if method == "ppr":
        blocks = pagerank_blocks(walk, degree, 0.15, tolerance)
    else:
        blocks = heat_blocks(walk, degree, 3.0, tolerance)
    pushed = sparse.csr_array(sparse.vstack(list(blocks)))
    error = full - pushed.toarray()
    weight = degree / degree.mean()
    bound, power = weight.copy(), weight.copy()
    for _ in range(200):
        power = power @ walk
        bound = np.maximum(bound, power)
    if abs(weights - weights.T).max() == 0:
        np.testing.assert_allclose(bound, weight)
    assert error.min() > -1e-12
    assert (error <= tolerance * bound + 1e-12).all()
    return pushed


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("method", ["ppr", "heat"])
@pytest.mark.parametrize("tolerance", [0.3, 1e-2, 1e-4])
def test_sparse_path_within_its_bound(name, method, tolerance, monkeypatch):
    data = GRAPHS[name]
    monkeypatch.setattr(push_module, "_BLOCK_ENTRIES", 64)  # several blocks, the last one shorter
    weights = adjacency(data.edge_index, data.num_nodes, data.edge_weight, 1.0)
    check_bound(weights, dense_diffusion(weights.toarray(), method, "rw"), method, tolerance)


@given(
    n=st.integers(2, 40),
    density=st.floats(0.2, 4),
    seed=st.integers(0, 10**6),
    directed=st.booleans(),
    method=st.sampled_from(["ppr", "heat"]),
    tolerance=st.floats(1e-6, 0.5),
)
@settings(max_examples=60, deadline=None)
def test_bound_property(n, density, seed, directed, method, tolerance):
    data = random_graph(n, int(n * density) + 1, seed, directed)
    weights = adjacency(data.edge_index, n, data.edge_weight, 1.0)
    check_bound(weights, dense_diffusion(weights.toarray(), method, "rw"), method, tolerance)


def planetoid(name: str) -> Data:
    root = Path(os.environ.get("GRAND_DATA") or Path(__file__).parents[2] / "shared" / "data")
    if not root.is_dir() or find_raw(DATASETS[name], root) is None:
        pytest.skip(f"no raw files of {name} under {root} (set GRAND_DATA)")
    return load_data(name, root, lcc=False)


@pytest.mark.parametrize("name", ["cora", "citeseer"])
@pytest.mark.parametrize("method", ["ppr", "heat"])
def test_sparse_path_on_citation_graphs(name, method):
    data = planetoid(name)
    weights = adjacency(data.edge_index, data.num_nodes, None, 1.0)
    walk = transition(weights, "rw")
    full = exact.pagerank(walk, 0.15) if method == "ppr" else exact.heat(walk, 3.0)
    pushed = check_bound(weights, full, method, 5e-4)
    # The edges that matter are the same on both paths.
    ours, theirs = sparsify([pushed], top_k=16), sparsify(exact.row_blocks(full), top_k=16)
    assert ((ours > 0) * (theirs > 0)).sum() > 0.9 * theirs.nnz


def gdc(data: Data, **options) -> np.ndarray:
    data = Data(edge_index=data.edge_index, edge_attr=data.edge_weight, num_nodes=data.num_nodes)
    out = GDC(**options)(data)
    return matrix(Data(edge_index=out.edge_index, edge_weight=out.edge_attr, num_nodes=data.num_nodes))


@pytest.mark.parametrize("name", ["random", "directed", "path"])
@pytest.mark.parametrize("kind", ["sym", "rw"])
@pytest.mark.parametrize("method", ["ppr", "heat"])
def test_agrees_with_pyg(name, kind, method):
    """PyG writes targets in columns, and keeps zeros under top-K; connected graphs have none."""
    data = GRAPHS[name]
    diffusion = {"method": "ppr", "alpha": 0.15} if method == "ppr" else {"method": "heat", "t": 3.0}
    rules = [
        ({"method": "topk", "k": 4, "dim": 0}, {"top_k": 4}),
        ({"method": "threshold", "eps": 0.02}, {"eps": 0.02}),
        ({"method": "threshold", "avg_degree": 5}, {"avg_degree": 5}),
    ]
    for theirs, ours in rules:
        expected = gdc(
            data,
            normalization_in="col" if kind == "rw" else "sym",
            normalization_out="col",
            diffusion_kwargs=diffusion,
            sparsification_kwargs=theirs,
        )
        got = matrix(Rewire(method=method, t=3.0, normalise_in=kind, cache=False, **ours)(data))
        np.testing.assert_allclose(got, np.where(expected > 1e-14, expected, 0), atol=1e-6)


cases = st.tuples(
    st.integers(2, 30),
    st.floats(0.1, 4),
    st.integers(0, 10**6),
    st.booleans(),
    st.sampled_from(["ppr", "heat"]),
    st.sampled_from(["exact", "sparse"]),
    st.sampled_from(["sym", "rw"]),
    st.sampled_from(RULES),
)


@given(cases)
@settings(max_examples=80, deadline=None)
def test_properties(case):
    n, density, seed, directed, method, path, kind, rule = case
    data = random_graph(n, int(n * density) + 1, seed, directed)
    rewire = Rewire(method=method, path=path, normalise_in=kind, tolerance=1e-9, cache=False, **rule)
    out = rewire(data)
    result = matrix(out)
    np.testing.assert_allclose(result.sum(1), 1, atol=1e-9)  # stochastic rows, hence no lost node
    assert (out.edge_weight > 0).all()
    per_node = torch.bincount(out.edge_index[1], minlength=n)
    if "top_k" in rule:
        assert per_node.max() <= rule["top_k"]
    if "avg_degree" in rule:
        assert out.num_edges <= max(n, round(rule["avg_degree"] * n))
    assert Graph.from_data(out).num_nodes == n

    new = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    moved = Data(edge_index=new[data.edge_index], edge_weight=data.edge_weight, num_nodes=n)
    np.testing.assert_allclose(matrix(rewire(moved))[np.ix_(new, new)], result, atol=1e-6)


@given(st.integers(1, 25), st.integers(0, 10**6), st.sampled_from(RULES), st.integers(1, 7))
@settings(max_examples=60, deadline=None)
def test_sparsify_twice_is_once_and_blocks_do_not_matter(n, seed, rule, size):
    values = np.random.default_rng(seed).integers(1, 6, (n, n)) / 10  # ties abound
    once = sparsify([sparse.csr_array(values)], **rule)
    np.testing.assert_array_equal(once.toarray(), dense_rule(values, **rule))
    twice = sparsify([once], **rule)
    np.testing.assert_array_equal(twice.toarray(), once.toarray())
    blocks = [sparse.csr_array(values[start : start + size]) for start in range(0, n, size)]
    np.testing.assert_array_equal(sparsify(blocks, **rule).toarray(), once.toarray())


def undirected(edges: torch.Tensor, n: int) -> Data:
    return Data(edge_index=torch.cat([edges, edges.flip(0)], 1), num_nodes=n)


def symmetric_graphs() -> dict[str, Data]:
    """Nodes that cannot be told apart, and therefore ties without end."""
    node = torch.arange(120)
    square = torch.arange(144).view(12, 12)
    lines = [torch.stack([s[:-1].flatten(), s[1:].flatten()]) for s in (square, square.T)]
    return {
        "cycle": undirected(torch.stack([node, node.roll(1)]), 120),
        "grid": undirected(torch.cat(lines, 1), 144),
        "star": undirected(torch.stack([torch.zeros(299, dtype=torch.long), torch.arange(1, 300)]), 300),
        "bipartite": undirected(torch.cartesian_prod(torch.arange(90), torch.arange(90, 220)).T, 220),
        "complete": undirected(torch.combinations(node).T, 120),
        "copies": undirected(
            torch.cat([torch.combinations(torch.arange(7) + 7 * k).T for k in range(20)], 1), 140
        ),
    }


SYMMETRIC = symmetric_graphs()


@pytest.mark.parametrize("name", SYMMETRIC)
@pytest.mark.parametrize("method", ["ppr", "heat"])
@pytest.mark.parametrize("path", ["exact", "sparse"])
@pytest.mark.parametrize(
    "rule", [{"top_k": 6}, {"eps": 0.01}, {"avg_degree": 5.5}], ids=lambda r: next(iter(r))
)
def test_ties_do_not_depend_on_threads(name, method, path, rule):
    rewire = Rewire(method=method, path=path, cache=False, **rule)
    results = []
    before = torch.get_num_threads()
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            with threadpool_limits(threads):
                out = rewire(SYMMETRIC[name].clone())
            results.append((out.edge_index, out.edge_weight))
    finally:
        torch.set_num_threads(before)
    for edges, weight in results[1:]:
        assert torch.equal(edges, results[0][0]) and torch.equal(weight, results[0][1])


@pytest.mark.parametrize("name", SYMMETRIC)
@pytest.mark.parametrize("rule", [{"top_k": 6}, {"avg_degree": 5.5}], ids=lambda r: next(iter(r)))
def test_ties_go_to_the_smaller_node(name, rule):
    """Whatever the last digits are: with them cut off, the plain rule keeps the same entries."""
    data = SYMMETRIC[name]
    weights = adjacency(data.edge_index, data.num_nodes, None, 1.0).toarray()
    full = dense_diffusion(weights, "ppr", "sym")
    out = Rewire(path="exact", cache=False, **rule)(data.clone())
    kept = np.zeros_like(full, dtype=bool)
    kept[out.edge_index[1], out.edge_index[0]] = True
    np.testing.assert_array_equal(kept, dense_rule(np.round(full, 9), **rule) > 0)


@given(st.integers(0, 10**6), st.sampled_from(RULES))
@settings(max_examples=30, deadline=None)
def test_what_is_kept_does_not_depend_on_the_last_digits(seed, rule):
    rng = np.random.default_rng(seed)
    values = rng.integers(1, 6, (12, 12)) / 50
    noisy = values * (1 + rng.uniform(-1e-14, 1e-14, values.shape))
    plain, other = (sparsify([sparse.csr_array(v)], **rule).toarray() > 0 for v in (values, noisy))
    np.testing.assert_array_equal(plain, other)
