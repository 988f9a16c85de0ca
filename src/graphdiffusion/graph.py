"""The graph: an immutable sparse structure, checked once and sorted once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from .errors import ArgumentError, DtypeError, GraphError, ShapeError
from .pattern import Pattern, lasting

if TYPE_CHECKING:
    import networkx
    import scipy.sparse
    from torch_geometric.data import Data


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

    weight: Tensor | None = None  # (E,) positive, perhaps learnt; None where all are 1

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
            edge_weight: Non-negative weights ``(E,)``, which may be learnt: their gradient is computed. An
                edge of weight 0 is no edge, and its gradient is 0. Edges that occur twice become one, and
                their weights add up; without weights all edges weigh 1, however often they occur.
            self_loops: ``None`` keeps the self-loops as given. A number replaces them: every node
                gets one self-loop of that weight, or none if the number is 0 (except where the
                node would be left without an incoming or an outgoing edge).
        """
        with lasting():
            return _Build(edge_index, num_nodes, edge_weight, self_loops).graph(edge_weight)

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
        """Same edges, other weights: an edge field ``(E,)``, positive, whose gradient is computed."""
        _check_weight(weight, self.edge_index, positive=True)
        return replace(self, weight=weight)

    def dense(self, values: Tensor) -> Tensor:
        """The edge field ``(..., E)`` as dense matrices ``(..., n, n)``, for small graphs and tests."""
        n = self.num_nodes
        out = values.new_zeros(*values.shape[:-1], n * n)
        return out.index_copy(-1, self.row.long() * n + self.col, values).unflatten(-1, (n, n))

    def __repr__(self) -> str:
        weighted = "" if self.weight is None else ", weighted"
        return f"Graph({self.num_nodes} nodes, {self.num_edges} edges{weighted}, {self.device})"


def _require_tensor(edge_index: object) -> None:
    if not isinstance(edge_index, Tensor):
        raise DtypeError(f"edge_index must be a torch.Tensor, got {type(edge_index).__name__}.")


def _checked_edges(edge_index: Tensor, num_nodes: int | None) -> tuple[Tensor, int]:
    _require_tensor(edge_index)
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


def _check_weight(weight: Tensor | None, edge_index: Tensor, positive: bool = False) -> None:
    if weight is None:
        return
    if weight.shape != edge_index.shape[1:]:
        raise ShapeError(
            f"edge_weight must have shape ({edge_index.shape[1]},), one for each edge, "
            f"got {tuple(weight.shape)}."
        )
    if not weight.is_floating_point():
        raise DtypeError(f"edge_weight must be floating point, got {weight.dtype}.")
    bad = ~(torch.isfinite(weight) & ((weight > 0) if positive else (weight >= 0)))
    if bool(bad.any()):
        first = int(bad.nonzero()[0, 0])
        demand = "positive" if positive else "not negative"
        raise GraphError(
            f"edge_weight[{first}] is {float(weight[first])}: weights must be finite and {demand}."
        )


class _Build:
    """From an ``edge_index`` to a graph: what depends on the edges alone, and where each weight goes."""

    def __init__(
        self, edge_index: Tensor, num_nodes: int | None, weight: Tensor | None, self_loops: float | None
    ) -> None:
        self.settings = (num_nodes, self_loops)
        if self_loops is not None and not 0 <= self_loops < float("inf"):
            raise GraphError(f"self_loops must be None or a weight ≥ 0, got {self_loops}.")
        edge_index, n = _checked_edges(edge_index, num_nodes)
        _check_weight(weight, edge_index)
        self.positive = None if weight is None else weight.detach() > 0
        kept = torch.ones_like(edge_index[0], dtype=torch.bool)
        if self.positive is not None:
            kept = self.positive
        if self_loops is not None:
            kept = kept & (edge_index[0] != edge_index[1])
        self.kept = kept.nonzero().flatten()
        edges = edge_index[:, self.kept]
        if self_loops:
            self.loop_weight, loops = float(self_loops), torch.arange(n, device=edges.device)
        else:
            self.loop_weight, loops = 1.0, _unclosed(edges, n)
        self.loops = len(loops)
        source, target = torch.cat([edges, loops.expand(2, -1)], 1)
        key, self.place = torch.unique(target * n + source, return_inverse=True)
        self.bare = Graph(**Graph.indices(key // n, key % n, n, n))

    def graph(self, weight: Tensor | None) -> Graph:
        """The graph with these weights, which must be positive where those of the constructor were."""
        if weight is None and (self.loop_weight == 1 or not self.loops):
            return self.bare
        # as exact as the number that was given: layers convert weights to their own dtype
        dtype = torch.float64 if weight is None else weight.dtype
        loops = torch.full((self.loops,), self.loop_weight, dtype=dtype, device=self.place.device)
        total = torch.zeros(self.bare.num_edges, dtype=dtype, device=self.place.device)
        if weight is None:  # an edge weighs 1, however often it is given
            total = (total + 1).index_copy(0, self.place[len(self.kept) :], loops)
        else:
            total = total.index_add(0, self.place, torch.cat([weight[self.kept], loops]))
        return replace(self.bare, weight=total)

    def fits(
        self, edge_index: Tensor, num_nodes: int | None, weight: Tensor | None, self_loops: float | None
    ) -> bool:
        """Whether the build serves these settings and weights, for edges that are the same."""
        if self.settings != (num_nodes, self_loops):
            return False
        if weight is None or self.positive is None:
            return weight is None and self.positive is None
        _check_weight(weight, edge_index)
        return torch.equal(weight.detach() > 0, self.positive)


def _unclosed(edge_index: Tensor, n: int) -> Tensor:
    """Nodes that have no incoming or no outgoing edge."""
    outgoing, incoming = (torch.bincount(ends, minlength=n) for ends in edge_index)
    return ((outgoing == 0) | (incoming == 0)).nonzero().flatten()


# For each edge_index a copy of its content, and what was built from it last.
_built: WeakTensorKeyDictionary = WeakTensorKeyDictionary()


def as_graph(
    edge_index: Tensor | Graph,
    num_nodes: int,
    edge_weight: Tensor | None = None,
    self_loops: float | None = None,
) -> Graph:
    """The graph of an ``edge_index``; its structure is built once, and again when the edges change.

    The content is compared, so that writes through NumPy or ``.data`` are noticed. Weights are placed anew
    in every call, with their gradient.
    """
    if isinstance(edge_index, Graph):
        if edge_weight is not None:
            raise ArgumentError(
                "edge_weight stands beside a Graph, which has weights of its own: leave it out, or pass "
                "graph.with_weight(edge_weight)."
            )
        return edge_index
    _require_tensor(edge_index)
    given = (num_nodes, edge_weight, self_loops)
    # what was found is held here: another thread may replace it at any moment
    content, build = _built.get(edge_index, (None, None))
    with lasting():
        if build is None or not _same(content, edge_index) or not build.fits(edge_index, *given):
            content = edge_index.clone()
            build = _Build(content, *given)
            _built[edge_index] = (content, build)
        return build.graph(edge_weight)


def _same(a: Tensor, b: Tensor) -> bool:
    return (a.dtype, a.device) == (b.dtype, b.device) and torch.equal(a, b)
