"""The three parts of a user's graph, read and checked one by one: edges, features, labels.

Node ids are strings throughout; the ids in an array are its integers, written out.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from graphdiffusion.data.arrays import (
    check_edge_array,
    check_features,
    check_weights,
    feature_array,
    feature_names,
    load_arrays,
    scipy_edges,
)
from graphdiffusion.data.limits import check_graph
from graphdiffusion.data.tables import TABLES, Table, read_table, require_file
from graphdiffusion.errors import DataError

SPLITS = ("train", "val", "test")
UNLABELLED = ("", "?")

EDGE_FILES = (*TABLES, ".npz")
FEATURE_FILES = (*TABLES, ".npy", ".npz")
LABEL_FILES = TABLES

_INTEGER = re.compile(r"-?\d+")

# First rows that are headers. A node that bears such a name is safe in a file with a header.
_ID_WORDS = {"", "id", "ids", "node", "nodes", "node_id", "nodeid", "name", "index"}
_LABEL_WORDS = {"label", "labels", "class", "y", "category", "subject"}
_SOURCE_WORDS = {"source", "src", "from", "u", "i", "row", "node1", "source_id", "sourceid"}
_TARGET_WORDS = {"target", "dst", "to", "v", "j", "col", "node2", "target_id", "targetid"}
_WEIGHT_WORDS = {"weight", "weights", "w", "edge_weight", "value"}


@dataclass(frozen=True)
class Edges:
    """E edges as written. `num_nodes` is known where the file itself declares it."""

    source: list[str]
    target: list[str]
    weight: NDArray[np.float64] | None
    where: Callable[[int], str]
    num_nodes: int | None = None


@dataclass(frozen=True)
class Features:
    """One row per node of `x`; `ids` is None for an array, whose nodes are its row numbers.

    `names` are those of the columns of `x`, None where the file has none.
    """

    ids: list[str] | None
    x: NDArray[np.float32] | sp.csr_matrix
    file: str
    names: list[str] | None


@dataclass(frozen=True)
class Labels:
    """One entry per row; an empty label means unlabelled, an empty split none."""

    ids: list[str]
    labels: list[str]
    splits: list[str] | None
    where: Callable[[int], str]


def read_edges(path: Path) -> Edges:
    """Edges from a table `source,target[,weight]` or from an .npz of arrays."""
    if require_file(path, EDGE_FILES) == ".npz":
        return _edges_from_arrays(path)
    table = read_table(path)
    if table.unit == "line" and _is_edge_header(table):
        table = table.without_header()
    width = table.check_widths(range(2, 4), "2 or 3")
    source, target = table.ids(0), table.ids(1)
    weight = None
    if width == 3:
        weight = _numbers(table, [2]).ravel()
        check_weights(weight, table.where)
    return Edges(source, target, weight, table.where)


def read_features(path: Path) -> Features:
    """Features from a table with an id and numbers, from .npy, or from .npz (dense or scipy)."""
    suffix = require_file(path, FEATURE_FILES)
    if suffix in (".npy", ".npz"):
        stored, names = feature_array(path, suffix)
        x = check_features(stored, path.name)
        return Features(None, x, path.name, feature_names(names, x.shape[1], path.name))
    table = read_table(path)
    if table.unit == "line" and _is_feature_header(table):
        table = table.without_header()
    width = table.check_widths(range(2, 1 << 31), "an id and at least one number, so 2 or more")
    ids = table.ids(0)
    _check_unique(ids, table.where)
    with np.errstate(over="ignore"):
        x = _numbers(table, range(1, width)).astype(np.float32)
    bad = np.argwhere(~np.isfinite(x))
    if bad.size:
        i, k = (int(v) for v in bad[0])
        cell = table.row(i)[k + 1]
        raise DataError(f"{table.where(i)}, column {k + 2}: {cell!r} is not a finite float32 number")
    return Features(ids, x, path.name, _column_names(table, width))


def _column_names(table: Table, width: int) -> list[str] | None:
    """Names of the features of a table of `width` columns; the first column holds ids."""
    if table.header is None:
        return None
    if len(table.header) not in (width - 1, width):  # R writes no name for the ids
        raise DataError(
            f"{table.path.name}: the header has {len(table.header)} columns, but {table.unit} "
            f"{table.places[0]} has {width}; name every column"
        )
    names = table.header[1 - width :]
    return names if any(names) else None


def read_labels(path: Path) -> Labels:
    """Labels from a table `id,label[,split]`."""
    require_file(path, LABEL_FILES)
    table = read_table(path)
    if table.unit == "line" and _is_label_header(table):
        table = table.without_header()
    width = table.check_widths(range(2, 4), "2 or 3")
    ids = table.ids(0)
    labels = ["" if label in UNLABELLED else label for label in table.column(1)]
    _check_unique(ids, table.where, labels)
    if width == 2:
        return Labels(ids, labels, None, table.where)
    splits = [split.lower() for split in table.column(2)]
    for i, (label, split) in enumerate(zip(labels, splits, strict=True)):
        if split and split not in SPLITS:
            raise DataError(
                f"{table.where(i)}: unknown split {table.row(i)[2]!r}; "
                "it must be train, val or test, or empty for none"
            )
        if split and not label:
            raise DataError(
                f"{table.where(i)}: node {ids[i]!r} is in the split {split!r} but has no label; "
                "give it one or leave its split empty"
            )
    return Labels(ids, labels, splits, table.where)


def _edges_from_arrays(path: Path) -> Edges:
    arrays = load_arrays(path)
    num_nodes = None
    weight = arrays.get("edge_weight", arrays.get("weight"))
    if "format" in arrays:
        edge_index, weight, num_nodes = scipy_edges(path, arrays)
    elif "edge_index" in arrays:
        edge_index = arrays["edge_index"]
    elif "row" in arrays and "col" in arrays and arrays["row"].shape == arrays["col"].shape:
        edge_index = np.stack([arrays["row"], arrays["col"]])
    else:
        raise DataError(
            f"{path.name} holds {', '.join(sorted(arrays)) or 'nothing'}; expected edge_index of "
            "shape (2, E), or row and col of one length, or a matrix saved by scipy.sparse.save_npz"
        )
    check_edge_array(edge_index, weight, path.name)
    if edge_index.shape[1] == 0:
        raise DataError(f"{path.name} is empty: it has no edges")
    check_graph(num_nodes or 0, edge_index.shape[1], path.name)
    source, target = ([str(i) for i in ends] for ends in edge_index.tolist())
    weight = None if weight is None else weight.astype(np.float64)
    return Edges(source, target, weight, lambda i: f"{path.name}, edge {i}", num_nodes)


def _numbers(table: Table, columns: Sequence[int]) -> NDArray[np.float64]:
    """The given columns of a regular table as (rows, columns) float64."""
    try:
        return np.array([[float(cell) for cell in table.column(k)] for k in columns]).T
    except ValueError:
        bad = [(i, k) for k in columns for i, cell in enumerate(table.column(k)) if not _is_number(cell)]
        i, k = min(bad)
        raise DataError(f"{table.where(i)}, column {k + 1}: {table.row(i)[k]!r} is not a number") from None


def _check_unique(ids: list[str], where: Callable[[int], str], labels: list[str] | None = None) -> None:
    first: dict[str, int] = {}
    for i, node in enumerate(ids):
        j = first.setdefault(node, i)
        if j != i:
            if labels is not None and labels[i] != labels[j]:
                raise DataError(
                    f"{where(i)}: node {node!r} has the label {labels[i]!r}, "
                    f"but {labels[j]!r} in {where(j)}"
                )
            raise DataError(f"{where(i)}: node {node!r} is listed twice, first in {where(j)}")


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _only_first_not_integer(table: Table, columns: Sequence[int]) -> bool:
    """Integer ids in every row but the first: then the first names the columns."""
    if len(table.widths) < 2 or table.widths[0] <= columns[-1] or not table.is_regular:
        return False
    ids = [table.column(k) for k in columns]
    return not any(_INTEGER.fullmatch(column[0]) for column in ids) and all(
        _INTEGER.fullmatch(node) for column in ids for node in column[1:]
    )


def _is_edge_header(table: Table) -> bool:
    first = [cell.lower() for cell in table.row(0)]
    if len(first) < 2:
        return False
    words = first[0] in _SOURCE_WORDS and first[1] in _TARGET_WORDS
    weight = len(first) == 3 and first[2] in _WEIGHT_WORDS
    return words or weight or _only_first_not_integer(table, [0, 1])


def _is_feature_header(table: Table) -> bool:
    first = table.row(0)
    names = bool(first[1:]) and not any(cell == "" or _is_number(cell) for cell in first[1:])
    return names or first[0].lower() in _ID_WORDS or _only_first_not_integer(table, [0])


def _is_label_header(table: Table) -> bool:
    first = [cell.lower() for cell in table.row(0)]
    words = first[0] in _ID_WORDS or (len(first) > 1 and first[1] in _LABEL_WORDS)
    return words or first[2:] == ["split"] or _only_first_not_integer(table, [0])
