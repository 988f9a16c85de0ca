"""What is to be predicted, and by which nodes: classes, numbers, several labels, and several splits."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from graphdiffusion.data import (
    check_data,
    from_networkx,
    given_split,
    labelled,
    largest_component,
    number_of_splits,
    open_data,
    read_folder,
    read_graph,
    task_of,
)
from graphdiffusion.errors import ArgumentError, DataError

NAN = math.nan
NONE = [NAN, NAN]
DTYPES = {"classification": torch.int64, "regression": torch.float64, "multilabel": torch.float32}


@pytest.fixture
def read(tmp_path):
    """Read labels of the four nodes of a ring."""

    def _read(labels: str, **how):
        (tmp_path / "edges.csv").write_text("source,target\na,b\nb,c\nc,d\nd,a\n")
        (tmp_path / "labels.csv").write_text(labels)
        return read_folder(tmp_path, **how)

    return _read


TARGETS = {
    "classes": ("id,label\na,x\nb,y\nc,?\n", {}, "classification", [0, 1, -1, -1], ["x", "y"]),
    "whole numbers": ("id,label\na,10\nb,2\n", {}, "classification", [1, 0, -1, -1], ["2", "10"]),
    "whole with decimals": ("id,y\na,1.0\nb,2.0\n", {}, "classification", [0, 1, -1, -1], ["1.0", "2.0"]),
    "one is no number": ("id,y\na,1.5\nb,x\n", {}, "classification", [0, 1, -1, -1], ["1.5", "x"]),
    "none is a class": ("id,y\na,none\nb,x\n", {}, "classification", [0, 1, -1, -1], ["none", "x"]),
    "nan words": (
        "id,y\na,x\nb,NaN\nc,NA\nd,null\n", {}, "classification", [0, -1, -1, -1], ["x"],
    ),
    "a number": ("id,price\na,1.5\nb,-2\nc,\n", {}, "regression", [[1.5], [-2], [NAN], [NAN]], ["price"]),
    "no header": ("a,1.5\nb,2\n", {}, "regression", [[1.5], [2], [NAN], [NAN]], ["target"]),
    "numbers": (
        "id,p,q\na,1,2\nb,3,1\nd,nan,?\n", {}, "regression", [[1, 2], [3, 1], NONE, NONE], ["p", "q"],
    ),
    "labels by 0 and 1": (
        "id,p,q\na,1,0\nb,0,0\nd,,\n", {}, "multilabel", [[1, 0], [0, 0], NONE, NONE], ["p", "q"],
    ),
    "labels by words": (
        "id,p,q\na,True,false\nb,FALSE,1\n", {}, "multilabel", [[1, 0], [0, 1], NONE, NONE], ["p", "q"],
    ),
    "labels in a cell": (
        "id,label\na,red|blue\nb,red\nc,|\n", {}, "multilabel", [[1, 1], [0, 1], [0, 0], NONE],
        ["blue", "red"],
    ),
    "named as labels": (
        "label_2,id,label_10\n0.5,a,1\n2,b,2\n", {}, "regression", [[0.5, 1], [2, 2], NONE, NONE],
        ["label_2", "label_10"],
    ),
    "classes of numbers": (
        "id,y\na,1.5\nb,2\n", {"task": "classification"}, "classification", [0, 1, -1, -1], ["1.5", "2"],
    ),
    "classes with a bar": (
        "id,y\na,p|q\nb,p\n", {"task": "classification"}, "classification", [1, 0, -1, -1], ["p", "p|q"],
    ),
    "regression of counts": (
        "id,y\na,1\nb,0\n", {"task": "regression"}, "regression", [[1], [0], [NAN], [NAN]], ["y"],
    ),
    "regression of 0 and 1": (
        "id,p,q\na,1,0\n", {"task": "regression"}, "regression", [[1, 0], NONE, NONE, NONE],
        ["p", "q"],
    ),
    "one label for each": (
        "id,y\na,x\nb,y\n", {"task": "multilabel"}, "multilabel", [[1, 0], [0, 1], NONE, NONE],
        ["x", "y"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", TARGETS)
def test_targets_of_a_table(read, kind):
    labels, how, task, y, names = TARGETS[kind]
    data = read(labels, **how)
    assert data.task == task == task_of(data)
    np.testing.assert_array_equal(data.y.numpy(), np.array(y))
    assert data.y.dtype == DTYPES[task]
    assert (data.class_names if task == "classification" else data.target_names) == names
    assert ("target_names" in data, "class_names" in data) == (
        task != "classification", task == "classification",
    )  # fmt: skip
    np.testing.assert_array_equal(
        labelled(data).numpy(), [row != -1 and not np.isnan(row).any() for row in y]
    )


@pytest.mark.parametrize(
    ("labels", "task", "message"),
    [
        (
            "id,p,q\na,1,\n",
            "auto",
            "line 2: 'p' has a value and 'q' has none; a node has all of its targets",
        ),
        (
            "id,p,q\na,1,x\n",
            "auto",
            r"line 2, column 'q': 'x' is not a finite float32 number; a column of classes",
        ),
        ("id,y\na,1.5\nb,1e39\n", "auto", r"line 3, column 'y': '1e39' is not a finite float32 number"),
        ("id,y\na,1.5\nb,inf\n", "auto", r"line 3, column 'y': 'inf' is not a finite"),
        ("id,y\na,1\nb,x\n", "regression", "line 3, column 'y': 'x' is not a finite"),
        ("id,p,q\na,1,2\n", "multilabel", "column 'q': '2' is neither 0 nor 1"),
        ("id,p,q\na,1,2\n", "classification", r"2 columns of labels \(p, q\), but a class needs one"),
        ("id,y\na,|\n", "auto", "no node has a label"),
        (
            "id,y,split\na,1.5,train\nb,,val\n",
            "auto",
            "line 3: node 'b' is in the split 'val' but has no label",
        ),
    ],
)
def test_targets_that_cannot_be_used(read, labels, task, message):
    with pytest.raises(DataError, match=message):
        read(labels, task=task)


def test_unknown_task(tmp_path, read):
    for call in (lambda: read("a,x\n", task="ranking"), lambda: open_data("cora-embedded", task="ranking")):
        with pytest.raises(ArgumentError, match=r"task must be one of auto, .*got 'ranking'"):
            call()


def test_notes_on_labels(read):
    def noted(labels: str, **how) -> str:
        return "\n".join(read(labels, **how).notes)

    assert "2 labels 'NaN', 'null' taken as unlabelled" in noted("id,y\na,x\nb,NaN\nc,null\nd,z\n")
    assert "all labels are 'x'" in noted("id,y\na,x\nb,x\n")
    assert "no node is labelled" in noted("id,y\na,?\n")
    assert "'none' is taken as a class" in noted("id,y\na,None\nb,x\n")
    assert "labels with '|' are taken as several labels" in noted("id,y\na,p|q\nb,p\n")
    assert "labels with '|' are taken as classes" in noted("id,y\na,p|q\nb,r\n")
    assert "label" not in noted("id,y\na,x\nb,z\n")
    assert "no training node" in noted("id,y,split\na,x,val\nb,z,test\n")
    assert "several columns of nothing but 0 and 1 are taken as several labels" in noted("id,p,q\na,0,1\n")
    assert "0 and 1" not in noted("id,p,q\na,0,2\n")


def test_large_number_of_labels_is_refused(read, monkeypatch):
    from graphdiffusion.data import limits

    names = ["z|" + "|".join(f"{node}{k}" for k in range(9000)) for node in "abcd"]
    with pytest.raises(DataError, match=r"36,001 labels of each row would take 1.15 MB"):
        monkeypatch.setattr(limits, "memory", lambda: 1_000_000)
        read("id,y\n" + "".join(f"{node},{cell}\n" for node, cell in zip("abcd", names, strict=True)))


def test_several_splits_in_a_table(read):
    labels = "id,split_10,label,split_2\na,train,x,test\nb,valid,y,Train\nc,dev,x,validation\nd,test,y,\n"
    data = read(labels)
    assert number_of_splits(data) == 2
    assert data.train_mask.tolist() == [[False, True], [True, False], [False, False], [False, False]]
    assert data.val_mask.tolist() == [[False, False], [False, True], [True, True], [False, False]]
    assert data.test_mask.tolist() == [[True, False], [False, False], [False, False], [False, True]]
    assert given_split(data, 1).train.tolist() == [True, False, False, False]
    part = read("id,split,label\na,train,1.5\nb,train,2\n")
    assert part.train_mask.shape == (4,) and not part.val_mask.any() and not part.test_mask.any()
    assert given_split(part).train.tolist() == [True, True, False, False]


def test_component_of_masks_and_targets(tmp_path):
    (tmp_path / "edges.csv").write_text("a,b\nc,d\nd,e\n")
    (tmp_path / "labels.csv").write_text(
        "id,p,q,split_1,split_2\nc,1,2,train,val\nd,3,4,val,train\na,5,6,,\n"
    )
    part = largest_component(open_data(tmp_path))
    assert part.y[:2].tolist() == [[1, 2], [3, 4]] and part.y[2].isnan().all()
    assert part.train_mask.tolist() == [[True, False], [False, True], [False, False]]
    assert part.task == "regression" and part.target_names == ["p", "q"]
    check_data(part)


EDGES = np.array([[0, 1, 2], [1, 2, 3]])
ARRAYS = {
    "numbers": (np.array([0.5, 1, NAN, 2]), {}, "regression", [[0.5], [1], [NAN], [2]], ["target"]),
    "float16": (np.array([0.5, 1, 3, 2], np.float16), {}, "regression", [[0.5], [1], [3], [2]], ["target"]),
    "two numbers": (
        np.array([[1, 2], [0, 0], [1, 1], [NAN, NAN]]), {}, "regression", [[1, 2], [0, 0], [1, 1], NONE],
        ["target_0", "target_1"],
    ),
    "labels": (
        np.array([[1, 0], [0, 0], [1, 1], [NAN, NAN]]), {}, "multilabel", [[1, 0], [0, 0], [1, 1], NONE],
        ["target_0", "target_1"],
    ),
    "labels of integers": (
        np.array([[1, 0], [0, 0], [1, 1], [0, 1]]), {}, "multilabel", [[1, 0], [0, 0], [1, 1], [0, 1]],
        ["target_0", "target_1"],
    ),
    "bool": (np.eye(4, 2, dtype=bool), {}, "multilabel", np.eye(4, 2).tolist(), ["target_0", "target_1"]),
    "a column": (np.array([[3], [-1], [5], [3]]), {}, "classification", [0, -1, 1, 0], ["3", "5"]),
    "classes of floats": (
        np.array([1.0, NAN, 2.5, 1.0]), {"task": "classification"}, "classification", [0, -1, 1, 0],
        ["1", "2.5"],
    ),
    "counts": (
        np.array([4, 0, 2, 7]), {"task": "regression"}, "regression", [[4], [0], [2], [7]], ["target"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", ARRAYS)
def test_targets_of_an_array(tmp_path, kind):
    y, how, task, expected, names = ARRAYS[kind]
    np.savez(tmp_path / "g.npz", edge_index=EDGES, y=y)
    for data in (open_data(tmp_path / "g.npz", **how), read_graph(EDGES, labels=y, **how)):
        assert data.task == task
        np.testing.assert_array_equal(data.y.numpy(), np.array(expected))
        assert data.y.dtype == DTYPES[task]
        assert (data.class_names if task == "classification" else data.target_names) == names


@pytest.mark.parametrize("source", ["csv", "parquet", "pandas", "polars", "npz", "array", "networkx"])
def test_large_numbers_keep_their_digits(tmp_path, source):
    """Times in seconds since 1970, of one minute: one number in float32."""
    times = [1.6e9 + 0.25, 1.6e9 + 1.5, 1.6e9 + 59.0, 1.6e9 + 60.125]
    labels, edges = {"id": ["0", "1", "2", "3"], "time": times}, EDGES
    path = tmp_path / f"labels.{source}"
    if source == "csv":
        path.write_text("id,time\n" + "".join(f"{i},{time!r}\n" for i, time in enumerate(times)))
    elif source == "parquet":
        pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        pq.write_table(pa.table(labels), path)
    elif source == "npz":
        np.savez(path, edge_index=EDGES, y=np.array(times))
    elif source == "networkx":
        nx = pytest.importorskip("networkx")
        graph = nx.Graph(EDGES.T.tolist())
        nx.set_node_attributes(graph, dict(enumerate(times)), "time")
    if source in ("csv", "parquet"):
        data = read_graph(edges, labels=path)
    elif source == "npz":
        data = open_data(path)
    elif source == "array":
        data = read_graph(edges, labels=np.array(times))
    elif source == "networkx":
        data = from_networkx(graph, "time", features=[])
    else:
        data = read_graph(edges, labels=pytest.importorskip(source).DataFrame(labels))
    assert data.y.dtype == torch.float64 and data.y.flatten().tolist() == times


def test_names_in_an_npz(tmp_path):
    path, y = tmp_path / "g.npz", np.array([2, 0, -1, 2])
    ids = np.array(["p", "q", "r", "s"])
    np.savez(path, edge_index=EDGES, y=y, class_names=np.array(["a", "b", "c"]), node_ids=ids)
    data = open_data(path)
    assert data.class_names == ["a", "b", "c"] and data.y.tolist() == y.tolist()
    assert data.node_ids == list("pqrs")
    np.savez(path, edge_index=EDGES, y=np.eye(4, 2) / 2, target_names=np.array(["p", "q"]))
    assert open_data(path).target_names == ["p", "q"]
    for arrays, message in (
        ({"y": y, "class_names": np.array(["a", "b"])}, "y must be -1 or a number below 2"),
        ({"y": y, "class_names": np.array(["a", "b", "a"])}, "class_names holds 'a' twice"),
        ({"y": y, "node_ids": np.arange(4)}, r"node_ids must be texts of shape \(4,\), got int64"),
        (
            {"y": np.eye(4, 2) / 2, "target_names": np.array(["p"])},
            "target_names must be 2, one for each target, got 1",
        ),
        ({"y": np.array([[1, NAN]] * 4)}, "node 0: 'target_0' has a value and 'target_1' has none"),
        ({"y": np.array([0.5, np.inf, 0, 0])}, "node 1: target is inf, not a finite float32 number"),
        ({"y": np.ones((4, 2, 2))}, r"y must be numbers \(n,\) or \(n, k\)"),
    ):
        np.savez(path, edge_index=EDGES, **arrays)
        with pytest.raises(DataError, match=message):
            open_data(path)


def test_notes_on_arrays(tmp_path):
    path = tmp_path / "g.npz"
    np.savez(path, edge_index=EDGES, y=np.array([0.0, 1, NAN, 2]))
    assert any("whole numbers as floating point" in note for note in open_data(path).notes)
    np.savez(path, edge_index=EDGES, y=np.array([0, 1, -1, 2]))
    assert any(
        "y holds -1, which is taken as a number" in n for n in open_data(path, task="regression").notes
    )
    assert not any(note.startswith("g.npz") for note in open_data(path).notes)
    np.savez(path, edge_index=EDGES, y=np.eye(4, 2))
    assert any("taken as several labels" in note for note in open_data(path).notes)
    assert not any("several labels" in note for note in open_data(path, task="multilabel").notes)


def test_masks_of_several_splits_in_an_npz(tmp_path):
    path, masks = tmp_path / "g.npz", np.eye(4, 3, dtype=bool)
    np.savez(path, edge_index=EDGES, y=np.arange(4), train_mask=masks, test_mask=masks[::-1])
    data = open_data(path)
    assert number_of_splits(data) == 3 and torch.equal(data.train_mask, torch.from_numpy(masks))
    for wrong in (masks.T, masks[None], np.ones((4, 0), bool), masks.astype(int)):
        np.savez(path, edge_index=EDGES, y=np.arange(4), train_mask=wrong)
        with pytest.raises(DataError, match=r"train_mask must be bool of shape \(4,\), or \(4, S\)"):
            open_data(path)


def graph(**changes) -> Data:
    fields = {
        "x": torch.ones(3, 2),
        "edge_index": torch.tensor([[0, 1], [1, 0]]),
        "y": torch.tensor([0, 1, -1]),
    }
    return Data(**(fields | changes))


FORMS = {
    "classes": (torch.tensor([0, 1, -1]), "classification", [True, True, False]),
    "numbers": (torch.tensor([0.5, NAN, 1]), "regression", [True, False, True]),
    "a column": (torch.tensor([[0.0], [1], [NAN]]), "regression", [True, True, False]),
    "double": (torch.tensor([[0.5, 2]] * 3, dtype=torch.float64), "regression", [True] * 3),
    "labels": (torch.tensor([[0.0, 1], [NAN, NAN], [1, 1]]), "multilabel", [True, False, True]),
    "bool": (torch.eye(3, dtype=torch.bool), "multilabel", [True] * 3),
}


@pytest.mark.parametrize("form", FORMS)
def test_foreign_targets(form):
    y, task, known = FORMS[form]
    data = graph(y=y, train_mask=torch.tensor(known))
    assert check_data(data) is data and data.y is y
    assert task_of(data) == task
    assert labelled(data).tolist() == known


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"task": "ranking"},
            "data.task must be one of classification, regression, multilabel, got 'ranking'",
        ),
        ({"task": "regression"}, r"floating point of shape \(3, k\) for regression, got torch.int64"),
        ({"task": "classification", "y": torch.rand(3)}, "int64 of shape .* for classification"),
        ({"y": torch.eye(3, dtype=torch.int64)}, "data.y must be int64 of shape"),
        ({"y": torch.rand(2)}, "data.y must be int64 of shape"),
        ({"y": torch.rand(3, 1, 1)}, "data.y must be int64 of shape"),
        ({"y": torch.rand(3, 0)}, "floating point of shape"),
        ({"y": torch.tensor([0.5, math.inf, 0])}, "infinity"),
        ({"y": torch.tensor([[0.5, NAN], [1, 1], [1, 1]])}, "NaN for some targets of node 0"),
        ({"y": torch.rand(3, 2), "task": "multilabel"}, "must be 0 or 1"),
        (
            {"y": torch.rand(3, 2), "target_names": ["one"]},
            "must have 2 entries, one for each target, got 1",
        ),
        ({"train_mask": torch.ones(3, 2, dtype=torch.bool)}, r"labelled\(data\)\[:, None\]"),
        (
            {"y": torch.rand(3), "train_mask": torch.eye(3, 2) > 0, "val_mask": torch.eye(3) > 0},
            "has 3 splits",
        ),
        (
            {"y": torch.rand(3), "train_mask": torch.eye(3) > 0, "test_mask": torch.eye(3) > 0},
            "shares nodes",
        ),
        ({"y": torch.rand(3), "train_mask": torch.eye(3)}, r"bool of shape \(3,\), or \(3, S\)"),
    ],
)
def test_foreign_targets_that_cannot_be_used(changes, message):
    with pytest.raises(DataError, match=message):
        check_data(graph(**changes))


def test_one_test_mask_beside_several_splits():
    """As in PyG's WikiCS."""
    train = torch.tensor([[True, False], [False, True], [False, False]])
    check_data(graph(y=torch.arange(3), train_mask=train, test_mask=torch.tensor([False, False, True])))


def test_minus_one_among_class_numbers_is_unlabelled(tmp_path):
    (tmp_path / "edges.csv").write_text("source,target\na,b\nb,c\n")
    (tmp_path / "labels.csv").write_text("id,label\na,-1\nb,1\nc,0\n")
    data = open_data(tmp_path)
    assert data.class_names == ["0", "1"] and data.y.tolist() == [-1, 1, 0]
    assert any("'-1'" in note for note in data.notes)


def test_numbers_are_plain_ones(tmp_path):
    (tmp_path / "edges.csv").write_text("source,target\na,b\n")
    for cell in ("1_000", "١٢"):
        (tmp_path / "features.csv").write_text(f"id,size\na,{cell}\nb,2\n", encoding="utf-8")
        with pytest.raises(DataError, match="is not a number"):
            open_data(tmp_path)


def test_nodes_without_features_are_matched_by_their_ids(tmp_path):
    (tmp_path / "edges.csv").write_text("source,target\na,b\n")
    (tmp_path / "labels.csv").write_text("id,label\nx,1\ny,0\n")
    data = open_data(tmp_path)
    assert data.feature_names == data.node_ids
    assert any("no node of labels.csv has an edge" in note for note in data.notes)
