"""The three parts of a user's graph, read and checked one by one: edges, features, labels.

Node ids are texts throughout; the ids in an array are its integers, written out.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from graphdiffusion.data.arrays import (
    adjacency_edges,
    check_edge_array,
    check_features,
    check_weights,
    feature_array,
    load_arrays,
    names_array,
    scipy_matrix,
)
from graphdiffusion.data.arraytargets import array_targets
from graphdiffusion.data.columns import edge_columns, feature_columns, feature_texts, is_long, label_columns
from graphdiffusion.data.foreign import reason
from graphdiffusion.data.frames import is_frame, read_frame, read_parquet
from graphdiffusion.data.headers import Known, edge_header, feature_header, label_header
from graphdiffusion.data.labels import Targets, default_names, splits_of, table_targets, with_points
from graphdiffusion.data.limits import check_graph
from graphdiffusion.data.longformat import as_wide, read_long
from graphdiffusion.data.tables import Table, TextColumns, Texts, written
from graphdiffusion.data.targets import Task
from graphdiffusion.data.textfiles import read_text
from graphdiffusion.errors import DataError

TABLES = (".csv", ".tsv", ".parquet")
EDGE_FILES = (*TABLES, ".npz")
FEATURE_FILES = (*TABLES, ".npy", ".npz")
LABEL_FILES = TABLES

_ALL = range(1 << 31)  # columns of texts in a table of edges or labels


@dataclass(frozen=True)
class Edges:
    """E edges as written; `nodes` are all ids in their order where the source itself declares them."""

    source: Texts
    target: Texts
    weight: NDArray[np.float64] | None
    where: Callable[[int], str]
    file: str
    nodes: list[str] | None = None


@dataclass(frozen=True)
class Features:
    """One row of `x` for each of `ids`; `names` are those of its columns, None where there are none.

    `whole` says that every node must have a row; in the long format others have zeros.
    """

    ids: list[str]
    x: NDArray[np.float32] | sp.csr_matrix
    file: str
    names: list[str] | None
    whole: bool = True


@dataclass(frozen=True)
class Labels:
    """One entry for each row; `parts` (rows, splits) are 0, 1, 2 for train, val, test, and -1 for none."""

    ids: Texts
    targets: Targets
    parts: NDArray[np.int64] | None
    where: Callable[[int], str]
    file: str


def open_edges(source: Any, notes: list[str]) -> Table | Edges:
    """A table, whose header is not known yet, or the edges of an array."""
    if isinstance(source, str | os.PathLike):
        path = Path(source)
        if require_file(path, EDGE_FILES) == ".npz":
            return _edges_of_file(path)
        return _read_table(path, lambda _: _ALL, notes)
    if is_frame(source):
        return read_frame(source, "edges", lambda _: _ALL)
    if sp.issparse(source):
        edge_index, weight, nodes = adjacency_edges(source, "edges")
        return _edges_of_arrays(edge_index, weight, nodes, "edges")
    return _edges_of_arrays(_array(source, "edges", "(2, E)"), None, None, "edges")


def edges_of(opened: Table | Edges, known: Known, notes: list[str]) -> Edges:
    """The edges of a table with the columns source, target and perhaps weight."""
    if isinstance(opened, Edges):
        return opened
    table = edge_header(opened, known, notes)
    source, target, weights = edge_columns(table)
    ends = table.ids(source), table.ids(target)
    weight = None
    if weights is not None:
        weight = table.numbers(weights)
        check_weights(weight, table.where)
    return Edges(*ends, weight, table.where, table.name)


def read_features(source: Any, known: Known, notes: list[str]) -> Features:
    """Features of a table (one row for each node, or the long format), or of an array."""
    if isinstance(source, str | os.PathLike):
        path = Path(source)
        suffix = require_file(path, FEATURE_FILES)
        if suffix in (".npy", ".npz"):
            stored, listed = feature_array(path, suffix)
            return _features_of_array(stored, listed, path.name)
        table = _read_table(path, feature_texts, notes)
    elif is_frame(source):
        table = read_frame(source, "features", feature_texts)
    else:
        stored = source if sp.issparse(source) else _array(source, "features", "(nodes, features)")
        return _features_of_array(stored, None, "features")
    table = feature_header(table, known, notes)
    x = table.x
    if table.header is not None and is_long(table.header):
        if (found := read_long(table)) is not None:
            node_ids, sparse, features = found
            return Features(node_ids, sparse, table.name, features, whole=False)
        x = as_wide(table)
    column, names = feature_columns(table, notes)
    if x.shape[1] == 0:
        raise DataError(
            f"{table.where(0)}: expected an id and at least one number, so 2 or more columns, "
            f"found {table.width}"
        )
    ids = table.ids(column)
    _check_unique(ids, table.where)
    return Features([ids.values[k] for k in ids.codes.tolist()], x, table.name, names)


def open_labels(source: Any, notes: list[str]) -> Table | NDArray:
    """A table, whose header is not known yet, or an array."""
    if isinstance(source, str | os.PathLike):
        require_file(Path(source), LABEL_FILES)
        return _read_table(Path(source), lambda _: _ALL, notes)
    if is_frame(source):
        return read_frame(source, "labels", lambda _: _ALL)
    return _array(source, "labels", "(nodes,) or (nodes, targets)")


def labels_of(opened: Table | NDArray, known: Known, task: Task, notes: list[str]) -> Labels:
    """Labels of a table with the columns id, label and perhaps split, or of an array."""
    if not isinstance(opened, Table):
        targets = array_targets(opened, task, "labels", notes)
        return Labels(
            written(np.arange(len(opened))), targets, None, lambda i: f"labels, node {i}", "labels"
        )
    table = label_header(opened, known, notes)
    column, labels, splits = label_columns(table)
    ids = table.ids(column)
    _check_unique(ids, table.where)
    names = [table.header[k] for k in labels] if table.header else default_names(len(labels))
    columns = [table.texts(k) for k in labels]
    if table.decimal_comma:
        columns = [with_points(column, table.name) for column in columns]
    targets = table_targets(columns, names, task, table.where, table.name, notes)
    parts = None
    if splits:
        parts = splits_of([table.texts(k) for k in splits], targets.known, ids, table.where)
    return Labels(ids, targets, parts, table.where, table.name)


def require_file(path: Path, suffixes: tuple[str, ...]) -> str:
    """The suffix of an existing file, which must be one of `suffixes`."""
    if not os.path.isfile(path):  # in contrast to Path.is_file, False for a name that is too long
        raise DataError(f"there is no file {str(path)!r}")
    suffix = path.suffix.lower()
    if suffix not in suffixes:
        raise DataError(f"{path.name}: expected a file that ends in one of {', '.join(suffixes)}")
    return suffix


def _read_table(path: Path, text_columns: TextColumns, notes: list[str]) -> Table:
    if path.suffix.lower() == ".parquet":
        return read_parquet(path, text_columns)
    return read_text(path, text_columns, notes)


def _array(source: Any, name: str, shape: str) -> NDArray:
    try:
        if not hasattr(source, "__array__"):
            raise TypeError(f"it is a {type(source).__name__}")
        return np.asarray(source)
    except (
        TypeError,
        ValueError,
        RuntimeError,
    ) as error:  # torch refuses sparse tensors and those on a GPU
        raise DataError(
            f"{name} must be a path, a DataFrame or an array of shape {shape} ({reason(error)})"
        ) from error


def _edges_of_file(path: Path) -> Edges:
    arrays = load_arrays(path)
    num_nodes = None
    weight = arrays.get("edge_weight", arrays.get("weight"))
    if "format" in arrays:
        edge_index, weight, num_nodes = adjacency_edges(scipy_matrix(path, arrays), path.name)
    elif "edge_index" in arrays:
        edge_index = arrays["edge_index"]
    elif "row" in arrays and "col" in arrays and arrays["row"].shape == arrays["col"].shape:
        edge_index = np.stack([arrays["row"], arrays["col"]])
    else:
        raise DataError(
            f"{path.name} holds {', '.join(sorted(arrays)) or 'nothing'}; expected edge_index of "
            "shape (2, E), or row and col of one length, or a matrix saved by scipy.sparse.save_npz"
        )
    return _edges_of_arrays(edge_index, weight, num_nodes, path.name)


def _edges_of_arrays(
    edge_index: NDArray, weight: NDArray | None, num_nodes: int | None, file: str
) -> Edges:
    check_edge_array(edge_index, weight, file)
    if edge_index.shape[1] == 0:
        raise DataError(f"{file} is empty: it has no edges")
    check_graph(num_nodes or 0, edge_index.shape[1], file)
    source, target = written(edge_index[0]), written(edge_index[1])
    weight = None if weight is None else weight.astype(np.float64)
    nodes = None if num_nodes is None else [str(i) for i in range(num_nodes)]
    return Edges(source, target, weight, lambda i: f"{file}, edge {i}", file, nodes)


def _features_of_array(stored: Any, names: NDArray | None, file: str) -> Features:
    x = check_features(stored, file)
    ids = [str(i) for i in range(x.shape[0])]
    return Features(ids, x, file, names_array(names, "feature_names", x.shape[1], file))


def _check_unique(ids: Texts, where: Callable[[int], str]) -> None:
    _, first, back = np.unique(ids.codes, return_index=True, return_inverse=True)
    again = np.flatnonzero(first[back] != np.arange(ids.codes.size))
    if again.size:
        i = int(again[0])
        raise DataError(
            f"{where(i)}: node {ids.cell(i)!r} is listed twice, first in {where(int(first[back[i]]))}"
        )
