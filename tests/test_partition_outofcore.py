"""Parts built on disk: array by array what the parts of the same graph in memory give."""

from __future__ import annotations

import filecmp
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from graphdiffusion.errors import ArgumentError, DataError, DtypeError, GraphError, ShapeError
from graphdiffusion.graph import Graph
from graphdiffusion.partition import (
    cut,
    outofcore,
    read_about,
    read_assignment,
    write_parts,
    write_parts_of_edges,
)

LEAST = 2**16  # bytes of memory: 819 edges at once


def whole(edges: np.ndarray, n: int, undirected: bool, self_loops: float | None) -> Graph:
    ends = torch.from_numpy(edges.astype(np.int64))
    if undirected:
        ends = torch.cat([ends, ends.flip(0)], 1)
    return Graph.from_edge_index(ends, n, self_loops=self_loops)


def same(a: Path, b: Path) -> None:
    """All files, byte for byte; of about.json what does not depend on the way it was made."""
    names = [sorted(str(p.relative_to(f)) for p in f.rglob("*") if p.is_file()) for f in (a, b)]
    assert names[0] == names[1]
    for name in names[0]:
        if name != "about.json":
            assert filecmp.cmp(a / name, b / name, shallow=False), name
    left, right = read_about(a), read_about(b)
    assert (left.nodes, left.edges, left.parts, left.sizes) == (
        right.nodes,
        right.edges,
        right.parts,
        right.sizes,
    )


@st.composite
def graphs(draw: st.DrawFn) -> tuple[np.ndarray, int, np.ndarray]:
    n = draw(st.integers(1, 12))
    pairs = draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=40))
    parts = draw(st.integers(1, min(n, 4)))
    rest = draw(st.lists(st.integers(0, parts - 1), min_size=n - parts, max_size=n - parts))
    order = draw(st.permutations([*range(parts), *rest]))
    return np.array(pairs, dtype=np.int64).reshape(-1, 2).T, n, np.array(order)


@settings(max_examples=60, deadline=None)
@given(graphs(), st.booleans(), st.sampled_from([None, 0.0, 1.0, 2.5]), st.integers(1, 9))
def test_equal_to_parts_in_memory(
    drawn: tuple[np.ndarray, int, np.ndarray], undirected: bool, self_loops: float | None, limit: int
) -> None:
    edges, n, assignment = drawn
    graph = whole(edges, n, undirected, self_loops)
    fields = {"x": torch.arange(3.0 * n).view(n, 3)}
    more: dict[str, Any] = {"undirected": undirected, "self_loops": self_loops, "fields": fields}
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        patch.setattr(outofcore, "_BYTES", LEAST // limit)  # a few edges at once
        patch.setattr(os, "fsync", lambda handle: None)  # thousands of files, which no crash is to survive
        own, other = Path(folder) / "disk", Path(folder) / "memory"
        given = torch.from_numpy(assignment)
        write_parts_of_edges(own, edges, n, assignment=given, memory=LEAST, **more)
        write_parts(other, graph, given, fields)
        same(own, other)


@pytest.mark.parametrize("undirected", [False, True])
@pytest.mark.parametrize("method", ["ldg", "random", "metis"])
def test_cut_on_disk(tmp_path: Path, method: str, undirected: bool) -> None:
    if method == "metis":
        pytest.importorskip("pymetis")
    n = 700
    edges = np.random.default_rng(0).integers(0, n, (2, 5000))
    edges[:, 1000:] = edges[:, 1000:] // 100 * 100 + edges[:1, 1000:] % 7  # groups, and duplicates
    more: dict[str, Any] = {"undirected": undirected, "self_loops": 1.0}
    own = write_parts_of_edges(tmp_path / "disk", edges, n, parts=5, method=method, memory=LEAST, **more)
    assert (own.method, own.seed, own.parts) == (method, 0, 5)
    graph = whole(edges, n, undirected, 1.0)
    assignment = read_assignment(tmp_path / "disk")
    if undirected or method == "random":
        assert torch.equal(assignment, cut(graph, 5, method))
    write_parts(tmp_path / "memory", graph, assignment)
    same(tmp_path / "disk", tmp_path / "memory")


@pytest.mark.parametrize("form", ["path", "text", "map", "chunks", "int32", "columns first"])
def test_forms_of_edges(tmp_path: Path, form: str) -> None:
    n = 50
    edges = np.random.default_rng(1).integers(0, n, (2, 3000))
    np.save(tmp_path / "edges.npy", {"int32": edges.astype(np.int32)}.get(form, edges))
    if form == "columns first":
        np.save(tmp_path / "edges.npy", np.asfortranarray(edges))
    path = tmp_path / "edges.npy"
    forms: dict[str, Any] = {
        "text": str(path),
        "map": np.load(path, mmap_mode="r"),
        "chunks": (edges[:, k : k + 700] for k in range(0, 3000, 700)),
    }
    given = torch.arange(n) % 3
    write_parts_of_edges(tmp_path / "a", forms.get(form, path), n, assignment=given, memory=LEAST)
    write_parts(tmp_path / "b", whole(edges, n, False, None), given)
    same(tmp_path / "a", tmp_path / "b")


def test_automatic_is_the_streaming_method(tmp_path: Path) -> None:
    edges = np.random.default_rng(1).integers(0, 30, (2, 99))
    assert write_parts_of_edges(tmp_path / "a", edges, 30, parts=2).method == "ldg"


def test_an_error_midway_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Any, number: int) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(outofcore._Build, "part", fail)
    edges = np.random.default_rng(1).integers(0, 30, (2, 99))
    with pytest.raises(KeyboardInterrupt):
        write_parts_of_edges(tmp_path / "a", edges, 30, parts=2)
    assert list(tmp_path.iterdir()) == []


def test_refusals(tmp_path: Path) -> None:
    edges = np.array([[0, 1], [1, 2]])
    given = torch.tensor([0, 1, 0])
    bad: list[tuple[Any, dict[str, Any], type[Exception], str]] = [
        (edges, {}, ArgumentError, "give the number of parts"),
        (edges, {"parts": 4}, ArgumentError, "3 nodes can be cut into 1 to 3 parts"),
        (edges, {"parts": 2, "method": "ldq"}, ArgumentError, "Did you mean 'ldg'"),
        (edges, {"parts": 2, "memory": 5}, ArgumentError, "memory must be at least 65536 bytes, got 5"),
        (edges, {"parts": 2, "self_loops": -1.0}, GraphError, "got -1.0"),
        (edges, {"assignment": given[:2]}, GraphError, r"must have 3 numbers.*shape \(2,\)"),
        (edges, {"assignment": given * 2}, GraphError, r"parts of \[2, 0, 1\] nodes"),
        (edges, {"assignment": given, "parts": 3}, GraphError, "each of the 3 parts"),
        (edges, {"assignment": given - 1}, GraphError, "numbers from 0"),
        (edges, {"assignment": given + 0.5}, DtypeError, "must hold integers, got torch.float32"),
        (edges + 1, {"parts": 2}, GraphError, "node 3, but num_nodes=3"),
        (edges - 1, {"parts": 2}, GraphError, "node -1"),
        (edges[0], {"parts": 2}, ShapeError, r"\(2, E\), got \(2,\)"),
        (edges / 2, {"parts": 2}, DtypeError, "integers, got float64"),
        ([edges, edges[0]], {"parts": 2}, ShapeError, r"\(2, E\)"),
        (tmp_path / "no.npy", {"parts": 2}, DataError, r"no\.npy.*give a \.npy file"),
        (tmp_path / "all.npz", {"parts": 2}, DataError, r"all\.npz.*give a \.npy file"),
    ]
    np.savez(tmp_path / "all.npz", edge_index=edges)
    for source, more, error, message in bad:
        with pytest.raises(error, match=message):
            write_parts_of_edges(tmp_path / "a", source, 3, **more)
    assert [p.name for p in tmp_path.iterdir()] == ["all.npz"]
