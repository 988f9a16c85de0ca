"""A part of a graph: the rows of some nodes, and what they read from the rows of others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

import torch
from torch import Tensor

from ..errors import DtypeError, GraphError
from ..graph import Graph
from ..pattern import Pattern


@dataclass(frozen=True, eq=False, repr=False)
class Part(Graph):
    r"""The rows of a graph that one process holds; other processes hold the others.

    It stands for the whole graph: node fields have the rows of the part's own nodes, edge fields the edges
    that lead to them. The verbs of :mod:`graphdiffusion.ops` fetch what they read from other parts, and
    give what the whole graph would give at these rows. Every process calls the same verbs in the same
    order, inside :func:`~graphdiffusion.partition.use_part`.

    The columns of the edges are numbered as they are stored: the own nodes first, then the *halo*, nodes of
    other parts that are read here.

    Attributes:
        nodes: Numbers of the own nodes in the whole graph, ``(n,)``, rising.
        halo: Numbers of the nodes that are read from other parts, ``(h,)``: by part, then rising.
        halo_counts: How many of them each part has.
        send: Own rows that other parts read, ``(s,)``: by reading part, in the order of its halo.
        send_counts: How many each part reads.
        first_edge: Place of the first edge of each own row among the edges of the whole graph, ``(n,)``.
        number: Of the part, from 0.
        parts: How many there are.
        all_nodes: Nodes of the whole graph.
        all_edges: Edges of the whole graph, self-loops included.
    """

    nodes: Tensor = field(kw_only=True)
    halo: Tensor = field(kw_only=True)
    halo_counts: tuple[int, ...] = field(kw_only=True)
    send: Tensor = field(kw_only=True)
    send_counts: tuple[int, ...] = field(kw_only=True)
    first_edge: Tensor = field(kw_only=True)
    number: int = field(kw_only=True)
    parts: int = field(kw_only=True)
    all_nodes: int = field(kw_only=True)
    all_edges: int = field(kw_only=True)

    @classmethod
    def from_rows(cls, row: Tensor, col: Tensor, *, nodes: Tensor, halo: Tensor, **more: Any) -> Part:
        """Build a part from its edges, sorted by row, then by column as they are stored.

        Args:
            row: Own row of each edge, from 0, ``(E,)`` int64.
            col: Column of each edge: own row of the node, or ``n`` plus its place in the halo.
            nodes, halo, more: As in the class, and perhaps ``weight`` and ``edge_attr``.
        """
        n, wide = len(nodes), len(nodes) + len(halo)
        found = Pattern.indices(row, col, n, wide) | {"cols": n}
        return cls(**found, nodes=nodes, halo=halo, **more)

    @property
    def reach(self) -> Pattern:
        """The same edges as an ``n × (n + h)`` matrix: own nodes and halo are its columns."""

        def make() -> Pattern:
            return Pattern(
                self.rows,
                self.rows + len(self.halo),
                self.row,
                self.col,
                self.rowptr,
                self.perm,
                self.colptr,
            )

        return self.once("reach", make)

    @property
    def inner(self) -> tuple[Pattern, Tensor]:
        """The edges between own nodes, ``n × n``, and their places among the edges of the part."""
        return self.once("inner", lambda: self._columns(0, self.rows))

    @property
    def outer(self) -> tuple[Pattern, Tensor]:
        """The edges from the halo, ``n × h``, and their places among the edges of the part."""
        return self.once("outer", lambda: self._columns(self.rows, self.rows + len(self.halo)))

    def _columns(self, first: int, stop: int) -> tuple[Pattern, Tensor]:
        places = ((self.col >= first) & (self.col < stop)).nonzero().flatten()
        row, col = self.row[places].long(), self.col[places].long() - first
        return Pattern(**Pattern.indices(row, col, self.rows, stop - first)), places

    @property
    def returned(self) -> Pattern:
        """Which own row each of the rows that come back from readers belongs to, ``n × s``."""

        def make() -> Pattern:
            order = torch.argsort(self.send, stable=True)
            return Pattern(**Pattern.indices(self.send[order].long(), order, self.rows, len(self.send)))

        return self.once("returned", make)

    @property
    def places(self) -> Tensor:
        """Place of each edge among the edges of the whole graph, ``(E,)`` int64: by row, then column."""

        def make() -> Tensor:
            number = torch.cat([self.nodes, self.halo])[self.col.long()]
            order = torch.argsort(number, stable=True)
            order = order[torch.argsort(self.row[order].long(), stable=True)]  # by row, then by number
            rank = torch.empty_like(order)
            rank[order] = (
                torch.arange(len(order), device=order.device)
                - self.rowptr[:-1].long()[self.row[order].long()]
            )
            return self.first_edge[self.row.long()] + rank

        return self.once("places", make)

    @property
    def transposed(self) -> Transposed:
        return self.once("transposed", lambda: Transposed.of(self))

    @property
    def neighbours(self) -> Part:
        """The part without self-loops."""

        def make() -> Part:
            kept = self.row != self.col
            found = Pattern.indices(
                self.row[kept].long(), self.col[kept].long(), self.rows, self.rows + len(self.halo)
            )
            # its edges have no places in a whole graph, which is not built
            return replace(self, **found | {"cols": self.rows}, weight=None, edge_attr=None, derived={})

        return self.once("neighbours", make)

    @property
    def is_symmetric(self) -> bool:
        self._refuse("whether it is symmetric")

    def dense(self, values: Tensor) -> Tensor:
        self._refuse("the dense matrix")

    def _refuse(self, what: str) -> NoReturn:
        raise GraphError(f"one part of a graph does not know {what}: ask the whole graph.")

    def __repr__(self) -> str:
        return (
            f"Part({self.number} of {self.parts}: {self.rows} of {self.all_nodes} nodes, "
            f"{self.num_edges} of {self.all_edges} edges, halo {len(self.halo)}, {self.device})"
        )


@dataclass(frozen=True, eq=False, repr=False)
class Transposed(Pattern):
    """The transpose of a part: its entries are sorted by column, and its results lie on several parts."""

    part: Part = field(kw_only=True)

    @classmethod
    def of(cls, part: Part) -> Transposed:
        own = Pattern.transposed.fget(part.reach)  # type: ignore[attr-defined]
        names = ("row", "col", "rowptr", "perm", "colptr")
        return cls(part.rows, part.cols, **{name: getattr(own, name) for name in names}, part=part)

    @property
    def inner(self) -> Pattern:
        """The first entries: those of own columns."""
        return self.part.once("inner transposed", lambda: self._rows(0, self.part.rows))

    @property
    def outer(self) -> Pattern:
        """The entries after them: those of the halo."""
        stop = self.part.rows + len(self.part.halo)
        return self.part.once("outer transposed", lambda: self._rows(self.part.rows, stop))

    def _rows(self, first: int, stop: int) -> Pattern:
        start, end = (int(self.rowptr[k]) for k in (first, stop))
        row, col = self.row[start:end].long() - first, self.col[start:end].long()
        return Pattern(**Pattern.indices(row, col, stop - first, self.part.rows))

    @property
    def transposed(self) -> Part:
        return self.part


def checked(assignment: Tensor, n: int, parts: int | None = None) -> Tensor:
    """The part of each node as int64, refused where a node has none or a part has no node."""
    found = torch.as_tensor(assignment)
    if found.is_floating_point() or found.is_complex():
        raise DtypeError(f"an assignment to parts must hold integers, got {found.dtype}.")
    found = found.long()
    counts = torch.bincount(found[found >= 0]) if found.dim() == 1 else found.new_zeros(1)
    whole = found.shape == (n,) and bool((found >= 0).all()) and bool((counts > 0).all())
    if not whole or parts not in (None, len(counts)):
        wanted = "each part" if parts is None else f"each of the {parts} parts"
        raise GraphError(
            f"an assignment to parts must have {n} numbers from 0, and {wanted} at least one node; got "
            f"shape {tuple(found.shape)}, and parts of {counts.tolist()} nodes."
        )
    return found


def split(graph: Graph, assignment: Tensor, numbers: Sequence[int] | None = None) -> list[Part]:
    """The parts of a graph, in memory.

    Args:
        graph: The whole graph.
        assignment: Number of the part of each node, ``(n,)``, from 0. Every part must have a node.
        numbers: Which parts; by default all.
    """
    n = graph.num_nodes
    assignment = checked(assignment, n)
    counts = torch.bincount(assignment)
    parts = len(counts)
    if wrong := [number for number in numbers or () if not 0 <= number < parts]:
        raise GraphError(f"the graph has the parts 0 to {parts - 1}, got {wrong}.")
    # place of a node among those of its part
    order = torch.argsort(assignment, stable=True)
    place = torch.empty_like(order)
    starts = counts.cumsum(0) - counts
    place[order] = torch.arange(n) - starts[assignment[order]]
    row, col = graph.row.long(), graph.col.long()
    # what each part reads from others: pairs of reader and node, once each
    outside = assignment[row] != assignment[col]
    pairs = torch.unique(assignment[row[outside]] * n + col[outside])
    reader, read = pairs // n, pairs % n
    found = []
    for number in range(parts) if numbers is None else numbers:
        nodes = order[starts[number] : starts[number] + counts[number]]
        own = reader == number
        halo = read[own]
        owners = assignment[halo]
        halo = halo[torch.argsort(owners, stable=True)]  # by part, then rising
        asked = assignment[read] == number
        local = torch.full((n,), -1)
        local[nodes] = torch.arange(len(nodes))
        local[halo] = len(nodes) + torch.arange(len(halo))
        edges = (assignment[row] == number).nonzero().flatten()
        rows, cols = place[row[edges]], local[col[edges]]
        sorting = torch.argsort(rows * (len(nodes) + len(halo)) + cols)
        edges = edges[sorting]
        found.append(
            Part.from_rows(
                rows[sorting], cols[sorting], nodes=nodes, halo=halo,
                halo_counts=tuple(torch.bincount(owners, minlength=parts).tolist()),
                send=place[read[asked]],  # pairs are sorted by reader, then by node
                send_counts=tuple(torch.bincount(reader[asked], minlength=parts).tolist()),
                first_edge=graph.rowptr[nodes].long(), number=number, parts=parts, all_nodes=n,
                all_edges=graph.num_edges,
                weight=None if graph.weight is None else graph.weight[edges],
                edge_attr=None if graph.edge_attr is None else graph.edge_attr[edges],
            )
        )  # fmt: skip
    return found
