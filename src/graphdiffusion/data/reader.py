"""A user's own graph: from tables or arrays in files to the same `Data` as the benchmarks."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch_geometric.data import Data

from graphdiffusion.data.arrays import check_edge_array, check_features, feature_names, load_arrays
from graphdiffusion.data.catalogue import dataset_info, is_dataset
from graphdiffusion.data.check import check_data
from graphdiffusion.data.datasets import load_data
from graphdiffusion.data.inputs import (
    EDGE_FILES,
    FEATURE_FILES,
    LABEL_FILES,
    SPLITS,
    Edges,
    Features,
    Labels,
    read_edges,
    read_features,
    read_labels,
)
from graphdiffusion.data.limits import check_claim, check_graph
from graphdiffusion.data.structure import MASKS, csr_tensor, feature_tensor, tidy_edges
from graphdiffusion.errors import DataError

PathLike = str | os.PathLike[str]


def read_graph(
    edges: PathLike,
    features: PathLike | None = None,
    labels: PathLike | None = None,
    *,
    directed: bool = False,
) -> Data:
    """Read a graph from files.

    Args:
        edges: .csv, .tsv or .parquet with the columns source, target and optionally weight, or
            .npz with `edge_index` (2, E), with `row` and `col`, or of `scipy.sparse.save_npz`.
            Weights are positive. An edge may be listed in both directions and more than once,
            but always with the same weight; self-loops are dropped.
        features: .csv, .tsv or .parquet with an id and numbers in each row, or .npy or .npz with
            a matrix whose row numbers are the ids. All nodes must have a row. Without features,
            every node gets its own: `x` is the sparse identity matrix.
        labels: .csv, .tsv or .parquet with the columns id, label and optionally split (train,
            val, test or empty). An empty label, `?` or no row at all mean unlabelled.
        directed: keep the directions; otherwise each edge is stored both ways.

    A header in a text file is recognised by the usual names (source, target, weight, id, label,
    split), by names in place of all numbers, or by being the only row whose ids are no integers.

    Returns:
        `x` (n, F) float32, dense or sparse CSR; `edge_index` (2, E) int64, sorted, without
        duplicates; `edge_weight` (E,) float32 if given; `y` (n,) int64 with -1 for unlabelled;
        `train_mask`, `val_mask`, `test_mask` (n,) bool if a split is given; `node_ids`,
        `class_names` (sorted) and, if the file names them, `feature_names` as lists of str; `name`.
        Nodes are in the order of the features, else sorted by id.

    Raises:
        DataError: with the file and the line that cannot be used, and why.
    """
    edge_part = read_edges(Path(edges))
    feature_part = None if features is None else read_features(Path(features))
    label_part = None if labels is None else read_labels(Path(labels))
    if feature_part is not None:
        check_graph(feature_part.x.shape[0], len(edge_part.source), feature_part.file)
    node_ids = _node_ids(edge_part, feature_part, label_part)
    index = {node: i for i, node in enumerate(node_ids)}
    owner = "" if feature_part is None else feature_part.file
    data = _graph(
        _positions([edge_part.source, edge_part.target], index, edge_part.where, owner),
        edge_part.weight,
        None if feature_part is None else feature_part.x,
        node_ids,
        edge_part.where,
        directed,
    )
    if feature_part is not None and feature_part.names is not None:
        data.feature_names = feature_part.names
    if label_part is not None:
        rows = _positions([label_part.ids], index, label_part.where, owner)[0]
        _add_labels(data, label_part, rows)
    data.name = Path(edges).stem
    return check_data(data)


def read_folder(path: PathLike, *, directed: bool = False) -> Data:
    """Read a folder that holds `edges.*` and optionally `features.*` and `labels.*`, or one .npz.

    The .npz holds `edge_index` (2, E) and optionally `edge_weight` (E,), `x` (n, F), its
    `feature_names` (F,), `y` (n,) integers with -1 for unlabelled, and `train_mask`, `val_mask`,
    `test_mask` (n,) bool. Classes are numbered without gaps; `class_names` are the numbers in the file.
    The result is that of `read_graph`; its name is that of the folder or file.
    """
    folder = Path(path)
    if folder.is_file():
        return _read_npz(folder, directed)
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
    )
    data.name = folder.resolve().name
    return data


def open_data(
    name_or_path: PathLike, root: PathLike | None = None, lcc: bool = True, directed: bool = False
) -> Data:
    """A known data set by name (see `load_data`), or a user's folder or .npz (see `read_folder`).

    A name wins over a folder that is called the same; write `./cora` for the folder.
    With `lcc`, only the largest connected component of a known data set is kept; of a user's graph
    no node is ever left out. With `directed`, the edges of a user's graph keep their directions.
    """
    name = os.fspath(name_or_path)
    if is_dataset(name):
        return load_data(name, root, lcc)
    path = Path(name).expanduser()
    if not os.path.exists(path):  # in contrast to Path.exists, False for a name that is too long
        try:
            dataset_info(name)
        except DataError as error:
            raise DataError(f"{error}; nor is there a folder or file of that name") from None
    return read_folder(path, directed=directed)


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


def _node_ids(edges: Edges, features: Features | None, labels: Labels | None) -> list[str]:
    if features is not None:
        return features.ids or [str(i) for i in range(features.x.shape[0])]
    ids = {*edges.source, *edges.target}
    if labels is not None:
        ids.update(labels.ids)
    if edges.num_nodes is not None:
        ids.update(str(i) for i in range(edges.num_nodes))
    return _sorted(ids)


def _sorted(names: set[str]) -> list[str]:
    """Sorted as numbers if all are plain ones, so that 2 comes before 10; as text otherwise."""
    if all(name.isascii() and name.isdecimal() and (name == "0" or name[0] != "0") for name in names):
        return sorted(names, key=lambda name: (len(name), name))  # of any length; int() takes 4300 digits
    return sorted(names)


def _positions(
    columns: list[list[str]], index: dict[str, int], where: Callable[[int], str], owner: str
) -> NDArray[np.int64]:
    """Columns of ids as node numbers (columns, rows); only a feature file, `owner`, can lack one."""
    positions = np.array([[index.get(node, -1) for node in ids] for ids in columns], dtype=np.int64)
    unknown = np.argwhere(positions.T < 0)
    if unknown.size:
        i, k = (int(v) for v in unknown[0])
        raise DataError(
            f"{where(i)}: node {columns[k][i]!r} has no row in {owner}; add one or take the node out"
        )
    return positions


def _graph(
    ends: NDArray[np.int64],
    weight: NDArray[np.float64] | None,
    x: NDArray[np.float32] | sp.csr_matrix | None,
    node_ids: list[str],
    where: Callable[[int], str],
    directed: bool,
) -> Data:
    """A graph of n = len(node_ids) unlabelled nodes; `ends` is (2, E) and below n."""
    n = len(node_ids)
    if weight is not None:
        _check_conflicts(ends, weight, node_ids, where, directed)
    identity = sp.identity(n, dtype=np.float32, format="csr")
    data = Data(x=csr_tensor(identity) if x is None else feature_tensor(x))
    data.edge_index, weights = tidy_edges(ends, n, weight, directed=directed)
    if weights is not None:
        data.edge_weight = weights
    data.y = torch.full((n,), -1)
    data.class_names = []
    data.node_ids = node_ids
    return data


def _check_conflicts(
    ends: NDArray[np.int64],
    weight: NDArray[np.float64],
    node_ids: list[str],
    where: Callable[[int], str],
    directed: bool,
) -> None:
    """The same edge with two weights is a contradiction that no rule of ours should hide."""
    low, high = ends if directed else np.sort(ends, axis=0)
    keys = low * len(node_ids) + high
    order = np.argsort(keys, kind="stable")
    differs = (np.diff(keys[order]) == 0) & (np.diff(weight[order]) != 0)
    if differs.any():
        k = int(np.flatnonzero(differs)[0])
        i, j = int(order[k + 1]), int(order[k])
        source, target = (node_ids[end] for end in ends[:, i])
        raise DataError(
            f"{where(i)}: the edge {source!r} to {target!r} has the weight {weight[i]:g}, "
            f"but {weight[j]:g} in {where(j)}; merge the two"
            + ("" if directed else ", or read the graph as directed if directions matter")
        )


def _add_labels(data: Data, part: Labels, positions: NDArray[np.int64]) -> None:
    """`positions` (rows,) are the node numbers of the rows of the label file."""
    data.class_names = _sorted({label for label in part.labels if label})
    number = {name: k for k, name in enumerate(data.class_names)}
    rows = torch.from_numpy(positions)
    data.y[rows] = torch.tensor([number.get(label, -1) for label in part.labels])
    if part.splits is None:
        return
    for key, split in zip(MASKS, SPLITS, strict=True):
        mask = torch.zeros(data.y.numel(), dtype=torch.bool)
        mask[rows] = torch.tensor([name == split for name in part.splits])
        data[key] = mask


def _read_npz(path: Path, directed: bool) -> Data:
    if path.suffix.lower() != ".npz":
        raise DataError(f"{path.name}: expected a folder, or a file that ends in .npz")
    arrays = load_arrays(path)
    if "edge_index" not in arrays:
        raise DataError(
            f"{path.name} holds {', '.join(sorted(arrays)) or 'nothing'}; "
            "expected at least edge_index, and x and y for features and labels"
        )
    edge_index, weight, y = arrays["edge_index"], arrays.get("edge_weight"), arrays.get("y")
    check_edge_array(edge_index, weight, path.name)
    x = check_features(arrays["x"], path.name) if "x" in arrays else None
    if y is not None and (y.ndim != 1 or y.dtype.kind not in "iu"):
        raise DataError(
            f"{path.name}: y must be integers of shape (n,), -1 where unlabelled, "
            f"got {y.dtype} of shape {y.shape}"
        )
    named = int(edge_index.max()) + 1 if edge_index.size else 0
    n = x.shape[0] if x is not None else y.size if y is not None else named
    if n == 0:
        raise DataError(f"{path.name} is empty: it has no edges, no x and no y")
    if named > n:
        raise DataError(f"{path.name}: an edge names node {named - 1}, but there are {n} nodes")
    check_claim(n, sum(a.size for a in arrays.values()), f"{path.name}: an edge names node {n - 1:,}")
    check_graph(n, edge_index.shape[1], path.name)
    data = _graph(
        edge_index.astype(np.int64),
        None if weight is None else weight.astype(np.float64),
        x,
        [str(i) for i in range(n)],
        lambda i: f"{path.name}, edge {i}",
        directed,
    )
    names = feature_names(arrays.get("feature_names"), data.x.shape[1], path.name)
    if names is not None:
        data.feature_names = names
    if y is not None:
        _add_classes(data, y, path.name)
    for key in MASKS:
        if key in arrays:
            data[key] = _mask(arrays[key], key, n, path.name)
    data.name = path.stem
    return check_data(data)


def _add_classes(data: Data, y: NDArray, file: str) -> None:
    """Classes are numbered without gaps, in the order of the labels, which become their names."""
    if y.size and y.min() < -1:
        raise DataError(f"{file}: y must be -1 (unlabelled) or a class from 0, got {y.min()}")
    labels, number = np.unique(y, return_inverse=True)
    unlabelled = int((labels < 0).sum())
    data.y = torch.from_numpy(number.astype(np.int64) - unlabelled)
    data.class_names = [str(label) for label in labels[unlabelled:].tolist()]


def _mask(mask: NDArray, key: str, n: int, file: str) -> torch.Tensor:
    if mask.dtype != bool or mask.shape != (n,):
        raise DataError(
            f"{file}: {key} must be bool of shape ({n},), got {mask.dtype} of shape {mask.shape}; "
            "of several splits choose one column"
        )
    return torch.from_numpy(mask)
