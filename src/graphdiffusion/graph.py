"""The graph: an immutable sparse structure, checked once and sorted once."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from .errors import DtypeError, GraphError, ShapeError

if TYPE_CHECKING:
    import networkx
    import scipy.sparse
    from torch_geometric.data import Data


@dataclass(frozen=True, eq=False)
class Pattern:
    """The places of the non-zeros of a sparse ``rows × cols`` matrix, in both orders.

    Entries are sorted by row, then by column (CSR). The transpose is stored beside it: ``perm`` lists
    the entries sorted by column, then by row. Immutable; checked and sorted once, when it is built.
    """

    rows: int
    cols: int
    row: Tensor  # (E,) row of each entry
    col: Tensor  # (E,) column of each entry
    rowptr: Tensor  # (rows+1,) row i holds the entries rowptr[i]:rowptr[i+1]
    perm: Tensor  # (E,) entries in the order of the transpose
    colptr: Tensor  # (cols+1,) column j holds the entries perm[colptr[j]:colptr[j+1]]

    @staticmethod
    def indices(row: Tensor, col: Tensor, rows: int, cols: int) -> dict[str, Any]:
        """The fields above from coordinates that are sorted by row, then column, and unique."""
        perm = torch.argsort(col * rows + row)
        index = torch.int32 if max(row.numel(), rows, cols) < 2**31 else torch.int64
        tensors = {
            "row": row,
            "col": col,
            "rowptr": _pointer(row, rows),
            "perm": perm,
            "colptr": _pointer(col, cols),
        }
        return {"rows": rows, "cols": cols} | {k: v.to(index) for k, v in tensors.items()}

    @property
    def num_edges(self) -> int:
        """Number of entries; for a graph, of directed edges, self-loops included."""
        return self.row.numel()

    @property
    def device(self) -> torch.device:
        return self.row.device

    @cached_property
    def transposed_row(self) -> Tensor:
        """Row of each entry in the order of the transpose, ``(E,)``."""
        return self.row[self.perm]

    @cached_property
    def transposed(self) -> Pattern:
        """The pattern of the transpose; entry e of it is entry ``perm[e]`` here."""
        place = torch.arange(self.num_edges, dtype=self.perm.dtype, device=self.device)
        back = torch.empty_like(place).index_copy_(0, self.perm.long(), place)
        own = {"row": self.col[self.perm], "rowptr": self.colptr, "perm": back, "colptr": self.rowptr}
        return Pattern(rows=self.cols, cols=self.rows, col=self.transposed_row, **own)

    @cached_property
    def longest_row(self) -> int:
        """The largest number of entries in one row (for a graph: edges that enter one node)."""
        return int((self.rowptr[1:] - self.rowptr[:-1]).max())

    @cached_property
    def longest_column(self) -> int:
        """The largest number of entries in one column (for a graph: edges that leave one node)."""
        return int((self.colptr[1:] - self.colptr[:-1]).max())

    def to(self, device: torch.device | str) -> Self:
        """Copy on ``device`` (itself if it is there already)."""
        if torch.device(device) == self.device:
            return self
        moved: dict[str, Any] = {
            f.name: value.to(device)
            for f in fields(self)
            if isinstance(value := getattr(self, f.name), Tensor)
        }
        return replace(self, **moved)


@dataclass(frozen=True, eq=False, repr=False)
class Graph(Pattern):
    r"""A directed graph whose edges are the non-zeros of an ``n × n`` matrix.

    Edge ``e`` carries features from node ``col[e]`` (:math:`j`) to node ``row[e]`` (:math:`i`): it is
    the entry :math:`a_{ij}` of the attention matrix of the paper, so that one step of diffusion is the
    product :math:`(A x)_i = \sum_j a_{ij} x_j`. An undirected graph holds both directions. An *edge
    field* is a tensor ``(..., E)`` in CSR order.

    Every row and every column holds at least one edge, because a stochastic matrix has no empty row.
    A node with no incoming or no outgoing edge is therefore given a self-loop; an isolated node then
    attends to itself alone and stands still under diffusion.

    Build it with :meth:`from_edge_index`, :meth:`from_data`, :meth:`from_scipy` or
    :meth:`from_networkx`.
    """

    weight: Tensor | None = None  # (E,) positive, or None where all are 1

    @classmethod
    def from_edge_index(
        cls,
        edge_index: Tensor,
        num_nodes: int | None = None,
        edge_weight: Tensor | None = None,
        self_loops: float | None = None,
    ) -> Graph:
        """Build a graph from PyG's ``edge_index``: row 0 holds sources, row 1 targets.

        Args:
            edge_index: Integer tensor ``(2, E)``.
            num_nodes: Number of nodes; by default the largest index plus one.
            edge_weight: Non-negative weights ``(E,)``. An edge of weight 0 is no edge. Edges that
                occur twice become one, and their weights add up; without weights all edges weigh 1,
                however often they occur.
            self_loops: ``None`` keeps the self-loops as given. A number replaces them: every node
                gets one self-loop of that weight, or none if the number is 0 (except where the
                node would be left without an incoming or an outgoing edge).
        """
        edge_index, n = _checked_edges(edge_index, num_nodes)
        weight = _checked_weight(edge_weight, edge_index)
        if weight is not None and bool((weight == 0).any()):
            edge_index, weight = edge_index[:, weight != 0], weight[weight != 0]
        if self_loops is not None:
            edge_index, weight = _with_self_loops(edge_index, weight, n, float(self_loops))
        edge_index, weight = _closed(edge_index, weight, n)
        return cls._sorted(edge_index[1], edge_index[0], weight, n)

    @classmethod
    def from_data(cls, data: Data, self_loops: float | None = None) -> Graph:
        """Build a graph from a PyG ``Data`` (``edge_index``, ``num_nodes``, ``edge_weight``)."""
        if data.edge_index is None:
            raise GraphError("data.edge_index is None: this Data holds no edges.")
        weight = data.get("edge_weight")
        return cls.from_edge_index(data.edge_index, data.num_nodes, weight, self_loops)

    @classmethod
    def from_scipy(cls, matrix: scipy.sparse.sparray, self_loops: float | None = None) -> Graph:
        """Build a graph from a square scipy matrix; entry (u, v) is the edge u → v, as in PyG."""
        if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
            raise ShapeError(f"an adjacency matrix must be square, got shape {matrix.shape}.")
        coo = matrix.tocoo()
        edge_index = torch.stack([torch.as_tensor(coo.row.copy()), torch.as_tensor(coo.col.copy())])
        weight = torch.as_tensor(coo.data.copy())
        if not weight.is_floating_point():
            weight = weight.to(torch.get_default_dtype())
        return cls.from_edge_index(edge_index.long(), matrix.shape[0], weight, self_loops)

    @classmethod
    def from_networkx(cls, graph: networkx.Graph, self_loops: float | None = None) -> Graph:
        """Build a graph from networkx; nodes are numbered in the order of ``graph.nodes``.

        The edge attribute ``weight`` is used if at least one edge has it (others then weigh 1).
        """
        number = {node: k for k, node in enumerate(graph.nodes)}
        triples = [(number[u], number[v], w) for u, v, w in graph.edges(data="weight")]
        if not graph.is_directed():
            triples += [(v, u, w) for u, v, w in triples if u != v]
        pairs = torch.tensor([t[:2] for t in triples], dtype=torch.long).reshape(-1, 2)
        weighted = any(w is not None for *_, w in triples)
        weight = torch.tensor([1.0 if w is None else float(w) for *_, w in triples])
        return cls.from_edge_index(pairs.t(), len(number), weight if weighted else None, self_loops)

    @classmethod
    def _sorted(cls, row: Tensor, col: Tensor, weight: Tensor | None, n: int) -> Graph:
        """Sort, merge duplicates, and store the transpose."""
        key, edge_of = torch.unique(row * n + col, return_inverse=True)
        if weight is not None:
            weight = weight.new_zeros(key.numel()).index_add_(0, edge_of, weight)
        return cls(**cls.indices(key // n, key % n, n, n), weight=weight)

    @property
    def num_nodes(self) -> int:
        return self.rows

    @property
    def edge_index(self) -> Tensor:
        """PyG's ``(2, E)`` int64 edge index (sources, targets), in the order of edge fields."""
        return torch.stack([self.col.long(), self.row.long()])

    @cached_property
    def is_symmetric(self) -> bool:
        """True if every edge has its reverse, with the same weight."""
        # Sorted by (col, row), the reversed edges must read exactly like the edges sorted by (row, col).
        same = torch.equal(self.transposed_row, self.col) and torch.equal(self.col[self.perm], self.row)
        return same and (self.weight is None or torch.allclose(self.weight, self.weight[self.perm]))

    def with_weight(self, weight: Tensor | None) -> Graph:
        """Same edges, other weights (an edge field ``(E,)``)."""
        return replace(self, weight=_checked_weight(weight, self.edge_index))

    def dense(self, values: Tensor) -> Tensor:
        """The edge field ``(..., E)`` as dense matrices ``(..., n, n)``, for small graphs and tests."""
        n = self.num_nodes
        out = values.new_zeros(*values.shape[:-1], n * n)
        return out.index_copy(-1, self.row.long() * n + self.col, values).unflatten(-1, (n, n))

    def __repr__(self) -> str:
        weighted = "" if self.weight is None else ", weighted"
        return f"Graph({self.num_nodes} nodes, {self.num_edges} edges{weighted}, {self.device})"


def _pointer(sorted_index: Tensor, n: int) -> Tensor:
    counts = torch.bincount(sorted_index, minlength=n)
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)])


def _checked_edges(edge_index: Tensor, num_nodes: int | None) -> tuple[Tensor, int]:
    if not isinstance(edge_index, Tensor):
        raise DtypeError(f"edge_index must be a torch.Tensor, got {type(edge_index).__name__}.")
    if edge_index.dim() != 2 or edge_index.shape[0] != 2:
        raise ShapeError(f"edge_index must have shape (2, E), got {tuple(edge_index.shape)}.")
    if edge_index.is_floating_point() or edge_index.is_complex() or edge_index.dtype == torch.bool:
        raise DtypeError(f"edge_index must hold integers, got {edge_index.dtype}.")
    largest = int(edge_index.max()) if edge_index.numel() else -1
    n = largest + 1 if num_nodes is None else int(num_nodes)
    if n <= 0:
        raise GraphError(f"a graph needs at least one node, got num_nodes={n}.")
    if edge_index.numel() and int(edge_index.min()) < 0:
        raise GraphError(f"edge_index holds {int(edge_index.min())}: nodes are numbered from 0 to {n - 1}.")
    if largest >= n:
        raise GraphError(
            f"edge_index holds node {largest}, but num_nodes={n}: nodes are numbered from 0 to {n - 1}."
        )
    return edge_index.long(), n


def _checked_weight(weight: Tensor | None, edge_index: Tensor) -> Tensor | None:
    if weight is None:
        return None
    if weight.shape != edge_index.shape[1:]:
        raise ShapeError(
            f"edge_weight must have shape ({edge_index.shape[1]},), one for each edge, "
            f"got {tuple(weight.shape)}."
        )
    if not weight.is_floating_point():
        raise DtypeError(f"edge_weight must be floating point, got {weight.dtype}.")
    bad = ~(torch.isfinite(weight) & (weight >= 0))
    if bool(bad.any()):
        first = int(bad.nonzero()[0, 0])
        raise GraphError(
            f"edge_weight[{first}] is {float(weight[first])}: weights must be finite and not negative."
        )
    return weight.detach()


def _with_self_loops(
    edge_index: Tensor, weight: Tensor | None, n: int, loop_weight: float
) -> tuple[Tensor, Tensor | None]:
    if not 0 <= loop_weight < float("inf"):
        raise GraphError(f"self_loops must be None or a weight ≥ 0, got {loop_weight}.")
    others = edge_index[0] != edge_index[1]
    edge_index = edge_index[:, others]
    weight = weight[others] if weight is not None else None
    if loop_weight == 0:
        return edge_index, weight
    return _append_loops(edge_index, weight, torch.arange(n, device=edge_index.device), loop_weight)


def _closed(edge_index: Tensor, weight: Tensor | None, n: int) -> tuple[Tensor, Tensor | None]:
    """Give a self-loop to each node that has no incoming or no outgoing edge."""
    leaves = torch.bincount(edge_index[0], minlength=n) == 0
    enters = torch.bincount(edge_index[1], minlength=n) == 0
    lone = (leaves | enters).nonzero().flatten()
    return _append_loops(edge_index, weight, lone, 1.0) if lone.numel() else (edge_index, weight)


def _append_loops(
    edge_index: Tensor, weight: Tensor | None, nodes: Tensor, loop_weight: float
) -> tuple[Tensor, Tensor | None]:
    if weight is None and loop_weight != 1.0:
        edge_index = torch.unique(edge_index, dim=1)  # an edge without weight weighs 1, however often given
        weight = torch.ones(edge_index.shape[1], device=edge_index.device)
    if weight is not None:
        weight = torch.cat([weight, weight.new_full((nodes.numel(),), loop_weight)])
    return torch.cat([edge_index, nodes.expand(2, -1)], dim=1), weight


_built: WeakTensorKeyDictionary = WeakTensorKeyDictionary()


def as_graph(
    edge_index: Tensor | Graph,
    num_nodes: int,
    edge_weight: Tensor | None = None,
    self_loops: float | None = None,
) -> Graph:
    """The graph of an ``edge_index``; built once for a tensor and remembered as long as it lives."""
    if isinstance(edge_index, Graph):
        return edge_index
    if edge_index.is_inference():  # nobody could tell whether it has been changed since
        return Graph.from_edge_index(edge_index, num_nodes, edge_weight, self_loops)
    weight_version = None if edge_weight is None else edge_weight._version
    key = (num_nodes, id(edge_weight), weight_version, self_loops)
    version, graphs = _built.get(edge_index, (None, {}))
    if version != edge_index._version:
        graphs = {}
        _built[edge_index] = (edge_index._version, graphs)
    if key not in graphs:
        graph = Graph.from_edge_index(edge_index, num_nodes, edge_weight, self_loops)
        graphs[key] = (graph, edge_weight)  # the weight is kept alive, so that its id stays its own
    return graphs[key][0]
