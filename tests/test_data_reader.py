"""A user's own graph: round trips through every format, and each bad row named by file and line."""

import csv
import sys
import time

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch_geometric.data import Data

from graphdiffusion.data import check_data, largest_component, open_data, read_folder, read_graph
from graphdiffusion.errors import DataError

EDGES = "source,target\na,b\nb,c\nc,a\n"
FEATURES = "id,f1,f2\na,1,2\nb,3,4\nc,5,6\n"
LABELS = "id,label\na,cat\nb,dog\nc,?\n"


@pytest.fixture
def write(tmp_path):
    def _write(name, content):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return _write


def pairs(data):
    return {tuple(pair) for pair in data.edge_index.T.tolist()}


def dense(x):
    return x.to_dense() if x.layout == torch.sparse_csr else x


def test_tables(write):
    data = read_graph(write("edges.csv", EDGES), write("features.csv", FEATURES), write("l.csv", LABELS))
    assert data.edge_index.tolist() == [[0, 0, 1, 1, 2, 2], [1, 2, 0, 2, 0, 1]]
    assert data.x.tolist() == [[1, 2], [3, 4], [5, 6]]
    assert data.x.dtype == torch.float32
    assert data.y.tolist() == [0, 1, -1]
    assert data.node_ids == ["a", "b", "c"]
    assert data.class_names == ["cat", "dog"]
    assert data.name == "edges"
    assert data.get("edge_weight") is None
    assert data.get("train_mask") is None


@pytest.mark.parametrize(
    "content",
    [
        "a,b\nb,c\n",
        "src,dst\na,b\nb,c\n",
        "\ufeffsource,target\r\na,b\r\n\r\nb,c\r\n",
        ' a , "b" \nb,c',
        "a,b\nb,a\nb,c\na,b\nc,c\n",
    ],
)
def test_edge_spellings(write, content):
    data = read_graph(write("edges.csv", content.replace(' "b" ', '"b"')))
    assert data.node_ids == ["a", "b", "c"]
    assert pairs(data) == {(0, 1), (1, 0), (1, 2), (2, 1)}


def test_header_known_by_integer_ids(write):
    data = read_graph(write("edges.tsv", "citing\tcited\n10\t2\n2\t3\n"))
    assert data.node_ids == ["2", "3", "10"]


def test_directed(write):
    data = read_graph(write("edges.csv", "a,b\nb,c\n"), directed=True)
    assert pairs(data) == {(0, 1), (1, 2)}


def test_weights(write):
    data = read_graph(write("edges.csv", "a,b,0.5\nb,a,0.5\nb,c,2\n"))
    assert data.edge_index.tolist() == [[0, 1, 1, 2], [1, 0, 2, 1]]
    assert data.edge_weight.tolist() == [0.5, 0.5, 2, 2]
    directed = read_graph(write("edges.csv", "from,to,w\na,b,0.5\nb,a,1.5\n"), directed=True)
    assert directed.edge_weight.tolist() == [0.5, 1.5]


def test_no_features_is_the_sparse_identity(write):
    data = read_graph(write("edges.csv", "a,b\nb,c\n"), labels=write("labels.csv", "d,x\n"))
    assert data.x.layout == torch.sparse_csr
    assert torch.equal(data.x.to_dense(), torch.eye(4))
    assert data.y.tolist() == [-1, -1, -1, 0]


def test_no_labels(write):
    data = read_graph(write("edges.csv", EDGES))
    assert data.y.tolist() == [-1, -1, -1]
    assert data.class_names == []


def test_split_column(write):
    labels = "id,label,split\na,2,train\nb,10,VAL\nc,2,test\nd,,\n"
    data = read_graph(write("edges.csv", "a,b\nb,c\nc,d\n"), labels=write("labels.csv", labels))
    assert data.class_names == ["2", "10"]
    assert data.y.tolist() == [0, 1, 0, -1]
    assert data.train_mask.tolist() == [True, False, False, False]
    assert data.val_mask.tolist() == [False, True, False, False]
    assert data.test_mask.tolist() == [False, False, True, False]


def test_sparse_features_stay_sparse(write, tmp_path):
    sp.save_npz(tmp_path / "features.npz", sp.identity(30, format="csc"))
    data = read_graph(write("edges.csv", "0,1\n1,29\n"), tmp_path / "features.npz")
    assert data.x.layout == torch.sparse_csr
    assert data.x.shape == (30, 30)
    assert data.node_ids[29] == "29"


@pytest.mark.parametrize("name", ["x.npy", "x.npz"])
def test_array_features(write, tmp_path, name):
    x = np.arange(8).reshape(4, 2)
    np.save(tmp_path / name, x) if name.endswith("npy") else np.savez(tmp_path / name, anything=x)
    data = read_graph(write("edges.csv", "0,1\n1,3\n"), tmp_path / name)
    assert dense(data.x).tolist() == x.tolist()
    with pytest.raises(DataError, match=r"edges.csv, line 2: node '4' has no row in x.np"):
        read_graph(write("edges.csv", "0,1\n1,4\n"), tmp_path / name)


def edge_arrays():
    row, col = np.array([0, 1, 3]), np.array([1, 2, 0])
    matrix = sp.coo_matrix((np.ones(3), (row, col)), shape=(5, 5))
    return {
        "edge_index": ({"edge_index": np.stack([row, col])}, 4),
        "row and col": ({"row": row, "col": col}, 4),
        "csr": (matrix.tocsr(), 5),
        "coo": (matrix, 5),
    }


@pytest.mark.parametrize("kind", edge_arrays())
def test_edge_arrays(tmp_path, kind):
    content, nodes = edge_arrays()[kind]
    path = tmp_path / "edges.npz"
    sp.save_npz(path, content) if sp.issparse(content) else np.savez(path, **content)
    data = read_graph(path)
    assert data.num_nodes == nodes
    assert pairs(data) == {(0, 1), (1, 0), (1, 2), (2, 1), (0, 3), (3, 0)}
    assert data.get("edge_weight") is None


def test_weighted_matrix(tmp_path):
    sp.save_npz(tmp_path / "edges.npz", sp.csr_matrix(np.array([[0, 2.5], [2.5, 0]])))
    assert read_graph(tmp_path / "edges.npz").edge_weight.tolist() == [2.5, 2.5]
    sp.save_npz(tmp_path / "edges.npz", sp.csr_matrix(np.array([[0, 2.5], [1, 0]])))
    with pytest.raises(DataError, match=r"edges.npz, edge 1: the edge '1' to '0' has the weight 1, but"):
        read_graph(tmp_path / "edges.npz")


def test_parquet(tmp_path):
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table({"s": [7, 8], "t": [8, 9], "w": [0.1, 2.0]}), tmp_path / "edges.parquet")
    data = read_graph(tmp_path / "edges.parquet")
    assert data.node_ids == ["7", "8", "9"]
    assert data.edge_weight.tolist() == pytest.approx([0.1, 0.1, 2.0, 2.0])
    pq.write_table(pa.table({"s": ["a", None], "t": ["b", "c"]}), tmp_path / "edges.parquet")
    with pytest.raises(DataError, match=r"edges.parquet, row 2: the node id in column 1 \('s'\) is empty"):
        read_graph(tmp_path / "edges.parquet")
    (tmp_path / "edges.parquet").write_bytes(b"no parquet")
    with pytest.raises(DataError, match="not a readable Parquet file"):
        read_graph(tmp_path / "edges.parquet")


def test_parquet_without_pyarrow(write, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(DataError, match=r"pip install pyarrow"):
        read_graph(write("edges.parquet", b"PAR1"))


BAD_EDGES = {
    "one column": ("a,b\nb\n", "edges.csv, line 2: expected 2 columns as in line 1, found 1"),
    "four columns": ("a,b,1,x\n", "edges.csv, line 1: expected 2 or 3 columns, found 4"),
    "ragged": ("a,b\n\nb,c,1\n", "edges.csv, line 3: expected 2 columns as in line 1, found 3"),
    "spaces": ("a b\nb c\n", "found 1; the row holds spaces: separate the columns by commas"),
    "empty": ("", "edges.csv is empty"),
    "blank": ("\n\n", "edges.csv is empty"),
    "header only": ("source,target\n", "edges.csv has a header but no rows"),
    "no id": ("a,b\n,c\n", "edges.csv, line 2: the node id in column 1 is empty"),
    "word for a weight": ("a,b,1\nb,c,heavy\n", "edges.csv, line 2, column 3: 'heavy' is not a number"),
    "no weight": ("a,b,1\nb,c,\n", "edges.csv, line 2, column 3: '' is not a number"),
    "nan weight": ("a,b,1\nb,c,nan\n", "edges.csv, line 2: the weight nan is not a positive"),
    "infinite weight": ("a,b,inf\n", "edges.csv, line 1: the weight inf is not a positive"),
    "negative weight": ("a,b,1\nb,c,-2\n", "edges.csv, line 2: the weight -2 is not a positive"),
    "zero weight": ("a,b,0\n", "edges.csv, line 1: the weight 0 is not a positive"),
    "two weights": ("a,b,1\nb,a,2\n", "edges.csv, line 2: the edge 'b' to 'a' has the weight 2, but 1 in"),
    "quote": ('a,b\n"a,c\n', "edges.csv, line 2: "),
    "bytes": (b"a,b\nb,\xff\xfe\n", "edges.csv, line 2: the bytes are not UTF-8"),
    "unknown node": ("a,b\nb,z\n", "edges.csv, line 2: node 'z' has no row in features.csv"),
}


@pytest.mark.parametrize("kind", BAD_EDGES)
def test_bad_edges(write, kind):
    content, message = BAD_EDGES[kind]
    with pytest.raises(DataError) as caught:
        read_graph(write("edges.csv", content), write("features.csv", FEATURES))
    assert message in str(caught.value)


BAD_FEATURES = {
    "word": ("a,1,2\nb,3,x\nc,5,6\n", "features.csv, line 2, column 3: 'x' is not a number"),
    "nothing": (
        "a,1,2\nb,3,\nc,5,6\n",
        "features.csv, line 2, column 3 is empty; every node needs a number",
    ),
    "nan": ("a,1,2\nb,nan,1\nc,5,6\n", "features.csv, line 2, column 2: 'nan' is not a finite"),
    "inf": ("a,1,-inf\nb,1,1\nc,5,6\n", "features.csv, line 1, column 3: '-inf' is not a finite"),
    "huge": ("a,1,1e39\nb,1,1\nc,5,6\n", "column 3: '1e39' is not a finite float32"),
    "ragged": ("a,1,2\nb,3\nc,5,6\n", "features.csv, line 2: expected 3 columns as in line 1, found 2"),
    "ids only": ("a\nb\nc\n", "features.csv, line 1: expected an id and at least one number"),
    "twice": (
        "a,1,2\nb,3,4\nc,5,6\na,1,2\n",
        "line 4: node 'a' is listed twice, first in features.csv, line 1",
    ),
    "empty": ("", "features.csv is empty"),
    "missing node": ("a,1\nb,1\n", "edges.csv, line 3: node 'c' has no row in features.csv"),
}


@pytest.mark.parametrize("kind", BAD_FEATURES)
def test_bad_features(write, kind):
    content, message = BAD_FEATURES[kind]
    with pytest.raises(DataError) as caught:
        read_graph(write("edges.csv", EDGES), write("features.csv", content))
    assert message in str(caught.value)


BAD_LABELS = {
    "columns": ("a\n", "labels.csv, line 1: expected 2 or 3 columns, found 1"),
    "split": (
        "a,x,train\nb,y,holdout\n",
        "labels.csv, line 2: unknown split 'holdout'; it must be train, val or test",
    ),
    "split without label": (
        "a,?,test\n",
        "labels.csv, line 1: node 'a' is in the split 'test' but has no label",
    ),
    "twice": ("a,x\nb,x\na,x\n", "labels.csv, line 3: node 'a' is listed twice"),
    "unknown": ("a,x\nz,x\n", "labels.csv, line 2: node 'z' has no row in features.csv"),
    "empty": ("\n", "labels.csv is empty"),
}


@pytest.mark.parametrize("kind", BAD_LABELS)
def test_bad_labels(write, kind):
    content, message = BAD_LABELS[kind]
    with pytest.raises(DataError) as caught:
        read_graph(write("edges.csv", EDGES), write("features.csv", FEATURES), write("labels.csv", content))
    assert message in str(caught.value)


def test_missing_and_misnamed_files(write, tmp_path):
    with pytest.raises(DataError, match=r"there is no file '.*nowhere.csv'"):
        read_graph(tmp_path / "nowhere.csv")
    with pytest.raises(DataError, match=r"edges.txt: expected a file that ends in one of .csv, .tsv"):
        read_graph(write("edges.txt", "a b"))
    with pytest.raises(DataError, match=r"labels.npy: expected a file"):
        read_graph(write("edges.csv", EDGES), labels=write("labels.npy", b""))


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"other": np.ones(3)}, "holds other; expected edge_index"),
        ({"edge_index": np.ones((3, 2), int)}, r"integers of shape \(2, E\), got int64 of shape \(3, 2\)"),
        ({"edge_index": np.ones((2, 2))}, "got float64"),
        ({"edge_index": np.array([[0, 1], [1, -1]])}, "edge 1: negative node number -1"),
        ({"edge_index": np.ones((2, 0), int)}, "no edges"),
        ({"edge_index": np.ones((2, 2), int), "edge_weight": np.ones(3)}, r"shape \(2,\), one per edge"),
        ({"edge_index": np.ones((2, 2), int), "weight": np.array([1, -1.0])}, "edge 1: the weight -1"),
        (
            {"edge_index": np.array([[None], [1]])},
            "edge_index.npy holds Python objects, which only a pickle",
        ),
    ],
)
def test_bad_edge_arrays(tmp_path, arrays, message):
    np.savez(tmp_path / "edges.npz", **arrays)
    with pytest.raises(DataError, match=message):
        read_graph(tmp_path / "edges.npz")


def test_bad_matrices(tmp_path, write):
    sp.save_npz(tmp_path / "edges.npz", sp.random(3, 4, density=0.9))
    with pytest.raises(DataError, match="must be square"):
        read_graph(tmp_path / "edges.npz")
    edges = write("e.csv", "0,1\n")
    for x, message in [
        (np.ones(3), "shape"),
        (np.ones((2, 0)), "neither of them zero"),
        (np.array([["a"], ["b"]]), "must be numbers"),
        (np.array([[1.0], [np.nan]]), "x.npy, node 1: a feature is NaN"),
    ]:
        np.save(tmp_path / "x.npy", x)
        with pytest.raises(DataError, match=message):
            read_graph(edges, tmp_path / "x.npy")
    sp.save_npz(tmp_path / "x.npz", sp.csr_matrix(np.array([[1.0], [np.inf]])))
    with pytest.raises(DataError, match=r"x.npz, node 1: a feature is NaN"):
        read_graph(edges, tmp_path / "x.npz")
    np.savez(tmp_path / "x.npz", a=np.ones((2, 1)), b=np.ones(2))
    with pytest.raises(DataError, match="holds a, b; expected one array"):
        read_graph(edges, tmp_path / "x.npz")
    for name in ("x.npy", "x.npz"):
        with pytest.raises(DataError, match="cannot be read as"):
            read_graph(edges, write(name, b"rubbish"))


names = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1, max_size=6)


@st.composite
def graphs(draw):
    # The prefix keeps a random id from being taken for a header.
    ids = ["n" + name for name in draw(st.lists(names, min_size=2, max_size=8, unique=True))]
    n = len(ids)
    ends = st.tuples(st.integers(0, n - 1), st.integers(0, n - 1))
    edges = draw(st.lists(ends, min_size=1, max_size=20))
    number = st.floats(width=32, allow_nan=False, allow_infinity=False)
    x = draw(st.lists(st.lists(number, min_size=3, max_size=3), min_size=n, max_size=n))
    labels = draw(st.lists(st.sampled_from(["", "?", "red", "green, blue"]), min_size=n, max_size=n))
    return ids, edges, x, labels


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(graph=graphs(), suffix=st.sampled_from(["csv", "tsv"]), header=st.booleans(), directed=st.booleans())
def test_round_trip(tmp_path, graph, suffix, header, directed):
    ids, edges, x, labels = graph
    tables = {
        "edges": (["source", "target"], [(ids[i], ids[j]) for i, j in edges]),
        "features": (["id", "a", "b", "c"], [(i, *map(repr, row)) for i, row in zip(ids, x, strict=True)]),
        "labels": (["id", "label"], list(zip(ids, labels, strict=True))),
    }
    for old in tmp_path.iterdir():
        old.unlink()
    for name, (head, rows) in tables.items():
        with (tmp_path / f"{name}.{suffix}").open("w", newline="", encoding="utf-8") as file:
            out = csv.writer(file, delimiter="\t" if suffix == "tsv" else ",")
            out.writerows([head, *rows] if header else rows)
    data = read_folder(tmp_path, directed=directed)
    expected = {(i, j) for i, j in edges if i != j}
    if not directed:
        expected |= {(j, i) for i, j in expected}
    assert pairs(data) == expected
    assert data.edge_index.size(1) == len(expected)
    assert data.node_ids == ids
    assert torch.equal(dense(data.x), torch.tensor(x, dtype=torch.float32))
    back = [data.class_names[k] if k >= 0 else "" for k in data.y.tolist()]
    assert back == ["" if label == "?" else label for label in labels]
    assert data.class_names == sorted(set(back) - {""})


def test_folder(tmp_path, write):
    folder = tmp_path / "mine"
    folder.mkdir()
    with pytest.raises(DataError, match=r"holds no edges: expected one of edges.csv, edges.tsv"):
        read_folder(folder)
    (folder / "edges.csv").write_text("a,b\nc,d\nd,e\n")
    (folder / "labels.tsv").write_text("a\tx\ne\ty\n")
    assert read_folder(folder).num_nodes == 5
    assert open_data(str(folder)).node_ids == ["a", "b", "c", "d", "e"]  # nobody is left out
    part = largest_component(open_data(folder))
    assert part.node_ids == ["c", "d", "e"]
    assert part.y.tolist() == [-1, -1, 1]
    assert part.class_names == ["x", "y"]
    assert part.name == "mine"
    assert pairs(part) == {(0, 1), (1, 0), (1, 2), (2, 1)}
    assert torch.equal(dense(part.x), torch.eye(5)[2:])
    (folder / "edges.tsv").write_text("a\tb\n")
    with pytest.raises(DataError, match=r"holds edges.csv, edges.tsv; keep only the one"):
        read_folder(folder)
    (folder / "edges.tsv").unlink()
    (folder / "labels.tsv").rename(folder / "labels.txt")
    with pytest.raises(DataError, match=r"labels.txt: expected one of labels.csv"):
        read_folder(folder)


def test_component_keeps_weights_and_masks(write, tmp_path):
    (tmp_path / "edges.csv").write_text("a,b,1\nc,d,2\nd,e,3\n")
    (tmp_path / "labels.csv").write_text("a,x,train\nc,x,train\nd,y,val\ne,y,test\n")
    data = largest_component(open_data(tmp_path))
    assert data.edge_weight.tolist() == [2, 2, 3, 3]
    assert data.train_mask.tolist() == [True, False, False]
    assert data.test_mask.tolist() == [False, False, True]


def test_single_npz(tmp_path):
    path = tmp_path / "toy.npz"
    content = {
        "edge_index": np.array([[0, 1], [1, 2]]),
        "x": np.arange(6.0).reshape(3, 2),
        "y": np.array([1, -1, 0]),
        "train_mask": np.array([True, False, False]),
    }
    np.savez(path, **content)
    data = open_data(path)
    assert data.y.tolist() == [1, -1, 0]
    assert data.class_names == ["0", "1"]
    assert data.train_mask.tolist() == [True, False, False]
    assert data.x.tolist() == content["x"].tolist()
    assert data.name == "toy"
    np.savez(path, edge_index=content["edge_index"], edge_weight=np.array([1, 2]))
    plain = open_data(path)
    assert torch.equal(plain.x.to_dense(), torch.eye(3))
    assert plain.edge_weight.tolist() == [1, 1, 2, 2]
    for change, message in [
        ({"x": np.ones((2, 2))}, "names node 2, but there are 2 nodes"),
        ({"y": np.array(["a", "b", "c"])}, "y must be numbers"),
        ({"y": np.ones(4, int)}, r"toy.npz: y has 4 rows for 3 nodes"),
        ({"train_mask": np.array([1, 0, 0])}, "toy.npz: train_mask must be bool"),
        ({"train_mask": np.array([False, True, False])}, "train_mask holds unlabelled nodes"),
        ({"edge_index": np.ones((2, 2))}, "edges must be integers"),
    ]:
        np.savez(path, **{**content, **change})
        with pytest.raises(DataError, match=message):
            open_data(path)
    np.savez(path, x=content["x"])
    with pytest.raises(DataError, match="holds x; expected at least edge_index"):
        open_data(path)


def test_open_data(tmp_path, write):
    assert open_data("cora-embedded").num_nodes == 2485
    with pytest.raises(DataError, match=r"no data set 'cora-embeded'. Did you mean.*nor is there a folder"):
        open_data("cora-embeded")
    with pytest.raises(DataError, match=r"expected a folder, or a file that ends in .npz"):
        open_data(write("graph.gml", ""))


def good(**changes):
    fields = {
        "x": torch.ones(3, 2),
        "edge_index": torch.tensor([[0, 1], [1, 0]]),
        "y": torch.tensor([0, 1, -1]),
    }
    return Data(**{key: value for key, value in {**fields, **changes}.items() if value is not None})


def test_check_data_returns_what_it_got():
    data = good(edge_weight=torch.ones(2), train_mask=torch.tensor([True, False, False]))
    assert check_data(data) is data
    check_data(good(x=torch.eye(3).to_sparse_csr()))
    check_data(good(x=torch.eye(3).to_sparse_coo()))


MASK = torch.tensor([True, False, False])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x": None}, "data.x must be a tensor, got NoneType"),
        ({"x": torch.ones(3)}, r"data.x must be of shape \(n, F\)"),
        ({"x": torch.ones(3, 2).double()}, r"float32, got torch.float64; use data.x.float\(\)"),
        ({"x": torch.full((3, 2), torch.nan)}, "NaN or infinity"),
        ({"x": torch.eye(3).to_sparse_csc()}, "to_sparse_csr"),
        ({"edge_index": None}, "data.edge_index must be a tensor"),
        ({"edge_index": torch.ones(2, 2)}, "int64"),
        ({"edge_index": torch.tensor([[0, 3], [1, 0]])}, "holds 0 to 3, but data.x has 3 rows"),
        ({"edge_index": torch.tensor([[0, -1], [1, 0]])}, "holds -1 to 1"),
        ({"edge_weight": torch.ones(3)}, r"floating point of shape \(2,\)"),
        ({"edge_weight": torch.tensor([1.0, -1.0])}, "positive and finite"),
        ({"y": None}, "data.y must be a tensor"),
        ({"y": torch.zeros(3, 1, dtype=torch.int64)}, r"int64 of shape \(3,\)"),
        ({"y": torch.tensor([0, 1, -2])}, "got -2"),
        ({"class_names": ["one"]}, "class 1, but there are 1 class_names"),
        ({"node_ids": ["one"]}, "must have 3 entries, one for each node, got 1"),
        (
            {"train_mask": torch.ones(3, 10, dtype=torch.bool)},
            r"unlabelled nodes.*labelled\(data\)\[:, None\]",
        ),
        ({"test_mask": torch.ones(3, dtype=torch.bool)}, "unlabelled"),
        ({"train_mask": MASK, "val_mask": MASK}, "data.val_mask shares nodes"),
    ],
)
def test_check_data_says_what_is_wrong(changes, message):
    with pytest.raises(DataError, match=message):
        check_data(good(**changes))


def test_check_data_wants_data():
    with pytest.raises(DataError, match="got dict"):
        check_data({})


def test_a_large_file_is_read_in_seconds(tmp_path):
    edges = np.random.default_rng(0).integers(0, 20_000, (300_000, 2))
    (tmp_path / "edges.csv").write_text("source,target\n" + "\n".join(f"{i},{j}" for i, j in edges))
    start = time.perf_counter()
    data = read_graph(tmp_path / "edges.csv")
    assert time.perf_counter() - start < 15  # far above what it takes, for slow machines
    assert data.num_nodes == 20_000
