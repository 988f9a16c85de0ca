"""Damaged files of every format: the readers return a sound graph or say what is wrong, and nothing else.

Where a format has a checksum (the arrays of an .npz, raw files with a known SHA-256, the cache of rewired
graphs), a damaged file is refused or gives the same graph as before. Memory stays small throughout.
"""

from __future__ import annotations

import dataclasses
import io
import resource
import struct
import sys
import warnings
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from unittest import mock

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from fuzz import BYTES, damage
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
            equal = torch.equal(*dense)
        if not equal:
            return False
    return True


# ---------------------------------------------------------------- the files before the damage

RNG = np.random.default_rng(3)
N = 12
PAIRS = np.array([[i, (i + step) % N] for i in range(N) for step in (1, 3)])
X = RNG.normal(size=(N, 4)).astype(np.float32).round(3)
LABELS = ["red", "green", "?", "blue"] * 3
SPLIT = ["train", "val", "", "test"] * 3


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


NAMES = (
    "csv", "tsv", "npz", "npz compressed", "npy", "scipy coo", "scipy csr", "scipy dia", "parquet",
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


# ---------------------------------------------------------------- damage to bytes, in every format

TRIALS = 2


@pytest.mark.parametrize("source", NAMES, indirect=True)
def test_bytes(source: Source, folder: Path) -> None:
    source.check(folder, source.files, f"{source.name}: whole")
    for kind, change in BYTES.items():
        for file, content in source.files.items():
            for trial in range(TRIALS):
                case = f"{source.name}: {kind}"
                damage(case)
                damaged = change(content, Random(f"{case} {file} {trial}"))
                source.check(folder, source.files | {file: damaged}, f"{case}, {file}, trial {trial}")


@pytest.mark.parametrize("source", NAMES, indirect=True)
def test_files(source: Source, folder: Path) -> None:
    """Whole files missing, or in the place of others."""
    for file in source.files:
        damage(f"{source.name}: a file missing")
        rest = {name: content for name, content in source.files.items() if name != file}
        unsealed(source).check(folder, rest, f"without {file}")
        for other in source.files:
            damage(f"{source.name}: a file in the place of another")
            swapped = source.files | {file: source.files[other]}
            unsealed(source).check(folder, swapped, f"{other} in the place of {file}")
        damage(f"{source.name}: a file of another format")
        unsealed(source).check(folder, source.files | {file: packed({"x": X})}, f"{file} is an .npz")
        damage(f"{source.name}: a file of HTML")
        source.check(folder, source.files | {file: b"<html>404: Not Found</html>"}, f"{file} is HTML")


# ---------------------------------------------------------------- damage to text

EXTREME = (
    "1e999", "-1e999", "nan", "inf", "-0", "1e-400", "0x10", "1_000", "9" * 400, "9" * 5000, "-" + "9" * 30,
    "2000000000", "\u0663\u0664", "\u221e", "1,5", "1.5.5", "", " ", "?", "None", "True", "'", '"', '""',
    "=1+1", "\u00e9", "\U0001f600", "\x00", "\x1b[31m", "\u202e", "a" * 200_000,
)  # fmt: skip

TEXT: dict[str, Callable[[str, Random], str | bytes]] = {
    f"the cell {value[:12]!r}{'...' * (len(value) > 12)} of {len(value)} characters": (
        lambda text, chance, value=value: in_a_cell(text, chance, lambda _: value)
    )
    for value in EXTREME
} | {
    "a cell twice": lambda text, chance: in_a_cell(
        text, chance, lambda cell: f"{cell}{separator(text)}{cell}"
    ),
    "a cell quoted": lambda text, chance: in_a_cell(text, chance, lambda cell: f'"{cell}"'),
    "a quote left open": lambda text, chance: in_a_cell(text, chance, lambda cell: f'"{cell}'),
    "a cell with a line end": lambda text, chance: in_a_cell(text, chance, lambda cell: f'"{cell}\n"'),
    "a cell in upper case": lambda text, chance: in_a_cell(text, chance, str.upper),
    "a cell with spaces": lambda text, chance: in_a_cell(text, chance, lambda cell: f" {cell}\u00a0"),
    "a separator lost": lambda text, chance: in_a_line(
        text, chance, lambda line: line.replace(separator(text), "", 1)
    ),
    "semicolons": lambda text, chance: text.replace(separator(text), ";"),
    "the other separator": lambda text, chance: text.replace(
        separator(text), "\t" if separator(text) == "," else ","
    ),
    "a separator at the end": lambda text, chance: in_a_line(
        text, chance, lambda line: line + separator(text)
    ),
    "a line lost": lambda text, chance: in_a_line(text, chance, lambda line: ""),
    "a line twice": lambda text, chance: in_a_line(text, chance, lambda line: f"{line}\n{line}"),
    "a line cut": lambda text, chance: in_a_line(text, chance, lambda line: line[: len(line) // 2]),
    "a comment": lambda text, chance: in_a_line(text, chance, lambda line: f"# made by hand\n{line}"),
    "lines out of order": lambda text, chance: "\n".join(
        chance.sample(text.split("\n"), text.count("\n") + 1)
    ),
    "no header": lambda text, chance: text.partition("\n")[2],
    "only a header": lambda text, chance: text.partition("\n")[0],
    "two headers": lambda text, chance: f"{text.partition(chr(10))[0]}\n{text}",
    "carriage returns": lambda text, chance: text.replace("\n", "\r"),
    "mixed line ends": lambda text, chance: text.replace("\n", "\r\n", text.count("\n") // 2),
    "vertical tabs for line ends": lambda text, chance: text.replace("\n", "\v"),
    "blank lines": lambda text, chance: text.replace("\n", "\n\n \n"),
    "two byte order marks": lambda text, chance: "\ufeff\ufeff" + text,
    "UTF-16": lambda text, chance: text.encode("utf-16"),
    "Latin-1": lambda text, chance: in_a_cell(text, chance, lambda cell: cell + "\u00e9").encode("latin-1"),
    "EBCDIC": lambda text, chance: text.encode("cp500"),
    "half a character": lambda text, chance: (text + "\u20ac").encode()[:-1],
}


def separator(text: str) -> str:
    return "\t" if "\t" in text else ","


def in_a_line(text: str, chance: Random, change: Callable[[str], str]) -> str:
    lines = text.split("\n")
    k = chance.randrange(len(lines))
    lines[k] = change(lines[k])
    return "\n".join(lines)


def in_a_cell(text: str, chance: Random, change: Callable[[str], str]) -> str:
    def one(line: str) -> str:
        cells = line.split(separator(text))
        k = chance.randrange(len(cells))
        cells[k] = change(cells[k])
        return separator(text).join(cells)

    return in_a_line(text, chance, one)


@pytest.mark.parametrize("source", ["csv", "tsv"], indirect=True)
def test_text(source: Source, folder: Path) -> None:
    for kind, change in TEXT.items():
        for file, content in source.files.items():
            for trial in range(TRIALS):
                damage(f"text: {kind}")
                damaged = change(content.decode(), Random(f"{source.name} {kind} {file} {trial}"))
                damaged = (
                    damaged if isinstance(damaged, bytes) else damaged.encode("utf-8", "surrogatepass")
                )
                case = f"{source.name}: {kind}, {file}, trial {trial}"
                source.check(folder, source.files | {file: damaged}, case)


# ---------------------------------------------------------------- damage to arrays

Change = Callable[[np.ndarray, Random], "np.ndarray | bytes"]


def with_value(value: float | int) -> Change:
    def change(array: np.ndarray, chance: Random) -> np.ndarray:
        dtype = array.dtype
        if not isinstance(value, bool) and (
            dtype.kind == "b" or not np.can_cast(np.min_scalar_type(value), dtype)
        ):
            dtype = (
                np.result_type(dtype, np.min_scalar_type(value)) if dtype.kind in "biuf" else np.dtype("f8")
            )
        out = array.astype(dtype).copy()
        if out.size:
            out.flat[chance.randrange(out.size)] = value
        return out

    return change


def header(descr: str, shape: str, order: str = "False") -> bytes:
    text = f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


def claims(descr: str, shape: str, **how: str) -> Change:
    return lambda array, chance: header(descr, shape, **how) + array.tobytes()


ARRAYS: dict[str, Change] = {
    f"the value {value}": with_value(value)
    for value in (
        -1,
        -2,
        0,
        12,
        2**31 - 1,
        2**31,
        2**53,
        2**63 - 1,
        2**64 - 1,
        -(2**63),
        np.nan,
        np.inf,
        1e39,
    )
} | {
    "float": lambda array, chance: array.astype(np.float64),
    "complex": lambda array, chance: array.astype(np.complex128),
    "float16": lambda array, chance: array.astype(np.float16),
    "bool": lambda array, chance: array.astype(bool),
    "int8": lambda array, chance: array.astype(np.int8),
    "unsigned": lambda array, chance: array.astype(np.uint64),
    "text": lambda array, chance: array.astype(str),
    "byte strings": lambda array, chance: array.astype("S"),
    "dates": lambda array, chance: array.astype(np.int64).astype("M8[s]"),
    "objects": lambda array, chance: array.astype(object),
    "records": lambda array, chance: np.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f4")]),
    "big endian": lambda array, chance: array.astype(array.dtype.newbyteorder(">")),
    "Fortran order": lambda array, chance: np.asfortranarray(array),
    "a number": lambda array, chance: np.array(3),
    "empty": lambda array, chance: array[:0],
    "no columns": lambda array, chance: np.zeros((3, 0), dtype=array.dtype),
    "one dimension less": lambda array, chance: array.ravel(),
    "one dimension more": lambda array, chance: array[None],
    "transposed": lambda array, chance: array.T,
    "one entry less": lambda array, chance: array[..., :-1],
    "one entry more": lambda array, chance: np.concatenate([array, array[..., -1:]], -1),
    "rows shuffled": lambda array, chance: array[chance.sample(range(len(array)), len(array))],
    "all zero": lambda array, chance: np.zeros_like(array),
    "all one": lambda array, chance: np.ones_like(array),
    "a header that claims 2**40 rows": claims("'<f4'", "(1099511627776, 4)"),
    "a header that claims 2**63 rows": claims("'<i8'", "(9223372036854775808,)"),
    "a header that claims 10**9 empty rows": claims("'<i8'", "(1000000000, 0)"),
    "a header with a negative shape": claims("'<i8'", "(-1, -24)"),
    "a header with a shape of words": claims("'<i8'", "('a',)"),
    "a header without a shape": claims("'<i8'", "None"),
    "a header with texts of no length": claims("'<U0'", "(1000000000,)"),
    "a header with nothings": claims("'|V0'", "(1000000000,)"),
    "a header with an unknown type": claims("'<q9'", "(3,)"),
    "a header with a nested type": claims("[('a', [('b', '<i4')])]", "(3,)"),
    "a header with objects": claims("'|O'", "(3,)"),
    "a header with code": claims("__import__('os').getcwd()", "(3,)"),
    "a header with a deep nest": claims("(" * 90 + ")" * 90, "(3,)"),
    "a header of 20,000 characters": claims("'<i8'" + " " * 20_000, "(3,)"),
    "a header with no order": claims("'<i8'", "(3,)", order="'no'"),
    "a header of version 3": lambda array, chance: b"\x93NUMPY\x03\x00" + saved(array)[8:],
    "a header of version 9": lambda array, chance: b"\x93NUMPY\x09\x00" + saved(array)[8:],
    "a header cut": lambda array, chance: saved(array)[:20],
    "no array": lambda array, chance: b"text",
    "a pickle": lambda array, chance: b"\x80\x04K\x01.",
}


def members(content: bytes) -> Files:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {info.filename: archive.read(info) for info in archive.infolist()}


def zipped(entries: Files, method: int = zipfile.ZIP_STORED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    return out.getvalue()


def loaded(content: bytes) -> np.ndarray:
    return np.load(io.BytesIO(content), allow_pickle=False)


def array_bytes(change: Change, array: np.ndarray, chance: Random) -> bytes:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        out = change(array, chance)
    if isinstance(out, bytes):
        return out
    stream = io.BytesIO()
    np.lib.format.write_array(stream, out, allow_pickle=True)
    return stream.getvalue()


WITH_ARRAYS = (
    "npz", "scipy coo", "scipy csr", "scipy csc", "scipy bsr", "scipy dia", "shchur", "shchur with sums",
    "cache",
)  # fmt: skip


@pytest.mark.parametrize("source", WITH_ARRAYS, indirect=True)
def test_arrays(source: Source, folder: Path) -> None:
    reader = unsealed(source)
    for file, content in source.files.items():
        entries = members(content)
        for kind, change in ARRAYS.items():
            for member, stored in entries.items():
                case = f"{source.name.split()[0]} array: {kind}"
                try:
                    damaged = array_bytes(change, loaded(stored), Random(f"{case} {file} {member}"))
                except (ValueError, TypeError, IndexError, OverflowError):
                    continue  # this array cannot be changed so
                damage(case)
                whole = source.files | {file: zipped(entries | {member: damaged})}
                reader.check(folder, whole, f"{source.name}: {kind}, {file}, {member}")


@pytest.mark.parametrize("source", ["npy"], indirect=True)
def test_bare_array(source: Source, folder: Path) -> None:
    for kind, change in ARRAYS.items():
        try:
            damaged = array_bytes(change, X, Random(kind))
        except (ValueError, TypeError, IndexError, OverflowError):
            continue
        damage(f"npy array: {kind}")
        source.check(folder, source.files | {"features.npy": damaged}, f"npy: {kind}")


# ---------------------------------------------------------------- damage to archives


def declared(content: bytes, size: int, offset: int) -> bytes:
    """Another number in the directory's entry of the last member."""
    out = bytearray(content)
    struct.pack_into("<I", out, out.rindex(b"PK\x01\x02") + offset, size)
    return bytes(out)


ARCHIVES: dict[str, Callable[[Files, str], bytes]] = {
    "a member missing": lambda entries, member: zipped({k: v for k, v in entries.items() if k != member}),
    "a member renamed": lambda entries, member: zipped(
        {(k if k != member else f"my_{k}"): v for k, v in entries.items()}
    ),
    "a member without its suffix": lambda entries, member: zipped(
        {(k if k != member else k.removesuffix(".npy")): v for k, v in entries.items()}
    ),
    "a member in a folder": lambda entries, member: zipped(
        {(k if k != member else f"../{k}"): v for k, v in entries.items()}
    ),
    "a member with and without its suffix": lambda entries, member: zipped(
        entries | {member.removesuffix(".npy"): entries[member]}
    ),
    "a member twice": lambda entries, member: zipped_twice(entries, member),
    "a member emptied": lambda entries, member: zipped(entries | {member: b""}),
    "a member cut": lambda entries, member: zipped(entries | {member: entries[member][:-4]}),
    "a member too long": lambda entries, member: zipped(entries | {member: entries[member] + b"more"}),
    "a member of text": lambda entries, member: zipped(entries | {"README": b"a graph"}),
    "a folder as a member": lambda entries, member: zipped(entries | {"folder/": b""}),
    "an array too many": lambda entries, member: zipped(entries | {"more.npy": saved(X)}),
    "an array with objects too many": lambda entries, member: zipped(
        entries | {"more.npy": array_bytes(lambda array, _: array.astype(object), X, Random(0))}
    ),
    "no members": lambda entries, member: zipped({}),
    "bzip2": lambda entries, member: zipped(entries, zipfile.ZIP_BZIP2),
    "LZMA": lambda entries, member: zipped(entries, zipfile.ZIP_LZMA),
    "a size of 4 GB": lambda entries, member: declared(zipped(entries), 0xFFFFFFF0, 24),
    "a size of 0": lambda entries, member: declared(zipped(entries), 0, 24),
    "a compressed size of 4 GB": lambda entries, member: declared(zipped(entries), 0xFFFFFFF0, 20),
    "a compressed size of 0": lambda entries, member: declared(zipped(entries), 0, 20),
    "another checksum": lambda entries, member: declared(zipped(entries), 7, 16),
    "an offset outside": lambda entries, member: declared(zipped(entries), 0xFFFFFFF0, 42),
    "an offset inside another member": lambda entries, member: declared(zipped(entries), 3, 42),
    "an encrypted member": lambda entries, member: declared(zipped(entries), 1, 8),
    "an archive in an archive": lambda entries, member: zipped({member: zipped(entries)}),
    "zeros that were compressed": lambda entries, member: zipped(
        entries | {member: header("'<f8'", "(2000000,)") + bytes(16_000_000)}, zipfile.ZIP_DEFLATED
    ),
}


def zipped_twice(entries: Files, member: str) -> bytes:
    out = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(out, "w") as archive:
        warnings.simplefilter("ignore")
        for name, content in [*entries.items(), (member, entries[member])]:
            archive.writestr(name, content)
    return out.getvalue()


@pytest.mark.parametrize("source", ["npz", "scipy csr", "shchur with sums", "cache"], indirect=True)
def test_archives(source: Source, folder: Path) -> None:
    reader = unsealed(source)
    for file, content in source.files.items():
        entries = members(content)
        for kind, change in ARCHIVES.items():
            for member in entries:
                damage(f"archive: {kind}")
                damaged = change(entries, member)
                reader.check(
                    folder, source.files | {file: damaged}, f"{source.name}: {kind}, {file}, {member}"
                )


# ---------------------------------------------------------------- damage to Parquet tables


def test_parquet_columns(folder: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    source = make("parquet", folder)
    nothing = pa.nulls(N)
    columns: dict[str, Callable[[], object]] = {
        "numbers": lambda: pa.array(range(N)),
        "fractions": lambda: pa.array([k + 0.5 for k in range(N)]),
        "text": lambda: pa.array([f"a{k}" for k in range(N)]),
        "large text": lambda: pa.array(["b" * 1000] * N, pa.large_string()),
        "categories": lambda: pa.array(["a", "b", None] * (N // 3)).dictionary_encode(),
        "nothing": lambda: nothing,
        "some nothing": lambda: pa.array([None, 1] * (N // 2)),
        "NaN": lambda: pa.array([float("nan")] * N),
        "infinity": lambda: pa.array([float("inf")] * N),
        "truth values": lambda: pa.array([True, False] * (N // 2)),
        "decimals": lambda: pa.array([1] * N).cast(pa.decimal128(25, 2)),
        "times": lambda: pa.array(range(N), pa.timestamp("us")),
        "times out of range": lambda: pa.array([2**60] * N, pa.timestamp("ms")),
        "dates": lambda: pa.array(range(N), pa.date32()),
        "bytes": lambda: pa.array([b"\xff"] * N),
        "fixed bytes": lambda: pa.array([b"\xff\x00"] * N, pa.binary(2)),
        "lists": lambda: pa.array([[1, 2]] * N),
        "structures": lambda: pa.array([{"a": 1}] * N),
        "maps": lambda: pa.array([[("a", 1)]] * N, pa.map_(pa.string(), pa.int64())),
        "half precision": lambda: pa.array(np.ones(N, np.float16)),
        "unsigned 64 bits": lambda: pa.array([2**64 - 1] * N, pa.uint64()),
    }
    for kind, column in columns.items():
        for file, content in source.files.items():
            table = pq.read_table(io.BytesIO(content)).slice(0, N)
            for k, name in enumerate(table.column_names):
                damage(f"parquet column: {kind}")
                out = io.BytesIO()
                pq.write_table(table.set_column(k, name, column()), out)
                source.check(
                    folder, source.files | {file: out.getvalue()}, f"parquet: {kind}, {file}, {name}"
                )
    shapes: dict[str, Callable[[object], object]] = {
        "no rows": lambda table: table.slice(0, 0),
        "no columns": lambda table: table.select([]),
        "one column": lambda table: table.select([0]),
        "a column twice": lambda table: table.append_column(table.field(0), table.column(0)),
        "a column more": lambda table: table.append_column("more", pa.array(range(table.num_rows))),
        "columns in another order": lambda table: table.select(table.column_names[::-1]),
        "an index of pandas": lambda table: table.append_column("__index_level_0__", table.column(0)),
        "a name of no length": lambda table: table.rename_columns(["", *table.column_names[1:]]),
        "rows in many groups": lambda table: table,
    }
    for kind, change in shapes.items():
        for file, content in source.files.items():
            damage(f"parquet table: {kind}")
            out = io.BytesIO()
            size = 2 if kind == "rows in many groups" else None
            pq.write_table(change(pq.read_table(io.BytesIO(content))), out, row_group_size=size)
            source.check(folder, source.files | {file: out.getvalue()}, f"parquet: {kind}, {file}")


# ---------------------------------------------------------------- damage to pickles

OPERATIONS = b"()]}.0123abcdeghijlopqrstuBCDFGIJKLMNOPQRSTUVX" + bytes(range(0x80, 0x99))


@pytest.mark.parametrize("source", ["planetoid", "planetoid with sums"], indirect=True)
def test_pickles(source: Source, folder: Path) -> None:
    changes: dict[str, Callable[[bytes, Random], bytes]] = {
        f"the operation {chr(code)!r} somewhere": lambda content, chance, code=code: (
            content[: (k := chance.randrange(len(content)))] + bytes([code]) + content[k + 1 :]
        )
        for code in OPERATIONS
    }
    for name in (b"os\nsystem", b"__builtin__\neval", b"numpy\nload", b"builtins\ngetattr", b"torch\nload"):
        changes[f"the name {name.decode().replace(chr(10), '.')}"] = lambda content, chance, name=name: (
            content.replace(b"numpy\nndarray", name).replace(b"__builtin__\nlist", name)
        )
    for kind, change in changes.items():
        for part in PARTS:
            damage(f"pickle: {kind}")
            file = f"ind.cora.{part}"
            damaged = change(source.files[file], Random(f"{kind} {part}"))
            source.check(folder, source.files | {file: damaged}, f"{source.name}: {kind}, {file}")
