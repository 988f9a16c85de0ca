"""The parts of a user's graph put together: nodes are numbered, edges tidied, labels and masks laid out."""

from collections.abc import Callable, Sequence

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch_geometric.data import Data

from graphdiffusion.data.check import check_data
from graphdiffusion.data.inputs import Edges, Features, Labels
from graphdiffusion.data.labels import Targets
from graphdiffusion.data.limits import check_graph
from graphdiffusion.data.structure import MASKS, csr_tensor, feature_tensor, tidy_edges
from graphdiffusion.data.tables import Texts, sorted_names
from graphdiffusion.errors import DataError


def join(
    edges: Edges, features: Features | None, labels: Labels | None, directed: bool, notes: list[str]
) -> Data:
    """The three parts as a graph. Nodes are in the order of a source that declares them, else sorted."""
    node_ids, owner = _node_ids(edges, features, labels)
    check_graph(len(node_ids), len(edges.source.codes), edges.file)
    index = {node: i for i, node in enumerate(node_ids)}
    places = _positions([edges.source, edges.target], index, edges.where, owner)
    x = None if features is None else _rows(features, index, notes)
    data = assemble(places, edges.weight, x, node_ids, edges.where, edges.file, directed, notes)
    if features is not None and features.names is not None:
        data.feature_names = features.names
        if not features.whole:
            data.absent_is_zero = True
    if labels is not None:
        rows = _positions([labels.ids], index, labels.where, owner)[0]
        if features is None:
            _note_unconnected(places, rows, edges, labels, notes)
        add_labels(data, labels.targets, rows, labels.parts)
    add_notes(data, notes)
    return check_data(data)


def _note_unconnected(
    ends: NDArray[np.int64], rows: NDArray[np.int64], edges: Edges, labels: Labels, notes: list[str]
) -> None:
    """Without features, labels of nodes without an edge are of no use: ids may be written in two ways."""
    if ends.size and rows.size and not np.isin(rows, ends).any():
        notes.append(
            f"no node of {labels.file} has an edge, and nothing can be learnt: {edges.file} names nodes as "
            f"{edges.source.cell(0)!r}, and {labels.file} {labels.ids.cell(0)!r}"
        )


def _node_ids(edges: Edges, features: Features | None, labels: Labels | None) -> tuple[list[str], str]:
    """All nodes, and the source that declares them; if there is none, all that are named somewhere."""
    if features is not None and features.whole:
        if missing := set(edges.nodes or []).difference(features.ids):
            raise DataError(
                f"{edges.file}: node {min(missing)!r} has no row in {features.file}; add one or take it out"
            )
        return features.ids, features.file
    if edges.nodes is not None:
        return edges.nodes, edges.file
    ids = {*edges.source.values, *edges.target.values}
    ids.update([] if features is None else features.ids, [] if labels is None else labels.ids.values)
    return sorted_names(ids), ""


def _rows(
    features: Features, index: dict[str, int], notes: list[str]
) -> NDArray[np.float32] | sp.csr_matrix:
    """Features in the order of the nodes; in the long format some nodes have none."""
    if features.whole:
        return features.x
    missing = len(index) - len(features.ids)
    if missing:
        nodes = "node has no row there; its" if missing == 1 else "nodes have no row there; their"
        notes.append(f"{features.file}: {missing:,} {nodes} features are zero")
    x = sp.coo_matrix(features.x)
    places = np.array([index[node] for node in features.ids], dtype=np.int64)
    return sp.csr_matrix((x.data, (places[x.row], x.col)), shape=(len(index), x.shape[1]))


def _positions(
    columns: Sequence[Texts], index: dict[str, int], where: Callable[[int], str], owner: str
) -> NDArray[np.int64]:
    """Columns of ids as node numbers (columns, rows); `owner`, which declares the nodes, may lack one."""
    found = np.stack(
        [np.array([index.get(value, -1) for value in c.values], dtype=np.int64)[c.codes] for c in columns]
    )
    unknown = np.argwhere(found.T < 0)
    if unknown.size:
        i, k = (int(v) for v in unknown[0])
        raise DataError(
            f"{where(i)}: node {columns[k].cell(i)!r} has no row in {owner}; add one or take the node out"
        )
    return found


def assemble(
    ends: NDArray[np.int64],
    weight: NDArray[np.float64] | None,
    x: NDArray[np.float32] | sp.csr_matrix | None,
    node_ids: list[str],
    where: Callable[[int], str],
    file: str,
    directed: bool,
    notes: list[str],
) -> Data:
    """A graph of n = len(node_ids) unlabelled nodes; `ends` is (2, E) and below n."""
    n = len(node_ids)
    if weight is not None:
        _check_conflicts(ends, weight, node_ids, where, directed)
    if x is None:
        notes.append("there are no features: every node gets its own, so that x is the identity matrix")
        features = csr_tensor(sp.identity(n, dtype=np.float32, format="csr"))
    else:
        features = feature_tensor(x)
    data = Data(x=features)
    data.edge_index, weights = tidy_edges(ends, n, weight, directed=directed)
    if weights is not None:
        data.edge_weight = weights
    _note_edges(ends, n, data.edge_index, file, notes)
    data.y = torch.full((n,), -1)
    data.task = "classification"
    data.class_names = []
    data.node_ids = node_ids
    if x is None:
        data.feature_names = node_ids  # so that another graph is matched by its nodes
        data.absent_is_zero = True
    return data


def add_labels(
    data: Data, targets: Targets, rows: NDArray[np.int64], parts: NDArray[np.int64] | None
) -> None:
    """`rows` are the node numbers of the targets; `parts` (rows, splits) as in `Labels`."""
    data.task = targets.task
    n = data.y.numel()
    if targets.task == "classification":
        data.class_names = targets.names
        y = np.full(n, -1, dtype=np.int64)
    else:
        del data.class_names
        data.target_names = targets.names
        y = np.full((n, len(targets.names)), np.nan, dtype=targets.y.dtype)
    y[rows] = targets.y
    data.y = torch.from_numpy(y)
    if parts is None:
        return
    for part, key in enumerate(MASKS):
        mask = np.zeros((n, parts.shape[1]), dtype=bool)
        mask[rows] = parts == part
        data[key] = torch.from_numpy(mask[:, 0].copy() if parts.shape[1] == 1 else mask)


def add_notes(data: Data, notes: list[str]) -> None:
    """Keep the notes, with one on masks that leave nothing to train on."""
    train = data.get("train_mask")
    if train is not None and not bool(train.reshape(len(data.y), -1).any(dim=0).all()):
        notes.append("a split given with the data has no training node, so that it cannot be used")
    data.notes = notes


def _note_edges(
    ends: NDArray[np.int64], n: int, edge_index: torch.Tensor, file: str, notes: list[str]
) -> None:
    loops = int((ends[0] == ends[1]).sum())
    if loops:
        notes.append(f"{file}: {loops:,} self-loop{'s are' if loops > 1 else ' is'} left out")
    repeated = int((np.diff(np.sort(ends[0] * n + ends[1])) == 0).sum())
    if repeated:
        notes.append(
            f"{file}: {repeated:,} row{'s repeat' if repeated > 1 else ' repeats'} an edge; it counts once"
        )
    alone = n - int(np.count_nonzero(np.bincount(edge_index.numpy().ravel(), minlength=n)))
    if alone == n:
        notes.append("the graph has no edges: nothing flows between its nodes")
    elif alone:
        notes.append(f"{alone:,} of {n:,} nodes {'have' if alone > 1 else 'has'} no edge")


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
