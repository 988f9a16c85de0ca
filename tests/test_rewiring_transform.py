"""The transform: its cache, what it does to the data, and its words about bad input."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
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


@pytest.mark.parametrize("damage", [b"", b"not a zip file", None])
def test_damaged_file_is_replaced(tmp_path, counted, damage):
    data, rewire = example(), Rewire(top_k=3, cache=tmp_path)
    first = rewire(data)
    (file,) = tmp_path.iterdir()
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2] if damage is None else damage)
    assert same(first, rewire(data)) and len(counted) == 2
    assert same(first, rewire(data)) and len(counted) == 2
    assert list(tmp_path.iterdir()) == [file]


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
