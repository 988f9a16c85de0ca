"""Planetoid's pickles are read as data: nothing in them is run, and what does not fit is named."""

import pickle
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from rawdata import pickled, planetoid_parts, write_planetoid

from graphdiffusion.data import check_data, load_data
from graphdiffusion.data.planetoid import read_planetoid
from graphdiffusion.errors import DataError

SOURCE = Path(sys.modules["graphdiffusion"].__file__).parent


def test_small_set(tmp_path):
    parts = planetoid_parts()
    data = check_data(read_planetoid(write_planetoid(tmp_path, "toy"), "toy"))
    assert data.num_nodes == 12
    x = data.x.to_dense().numpy()
    np.testing.assert_array_equal(x[:8], parts["allx"].toarray())
    np.testing.assert_array_equal(x[[11, 8, 9]], parts["tx"].toarray())
    assert not x[10].any() and int(data.y[10]) == -1
    assert data.y[:8].tolist() == parts["ally"].argmax(1).tolist()
    assert data.y[[11, 8, 9]].tolist() == parts["ty"].argmax(1).tolist()
    assert data.train_mask.nonzero().flatten().tolist() == [0, 1, 2, 3]
    assert data.val_mask.nonzero().flatten().tolist() == [4, 5, 6, 7]
    assert data.test_mask.nonzero().flatten().tolist() == [8, 9, 11]
    pairs = {tuple(pair) for pair in data.edge_index.T.tolist()}
    assert (0, 11) in pairs and (11, 0) in pairs and (10, 11) not in pairs and (11, 11) not in pairs


def test_rows_without_a_class_are_unlabelled_and_in_no_mask(tmp_path):
    ally = planetoid_parts()["ally"].copy()
    ally[[1, 5]] = 0
    data = read_planetoid(write_planetoid(tmp_path, "toy", ally=ally), "toy")
    assert data.y[[1, 5, 10]].tolist() == [-1, -1, -1]
    assert not (data.train_mask | data.val_mask | data.test_mask)[[1, 5, 10]].any()


class Malicious:
    def __init__(self, target: Path):
        self.target = target

    def __reduce__(self):
        return eval, (f"open({str(self.target)!r}, 'w')",)


PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("part", ["x", "allx", "ally", "graph"])
def test_nothing_is_run(part, protocol, tmp_path):
    """Through the public function, which asks for the sum first, and through the reader alone."""
    raw, mark = tmp_path / "Cora" / "raw", tmp_path / "was run"
    evil = pickle.dumps(Malicious(mark), protocol)
    write_planetoid(raw, "cora", **{part: evil})
    with pytest.raises(DataError, match=r"ind.cora.\w+ is not the published file"):
        load_data("cora", tmp_path)
    if part != "x":  # its rows are those of allx
        with pytest.raises(DataError, match=rf"ind.cora.{part} (names '|is no file|is damaged)"):
            read_planetoid(raw, "cora")
    assert not mark.exists()
    pickle.loads(evil).close()
    assert mark.exists(), "the file is harmful indeed"


ARRAY = b"cnumpy\ndtype\n"
# tuples of pairs of the tuple before: a few bytes, and 2**20 steps to hash the last of them
NESTED = b")q\0" + b"".join(b"h%ch%c\x86q%c" % (k, k, k + 1) for k in range(20))
BAD_PICKLES = {
    "a key that takes long to hash": (
        b"\x80\x02" + NESTED + b"}(h\x14K\x01u.",
        "a key is neither a number",
    ),
    "no key": (b"\x80\x02}(NK\x01u.", "a key is neither a number nor a text"),
    "a forbidden name": (b"\x80\x02cos\nsystem\n(U\x02lstR.", "ind.toy.ally names 'os.system'"),
    "a name from builtins": (b"\x80\x02c__builtin__\neval\n.", "names '__builtin__.eval'"),
    "numpy's own loader": (b"\x80\x02cnumpy\nload\n.", r"names 'numpy.load'"),
    "a name in two parts": (b"\x80\x04\x8c\x02os\x8c\x06system\x93.", "operation SHORT_BINUNICODE"),
    "an instance": (b"(ios\nsystem\n.", "operation INST"),
    "an object": (b"(cnumpy\ndtype\no.", "operation OBJ"),
    "a persistent id": (b"Pfile\n.", "operation PERSID"),
    "an extension": (b"\x80\x02\x82\x01.", "operation EXT1"),
    "state for a name": (b"\x80\x02" + ARRAY + b"}b.", "damaged"),
    "state for a list": (b"\x80\x02]}b.", "damaged"),
    "a call of a number": (b"\x80\x02K\x01)R.", "damaged"),
    "an unknown memo": (b"\x80\x02h\x07.", "damaged"),
    "a memo number of 2**31": (b"\x80\x02Nr\xff\xff\xff\x7f.", "does not hold an array"),
    "no mark": (b"\x80\x02t.", "damaged"),
    "an empty stack": (b"\x80\x02.", "damaged"),
    "no end": (b"\x80\x02N", "damaged"),
    "a string longer than the file": (b"\x80\x02T\xff\xff\xff\x7fabc.", "damaged"),
    "nothing": (b"", "damaged"),
    "no pickle": (b"Cora", "damaged"),
    "a number": (pickled(3), "does not hold an array"),
    "a dtype": (b"\x80\x02" + ARRAY + b"(U\x02i4K\x00K\x01tR.", "does not hold an array"),
    "objects": (
        pickled(np.arange(3)).replace(b"T\x02\x00\x00\x00i8", b"T\x02\x00\x00\x00O8"),
        "does not hold an array",
    ),
    "too few bytes": (pickled(np.zeros(4, "i4")).replace(b"J\x04\0\0\0", b"J\x05\0\0\0"), "16 bytes"),
    "a claim of 2**31 rows": (
        pickled(np.zeros(4, "i4")).replace(b"J\x04\0\0\0", b"J\xff\xff\xff\x7f"),
        "holds 16 bytes for an array of int32 and shape",
    ),
    "a negative size": (
        pickled(np.zeros(4, "i4")).replace(b"J\x04\0\0\0", b"J\xff\xff\xff\xff"),
        "does not hold an array",
    ),
}


@pytest.mark.parametrize("kind", BAD_PICKLES)
def test_bad_pickles(kind, tmp_path):
    content, message = BAD_PICKLES[kind]
    with pytest.raises(DataError, match=message):
        read_planetoid(write_planetoid(tmp_path, "toy", ally=content), "toy")


ONE_HOT = planetoid_parts()["ally"]
FEATURES = planetoid_parts()["allx"]
BAD_PARTS = {
    "two classes in a row": ({"ally": ONE_HOT + np.eye(8, 3, 1, dtype=np.int32)}, "ally, row 0: expected"),
    "a class of 2": ({"ty": planetoid_parts()["ty"] * 2}, "ty, row 0: expected a single 1"),
    "a vector of classes": ({"ally": ONE_HOT.argmax(1)}, "ally, row 0: expected"),
    "dense features": ({"allx": FEATURES.toarray()}, "allx does not hold a sparse matrix"),
    "another count of rows": ({"allx": FEATURES[:7]}, "test.index: expected 3 different node numbers"),
    "another count of columns": ({"tx": planetoid_parts()["tx"][:, :4]}, r"\(3, 4\) do not fit"),
    "no rows": ({"tx": sp.csr_matrix((0, 5), dtype=np.float32)}, "tx holds an empty matrix"),
    "NaN": ({"allx": FEATURES * np.float32("nan")}, "NaN"),
    "labels missing": ({"ally": ONE_HOT[:7]}, "do not fit 7 and 3 labels"),
    "a test node twice": ({"test.index": [8, 8, 9]}, "expected 3 different"),
    "a word in the index": ({"test.index": b"8\nnine\n11\n"}, "a node number in each line"),
    "a number of 5000 digits": ({"test.index": b"8\n9\n" + b"1" * 5000}, "a node number in each line"),
    "test node 2**40": ({"test.index": [8, 9, 2**40]}, "names node 1099511627776, but at most 1,000,000"),
    "an edge to node 12": ({"graph": {0: [12]}}, "all of them nodes from 0 to 11"),
    "a negative node": ({"graph": {0: [-1]}}, "lists of neighbours"),
    "words for nodes": ({"graph": {0: ["1"]}}, "lists of neighbours"),
    "no lists": ({"graph": {0: 1}}, "lists of neighbours"),
    "no graph": ({"graph": [0, 1]}, "lists of neighbours"),
}


@pytest.mark.parametrize("kind", BAD_PARTS)
def test_bad_parts(kind, tmp_path):
    changes, message = BAD_PARTS[kind]
    with pytest.raises(DataError, match=message):
        read_planetoid(write_planetoid(tmp_path, "toy", **changes), "toy")


@pytest.mark.parametrize(
    ("attribute", "value"), [("indices", 99), ("indices", -1), ("indptr", 10**6), ("indptr", -5)]
)
def test_matrix_with_entries_outside(attribute, value, tmp_path):
    """scipy would follow such numbers to memory that is not its own."""
    broken = FEATURES.copy()
    getattr(broken, attribute)[3] = value
    with pytest.raises(DataError, match="allx does not hold a sparse matrix"):
        read_planetoid(write_planetoid(tmp_path, "toy", allx=broken), "toy")


def test_matrix_that_claims_columns(tmp_path):
    broken = FEATURES.copy()
    broken._shape = (8, 2**30)
    with pytest.raises(DataError, match="allx claims 1,073,741,824 features, but at most"):
        read_planetoid(write_planetoid(tmp_path, "toy", allx=broken), "toy")


def test_nothing_in_the_library_loads_pickles():
    words = ("torch.load(", "pickle.load", "Unpickler", "allow_pickle=True", "torch_geometric.io")
    for path in SOURCE.rglob("*.py"):
        text = path.read_text()
        assert not [word for word in words if word in text], path


def test_big_endian_arrays(tmp_path):
    parts = planetoid_parts()
    plain = read_planetoid(write_planetoid(tmp_path / "a", "toy"), "toy")
    other = write_planetoid(tmp_path / "b", "toy", ally=parts["ally"].astype(">i4"))
    assert torch.equal(plain.y, read_planetoid(other, "toy").y)
