"""Files that claim more than they hold: refused by size, in a sentence, before memory is taken."""

import io
import struct
import subprocess
import sys
import tracemalloc
import zipfile

import numpy as np
import pytest
import scipy.sparse as sp

from graphdiffusion.data import limits, read_folder, read_graph
from graphdiffusion.errors import DataError

MEMORY = 8 << 30  # of the machine that the limits are computed for in these tests


@pytest.fixture(autouse=True)
def machine(monkeypatch):
    """A machine with 8 GiB: a file may take 4.29 GB."""
    monkeypatch.setattr(limits, "_machine", lambda: MEMORY)
    monkeypatch.setattr(limits, "_CGROUPS", ())


@pytest.fixture
def refused(tmp_path):
    """Read a graph that must be refused with a sentence, and with no more than 64 MB of memory."""

    def _refused(words, *names):
        tracemalloc.start()
        try:
            with pytest.raises(DataError) as caught:
                if len(names) == 1 and names[0] == "graph.npz":
                    read_folder(tmp_path / "graph.npz")
                else:
                    read_graph(*(tmp_path / name for name in names))
            assert tracemalloc.get_traced_memory()[1] < 64 << 20
        finally:
            tracemalloc.stop()
        for word in words:
            assert word in str(caught.value)

    return _refused


def header(dtype: str, shape: tuple[int, ...]) -> bytes:
    out = io.BytesIO()
    about = {"descr": np.dtype(dtype).str, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(out, about)
    return out.getvalue()


def npy(array: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def zeros(dtype: str, shape: tuple[int, ...]) -> "Zeros":
    return Zeros(header(dtype, shape), int(np.prod(shape)) * np.dtype(dtype).itemsize)


class Zeros:
    """A member of a zip that holds a header and then nothing but zeros: a thousandth of its size."""

    def __init__(self, start: bytes, size: int):
        self.start, self.size = start, size


def write_npz(path, members: dict[str, bytes | Zeros]) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for key, content in members.items():
            with archive.open(f"{key}.npy", "w", force_zip64=True) as file:
                if isinstance(content, bytes):
                    file.write(content)
                    continue
                file.write(content.start)
                for start in range(0, content.size, 1 << 22):
                    file.write(bytes(min(1 << 22, content.size - start)))


EDGES = npy(np.array([[0, 1], [1, 2]]))


def test_node_number_of_two_billion(tmp_path, refused):
    np.savez(tmp_path / "graph.npz", edge_index=np.array([[0, 1], [1, 2_000_000_000]]))
    refused(
        ["names node 2,000,000,000", "at most 1,000,000 are plausible", "number the nodes"], "graph.npz"
    )
    largest = np.array([[0], [2**64 - 1]], dtype=np.uint64)
    np.savez(tmp_path / "graph.npz", edge_index=largest)
    refused(["names node 18,446,744,073,709,551,615"], "graph.npz")


def test_node_numbers_of_a_table_are_names(tmp_path):
    (tmp_path / "edges.csv").write_text(f"0,2000000000\n2000000000,{'9' * 5000}\n")
    assert read_graph(tmp_path / "edges.csv").node_ids == ["0", "2000000000", "9" * 5000]
    np.savez(tmp_path / "edges.npz", edge_index=np.array([[0], [2_000_000_000]]))
    assert read_graph(tmp_path / "edges.npz").node_ids == ["0", "2000000000"]


def test_isolated_nodes_are_legitimate(tmp_path):
    sp.save_npz(tmp_path / "edges.npz", sp.coo_matrix(([1.0], ([0], [1])), shape=(2000, 2000)))
    assert read_graph(tmp_path / "edges.npz").num_nodes == 2000
    np.savez(tmp_path / "graph.npz", edge_index=np.array([[0], [1999]]))
    assert read_folder(tmp_path / "graph.npz").num_nodes == 2000


def test_labels_are_numbered_densely(tmp_path):
    y = np.array([10**10, 0, 5, -1, 0], dtype=np.int64)
    np.savez(tmp_path / "graph.npz", edge_index=np.array([[0], [1]]), y=y)
    data = read_folder(tmp_path / "graph.npz")
    assert data.class_names == ["0", "5", "10000000000"]
    assert data.y.tolist() == [2, 0, 1, -1, 0]
    large = np.array([2**64 - 1, 0, 7], dtype=np.uint64)
    np.savez(tmp_path / "graph.npz", edge_index=np.array([[0], [1]]), y=large)
    assert read_folder(tmp_path / "graph.npz").class_names == ["0", "7", "18446744073709551615"]


@pytest.mark.parametrize("kind", ["coo", "csc", "dia"])
def test_shape_of_a_sparse_matrix(kind, tmp_path, refused):
    n = 200_000_000
    parts = {"coo": {"row": [0, 1, 2], "col": [1, 2, 0]}, "dia": {"offsets": [1]}}.get(kind, {})
    if kind == "csc":  # its columns are counted by an array, its rows are not
        parts = {"indices": [0, 1, 2], "indptr": [0, 1, 2, 3]}
    shape = (n, 3) if kind == "csc" else (n, n)
    data = np.ones((1, 3)) if kind == "dia" else np.ones(3)
    np.savez(tmp_path / "m.npz", format=kind, shape=shape, data=data, **parts)
    (tmp_path / "edges.csv").write_text("0,1\n")
    refused([f"holds a matrix of the shape ({n}, ", "at most 1,000,000"], "edges.csv", "m.npz")
    if kind != "csc":
        refused([f"holds a matrix of the shape ({n}, {n})"], "m.npz")


def test_csr_matrix_of_many_nodes(tmp_path, refused, monkeypatch):
    """All of its row pointers are in the file, and unpack from a thousandth of their size."""
    n = 2_000_000
    monkeypatch.setattr(limits, "_machine", lambda: MEMORY // 10)
    members = {
        "format": npy(np.array(b"csr")),
        "shape": npy(np.array([n, n])),
        "data": npy(np.ones(0)),
        "indices": npy(np.ones(0, np.int32)),
        "indptr": zeros("i4", (n + 1,)),
    }
    write_npz(tmp_path / "edges.npz", members)
    assert (tmp_path / "edges.npz").stat().st_size < 10_000
    refused(["a graph of 2,000,000 nodes and 0 edges would take 600 MB of memory"], "edges.npz")


@pytest.mark.parametrize(
    ("key", "shape", "words"),
    [
        ("x", (2**40, 4), "17.6 TB"),
        ("x", (2**62, 2**62), "EB"),
        ("y", (2**50,), "PB"),
        ("edge_index", (2, 2**36), "GB"),
        ("unused", (2**40,), "TB"),
    ],
)
def test_zip_that_declares_too_much(key, shape, words, tmp_path, refused):
    """The directory of the archive says how large its content is; it is read before the content."""
    write_npz(tmp_path / "graph.npz", {"edge_index": EDGES, key: header("f4", shape)})
    content = bytearray((tmp_path / "graph.npz").read_bytes())
    declared = min(int(np.prod([float(size) for size in shape])) * 4, 2**63 - 1)
    place = content.rindex(b"PK\x01\x02")  # the entry of the last member in the directory
    extra = struct.pack("<HHQ", 1, 8, declared)  # sizes beyond 32 bits are in a field of their own
    name_length = struct.unpack_from("<H", content, place + 28)[0]
    struct.pack_into("<I", content, place + 24, 0xFFFFFFFF)
    struct.pack_into("<H", content, place + 30, len(extra))
    content[place + 46 + name_length : place + 46 + name_length] = extra
    end = content.rindex(b"PK\x05\x06")
    struct.pack_into("<I", content, end + 12, struct.unpack_from("<I", content, end + 12)[0] + len(extra))
    (tmp_path / "graph.npz").write_bytes(content)
    refused(["graph.npz: its content would take", words, "4.29 GB"], "graph.npz")


@pytest.mark.parametrize("shape", [(2**40, 4), (2**62, 2**62), (3, 2**33), (10**9,), (4, 4)])
def test_header_that_claims_what_does_not_follow(shape, tmp_path, refused):
    write_npz(tmp_path / "graph.npz", {"edge_index": EDGES, "x": header("f4", shape) + bytes(48)})
    refused(["x.npy has a header for float32 of shape", "but 48 follow", "save it again"], "graph.npz")
    (tmp_path / "features.npy").write_bytes(header("f4", shape) + bytes(48))
    (tmp_path / "edges.csv").write_text("0,1\n")
    refused(["features.npy has a header for float32 of shape", "48 follow"], "edges.csv", "features.npy")


def test_zip_that_unpacks_to_too_much(tmp_path, refused, monkeypatch):
    """Nothing of it is unpacked: the sizes in the directory are enough."""
    write_npz(tmp_path / "graph.npz", {"edge_index": EDGES, "x": zeros("f4", (1 << 20, 32))})
    assert (tmp_path / "graph.npz").stat().st_size < 1 << 18
    monkeypatch.setattr(limits, "_machine", lambda: 128 << 20)
    refused(["its content would take 134 MB", "a file may take 67.1 MB"], "graph.npz")


def test_zip_whose_directory_lies(tmp_path, refused):
    """16 MB of content behind a declared size of 300 bytes: no more than 300 bytes are unpacked."""
    write_npz(tmp_path / "graph.npz", {"edge_index": EDGES, "x": zeros("f4", (1 << 20, 4))})
    content = bytearray((tmp_path / "graph.npz").read_bytes())
    struct.pack_into("<I", content, content.rindex(b"PK\x01\x02") + 24, 300)
    (tmp_path / "graph.npz").write_bytes(content)
    refused(["graph.npz cannot be read as NumPy arrays (Bad CRC-32 for file 'x.npy')"], "graph.npz")


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_other_methods_of_compression(method, tmp_path, refused):
    """zipfile unpacks these without a limit."""
    with zipfile.ZipFile(tmp_path / "graph.npz", "w", method) as archive:
        archive.writestr("edge_index.npy", EDGES)
        archive.writestr("x.npy", header("f4", (1 << 20, 4)) + bytes(1 << 24))
    refused(["compressed by a method that numpy.savez does not use"], "graph.npz")


def test_small_types_grow(tmp_path, refused, monkeypatch):
    """bool takes a byte in the file, and four as a feature."""
    monkeypatch.setattr(limits, "_machine", lambda: 32 << 20)
    np.savez(tmp_path / "graph.npz", edge_index=np.array([[0], [1]]), x=np.zeros((2, 4 << 20), dtype=bool))
    refused(["float32 features of shape (2, 4194304) would take 67.1 MB"], "graph.npz")
    np.savez(tmp_path / "graph.npz", edge_index=np.zeros((2, 100_000), dtype=np.int8))
    refused(["a graph of 1 nodes and 100,000 edges would take 40 MB"], "graph.npz")
    (tmp_path / "edges.npz").write_bytes((tmp_path / "graph.npz").read_bytes())
    refused(["a graph of 0 nodes and 100,000 edges would take 40 MB"], "edges.npz")


def test_text_that_is_too_large(tmp_path, refused, monkeypatch):
    """A file with a hole: 100 GB long, and a few bytes on disk."""
    with (tmp_path / "edges.csv").open("wb") as file:
        file.write(b"0,1\n")
        file.truncate(10**11)
    refused(["edges.csv would take 100 GB"], "edges.csv")
    with (tmp_path / "edges.npz").open("wb") as file:
        file.truncate(10**11)
    refused(["edges.npz would take 100 GB"], "edges.npz")
    monkeypatch.setattr(limits, "_machine", lambda: 2 << 20)
    (tmp_path / "edges.tsv").write_text("0\t1\n" * 10_000)
    refused(["edges.tsv: a table of 20,001 cells would take 4 MB"], "edges.tsv")


def test_very_long_cell(tmp_path, refused):
    (tmp_path / "edges.csv").write_text(f"0,1\n1,{'2' * 200_000}\n")
    refused(["edges.csv, line 2: field larger than field limit"], "edges.csv")


def test_parquet(tmp_path, refused, monkeypatch):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rows = 15_000_000
    column = pa.array(np.zeros(rows, np.int8))
    pq.write_table(pa.table({"s": column, "t": column}), tmp_path / "edges.parquet", compression="zstd")
    assert (tmp_path / "edges.parquet").stat().st_size < 1 << 20
    refused(["a table of 15,000,000 rows and 2 columns would take 6 GB"], "edges.parquet")
    text = pa.DictionaryArray.from_arrays(np.zeros(2000, np.int32), pa.array(["a" * 1_000_000]))
    pq.write_table(pa.table({"s": text, "t": text}), tmp_path / "edges.parquet", compression="zstd")
    data = read_graph(tmp_path / "edges.parquet")  # 4 GB if each cell were held for itself
    assert data.num_nodes == 1
    pq.write_table(pa.table({"s": [[1], [2]], "t": [1, 2]}), tmp_path / "edges.parquet")
    refused(["the column 's' holds list"], "edges.parquet")
    pq.write_table(pa.table({"s": [b"a"], "t": [b"b"]}), tmp_path / "edges.parquet")
    refused(["the column 's' holds binary"], "edges.parquet")


PEAK = """
import sys
from pathlib import Path
from graphdiffusion.data import frames

def kilobytes(key):
    (line,) = [line for line in open("/proc/self/status") if line.startswith(key)]
    return int(line.split()[1])

claimed = []
frames.check_memory = lambda size, what: claimed.append(size)
frames.read_parquet(Path(sys.argv[1]), lambda names: (0, 1))  # a small one: pyarrow itself takes memory too
before = kilobytes("VmRSS")
frames.read_parquet(Path(sys.argv[2]), lambda names: (0, 1))
print(max(claimed), 1024 * (kilobytes("VmHWM") - before))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="no /proc")
@pytest.mark.parametrize("end", ["y", "😀 "])
def test_long_texts_in_parquet(tmp_path, end):
    """The estimate before a file is read is not below the memory that reading it takes."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    files = [str(tmp_path / name) for name in ("small.parquet", "large.parquet")]
    for file, length in zip(files, (1, 1_000_000), strict=True):
        texts = [f"{k}{'y' * length}{end}" for k in range(24)]
        pq.write_table(pa.table({"s": texts, "t": ["b"] * len(texts)}), file)
    command = [sys.executable, "-c", PEAK, *files]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    claimed, taken = map(int, done.stdout.split())
    assert 24_000_000 < taken < claimed < 6 * taken


def test_memory_of_a_container(tmp_path, monkeypatch):
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(limits, "_CGROUPS", (str(tmp_path / "nowhere"), str(limit)))
    limit.write_text("max\n")
    assert limits.memory() == MEMORY // 2
    limit.write_text(f"{1 << 30}\n")
    assert limits.memory() == 1 << 29


def test_memory_of_this_machine(monkeypatch):
    monkeypatch.undo()
    assert 0 < limits.memory() <= limits._machine() // 2
    monkeypatch.delattr(limits.os, "sysconf")
    assert limits._machine() == limits._UNKNOWN_MEMORY


BOMBS = """
import resource, sys
from graphdiffusion.data import read_folder, read_graph
from graphdiffusion.errors import DataError
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 29), used + (1 << 29)))
for name in sys.argv[1:]:
    try:
        read_folder(name) if "graph" in name else read_graph(name)
    except DataError as error:
        print(error)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits of memory are set as on Linux")
def test_bombs_in_half_a_gigabyte(tmp_path):
    """Whatever the machine has, these need no memory at all to be refused."""
    np.savez(tmp_path / "graph1.npz", edge_index=np.array([[0], [2 * 10**9]]))
    write_npz(tmp_path / "graph2.npz", {"edge_index": EDGES, "x": header("f4", (2**40, 4))})
    matrix = sp.coo_matrix(([1.0], ([0], [1])), shape=(2 * 10**8, 2 * 10**8))
    sp.save_npz(tmp_path / "edges.npz", matrix)
    names = ["graph1.npz", "graph2.npz", "edges.npz"]
    done = subprocess.run(
        [sys.executable, "-c", BOMBS, *names], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert [line.split(":")[0].split(" ")[0] for line in done.stdout.splitlines()] == names
