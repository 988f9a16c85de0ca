"""Parts on disk: what is written is read, as memory maps; what is damaged or foreign is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch
from torch import Tensor

from graphdiffusion.errors import ArgumentError, DataError, DtypeError, ShapeError, StorageError
from graphdiffusion.graph import Graph
from graphdiffusion.partition import (
    Part,
    SparseRows,
    arrays,
    cut,
    fields,
    read_about,
    read_assignment,
    read_part,
    split,
    store,
    write_parts,
)

NODES, PARTS = 40, 3
GENERATOR = torch.Generator().manual_seed(0)
TENSORS = (*store.ARRAYS, *store.EDGE_FIELDS)


def graph(weighted: bool = False) -> Graph:
    edges = torch.randint(NODES, (2, 150), generator=torch.Generator().manual_seed(1))
    weight = torch.rand(150, generator=GENERATOR).double() + 0.1 if weighted else None
    attributes = torch.rand(150, 2, generator=GENERATOR) if weighted else None
    return Graph.from_edge_index(edges, NODES, weight, 1.0, attributes)


def matrix() -> Any:
    return scipy.sparse.random_array(
        (NODES, 9), density=0.2, format="csr", dtype=np.float32, rng=np.random.default_rng(0)
    )


def equal(a: Part, b: Part) -> None:
    """Every attribute, dtypes included."""
    for name in Part.__dataclass_fields__:
        if name == "derived":
            continue
        left, right = getattr(a, name), getattr(b, name)
        if isinstance(left, Tensor):
            assert left.dtype == right.dtype, name
            assert torch.equal(left, right), name
        else:
            assert left == right, name


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    whole = graph()
    given = {"x": torch.arange(2.0 * NODES).view(NODES, 2), "words": matrix()}
    write_parts(tmp_path / "parts", whole, cut(whole, PARTS, "random"), given, method="random", seed=0)
    return tmp_path / "parts"


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("verify", [False, True])
def test_round_trip(tmp_path: Path, weighted: bool, verify: bool) -> None:
    whole = graph(weighted)
    assignment = cut(whole, PARTS, "ldg", seed=5)
    given = {
        "x": torch.rand(NODES, 3, generator=GENERATOR),
        "y": torch.arange(NODES),
        "half": torch.rand(NODES, 2, generator=GENERATOR).bfloat16(),
        "masks": np.arange(4 * NODES).reshape(NODES, 4) % 3 == 0,
        "big": np.arange(NODES, dtype=">f8"),
    }
    about = write_parts(
        tmp_path / "p", whole, assignment, given, method="ldg", seed=5, about={"data": "own", "k": [1, 2]}
    )
    assert about == read_about(tmp_path / "p")
    assert (about.nodes, about.edges, about.parts) == (NODES, whole.num_edges, PARTS)
    assert (about.method, about.seed, about.about) == ("ldg", 5, {"data": "own", "k": [1, 2]})
    assert about.fields == list(given)
    assert torch.equal(read_assignment(tmp_path / "p"), assignment)
    for part in split(whole, assignment):
        read, found = read_part(tmp_path / "p", part.number, verify=verify)
        equal(read, part)
        own = part.nodes
        for name in ("x", "y", "half"):
            assert torch.equal(found[name], given[name][own])
            assert found[name].dtype == given[name].dtype
        assert torch.equal(found["masks"], torch.from_numpy(given["masks"])[own])
        assert torch.equal(found["big"], torch.arange(NODES).double()[own])
        assert about.sizes[part.number] == {
            "nodes": part.rows,
            "edges": part.num_edges,
            "halo": len(part.halo),
        }


def csr() -> Tensor:
    own = matrix()
    return torch.sparse_csr_tensor(
        *(torch.from_numpy(a) for a in (own.indptr, own.indices, own.data)), own.shape
    )


@pytest.mark.parametrize("form", ["scipy", "coo of scipy", "csr", "coo", "own"])
def test_sparse_fields(tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, wanted = graph(), torch.from_numpy(matrix().toarray())
    make = {
        "scipy": matrix,
        "coo of scipy": lambda: matrix().tocoo(),
        "csr": csr,
        "coo": lambda: csr().to_sparse_coo(),
        "own": lambda: SparseRows.of(matrix()),
    }
    monkeypatch.setattr(fields.deal_entries, "__defaults__", (7,))  # several pieces
    write_parts(tmp_path / "p", whole, cut(whole, PARTS, "random"), {"words": make[form]()})
    places = []
    for number in range(PARTS):
        part, found = read_part(tmp_path / "p", number)
        words = found["words"]
        assert isinstance(words, SparseRows)
        assert words.shape == (part.rows, 9) and words.entries == matrix().nnz
        dense = torch.zeros(words.shape)
        dense[words.pattern.row.long(), words.pattern.col.long()] = words.values
        assert torch.equal(dense, wanted[part.nodes])
        places.append(words.places)
        assert torch.equal(torch.from_numpy(matrix().data)[words.places], words.values)
    assert torch.cat(places).sort().values.tolist() == list(range(matrix().nnz))


def test_fields_in_memory_mapped_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = graph()
    np.save(tmp_path / "x.npy", np.arange(3.0 * NODES).reshape(NODES, 3))
    x = np.load(tmp_path / "x.npy", mmap_mode="r")
    monkeypatch.setattr(fields, "_PIECE", 100)  # a few rows at a time
    write_parts(tmp_path / "p", whole, cut(whole, PARTS, "random"), {"x": x})
    part, found = read_part(tmp_path / "p", 1)
    assert torch.equal(found["x"], torch.from_numpy(np.array(x))[part.nodes])


def test_writing_to_a_tensor_leaves_the_file(folder: Path) -> None:
    first = read_part(folder, 0)[1]["x"]
    kept = first.clone()
    first.zero_()
    assert torch.equal(read_part(folder, 0)[1]["x"], kept)


def test_nothing_is_copied(folder: Path) -> None:
    part, found = read_part(folder, 0)
    maps = Path("/proc/self/maps")
    if not maps.exists():
        pytest.skip("maps of the process are listed on Linux alone")
    mapped = [line.split()[-1] for line in maps.read_text().splitlines() if str(folder) in line]
    assert {Path(own).name for own in mapped} >= {"row.npy", "perm.npy", "x.npy", "words.values.npy"}
    assert part.num_edges and found


@pytest.mark.parametrize("stage", ["split", "write_fields", "write_part", "finish"])
def test_an_error_midway_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    whole, calls = graph(), []
    before = getattr(store, stage)

    def fail(*given: Any, **more: Any) -> Any:
        calls.append(stage)
        if stage != "write_part" or len(calls) == 2:
            raise KeyboardInterrupt
        return before(*given, **more)

    monkeypatch.setattr(store, stage, fail)
    with pytest.raises(KeyboardInterrupt):
        write_parts(tmp_path / "p", whole, cut(whole, PARTS, "random"), {"x": torch.ones(NODES)})
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: arrays.ArrayFile, rows: Any) -> None:
        with arrays.naming(self.path):
            raise OSError(28, "No space left on device")

    whole = graph()
    monkeypatch.setattr(arrays.ArrayFile, "append", full)
    with pytest.raises(StorageError, match=r"cannot write .*x\.npy: No space left on device\."):
        write_parts(tmp_path / "p", whole, cut(whole, PARTS, "random"), {"x": torch.ones(NODES)})
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_exists(folder: Path) -> None:
    whole = graph()
    with pytest.raises(StorageError, match="exists already: choose another folder"):
        write_parts(folder, whole, cut(whole, PARTS, "random"))
    (folder.parent / "empty").mkdir()
    assert write_parts(folder.parent / "empty", whole, cut(whole, 2, "random")).parts == 2


def test_a_part_that_is_not_there(folder: Path) -> None:
    for number in (-1, PARTS):
        with pytest.raises(ArgumentError, match=rf"holds the parts 0 to 2, got {number}\."):
            read_part(folder, number)
    with pytest.raises(DataError, match="there is no folder"):
        read_part(folder / "other", 0)


def files(folder: Path) -> list[Path]:
    return sorted(own for own in (folder / "1").rglob("*") if own.is_file())


def test_missing_files(folder: Path) -> None:
    for path in files(folder):
        content = path.read_bytes()
        path.unlink()
        with pytest.raises(DataError, match=rf"{path.name}.*: write the parts again"):
            read_part(folder, 1)
        path.write_bytes(content)
    read_part(folder, 1)


@pytest.mark.parametrize("damage", ["shorter", "empty", "head", "flipped"])
def test_damaged_files(folder: Path, damage: str) -> None:
    for path in [*files(folder), folder / "about.json"]:
        content = path.read_bytes()
        changed = {
            "shorter": content[:-1],
            "empty": b"",
            "head": b"PK" + content[2:],
            "flipped": content[:-6] + bytes([content[-6] ^ 1]) + content[-5:],
        }
        if path.suffix == ".json" and damage == "shorter":
            continue  # a line end
        path.write_bytes(changed[damage])
        with pytest.raises(DataError, match=rf"{path.name}.*: write the parts again"):
            read_part(folder, 1)
        path.write_bytes(content)
    read_part(folder, 1)


def test_pickles_are_refused(folder: Path) -> None:
    path = folder / "1" / "row.npy"
    np.save(path, np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(DataError, match=r"row\.npy"):
        read_part(folder, 1)


def test_another_array_of_the_same_name(folder: Path) -> None:
    path = folder / "1" / "row.npy"
    np.save(path, np.load(path).astype(np.int64))
    with pytest.raises(DataError, match=r"row\.npy holds <i8 of shape .* where <i4"):
        read_part(folder, 1, verify=False)


def test_parts_of_two_folders(folder: Path, tmp_path: Path) -> None:
    whole = graph()
    write_parts(tmp_path / "other", whole, cut(whole, PARTS, "random", seed=9), {"x": torch.ones(NODES)})
    (folder / "1").rename(tmp_path / "first")
    (tmp_path / "other" / "2").rename(folder / "1")
    with pytest.raises(DataError, match="is not part 1 of what"):
        read_part(folder, 1)


def test_foreign_formats(folder: Path) -> None:
    path = folder / "about.json"
    body = json.loads(path.read_text())
    path.write_text(json.dumps(body | {"format": 2}))
    with pytest.raises(DataError, match=r"about\.json has format 2, and this version .* reads format 1"):
        read_about(folder)
    path.write_text(json.dumps(body | {"nodes": 41}))
    with pytest.raises(DataError, match=r"about\.json was changed or damaged"):
        read_about(folder)
    for text in ("[]", '{"kind": "run"}', '"x"'):
        path.write_text(text)
        with pytest.raises(DataError, match=r"about\.json does not describe a graph in parts"):
            read_about(folder)


def test_fields_that_are_refused(tmp_path: Path) -> None:
    whole = graph()
    assignment = cut(whole, PARTS, "random")
    bad: list[tuple[str, Any, type[Exception], str]] = [
        (
            "x",
            torch.ones(NODES + 1, 2),
            ShapeError,
            r"'x' must have a row for each of the 40 nodes.*\(41, 2\)",
        ),
        ("x", np.float32(1), ShapeError, "must have a row"),
        ("x", matrix()[:3], ShapeError, r"got shape \(3, 9\)"),
        ("x", np.array(["a"] * NODES), DtypeError, "must hold numbers"),
        ("a/b", torch.ones(NODES), ArgumentError, "cannot be called 'a/b'"),
    ]
    for name, value, error, message in bad:
        with pytest.raises(error, match=message):
            write_parts(tmp_path / "p", whole, assignment, {name: value})
    assert list(tmp_path.iterdir()) == []
