"""Graphs of networkx and igraph: their nodes, edges and attributes become a `Data`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch_geometric.data import Data

from graphdiffusion.data.arrays import check_weights
from graphdiffusion.data.assemble import join
from graphdiffusion.data.columns import refuse_twice
from graphdiffusion.data.headers import Known
from graphdiffusion.data.inputs import Edges, Features, Labels, labels_of
from graphdiffusion.data.tables import Index, Table, Texts, text_of
from graphdiffusion.data.targets import Task, check_task
from graphdiffusion.errors import DataError

_LARGEST = float(np.finfo(np.float32).max)


def from_networkx(
    graph: Any,
    label: str | None = None,
    *,
    features: Sequence[str] | None = None,
    split: str | None = None,
    weight: str = "weight",
    task: Task = "auto",
) -> Data:
    """A graph of networkx as `Data`, as `read_graph` returns it; its nodes keep their order.

    Args:
        graph: a `Graph` or `DiGraph`, whose directions are kept.
        label: the node attribute with the labels; a node without it is unlabelled.
        features: node attributes that hold a number, or as many numbers at every node. By default all
            that do so; the others are left out with a note. Without any, `x` is the identity matrix.
        split: the node attribute with train, val or test.
        weight: the edge attribute with the weight, which all edges have or none.
        task: as in `read_graph`.
    """
    names = {node: k for k, node in enumerate(graph)}
    pairs = [(names[u], names[v], edge.get(weight)) for u, v, edge in graph.edges(data=True)]
    keys = dict.fromkeys(key for _, node in graph.nodes(data=True) for key in node)
    attributes = {key: [node.get(key) for _, node in graph.nodes(data=True)] for key in keys}
    parts = _Parts([str(node) for node in graph], pairs, attributes, bool(graph.is_directed()))
    return parts.read(label, features, split, task)


def from_igraph(
    graph: Any,
    label: str | None = None,
    *,
    features: Sequence[str] | None = None,
    split: str | None = None,
    weight: str = "weight",
    task: Task = "auto",
) -> Data:
    """A graph of igraph as `Data`; the ids are the vertex attribute `name`, else the vertices' numbers.

    The arguments are those of `from_networkx`, with the attributes of vertices and edges.
    """
    attributes = {key: list(graph.vs[key]) for key in graph.vs.attributes()}
    ids = attributes.pop("name", None) or range(graph.vcount())
    weights = graph.es[weight] if weight in graph.es.attributes() else [None] * graph.ecount()
    pairs = [(u, v, value) for (u, v), value in zip(graph.get_edgelist(), weights, strict=True)]
    parts = _Parts([str(node) for node in ids], pairs, attributes, bool(graph.is_directed()))
    return parts.read(label, features, split, task)


@dataclass(frozen=True)
class _Parts:
    """What any library's graph consists of; a missing value of an attribute is None."""

    ids: list[str]
    pairs: list[tuple[int, int, Any]]
    attributes: dict[Any, list[Any]]
    directed: bool

    def read(
        self, label: str | None, features: Sequence[str] | None, split: str | None, task: Task
    ) -> Data:
        check_task(task)
        if not self.ids:
            raise DataError("the graph has no nodes")
        if len(set(self.ids)) != len(self.ids):
            twice = next(node for k, node in enumerate(self.ids) if node in self.ids[:k])
            raise DataError(f"two nodes of the graph are both written {twice!r}; rename one of them")
        notes: list[str] = []
        given = [name for name in (label, split) if name is not None]
        if split is not None and label is None:
            raise DataError(
                f"split is {split!r}, but there is no label; name the attribute of the labels too"
            )
        for name in (*given, *(features or ())):
            if name not in self.attributes:
                known = ", ".join(map(repr, self.attributes)) or "none"
                raise DataError(f"no node has the attribute {name!r}; there are: {known}")
        found = self._features(features, given, notes)
        labels = None if label is None else self._labels(label, split, task, notes)
        data = join(self._edges(), found, labels, self.directed, notes)
        data.name = "graph"
        return data

    def _edges(self) -> Edges:
        ends = np.array([pair[:2] for pair in self.pairs], dtype=np.int64).reshape(-1, 2).T
        values = [value for _, _, value in self.pairs]
        weight = None

        def where(i: int) -> str:
            u, v, _ = self.pairs[i]
            return f"edge {self.ids[u]!r} to {self.ids[v]!r}"

        if any(value is not None for value in values):
            if None in values:
                raise DataError(f"{where(values.index(None))} has no weight, but others have; give it one")
            weight = _numbers(values)
            if weight is None or weight.ndim != 1:
                raise DataError("the weights of the edges must be numbers")
            check_weights(weight, where)
        return Edges(
            Texts.of(ends[0], self.ids), Texts.of(ends[1], self.ids), weight, where, "the graph", self.ids
        )

    def _features(
        self, chosen: Sequence[str] | None, others: Sequence[str], notes: list[str]
    ) -> Features | None:
        columns: list[NDArray[np.float32]] = []
        names: list[str] = []
        for name in self.attributes if chosen is None else chosen:
            if chosen is None and name in others:
                continue
            values = self.attributes[name]
            numbers = _numbers(values)
            if numbers is None or numbers.ndim > 2 or not (abs(numbers) <= _LARGEST).all():
                if chosen is not None:
                    raise DataError(
                        f"the attribute {name!r} is not a finite number at every node; encode it as "
                        "numbers, fill in what is missing, or leave it out"
                    )
                notes.append(f"the attribute {name!r} is left out: it is not a finite number at every node")
                continue
            columns.append(numbers.reshape(len(self.ids), -1).astype(np.float32))
            width = columns[-1].shape[1]
            names += [str(name)] if numbers.ndim == 1 else [f"{name}_{k}" for k in range(width)]
        if not names:
            return None
        refuse_twice(names, "the attributes")
        return Features(self.ids, np.concatenate(columns, axis=1), "the attributes", names)

    def _node(self, i: int) -> str:
        return repr(self.ids[i])

    def _labels(self, label: str, split: str | None, task: Task, notes: list[str]) -> Labels:
        names = [name for name in (label, split) if name is not None]
        columns: dict[int, Texts | NDArray] = {0: Texts(np.arange(len(self.ids)), self.ids)}
        for k, name in enumerate(names):
            index = Index()
            cells = [index["" if value is None else text_of(value)] for value in self.attributes[name]]
            columns[k + 1] = Texts.of(np.array(cells, dtype=np.int64), index)
        header = ["id", "label", "split"][: len(columns)]
        x = np.empty((len(self.ids), 0), dtype=np.float32)
        table = Table(
            "the graph", "node", len(columns), len(self.ids), columns, x, header, place=self._node
        )
        return labels_of(table, Known(set, all=False), task, notes)


def _numbers(values: list[Any]) -> NDArray[np.float64] | None:
    """Numbers, or sequences of equally many numbers, as an array; None for anything else."""
    if any(value is None or isinstance(value, str | bytes) for value in values):
        return None
    try:
        return np.array(values, dtype=np.float64)
    except (TypeError, ValueError):
        return None
