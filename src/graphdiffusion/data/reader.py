"""A user's own graph: from files, DataFrames or arrays to the same `Data` as the benchmarks."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch_geometric.data import Data

from graphdiffusion.data.arrays import check_edge_array, check_features, load_arrays, names_array
from graphdiffusion.data.arraytargets import array_targets
from graphdiffusion.data.assemble import add_labels, add_notes, assemble, join
from graphdiffusion.data.catalogue import dataset_info, is_dataset
from graphdiffusion.data.check import check_data
from graphdiffusion.data.datasets import load_data
from graphdiffusion.data.headers import Known
from graphdiffusion.data.inputs import (
    EDGE_FILES,
    FEATURE_FILES,
    LABEL_FILES,
    Edges,
    edges_of,
    labels_of,
    open_edges,
    open_labels,
    read_features,
)
from graphdiffusion.data.limits import check_claim, check_graph
from graphdiffusion.data.structure import MASKS
from graphdiffusion.data.tables import Table
from graphdiffusion.data.targets import Task, check_task
from graphdiffusion.errors import DataError

PathLike = str | os.PathLike[str]


def read_graph(
    edges: Any, features: Any = None, labels: Any = None, *, directed: bool = False, task: Task = "auto"
) -> Data:
    """Read a graph from files, DataFrames (pandas, polars) or arrays, each part from its own source.

    Args:
        edges: a table with the columns source, target and optionally weight: .csv, .tsv, .parquet or a
            DataFrame. Or .npz with `edge_index` (2, E), with `row` and `col`, or of
            `scipy.sparse.save_npz`; or an integer array (2, E), or a square scipy matrix.
            Weights are positive. An edge may be listed in both directions and more than once,
            but always with the same weight; self-loops are dropped.
        features: a table with a column id and numbers in all others, one row for each node; or, in the
            long format, a table with the columns id, feature and value, where what has no row is zero.
            Or .npy, .npz, an array or a scipy matrix whose row numbers are the ids. Without features,
            every node gets its own: `x` is the sparse identity matrix.
        labels: a table with the columns id, label and optionally split (train, val, test or empty), or
            several of each: label_1, label_2, ..., split_1, split_2, ... An empty label, `?`, `nan` or no
            row at all mean unlabelled. Or an array (nodes,) or (nodes, targets) whose row numbers are
            the ids.
        directed: keep the directions; otherwise each edge is stored both ways.
        task: what the labels are. By default it is recognised: one column of numbers of which at least one
            is not whole is `"regression"`, as are several columns of numbers; several columns of nothing
            but 0 and 1 (or true and false), or one column with several names in a cell (`a|b`, and `|`
            for none; some cells have a name in common), are `"multilabel"`; everything else are classes,
            `"classification"`.

    Columns are found by their names, in any order and case, and an unknown one is refused. Those of a text
    file are separated by commas, semicolons or tabs; where it is not commas, numbers may have a decimal
    comma. A text file may have no header: then columns are taken in the order above. Its first row is a
    header if it holds the usual names (source, target, weight, id, label, split and some synonyms), or
    words where the other rows hold numbers, or names that are no nodes. A table of the two features
    "feature" and "value" with one row for each node is no long format.

    Returns:
        `x` (n, F) float32, dense or sparse CSR; `edge_index` (2, E) int64, sorted, without
        duplicates; `edge_weight` (E,) float32 if given; `task`; `y`, of classes (n,) int64 with -1 for
        unlabelled, else (n, k) with rows of NaN, float64 for numbers and float32 for several labels;
        `class_names` (sorted) or `target_names`; `train_mask`, `val_mask`, `test_mask` bool, (n,) or
        (n, splits), if a split is given; `node_ids` and, if the source names them, `feature_names` as lists
        of str; `absent_is_zero`, true where a feature of another name is zero at every node (in the long
        format, and without features); `name`; `notes`, sentences on what was assumed or left out, if there
        are any.
        Nodes are in the order of the features, else sorted by id.

    Raises:
        DataError: with the file and the line that cannot be used, and why.
    """
    check_task(task)
    notes: list[str] = []
    opened = open_edges(edges, notes)
    opened_labels = None if labels is None else open_labels(labels, notes)
    found = None
    known = Known(lambda: _ids_of(opened_labels, 1), all=False)
    if features is not None:
        found = read_features(features, Known(lambda: _ids_of(opened, 2), all=False), notes)
        known = Known(lambda: set(found.ids), all=found.whole)
    edge_part = edges_of(opened, known, notes)
    label_part = None
    if opened_labels is not None:
        if found is None:
            known = Known(lambda: _ids_of(edge_part, 2), all=False)
        label_part = labels_of(opened_labels, known, task, notes)
    data = join(edge_part, found, label_part, directed, notes)
    data.name = Path(edges).stem if isinstance(edges, str | os.PathLike) else "graph"
    return data


def read_folder(path: PathLike, *, directed: bool = False, task: Task = "auto") -> Data:
    """Read a folder that holds `edges.*` and optionally `features.*` and `labels.*`, or one .npz.

    The .npz holds `edge_index` (2, E) and optionally `edge_weight` (E,); `x` (n, F) and its
    `feature_names` (F,); the targets `y`; `train_mask`, `val_mask`, `test_mask`, bool of shape (n,) or
    (n, splits); and `node_ids` (n,). Integers `y` (n,) are classes, -1 where unlabelled; they are numbered
    without gaps, and their `class_names` are these numbers unless the file has an array of names for
    0, 1, 2, ... Floating point `y` are numbers to predict, (n,) or (n, k), or several labels, (n, k) of 0
    and 1; NaN where unlabelled; `target_names` (k,) are their names.
    The result is that of `read_graph`; its name is that of the folder or file.
    """
    check_task(task)
    folder = Path(path)
    if folder.is_file():
        return _read_npz(folder, directed, task)
    if not folder.is_dir():
        raise DataError(f"there is no folder or file {str(folder)!r}")
    edges = _part(folder, "edges", EDGE_FILES)
    if edges is None:
        raise DataError(f"{folder} holds no edges: expected one of {_names('edges', EDGE_FILES)}")
    data = read_graph(
        edges,
        _part(folder, "features", FEATURE_FILES),
        _part(folder, "labels", LABEL_FILES),
        directed=directed,
        task=task,
    )
    data.name = folder.resolve().name
    return data


def open_data(
    name_or_path: PathLike,
    root: PathLike | None = None,
    lcc: bool = True,
    directed: bool = False,
    task: Task = "auto",
) -> Data:
    """A known data set by name (see `load_data`), or a user's folder or .npz (see `read_folder`).

    A name wins over a folder that is called the same; write `./cora` for the folder.
    With `lcc`, only the largest connected component of a known data set is kept; of a user's graph
    no node is ever left out. With `directed`, the edges of a user's graph keep their directions; `task`
    says what its labels are.
    """
    check_task(task)
    name = os.fspath(name_or_path)
    if is_dataset(name):
        return load_data(name, root, lcc)
    path = Path(name).expanduser()
    if not os.path.exists(path):  # in contrast to Path.exists, False for a name that is too long
        try:
            dataset_info(name)
        except DataError as error:
            raise DataError(f"{error}; nor is there a folder or file of that name") from None
    return read_folder(path, directed=directed, task=task)


def _part(folder: Path, stem: str, suffixes: Sequence[str]) -> Path | None:
    found = sorted(p for p in folder.iterdir() if p.is_file() and p.stem.lower() == stem)
    if len(found) > 1:
        names = ", ".join(p.name for p in found)
        raise DataError(f"{folder} holds {names}; keep only the one to be read")
    if found and found[0].suffix.lower() not in suffixes:
        raise DataError(f"{found[0]}: expected one of {_names(stem, suffixes)}")
    return found[0] if found else None


def _names(stem: str, suffixes: Sequence[str]) -> str:
    return ", ".join(stem + suffix for suffix in suffixes)


def _ids_of(opened: Any, columns: int) -> set[str]:
    """The ids in the first columns of a table, whatever its first row is, or of an array."""
    if isinstance(opened, Table):
        ids = {value for k in list(opened.columns)[:columns] for value in opened.texts(k).values}
        return ids | set((opened.first or [])[:columns])
    if isinstance(opened, Edges):
        return {*opened.source.values, *opened.target.values}
    return set() if opened is None else {str(i) for i in range(len(opened))}


def _read_npz(path: Path, directed: bool, task: Task) -> Data:
    if path.suffix.lower() != ".npz":
        raise DataError(f"{path.name}: expected a folder, or a file that ends in .npz")
    notes: list[str] = []
    arrays = load_arrays(path)
    if "edge_index" not in arrays:
        raise DataError(
            f"{path.name} holds {', '.join(sorted(arrays)) or 'nothing'}; "
            "expected at least edge_index, and x and y for features and labels"
        )
    edge_index, weight = arrays["edge_index"], arrays.get("edge_weight")
    check_edge_array(edge_index, weight, path.name)
    x = check_features(arrays["x"], path.name) if "x" in arrays else None
    targets = None
    if "y" in arrays:
        given = (
            names_array(arrays.get(key), key, None, path.name) for key in ("class_names", "target_names")
        )
        targets = array_targets(arrays["y"], task, path.name, notes, *given)
    named = int(edge_index.max()) + 1 if edge_index.size else 0
    n = x.shape[0] if x is not None else len(targets.y) if targets is not None else named
    if n == 0:
        raise DataError(f"{path.name} is empty: it has no edges, no x and no y")
    if named > n:
        raise DataError(f"{path.name}: an edge names node {named - 1}, but there are {n} nodes")
    if targets is not None and len(targets.y) != n:
        raise DataError(f"{path.name}: y has {len(targets.y)} rows for {n} nodes")
    check_claim(n, sum(a.size for a in arrays.values()), f"{path.name}: an edge names node {n - 1:,}")
    check_graph(n, edge_index.shape[1], path.name)
    node_ids = names_array(arrays.get("node_ids"), "node_ids", n, path.name) or [str(i) for i in range(n)]
    data = assemble(
        edge_index.astype(np.int64),
        None if weight is None else weight.astype(np.float64),
        x,
        node_ids,
        lambda i: f"{path.name}, edge {i}",
        path.name,
        directed,
        notes,
    )
    names = names_array(arrays.get("feature_names"), "feature_names", data.x.shape[1], path.name)
    if names is not None:
        data.feature_names = names
    if targets is not None:
        add_labels(data, targets, np.arange(n), None)
    for key in MASKS:
        if key in arrays:
            data[key] = _mask(arrays[key], key, n, path.name)
    data.name = path.stem
    add_notes(data, notes)
    return check_data(data)


def _mask(mask: NDArray, key: str, n: int, file: str) -> torch.Tensor:
    if mask.dtype != bool or mask.shape[:1] != (n,) or mask.ndim > 2 or mask.size == 0:
        raise DataError(
            f"{file}: {key} must be bool of shape ({n},), or ({n}, S) for S splits, "
            f"got {mask.dtype} of shape {mask.shape}"
        )
    return torch.from_numpy(np.ascontiguousarray(mask))
