"""Tables of a user's graph: columns by name, headers, the long format, the same rules for all sources."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from graphdiffusion.data import read_graph
from graphdiffusion.errors import DataError

RING = "source,target\na,b\nb,c\nc,d\nd,a\n"


@pytest.fixture
def write(tmp_path):
    def _write(name: str, content: str) -> Path:
        path = tmp_path / name
        path.write_text(content)
        return path

    return _write


def ends(data) -> set[tuple[str, str]]:
    return {(data.node_ids[i], data.node_ids[j]) for i, j in data.edge_index.T.tolist()}


@pytest.mark.parametrize(
    "content",
    [
        "source,target,weight\na,b,2\nb,c,3\n",
        "Weight,TARGET,Source\n2,b,a\n3,c,b\n",
        "to,w,from\nb,2,a\nc,3,b\n",
        "citing,cited,value\na,b,2\nb,c,3\n",
        "w,citing,cited\n2,a,b\n3,b,c\n",
        "dst,paper\nb,a\nc,b\n",
    ],
)
def test_edges_by_name(write, content):
    data = read_graph(write("edges.csv", content), directed=True)
    assert ends(data) == {("a", "b"), ("b", "c")}
    assert data.get("edge_weight") is None or data.edge_weight.tolist() == [2, 3]


def test_labels_and_features_by_name(write):
    edges = write("edges.csv", RING)
    features = write("features.csv", "age,ID,height\n1,d,2\n3,c,4\n5,b,6\n7,a,8\n")
    labels = write("labels.tsv", "split\tclass\tnode\ntrain\tx\tc\ntest\ty\ta\n\t?\tb\n")
    data = read_graph(edges, features, labels)
    assert data.node_ids == ["d", "c", "b", "a"]
    assert data.x.tolist() == [[1, 2], [3, 4], [5, 6], [7, 8]]
    assert data.feature_names == ["age", "height"]
    assert data.y.tolist() == [-1, 0, -1, 1] and data.class_names == ["x", "y"]
    assert data.train_mask.tolist() == [False, True, False, False]


UNKNOWN = {
    "edges": (
        "source,target,year\na,b,1\n",
        "edges.csv: unknown column 'year'; known are source, target and",
    ),
    "which": (
        "a1,a2,a3\n1,2,x\n2,3,y\n",
        "edges.csv: which of the columns 'a1', 'a2', 'a3' hold the ends of an",
    ),
    "twice": ("source,target,Source\na,b,c\n", "edges.csv: two columns are named 'source'"),
    "index": (",source,target\n0,a,b\n", "edges.csv: unknown column ''; known .*index=False"),
    "weights": ("source,target,w,weight\na,b,1,1\n", "which of the columns"),
}


@pytest.mark.parametrize("kind", UNKNOWN)
def test_unknown_edge_columns(write, kind):
    content, message = UNKNOWN[kind]
    with pytest.raises(DataError, match=message):
        read_graph(write("edges.csv", content))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("id,label,year\na,x,1\n", "labels.csv: unknown column 'year'; known are id, label"),
        ("paper,topic,journal\na,x,1\nb,x,2\n", "holds the ids of the nodes. Name it id"),
        ("id,split\na,train\n", "there is no column of labels; name one label"),
    ],
)
def test_unknown_label_columns(write, content, message):
    with pytest.raises(DataError, match=message):
        read_graph(write("edges.csv", RING), labels=write("labels.csv", content))


HEADERS = {
    "integers": ("package_a,package_b\n1,2\n2,3\n", None, True),
    "weights are numbers": ("package_a,package_b,w8\na,b,1\nb,c,2\n", None, "which of the columns"),
    "weight by name": ("package_a,package_b,weight\na,b,1\nb,c,2\n", None, True),
    "known from features": ("package_a,package_b\na,b\nb,c\nc,a\n", "id,f\na,1\nb,2\nc,3\n", True),
    "known and one wrong": (
        "package_a,package_b\na,b\nb,z\nc,a\n",
        "id,f\na,1\nb,2\nc,3\n",
        "line 3: node 'z'",
    ),
    "others twice": ("package_a,package_b\na,b\nb,c\nc,a\n", None, True),
    "not to be told": ("package_a,package_b\na,b\nb,c\n", None, False),
    "nodes u and v": ("u,v\nv,w\n", None, False),
    "names u and v": ("u,v\na,b\n", None, True),
    "an edge that comes again": ("a,b\nc,d\nb,d\n", None, False),
    "only one edge": ("a,b\n", None, False),
}


@pytest.mark.parametrize("kind", HEADERS)
def test_headers_of_edges(write, kind):
    content, features, header = HEADERS[kind]
    paths = [write("edges.csv", content)] + ([write("features.csv", features)] if features else [])
    if isinstance(header, str):
        with pytest.raises(DataError, match=header):
            read_graph(*paths)
        return
    data = read_graph(*paths)
    first = content.partition("\n")[0].split(",")[0]
    assert (first not in data.node_ids) == header
    told = kind in ("others twice", "known from features", "not to be told")
    assert any("line 1" in note for note in data.notes) == told


def test_header_of_labels(write):
    edges = write("edges.csv", RING)
    for content, found in (
        ("paper,topic\na,x\nb,y\n", {"x", "y"}),  # no node is called paper
        ("ann,y\nbob,n\n", {"y", "n"}),
        ("a,y\nb,n\n", {"y", "n"}),
        ("id,y\na,y\nb,n\n", {"y", "n"}),
        ("who,price\na,1.5\nb,2\n", {"price"}),
        ("a,class\nb,class\n", {"class"}),
        ("paper,topic,split\na,x,train\nb,y,\n", {"x", "y"}),
    ):
        data = read_graph(edges, labels=write("labels.csv", content))
        assert set(data.get("target_names") or data.class_names) == found


def test_header_of_features(write):
    """Names that are numbers, over ids that are words: only the edges tell."""
    edges = write("edges.csv", RING)
    rows = "a,1,2\nb,3,4\nc,5,6\nd,7,8\n"
    data = read_graph(edges, write("features.csv", f"paper,10,20\n{rows}"))
    assert data.feature_names == ["10", "20"] and data.num_nodes == 4
    assert any("no node 'paper' is known" in note for note in data.notes)
    assert read_graph(edges, write("features.csv", rows)).get("feature_names") is None
    data = read_graph(edges, write("features.csv", f"paper,age,height\n{rows}"))
    assert "features.csv: the column 'paper' is taken as the ids of the nodes" in data.notes


BAD_FEATURES = {
    "word": (
        "id,age,job\na,1,cook\nb,2,\n",
        r"line 2, column 3 \('job'\): 'cook' is not a number.*get_dummies",
    ),
    "empty": (
        "id,age,job\na,1,2\nb,,3\n",
        r"line 3, column 2 \('age'\) is empty; every node needs a number",
    ),
    "nan": ("id,age\na,1\nb,nan\n", r"line 3, column 2 \('age'\): 'nan' is not a finite float32 number"),
    "twice": ("id,age,age\na,1,2\n", "two columns are named 'age'"),
    "no name": ("id,,age\na,1,2\n", "column 2 has no name; .*index=False"),
    "blank lines": ("\n\nid,age\n\na,1\n\n\nb,x\n", r"line 8, column 2 \('age'\): 'x'"),
    "quoted lines": ('id,age\n"a",1\n"b\n",x\n', r"line 4, column 2"),
    "short header": (
        "id,age\na,1,2\nb,1,2\n",
        "the header has 2 columns, but line 2 has 3; name every column",
    ),
}


@pytest.mark.parametrize("kind", BAD_FEATURES)
def test_bad_features(write, kind):
    content, message = BAD_FEATURES[kind]
    with pytest.raises(DataError, match=f"features.csv.*{message}"):
        read_graph(write("edges.csv", RING), write("features.csv", content))


def test_notes(write):
    content = "a,a\na,b\na,b\nb,a\nb,c\n"
    data = read_graph(write("edges.csv", content), labels=write("labels.csv", "id,label\na,x\nd,x\ne,NA\n"))
    assert data.notes == [
        "labels.csv: 1 label 'NA' taken as unlabelled; a class of that name must be renamed",
        "labels.csv: all labels are 'x': every answer will be the same",
        "there are no features: every node gets its own, so that x is the identity matrix",
        "edges.csv: 1 self-loop is left out",
        "edges.csv: 1 row repeats an edge; it counts once",
        "2 of 5 nodes have no edge",
    ]
    features = write("features.csv", "id,f\na,1\nb,2\nc,3\n")
    assert read_graph(write("edges.csv", "a,b\nb,c\n"), features).notes == []
    alone = read_graph(write("edges.csv", "source,target\na,a\n"))
    assert "the graph has no edges: nothing flows between its nodes" in alone.notes


LONG = "id,feature,value\na,w10,1\nb,w2,2.5\na,w2,3\n"


def test_long_format(write):
    data = read_graph(write("edges.csv", RING), write("features.csv", LONG))
    assert data.node_ids == ["a", "b", "c", "d"] and data.feature_names == ["w10", "w2"]
    x = data.x if data.x.layout == torch.strided else data.x.to_dense()
    assert x.tolist() == [[1, 3], [0, 2.5], [0, 0], [0, 0]]
    assert "features.csv: 2 nodes have no row there; their features are zero" in data.notes
    swapped = write("features.tsv", "value\tFeature\tid\n1\t10\te\n2\t2\te\n")
    data = read_graph(write("edges.csv", RING), swapped)
    assert data.feature_names == ["2", "10"]
    assert data.node_ids == ["a", "b", "c", "d", "e"]
    for rows, message in (
        (
            "a,w,1\na,v,1\na,w,1\n",
            r"line 4: node 'a' has the feature 'w' twice, first in features.csv, line 2",
        ),
        ("a,w,1\na,,1\n", "line 3: the name of the feature is empty"),
        ("a,w,1\na,v,x\n", r"line 3, column 3 \('value'\): 'x' is not a number"),
    ):
        with pytest.raises(DataError, match=message):
            read_graph(write("edges.csv", RING), write("features.csv", f"id,feature,value\n{rows}"))


def test_two_features_called_feature_and_value(write):
    """One row for each node and numbers: no long format."""
    wide = "id,value,feature\na,1,5\nb,2,6\nc,3,7\nd,4,8\n"
    data = read_graph(write("edges.csv", RING), write("features.csv", wide))
    assert data.feature_names == ["value", "feature"]
    assert data.x.tolist() == [[1, 5], [2, 6], [3, 7], [4, 8]]


def test_long_format_stays_sparse(write):
    """2000 × 2000 with 4000 numbers, against scipy."""
    sp = pytest.importorskip("scipy.sparse")
    rng = np.random.default_rng(0)
    x = sp.random(2000, 2000, 0.001, format="coo", random_state=rng)
    rows = "".join(f"{i},f{k},{v!r}\n" for i, k, v in zip(x.row, x.col, x.data.tolist(), strict=True))
    edges = write("edges.csv", "".join(f"{i},{(i + 1) % 2000}\n" for i in range(2000)))
    data = read_graph(edges, write("features.csv", f"id,feature,value\n{rows}"))
    assert data.x.layout == torch.sparse_csr and data.x.values().numel() == x.nnz
    assert data.node_ids == [str(i) for i in range(2000)]
    used = [int(name[1:]) for name in data.feature_names]
    np.testing.assert_array_equal(data.x.to_dense().numpy(), x.toarray()[:, used].astype(np.float32))


TABLES = {
    "edges": {"target": ["b", "c", "a"], "weight": [0.5, 2.0, 3.0], "source": ["a", "b", "c"]},
    "features": {"f": [1.5, 2.0, -3.0], "id": ["c", "b", "a"], "g": [True, False, True], "h": [1, 2, 3]},
    "labels": {"label": ["x", None, "NaN"], "id": ["b", "a", "c"], "split": ["train", None, None]},
}
NUMBERED = {
    "edges": {"from": [7, 9, 2**60], "to": [9, 2**60, 7]},
    "features": {"id": [7, 9, 2**60], "f": [1.0, 2.0, 3.0]},
    "labels": {"id": [7, 9, 2**60], "price": [1.5, None, 2.0], "area": [1, None, 3]},
}
CLASSES = {
    "edges": {"a": [1, 2], "b": [2, 3], "w": [1, 2]},
    "labels": {"id": [1, 2, 3], "label": [0, None, 1]},
}


def sources(tables, kind, folder):
    if kind == "pandas":
        pd = pytest.importorskip("pandas")
        return {name: pd.DataFrame(columns) for name, columns in tables.items()}
    if kind == "polars":
        pl = pytest.importorskip("polars")
        return {name: pl.DataFrame(columns) for name, columns in tables.items()}
    if kind == "parquet":
        pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        for name, columns in tables.items():
            pq.write_table(pa.table(columns), folder / f"{name}.parquet")
        return {name: folder / f"{name}.parquet" for name in tables}
    separator = {"csv": ",", "tsv": "\t"}[kind]
    for name, columns in tables.items():
        rows = [list(columns), *zip(*columns.values(), strict=True)]
        cells = [
            ["" if c is None else str(int(c)) if isinstance(c, bool) else str(c) for c in row]
            for row in rows
        ]
        (folder / f"{name}.{kind}").write_text("".join(separator.join(row) + "\n" for row in cells))
    return {name: folder / f"{name}.{kind}" for name in tables}


@pytest.mark.parametrize("kind", ["tsv", "parquet", "pandas", "polars"])
@pytest.mark.parametrize("tables", [TABLES, NUMBERED, CLASSES], ids=["texts", "numbers", "classes"])
def test_every_source_has_the_same_rules(tables, kind, tmp_path):
    """What a CSV file gives, all others give as well."""
    expected = read_graph(**sources(tables, "csv", tmp_path))
    data = read_graph(**sources(tables, kind, tmp_path))
    assert set(data.keys()) == set(expected.keys())
    for key, value in expected.items():
        if isinstance(value, torch.Tensor):
            dense = [v if v.layout == torch.strided else v.to_dense() for v in (data[key], value)]
            torch.testing.assert_close(*dense, rtol=0, atol=0, equal_nan=True)
        elif key == "notes":
            assert [note.partition(":")[2] for note in data.notes] == [n.partition(":")[2] for n in value]
        elif key != "name":
            assert data[key] == value


@pytest.mark.parametrize("kind", ["csv", "tsv", "parquet", "pandas", "polars"])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"features": {"id": ["a", "b"], "f": ["1", "x"]}},
            r"(line 3|row 2), column 2 \('f'\): 'x' is not a n",
        ),
        ({"features": {"id": ["a", "b"], "f": [1.0, None]}}, r"(line 3|row 2), column 2 \('f'\) is empty"),
        ({"features": {"id": ["a", None], "f": [1.0, 2.0]}}, r"node id in column 1 \('id'\) is empty"),
        ({"features": {"id": ["a", "b", "a"], "f": [1, 2, 3]}}, "node 'a' is listed twice, first in"),
        ({"edges": {"source": ["a"], "target": ["b"], "year": [1]}}, "unknown column 'year'"),
        (
            {"edges": {"source": ["a"], "target": ["b"], "weight": [-1.0]}},
            "the weight -1 is not a positive",
        ),
        ({"edges": {"source": ["a"], "target": ["b"], "weight": ["x"]}}, "'x' is not a number"),
        ({"labels": {"id": ["a"], "label": ["x"], "split": ["later"]}}, "unknown split 'later'"),
        (
            {"labels": {"id": ["a", "b"], "y1": [1.5, 2.0], "y2": [None, 1.0]}},
            "'y1' has a value and 'y2' has none",
        ),
        ({"labels": {"id": ["a", "z"], "label": ["x", "x"]}}, "node 'z' has no row in features"),
    ],
)
def test_every_source_refuses_the_same(kind, change, message, tmp_path):
    good = {"edges": {"source": ["a"], "target": ["b"]}, "features": {"id": ["a", "b"], "f": [1, 2]}}
    with pytest.raises(DataError, match=message):
        read_graph(**sources(good | change, kind, tmp_path))


def test_frames_of_unusual_kinds(tmp_path):
    pd = pytest.importorskip("pandas")
    edges = pd.DataFrame({"source": pd.Categorical(["a", "b"]), "target": pd.array([1, 2], dtype="Int64")})
    assert read_graph(edges).node_ids == ["1", "2", "a", "b"]
    for column in ([[1, 2], [3]], [{"a": 1}, {}], [b"x", b"y"]):
        with pytest.raises(DataError, match=r"the column 'target' holds (list|dict|bytes)"):
            read_graph(pd.DataFrame({"source": [1, 2], "target": column}))
    with pytest.raises(DataError, match="two columns are named 'source'"):
        read_graph(pd.DataFrame([[1, 2]], columns=["source", "source"]))
    with pytest.raises(DataError, match="edges is empty"):
        read_graph(pd.DataFrame({"source": [], "target": []}))


def test_texts_that_are_not_used(tmp_path):
    """A dictionary of Parquet may hold texts that no row has; they are no nodes."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    column = pa.DictionaryArray.from_arrays(pa.array([0, 2], pa.int8()), ["a", "never", " b "])
    pq.write_table(pa.table({"source": column, "target": ["b", "c"]}), tmp_path / "edges.parquet")
    assert read_graph(tmp_path / "edges.parquet").node_ids == ["a", "b", "c"]


def test_many_rows_in_parts(write):
    """More rows than are read at a time, with blank lines between them."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(1203, 3)).astype(np.float32)
    rows = [f"n{i},{','.join(map(repr, row))}\n" + "\n" * (i % 7 == 0) for i, row in enumerate(x.tolist())]
    edges = write("edges.csv", "".join(f"n{i},n{(i + 1) % 1203}\n" for i in range(1203)))
    data = read_graph(edges, write("features.csv", "".join(rows)))
    np.testing.assert_array_equal(data.x.numpy(), x)
    assert data.node_ids == [f"n{i}" for i in range(1203)]
    rows[1100] = "n1100,1,2,?\n"
    line = "".join(rows[:1100]).count("\n") + 1
    with pytest.raises(DataError, match=f"line {line}, column 4: '\\?' is not a number"):
        read_graph(edges, write("features.csv", "".join(rows)))
    rows[1100] = "n1100,1,2\n"
    with pytest.raises(DataError, match=f"line {line}: expected 4 columns as in line 1, found 3"):
        read_graph(edges, write("features.csv", "".join(rows)))
