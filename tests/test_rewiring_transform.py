"""The transform: its cache, what it does to the data, and its words about bad input."""

from __future__ import annotations

import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from torch_geometric.data import Data, HeteroData

from graphdiffusion.errors import ArgumentError, DtypeError, GraphError
from graphdiffusion.rewiring import Rewire, cache


def example(seed: int = 0, n: int = 12, edges: int = 30) -> Data:
    rng = torch.Generator().manual_seed(seed)
    edge_index = torch.randint(n, (2, edges), generator=rng)
    return Data(edge_index=edge_index, edge_weight=torch.rand(edges, generator=rng) + 0.1, num_nodes=n)


def same(a: Data, b: Data) -> bool:
    return torch.equal(a.edge_index, b.edge_index) and torch.equal(a.edge_weight, b.edge_weight)


@pytest.fixture
def counted(monkeypatch):
    """Counts how often a diffusion is computed."""
    calls = []
    compute = Rewire._matrix
    monkeypatch.setattr(Rewire, "_matrix", lambda self, weights: calls.append(1) or compute(self, weights))
    return calls


@given(st.integers(0, 10**6), st.sampled_from(["exact", "sparse"]))
@settings(max_examples=15, deadline=None)
def test_cache_changes_nothing(tmp_path_factory, seed, path):
    data, folder = example(seed), tmp_path_factory.mktemp("cache")
    plain = Rewire(top_k=3, path=path, cache=False)(data)
    assert same(plain, Rewire(top_k=3, path=path, cache=folder)(data))
    assert same(plain, Rewire(top_k=3, path=path, cache=folder)(data))


def test_second_run_reads(tmp_path, counted):
    data, rewire = example(), Rewire(top_k=3, cache=tmp_path)
    first, second = rewire(data), rewire(data)
    assert same(first, second) and len(counted) == 1
    (file,) = tmp_path.iterdir()
    assert file.suffix == ".npz"


def test_order_of_edges_does_not_matter(tmp_path, counted):
    data, rewire = example(), Rewire(top_k=3, cache=tmp_path)
    order = torch.randperm(data.num_edges)
    other = Data(edge_index=data.edge_index[:, order], edge_weight=data.edge_weight[order], num_nodes=12)
    assert same(rewire(data), rewire(other)) and len(counted) == 1


def test_content_and_parameters_are_the_key(tmp_path, counted):
    data = example()
    heavier = Data(edge_index=data.edge_index, edge_weight=2 * data.edge_weight, num_nodes=12)
    larger = Data(edge_index=data.edge_index, edge_weight=data.edge_weight, num_nodes=13)
    for case in (data, heavier, larger, example(1)):
        Rewire(top_k=3, cache=tmp_path)(case)
    variants = [
        {"top_k": 4},
        {"eps": 0.1},
        {"avg_degree": 3},
        {"alpha": 0.2},
        {"method": "heat"},
        {"method": "heat", "t": 2.0},
        {"normalise_in": "rw"},
        {"normalise_out": "sym"},
        {"self_loops": 2.0},
        {"path": "sparse"},
        {"path": "sparse", "tolerance": 1e-3},
    ]
    for variant in variants:
        Rewire(cache=tmp_path, **variant)(data)
    assert len(counted) == len(list(tmp_path.iterdir())) == 4 + len(variants)


def repack(file, **changes) -> None:
    """Write a cache file again with other arrays; its checksum stays what it was, unless it is given."""
    with np.load(file) as content:
        arrays = dict(content) | changes
    np.savez(file, **{key: value for key, value in arrays.items() if value is not None})


def other_matrix(file, change) -> None:
    """A file with a correct checksum for a changed matrix."""
    with np.load(file) as content:
        parts = [content[key] for key in ("data", "indices", "indptr")]
    n = len(parts[2]) - 1
    matrix = change(sparse.csr_array(tuple(parts), shape=(n, n)))
    cache._write(file, matrix)


def with_nan(matrix):
    matrix.data[3] = np.nan
    return matrix


def with_negative(matrix):
    matrix.data[3] = -0.5
    return matrix


CACHE_DAMAGE = {
    "empty": lambda file, whole: file.write_bytes(b""),
    "no zip": lambda file, whole: file.write_bytes(b"not a zip file"),
    "half": lambda file, whole: file.write_bytes(whole[: len(whole) // 2]),
    "another value": lambda file, whole: repack(file, data=np.load(file)["data"] * 1.0000001),
    "another column": lambda file, whole: repack(file, indices=np.load(file)["indices"][::-1].copy()),
    "column out of range": lambda file, whole: repack(file, indices=np.load(file)["indices"] + 12),
    "negative column": lambda file, whole: repack(file, indices=np.load(file)["indices"] - 1),
    "rows out of order": lambda file, whole: repack(file, indptr=np.load(file)["indptr"][::-1].copy()),
    "missing part": lambda file, whole: repack(file, indptr=None),
    "no checksum": lambda file, whole: repack(file, sum=None),
    "another type": lambda file, whole: repack(file, data=np.load(file)["data"].astype(np.float32)),
    "fractional columns": lambda file, whole: repack(file, indices=np.load(file)["indices"] + 0.5),
    "NaN, with a correct checksum": lambda file, whole: other_matrix(file, with_nan),
    "negative, with a correct checksum": lambda file, whole: other_matrix(file, with_negative),
    "too many entries, with a correct checksum": lambda file, whole: other_matrix(
        file, lambda matrix: sparse.csr_array(np.full((12, 12), 0.5))
    ),
    "a larger graph, with a correct checksum": lambda file, whole: other_matrix(
        file, lambda matrix: sparse.csr_array(np.eye(13))
    ),
    "compressed zeros": lambda file, whole: np.savez_compressed(
        file,
        sum=np.array("0" * 64),
        data=np.zeros(10**7),
        indices=np.zeros(10**7, int),
        indptr=np.arange(13),
    ),
}


@pytest.mark.parametrize("kind", CACHE_DAMAGE)
def test_damaged_file_is_replaced(tmp_path, counted, kind):
    data, rewire = example(), Rewire(top_k=3, cache=tmp_path)
    first = rewire(data)
    (file,) = tmp_path.iterdir()
    whole = file.read_bytes()
    CACHE_DAMAGE[kind](file, whole)
    with pytest.warns(UserWarning, match=rf"{file.name} is damaged .*; it is computed again"):
        assert same(first, rewire(data)) and len(counted) == 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert same(first, rewire(data)) and len(counted) == 2
    assert file.read_bytes() == whole
    assert list(tmp_path.iterdir()) == [file]


def test_file_of_another_graph_is_not_taken(tmp_path, counted):
    """Its content is whole, but the checksum is for another name."""
    rewire = Rewire(top_k=3, cache=tmp_path)
    expected = rewire(example(1))
    (file,) = tmp_path.iterdir()
    other = rewire(example(2))
    assert not same(expected, other)
    (second,) = set(tmp_path.iterdir()) - {file}
    file.write_bytes(second.read_bytes())
    with pytest.warns(UserWarning, match="checksum"):
        assert same(rewire(example(1)), expected)


@pytest.mark.parametrize(
    "rule", [{"top_k": 3}, {"top_k": 100}, {"avg_degree": 1.0}, {"avg_degree": 50.0}, {"eps": 1e-9}]
)
def test_every_rule_fits_the_bound_of_its_file(rule, tmp_path):
    data = example()
    for _ in range(2):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            Rewire(cache=tmp_path, **rule)(data)


def test_failed_write_leaves_nothing(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError("disk full")

    monkeypatch.setattr(cache.np, "savez", full)
    with pytest.warns(UserWarning, match="disk full"):
        Rewire(top_k=3, cache=tmp_path)(example())
    assert not list(tmp_path.iterdir())


def test_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("GRAND_CACHE", str(tmp_path))
    Rewire(top_k=3)(example())
    assert len(list((tmp_path / "rewire").iterdir())) == 1
    monkeypatch.delenv("GRAND_CACHE")
    assert cache.folder(None).parts[-3:] == (".cache", "graphdiffusion", "rewire")


def test_data():
    data = example()
    data.x, data.y = torch.rand(12, 5), torch.arange(12)
    data.edge_attr = torch.rand(data.num_edges, 3)
    before = data.clone()
    out = Rewire(top_k=3, cache=False)(data)
    assert same(data, before) and data.edge_attr is not None  # the input is left alone
    assert "edge_attr" not in out and out.x is data.x and out.y is data.y
    assert out.edge_index.dtype == torch.long and out.edge_weight.dtype == torch.float32
    assert out.validate()
    double = Data(edge_index=data.edge_index, edge_weight=data.edge_weight.double(), num_nodes=12)
    assert Rewire(top_k=3, cache=False)(double).edge_weight.dtype == torch.float64


def test_unweighted_graph():
    """Without weights an edge counts once, and a node without edges keeps itself."""
    edge_index = torch.tensor([[0, 1, 0, 1], [1, 0, 1, 0]])
    out = Rewire(eps=1e-6, cache=False)(Data(edge_index=edge_index, num_nodes=3))
    once = Rewire(eps=1e-6, cache=False)(Data(edge_index=edge_index[:, :2], num_nodes=3))
    assert same(out, once)
    assert out.edge_index[:, out.edge_index[1] == 2].tolist() == [[2], [2]]
    assert out.edge_weight[-1] == 1


@pytest.mark.parametrize("path", ["exact", "sparse"])
def test_node_that_no_edge_enters(path):
    data = Data(edge_index=torch.tensor([[0, 0], [1, 2]]), num_nodes=3)
    out = Rewire(self_loops=0.0, path=path, cache=False)(data)
    assert out.edge_index[:, out.edge_index[1] == 0].tolist() == [[0], [0]]
    assert torch.bincount(out.edge_index[1], minlength=3).min() >= 1


def test_path_is_chosen_by_size():
    assert Rewire()._is_exact(5000) and not Rewire()._is_exact(5001)
    assert Rewire(path="exact")._is_exact(10**6) and not Rewire(path="sparse")._is_exact(2)


def test_repr_and_default_rule():
    assert "method='heat', alpha=0.15, t=3.0, top_k=64" in repr(Rewire(method="heat", t=3.0))
    assert Rewire(eps=0.1).top_k is None


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"method": "pagerank"}, "method.*ppr.*'pagerank'"),
        ({"alpha": 0.0}, "alpha.*0.0"),
        ({"alpha": 1.0}, "alpha.*1.0"),
        ({"t": -1.0}, "t must.*-1.0"),
        ({"t": float("nan")}, "t must.*nan"),
        ({"top_k": 0}, "top_k.*0"),
        ({"top_k": 2.5}, "top_k.*2.5"),
        ({"eps": 0.0}, "eps.*0.0"),
        ({"avg_degree": 0.5}, "avg_degree.*0.5"),
        ({"top_k": 3, "eps": 0.1}, "one of top_k, eps and avg_degree"),
        ({"normalise_in": "row"}, "normalise_in.*sym.*'row'"),
        ({"path": "fast"}, "path.*'fast'"),
        ({"self_loops": -1.0}, "self_loops.*-1.0"),
        ({"tolerance": 0.0}, "tolerance.*0.0"),
    ],
)
def test_bad_options(options, words):
    with pytest.raises(ArgumentError, match=words):
        Rewire(**options)


def test_bad_data():
    with pytest.raises(GraphError, match="knn_graph"):
        Rewire()(Data(x=torch.rand(3, 2)))
    with pytest.raises(DtypeError, match="HeteroData"):
        Rewire()(HeteroData())
    negative = Data(edge_index=torch.tensor([[0], [1]]), edge_weight=torch.tensor([-1.0]), num_nodes=2)
    with pytest.raises(GraphError, match=r"-1\.0"):
        Rewire()(negative)


def test_import_needs_no_extras():
    hide = "import sys; sys.modules['numba'] = sys.modules['pynndescent'] = None; "
    code = hide + "import graphdiffusion.rewiring"
    subprocess.run([sys.executable, "-c", code], check=True)
