"""What is given to an estimator: a graph, nodes of it, and their labels."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from numbers import Number
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_array, check_consistent_length
from torch import Tensor
from torch_geometric.data import Data

from ..data import open_data
from ..errors import DataError


def is_graph(given: Any) -> bool:
    """Whether a whole graph is given, and not some nodes: a ``Data``, or the path of one."""
    return isinstance(given, Data | str | os.PathLike)


def as_graph(given: Any) -> Data:
    """The graph that is given as such or by its path."""
    if isinstance(given, Data):
        return given
    if isinstance(given, str | os.PathLike):
        return open_data(os.fspath(given))
    raise DataError(
        f"a graph must be a torch_geometric.data.Data, a path or the name of a data set, got {given!r:.80}."
    )


@contextmanager
def refusing() -> Iterator[None]:
    """Errors of scikit-learn's checks as errors of this library."""
    try:
        yield
    except DataError:
        raise
    except (TypeError, ValueError) as error:
        raise DataError(str(error)) from None


def positions(nodes: Any, graph: Data) -> NDArray[np.int64]:
    """Positions ``(m,)`` in a graph of nodes that are given by position, or by texts: by ``node_ids``."""
    if nodes is None or isinstance(nodes, Number):
        raise DataError(f"X must be nodes of the graph, by position or id, of shape (m,); got {nodes!r}.")
    with refusing():
        found = check_array(nodes, ensure_2d=False, dtype=None, input_name="X")
    if found.ndim == 2 and found.shape[1] == 1:
        found = found[:, 0]
    if found.ndim != 1:
        raise DataError(
            "X must be nodes of the graph, by position or id, of shape (m,) or (m, 1); got shape "
            f"{found.shape}. Features belong to the graph."
        )
    if found.dtype == object:
        found = _plain(found)
    if found.dtype.kind in "UT":
        return _by_id(found, graph)
    if found.dtype.kind not in "iu":
        raise DataError(
            "X must be nodes of the graph: whole numbers for positions, or texts for node ids; got "
            f"{found.dtype}."
        )
    count = graph.x.shape[0]
    wrong = (found < 0) | (found >= count)
    if wrong.any():
        first = found[wrong][0]
        known = "Negative values in data" if first < 0 else "Unknown nodes in data"
        raise DataError(f"{known}: there is no node {first}, the graph has the nodes 0 to {count - 1}.")
    return found.astype(np.int64)


def _plain(found: NDArray) -> NDArray:
    """An array of Python objects as one of integers or of texts, where all of them are."""
    for kind, dtype in (((int, np.integer), np.int64), (str, np.str_)):
        if all(isinstance(value, kind) and not isinstance(value, bool) for value in found):
            return found.astype(dtype)
    return found


def _by_id(found: NDArray, graph: Data) -> NDArray[np.int64]:
    ids = graph.get("node_ids")
    if ids is None:
        raise DataError(f"node {str(found[0])!r} is an id, and the graph has no node_ids: give positions.")
    place = {str(name): k for k, name in enumerate(ids)}
    if len(place) < len(ids):
        raise DataError("several nodes of the graph have the same node_ids: give positions.")
    try:
        return np.array([place[str(name)] for name in found], dtype=np.int64)
    except KeyError as error:
        raise DataError(f"there is no node {error.args[0]!r} in the graph.") from None


def check_labels(y: Any, nodes: NDArray[np.int64], numeric: bool) -> NDArray:
    """Labels as an array, one row for each node, without NaN or infinity."""
    if y is None:
        raise DataError(
            "fit with nodes requires y to be passed, but the target y is None: give a label for each node."
        )
    with refusing():
        found = check_array(y, ensure_2d=False, dtype="numeric" if numeric else None, input_name="y")
        check_consistent_length(nodes, found)
    if found.dtype == object:
        kinds = {type(value).__name__ for value in found.ravel()}
        if kinds & {"NoneType", "NAType"}:
            raise DataError("y has nodes without a label: give fit the labelled nodes alone.")
        if "str" in kinds and len(kinds) > 1:
            raise DataError(f"y mixes labels of the types {', '.join(sorted(kinds))}: take one of them.")
    return found


def without_repeats(nodes: NDArray[np.int64], labels: NDArray) -> tuple[NDArray[np.int64], NDArray]:
    """Each node once, in the order of the graph; refused if a node has two labels."""
    once, first, back = np.unique(nodes, return_index=True, return_inverse=True)
    differs = (labels[first][back] != labels).reshape(len(nodes), -1).any(axis=1)
    if differs.any():
        k = int(differs.argmax())
        raise DataError(
            f"node {nodes[k]} is given twice, with the labels {shown(labels[first[back[k]]])} and "
            f"{shown(labels[k])}: give it one."
        )
    return once, labels[first]


def found_again(nodes: NDArray[np.int64], before: Data, now: Data) -> NDArray[np.int64]:
    """Positions in the graph ``now`` of those nodes of the graph ``before`` that it has, too.

    They are found by their ids, or by their positions where a graph has none, and have the same features.
    """
    if before.x.shape[1] != now.x.shape[1]:
        return nodes[:0]
    ids, others = before.get("node_ids"), now.get("node_ids")
    places = nodes
    if ids is not None and others is not None:
        index = {name: k for k, name in enumerate(others)}
        places = np.array([index.get(ids[k], -1) for k in nodes.tolist()], dtype=np.int64)
    there = (places >= 0) & (places < now.x.shape[0])
    nodes, places = nodes[there], places[there]
    differ = _matrix(before.x)[nodes] != _matrix(now.x)[places]
    return places[differ.getnnz(axis=1) == 0]


def _matrix(x: Tensor) -> sp.csr_matrix:
    if x.layout == torch.strided:
        return sp.csr_matrix(x.cpu().numpy())
    rows = (x if x.layout == torch.sparse_csr else x.coalesce().to_sparse_csr()).cpu()
    parts = (rows.values().numpy(), rows.col_indices().numpy(), rows.crow_indices().numpy())
    return sp.csr_matrix(parts, shape=tuple(rows.shape))


def shown(label: Any) -> str:
    """A label as it is written in Python."""
    return repr(label.tolist() if isinstance(label, np.ndarray | np.generic) else label)
