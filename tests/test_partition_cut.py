"""Cuts of a graph: few edges between parts, balance, every part with a node, the same for a seed."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch
from torch import Tensor

from graphdiffusion.errors import ArgumentError, DtypeError, GraphError
from graphdiffusion.graph import Graph
from graphdiffusion.partition import METHODS, Part, cut, split
from graphdiffusion.partition.cut import cut_lists
from graphdiffusion.partition.neighbours import Neighbours

NAMES = list(METHODS)


@pytest.fixture(autouse=True)
def installed(request: pytest.FixtureRequest) -> None:
    if "metis" in getattr(getattr(request.node, "callspec", None), "params", {}).values():
        pytest.importorskip("pymetis")


def planted(groups: int = 4, size: int = 150, directed: bool = False) -> Graph:
    """Groups with many edges inside and few between, the nodes in a random order."""
    random = np.random.default_rng(0)
    n = groups * size
    inside = random.integers(0, size, (2, 8 * n)) + size * random.integers(0, groups, 8 * n)
    between = random.integers(0, n, (2, n // 2))
    ends = random.permutation(n)[np.concatenate([inside, between], 1)]
    edges = torch.from_numpy(ends)
    return Graph.from_edge_index(
        edges if directed else torch.cat([edges, edges.flip(0)], 1), n, self_loops=1.0
    )


def share(graph: Graph, assignment: Tensor) -> float:
    """Edges between parts, over all."""
    return float((assignment[graph.row.long()] != assignment[graph.col.long()]).double().mean())


def balance(graph: Graph, assignment: Tensor) -> float:
    loads = torch.bincount(assignment, torch.diff(graph.rowptr).double())
    return float(loads.max() / loads.mean())


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_few_edges_between_parts_and_balance(name: str, directed: bool) -> None:
    graph = planted(directed=directed)
    assignment = cut(graph, 4, name)
    least = {"metis": 0.0, "ldg": 0.0, "random": 0.65}[name]
    most = {"metis": 0.07, "ldg": 0.3, "random": 0.8}[name]  # the planted groups cut 0.05
    assert least <= share(graph, assignment) < most
    assert balance(graph, assignment) < 1.08
    assert assignment.dtype == torch.int64 and assignment.shape == (600,)


@pytest.mark.parametrize("name", NAMES)
def test_the_same_for_a_seed(name: str) -> None:
    graph = planted()
    first = cut(graph, 5, name, seed=3)
    assert torch.equal(first, cut(graph, 5, name, seed=3))
    assert not torch.equal(first, cut(graph, 5, name, seed=4))


@pytest.mark.parametrize("name", NAMES)
def test_every_part_has_a_node(name: str) -> None:
    random = np.random.default_rng(0)
    for _ in range(60):
        n = int(random.integers(1, 14))
        edges = torch.from_numpy(random.integers(0, n, (2, int(random.integers(0, 40)))))
        parts = int(random.integers(1, n + 1))
        assignment = cut(Graph.from_edge_index(edges, n), parts, name)
        assert torch.unique(assignment).tolist() == list(range(parts))


@pytest.mark.parametrize("name", NAMES)
def test_a_hub_beyond_the_capacity_of_a_part(name: str) -> None:
    star = torch.stack([torch.zeros(199, dtype=torch.long), torch.arange(1, 200)])
    graph = Graph.from_edge_index(torch.cat([star, star.flip(0)], 1), self_loops=1.0)
    assignment = cut(graph, 50, name)
    assert torch.unique(assignment).tolist() == list(range(50))


def test_automatic(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pymetis")
    graph = planted()
    assert torch.equal(cut(graph, 3), cut(graph, 3, "metis"))
    monkeypatch.setitem(sys.modules, "pymetis", None)
    assert torch.equal(cut(graph, 3), cut(graph, 3, "ldg"))


def test_refusals(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = planted(2, 5)
    for parts in (0, 11, 2.5):
        with pytest.raises(ArgumentError, match=rf"10 nodes can be cut into 1 to 10 parts.* got {parts}\."):
            cut(graph, parts, "ldg")  # type: ignore[arg-type]
    for seed in (-1, 0.5):
        with pytest.raises(ArgumentError, match=rf"must be a whole number from 0, got {seed}\."):
            cut(graph, 2, "ldg", seed)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match=r"no method 'metiz'.*Did you mean 'metis'\?.*auto, metis"):
        cut(graph, 2, "metiz")
    monkeypatch.setitem(sys.modules, "pymetis", None)
    with pytest.raises(ArgumentError, match=r"graphdiffusion\[parts\].*method ldg"):
        cut(graph, 2, "metis")


@pytest.mark.parametrize("name", NAMES)
def test_lists_in_memory_mapped_files(name: str, tmp_path) -> None:
    graph = planted()
    for key in ("rowptr", "col"):
        np.save(tmp_path / f"{key}.npy", getattr(graph, key).numpy())
    rowptr, col = (np.load(tmp_path / f"{key}.npy", mmap_mode="r") for key in ("rowptr", "col"))
    found = cut_lists(Neighbours(rowptr, col, np.diff(rowptr)), 4, name, 0)
    assert torch.equal(torch.from_numpy(found), cut(graph, 4, name))


def test_neighbours_in_both_directions() -> None:
    graph = Graph.from_edge_index(torch.tensor([[0, 1, 1, 2], [1, 0, 2, 2]]), 3, self_loops=0.0)
    lists = Neighbours.of(graph)
    dense = torch.zeros(3, 3)
    for i in range(3):
        for j in lists.col[lists.rowptr[i] : lists.rowptr[i + 1]]:
            dense[i, j] += 1
    own = graph.dense(torch.ones(graph.num_edges))
    assert torch.equal(dense, own + own.T)
    assert lists.edges.tolist() == own.sum(1).tolist()


def brute_force(graph: Graph, assignment: Tensor, number: int) -> dict[str, object]:
    """What a part must hold, node by node and edge by edge."""
    part = assignment.tolist()
    edges = list(zip(graph.row.tolist(), graph.col.tolist(), strict=True))
    nodes = [i for i in range(len(part)) if part[i] == number]
    halos = [
        sorted({j for i, j in edges if part[i] == p and part[j] != p}, key=lambda j: (part[j], j))
        for p in range(max(part) + 1)
    ]
    halo = halos[number]
    local = {node: place for place, node in enumerate(nodes + halo)}
    own = sorted((local[i], local[j], e) for e, (i, j) in enumerate(edges) if part[i] == number)
    asked = [[local[j] for j in other if part[j] == number] for other in halos]
    return {
        "nodes": nodes,
        "halo": halo,
        "halo_counts": tuple(sum(part[j] == p for j in halo) for p in range(len(halos))),
        "send": [row for rows in asked for row in rows],
        "send_counts": tuple(map(len, asked)),
        "first_edge": [min(e for e, (i, _) in enumerate(edges) if i == node) for node in nodes],
        "row": [r for r, _, _ in own],
        "col": [c for _, c, _ in own],
        "places": [e for _, _, e in own],
    }


def plain(part: Part, key: str) -> object:
    value = getattr(part, key)
    return value.tolist() if isinstance(value, Tensor) else value


@pytest.mark.parametrize("directed", [False, True])
def test_parts_by_brute_force(directed: bool) -> None:
    graph = planted(3, 12, directed=directed)
    assignment = cut(graph, 4, "ldg")
    for part in split(graph, assignment):
        for key, wanted in brute_force(graph, assignment, part.number).items():
            assert plain(part, key) == wanted, key


def test_assignments_that_are_refused() -> None:
    graph = planted(1, 3)
    bad = [
        (torch.tensor([0, 1]), GraphError, r"3 numbers from 0.*shape \(2,\)"),
        (torch.tensor([], dtype=torch.int64), GraphError, r"shape \(0,\)"),
        (torch.tensor([[0, 1, 0]]), GraphError, r"shape \(1, 3\)"),
        (torch.tensor([0, -1, 0]), GraphError, "numbers from 0"),
        (torch.tensor([0, 2, 0]), GraphError, r"parts of \[2, 0, 1\] nodes"),
        (torch.tensor([0.0, 1.5, 0.0]), DtypeError, "must hold integers, got torch.float32"),
    ]
    for assignment, error, message in bad:
        with pytest.raises(error, match=message):
            split(graph, assignment)
    for number in (-1, 2):
        with pytest.raises(GraphError, match=rf"the parts 0 to 1, got \[{number}\]"):
            split(graph, torch.tensor([0, 1, 0]), [number])
    assert len(split(graph, np.array([0, 1, 0]))) == 2  # type: ignore[arg-type]
