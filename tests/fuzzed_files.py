"""Small files of every format that the library reads, and what must hold when they are damaged."""

from __future__ import annotations

import dataclasses
import io
import resource
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from rawdata import PARTS, shchur_arrays, write_planetoid
from torch_geometric.data import Data

from graphdiffusion.data import DATASETS, check_data, datasets, load_data, rawfiles, read_folder
from graphdiffusion.errors import GraphDiffusionError
from graphdiffusion.rewiring import Rewire

MEMORY = 256 << 20  # how much the peak of the process may grow in one test; the files have some kilobytes


@pytest.fixture(autouse=True)
def bounded_memory() -> Iterator[None]:
    unit = 1 if sys.platform == "darwin" else 1024
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    yield
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit - before < MEMORY


Files = dict[str, bytes]


@dataclasses.dataclass(frozen=True)
class Source:
    """Files of one format, how they are read, and whether a checksum tells every change of them."""

    name: str
    files: Files
    read: Callable[[Path], Data]
    sealed: bool = False

    def check(self, folder: Path, files: Files, case: str) -> None:
        """Read `files` in an empty folder; `case` names the damage if something is wrong."""
        for old in folder.iterdir():
            old.unlink()
        for name, content in files.items():
            (folder / name).write_bytes(content)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                data = self.read(folder)
        except GraphDiffusionError as error:
            assert files != self.files, f"{case}: the files are whole, but {error}"
            assert str(error).strip() and "\n" not in str(error).strip(), f"{case}: {error}"
            return
        except Exception as error:
            raise AssertionError(f"{case}: {type(error).__name__}: {error}") from error
        check_data(data)
        if self.sealed or files == self.files:
            assert same(data, original(self, folder)), f"{case}: another graph was read without a word"


_originals: dict[str, Data] = {}


def original(source: Source, folder: Path) -> Data:
    if source.name not in _originals:
        whole = folder / "whole"
        whole.mkdir()
        for name, content in source.files.items():
            (whole / name).write_bytes(content)
        _originals[source.name] = source.read(whole)
        for path in [*whole.iterdir()]:
            path.unlink()
        whole.rmdir()
    return _originals[source.name]


def same(first: Data, second: Data) -> bool:
    if set(first.keys()) != set(second.keys()):
        return False
    for key, value in first.items():
        other = second[key]
        if not isinstance(value, torch.Tensor):
            equal = key == "name" or value == other
        else:
            dense = [v if v.layout == torch.strided else v.to_dense() for v in (value, other)]
            equal = np.array_equal(*(v.numpy() for v in dense), equal_nan=value.is_floating_point())
        if not equal:
            return False
    return True


RNG = np.random.default_rng(3)
N = 12
PAIRS = np.array([[i, (i + step) % N] for i in range(N) for step in (1, 3)])
X = RNG.normal(size=(N, 4)).astype(np.float32).round(3)
LABELS = ["red", "green", "?", "blue"] * 3
SPLIT = ["train", "val", "", "test"] * 3
PART = ["train", "dev", "", "test"] * 3


def table(separator: str) -> Files:
    suffix = {",": "csv", "\t": "tsv"}[separator]
    rows = {
        "edges": [["source", "target", "weight"], *([f"n{i}", f"n{j}", f"{i + 1}.5"] for i, j in PAIRS)],
        "features": [["id", "a", "b", "c", "d"], *([f"n{i}", *map(str, X[i])] for i in range(N))],
        "labels": [["id", "label", "split"], *([f"n{i}", LABELS[i], SPLIT[i]] for i in range(N))],
    }
    return {
        f"{name}.{suffix}": "\n".join(separator.join(row) for row in lines).encode()
        for name, lines in rows.items()
    }


def other_table() -> Files:
    """Numbers to predict, two splits, and features in the long format."""
    rows = {
        "edges": [["citing", "cited"], *([str(i), str(j)] for i, j in PAIRS)],
        "features": [["id", "feature", "value"], *([str(i), f"w{i % 5}", "1"] for i in range(N))],
        "labels": [
            ["id", "p", "q", "split_1", "split_2"],
            *([str(i), f"{i}.5", str(i), PART[i], PART[-i]] for i in range(N)),
        ],
    }
    return {
        f"{name}.csv": "\n".join(",".join(row) for row in lines).encode() for name, lines in rows.items()
    }


def packed(arrays: dict[str, np.ndarray], **how) -> bytes:
    out = io.BytesIO()
    (np.savez_compressed if how.get("compressed") else np.savez)(out, **arrays)
    return out.getvalue()


def saved(array: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def matrix(value: sp.spmatrix) -> bytes:
    out = io.BytesIO()
    sp.save_npz(out, value)
    return out.getvalue()


GRAPH = {
    "edge_index": PAIRS.T,
    "edge_weight": np.arange(1.0, len(PAIRS) + 1),
    "x": X,
    "y": np.array([0, 5, -1, 10**10] * 3),
    "train_mask": np.array([True, False, False, False] * 3),
    "val_mask": np.array([False, True, False, False] * 3),
    "test_mask": np.array([False, False, False, True] * 3),
}
TARGETS = {
    "edge_index": PAIRS.T,
    "y": np.where(np.arange(N)[:, None] % 4 == 3, np.nan, X[:, :2]),
    "target_names": np.array(["p", "q"]),
    "node_ids": np.array([f"n{i}" for i in range(N)]),
    "train_mask": np.eye(N, 2, dtype=bool),
    "val_mask": np.eye(N, 2, k=-4, dtype=bool),
}
ADJACENCY = sp.coo_matrix((np.ones(len(PAIRS)), PAIRS.T), shape=(N, N))
SCIPY = {
    "coo": ADJACENCY,
    "csr": ADJACENCY.tocsr(),
    "csc": ADJACENCY.tocsc(),
    "bsr": ADJACENCY.tobsr((3, 3)),
    "dia": ADJACENCY.todia(),
}


def parquet() -> Files:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    tables = {
        "edges": {"s": PAIRS[:, 0], "t": PAIRS[:, 1], "w": np.arange(1.0, len(PAIRS) + 1)},
        "features": {"id": np.arange(N), **{f"f{k}": X[:, k] for k in range(4)}},
        "labels": {"id": np.arange(N), "label": LABELS},
    }
    files = {}
    for name, columns in tables.items():
        out = io.BytesIO()
        pq.write_table(pa.table(columns), out)
        files[f"{name}.parquet"] = out.getvalue()
    return files


def benchmark(name: str, files: Files, sums: Path | None, **size: int) -> Callable[[Path], Data]:
    """Read small files as if they were those of a known data set, with or without its sums."""
    info = dataclasses.replace(DATASETS[name], **size, raw="", files=tuple(files), urls=(), sums=())
    if sums is not None:
        for file, content in files.items():
            (sums / file).write_bytes(content)
        info = dataclasses.replace(
            info, sums=tuple(rawfiles.checksum(sums / file, info.arrays) for file in files)
        )

    def read(folder: Path) -> Data:
        with mock.patch.object(datasets, "dataset_info", lambda _: info):
            return load_data(name, folder, lcc=False)

    return read


def planetoid_files(folder: Path) -> Files:
    write_planetoid(folder, "cora")
    return {f"ind.cora.{part}": (folder / f"ind.cora.{part}").read_bytes() for part in PARTS}


REWIRED = Data(edge_index=torch.from_numpy(np.concatenate([PAIRS.T, PAIRS.T[::-1]], 1)), num_nodes=N)


def rewire(folder: Path) -> Data:
    out = Rewire(top_k=3, cache=folder)(REWIRED.clone())
    out.x, out.y = torch.ones(N, 1), torch.zeros(N, dtype=torch.long)  # what check_data asks for
    return out


def make(name: str, folder: Path) -> Source:
    if name in ("csv", "tsv"):
        return Source(name, table("," if name == "csv" else "\t"), read_folder)
    if name == "npz":
        return Source(name, {"graph.npz": packed(GRAPH)}, lambda f: read_folder(f / "graph.npz"), True)
    if name == "csv of other forms":
        return Source(name, other_table(), read_folder)
    if name == "npz of other forms":
        return Source(name, {"graph.npz": packed(TARGETS)}, lambda f: read_folder(f / "graph.npz"), True)
    if name == "npz compressed":
        files = {"graph.npz": packed(GRAPH, compressed=True)}
        return Source(name, files, lambda f: read_folder(f / "graph.npz"), True)
    if name == "npy":
        files = {"edges.npz": packed({"row": PAIRS[:, 0], "col": PAIRS[:, 1]}), "features.npy": saved(X)}
        return Source(name, files, read_folder)
    if name.startswith("scipy"):
        files = {"edges.npz": matrix(SCIPY[name.split()[1]]), "features.npz": matrix(sp.csr_matrix(X))}
        return Source(name, files, read_folder, True)
    if name == "parquet":
        return Source(name, parquet(), read_folder)
    sums = folder if "sums" in name else None
    if name.startswith("planetoid"):
        files = planetoid_files(folder)
        size = {"features": 5, "classes": 3, "all_nodes": 12, "all_edges": 10}
        return Source(name, files, benchmark("cora", files, sums, **size), sums is not None)
    if name.startswith("shchur"):
        files = {"photo.npz": packed(shchur_arrays())}
        size = {"features": 6, "classes": 3, "all_nodes": 9, "all_edges": 9}
        return Source(name, files, benchmark("photo", files, sums, **size), True)
    assert name == "cache"
    rewire(folder)
    return Source(name, {path.name: path.read_bytes() for path in folder.iterdir()}, rewire, True)


def unsealed(source: Source) -> Source:
    """Arrays that are changed and packed anew are other content; only a SHA-256 can tell."""
    return dataclasses.replace(source, sealed="sums" in source.name or source.name == "cache")


TRIALS = 2  # of each kind of random damage, for each file
NAMES = (
    "csv", "csv of other forms", "tsv", "npz", "npz of other forms", "npz compressed",
    "npy", "scipy coo", "scipy csr", "scipy dia", "parquet",
    "planetoid", "planetoid with sums", "shchur", "shchur with sums", "cache",
)  # fmt: skip


@pytest.fixture
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Source:
    folder = tmp_path / "make"
    folder.mkdir()
    return make(request.param, folder)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    out = tmp_path / "read"
    out.mkdir()
    return out
