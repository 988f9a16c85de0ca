"""The graph: an immutable sparse structure, checked once and sorted once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from .edges import check_weight, checked_edges, require_tensor
from .errors import ArgumentError, DtypeError, GraphError, ShapeError
from .pattern import Pattern, lasting

if TYPE_CHECKING:
    import networkx
    import scipy.sparse
    from torch_geometric.data import Data

SELF_LOOPS = 1.0  # weight of the self-loop that layers and models give every node by default


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
    edge_attr: Tensor | None = None  # (E, k) attributes, or None

    @classmethod
    def from_edge_index(
        cls,
        edge_index: Tensor,
        num_nodes: int | None = None,
        edge_weight: Tensor | None = None,
        self_loops: float | None = None,
        edge_attr: Tensor | None = None,
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
            edge_attr: Attributes ``(E, k)``, differentiable. Of edges that occur twice the mean is taken;
                self-loops that are added have zeros.
        """
        with lasting():
            return _Build(edge_index, num_nodes, edge_weight, self_loops).graph(edge_weight, edge_attr)

    @classmethod
    def from_data(cls, data: Data, self_loops: float | None = None) -> Graph:
        """Build a graph from the edges of a PyG ``Data``, with ``edge_weight`` and ``edge_attr``."""
        if data.edge_index is None:
            raise GraphError("data.edge_index is None: this Data holds no edges.")
        weight, attributes = data.get("edge_weight"), data.get("edge_attr")
        if attributes is not None and (attributes.dim() != 2 or not attributes.is_floating_point()):
            attributes = None  # codes of kinds, for example, which no diffusivity takes
        return cls.from_edge_index(data.edge_index, data.num_nodes, weight, self_loops, attributes)

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
        """Number of nodes."""
        return self.rows

    @property
    def edge_index(self) -> Tensor:
        """PyG's ``(2, E)`` int64 edge index (sources, targets), in the order of edge fields."""
        return torch.stack([self.col.long(), self.row.long()])

    @property
    def neighbours(self) -> Pattern:
        """The edges between two different nodes. A row or a column may be empty here."""

        def make() -> Pattern:
            kept = self.row != self.col
            ends = (self.row[kept].long(), self.col[kept].long())
            return Pattern(**Pattern.indices(*ends, self.rows, self.cols))

        return self.once("neighbours", make)

    @cached_property
    def is_symmetric(self) -> bool:
        """True if every edge has its reverse, with the same weight."""
        # Sorted by (col, row), the reversed edges must read exactly like the edges sorted by (row, col).
        same = torch.equal(self.transposed_row, self.col) and torch.equal(self.col[self.perm], self.row)
        return same and (self.weight is None or torch.allclose(self.weight, self.weight[self.perm]))

    def with_weight(self, weight: Tensor | None) -> Graph:
        """Same edges, other weights: an edge field ``(E,)``, positive, whose gradient is computed."""
        check_weight(weight, self.edge_index, positive=True)
        return replace(self, weight=weight)

    def dense(self, values: Tensor) -> Tensor:
        """The edge field ``(..., E)`` as dense matrices ``(..., n, n)``, for small graphs and tests."""
        n = self.num_nodes
        out = values.new_zeros(*values.shape[:-1], n * n)
        return out.index_copy(-1, self.row.long() * n + self.col, values).unflatten(-1, (n, n))

    def __repr__(self) -> str:
        weighted = "" if self.weight is None else ", weighted"
        return f"Graph({self.num_nodes} nodes, {self.num_edges} edges{weighted}, {self.device})"


class _Build:
    """From an ``edge_index`` to a graph: what depends on the edges alone, and where each weight goes."""

    def __init__(
        self, edge_index: Tensor, num_nodes: int | None, weight: Tensor | None, self_loops: float | None
    ) -> None:
        self.settings = (num_nodes, self_loops)
        if self_loops is not None and not 0 <= self_loops < float("inf"):
            raise GraphError(f"self_loops must be None or a weight ≥ 0, got {self_loops}.")
        edge_index, n = checked_edges(edge_index, num_nodes)
        check_weight(weight, edge_index)
        self.given = edge_index.shape[1]
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

    def graph(self, weight: Tensor | None, edge_attr: Tensor | None = None) -> Graph:
        """The graph with these weights, which must be positive where those of the constructor were."""
        placed, attributes = self._weight(weight), self._attributes(edge_attr)
        if placed is None and attributes is None:
            return self.bare
        return replace(self.bare, weight=placed, edge_attr=attributes)

    def _attributes(self, given: Tensor | None) -> Tensor | None:
        if given is None:
            return None
        if given.dim() != 2 or len(given) != self.given:
            raise ShapeError(
                f"edge_attr must have shape ({self.given}, k), a row for each edge, "
                f"got {tuple(given.shape)}."
            )
        if not given.is_floating_point():
            raise DtypeError(f"edge_attr must be floating point, got {given.dtype}.")
        place = self.place[: len(self.kept)]
        total = given.new_zeros(self.bare.num_edges, given.shape[1]).index_add(0, place, given[self.kept])
        return total / torch.bincount(place, minlength=self.bare.num_edges).clamp_min(1).unsqueeze(1)

    def _weight(self, weight: Tensor | None) -> Tensor | None:
        if weight is None and (self.loop_weight == 1 or not self.loops):
            return None
        # as exact as the number that was given: layers convert weights to their own dtype
        dtype = torch.float64 if weight is None else weight.dtype
        loops = torch.full((self.loops,), self.loop_weight, dtype=dtype, device=self.place.device)
        total = torch.zeros(self.bare.num_edges, dtype=dtype, device=self.place.device)
        if weight is None:  # an edge weighs 1, however often it is given
            total = (total + 1).index_copy(0, self.place[len(self.kept) :], loops)
        else:
            total = total.index_add(0, self.place, torch.cat([weight[self.kept], loops]))
        return total

    def fits(
        self, edge_index: Tensor, num_nodes: int | None, weight: Tensor | None, self_loops: float | None
    ) -> bool:
        """Whether the build serves these settings and weights, for edges that are the same."""
        if self.settings != (num_nodes, self_loops):
            return False
        if weight is None or self.positive is None:
            return weight is None and self.positive is None
        check_weight(weight, edge_index)
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
    edge_attr: Tensor | None = None,
) -> Graph:
    """The graph of an ``edge_index``; its structure is built once, and again when the edges change.

    The content is compared, so that writes through NumPy or ``.data`` are noticed. Weights are placed anew
    in every call, with their gradient.
    """
    if isinstance(edge_index, Graph):
        if edge_weight is not None or edge_attr is not None:
            raise ArgumentError(
                "edge_weight and edge_attr stand beside a Graph, which has its own: leave them out, or "
                "pass graph.with_weight(edge_weight)."
            )
        return edge_index
    require_tensor(edge_index)
    given = (num_nodes, edge_weight, self_loops)
    # what was found is held here: another thread may replace it at any moment
    content, build = _built.get(edge_index, (None, None))
    with lasting():
        if build is None or not _same(content, edge_index) or not build.fits(edge_index, *given):
            content = edge_index.clone()
            build = _Build(content, *given)
            _built[edge_index] = (content, build)
        return build.graph(edge_weight, edge_attr)


def _same(a: Tensor, b: Tensor) -> bool:
    return (a.dtype, a.device) == (b.dtype, b.device) and torch.equal(a, b)
