"""Parts of a graph of which the edges do not fit in memory, built on disk."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from torch import Tensor

from ..errors import ArgumentError, GraphError
from .cut import METHODS, at_random, check_numbers, chosen, cut_lists
from .fields import as_field, deal_entries, dealt, write_fields
from .neighbours import Array, Neighbours
from .part import checked
from .sorting import Edges, FileColumn, Source, sort_edges
from .store import About, finish, new_folder, write_part
from .streaming import ldg

_BYTES = 80  # of memory for each edge that is handled at once


def write_parts_of_edges(
    folder: Path | str,
    edges: Source,
    num_nodes: int,
    *,
    parts: int | None = None,
    method: str = "auto",
    seed: int = 0,
    assignment: Tensor | None = None,
    undirected: bool = False,
    self_loops: float | None = None,
    fields: Mapping[str, Any] | None = None,
    about: Mapping[str, Any] | None = None,
    memory: int = 2**30,
) -> About:
    """Write the parts of a graph from edges on disk: the files that ``write_parts`` writes.

    In memory: about 50 bytes a node, ``memory`` bytes for edges that are read or sorted, and 32 bytes for
    each edge of the largest part. On disk, for each edge of the graph (both directions if ``undirected``):
    16 bytes while it is built and 12 in the end, beside 28 bytes a node and 20 bytes a halo row. A directed
    graph that is cut by its neighbours needs 24 bytes an edge more for a while.

    Args:
        folder: To be made; it must not exist, or be empty.
        edges: Path of a ``.npy`` file ``(2, E)`` of integers, sources and targets; such an array, memory
            mapped; or an iterable of chunks ``(2, m)``, which is written to disk first. Edges may occur
            several times.
        num_nodes: Of the graph.
        parts: Their number.
        method: Of :func:`~graphdiffusion.partition.cut`, on rows on disk. ``auto`` is ``ldg`` here;
            ``metis`` reads all edges into memory.
        seed: Of the cut.
        assignment: The part of each node, ``(n,)``, instead of a method.
        undirected: Whether each edge stands for both directions.
        self_loops: As in :meth:`~graphdiffusion.graph.Graph.from_edge_index`.
        fields: Node fields by name, as ``write_parts`` takes them.
        about: What else to note, as in JSON.
        memory: Bytes for edges that are read or sorted at once.
    """
    if self_loops is not None and not 0 <= self_loops < float("inf"):
        raise GraphError(f"self_loops must be None or a weight ≥ 0, got {self_loops}.")
    if num_nodes < 1:
        raise GraphError(f"a graph needs at least one node, got num_nodes={num_nodes}.")
    if memory < 2**16:
        raise ArgumentError(f"memory must be at least {2**16} bytes, got {memory}.")
    given = None if assignment is None else checked(assignment, num_nodes, parts).cpu().numpy()
    if given is None:
        if parts is None:
            raise ArgumentError("give the number of parts, or an assignment of nodes to parts.")
        check_numbers(parts, num_nodes, seed)
        method = _ldg_for_auto(method)
    ready = {name: as_field(name, value, num_nodes) for name, value in (fields or {}).items()}
    limit = memory // _BYTES
    with new_folder(Path(folder)) as made:
        work = made / "work"
        work.mkdir()
        read = Edges(edges, num_nodes, work, max(1, limit // 2))
        rowptr, col = sort_edges(read, work, "rows", undirected, self_loops, limit)
        if given is None:
            assert parts is not None
            lists = Neighbours(rowptr, col, np.diff(rowptr))
            if not undirected and METHODS[method] is not at_random:
                both = sort_edges(read, work, "both", True, self_loops, limit)
                lists = Neighbours(*both, np.diff(rowptr))
            given = cut_lists(lists, parts, method, seed)
            (work / "both").unlink(missing_ok=True)
        else:
            method = "given"
        build = _Build(work, rowptr, given, limit, self_loops)
        build.deal(col)
        col.remove()
        notes = write_fields(made, given, build.parts, ready)
        sizes = []
        for number, own in enumerate(notes):
            arrays, halo, send = build.part(number)
            sizes.append(write_part(made, number, arrays, halo, send, own))
            del arrays  # before those of the next part are made
        shutil.rmtree(work)
        kept = None if method == "given" else seed
        return finish(made, given, int(rowptr[-1]), sizes, list(ready), method, kept, about)


def _ldg_for_auto(method: str) -> str:
    names = {function: name for name, function in METHODS.items()}
    return names[ldg] if method == "auto" else chosen(method)


class _Build:
    """From rows on disk to the arrays of one part after the other."""

    def __init__(
        self, work: Path, rowptr: Array, assignment: Array, limit: int, self_loops: float | None
    ) -> None:
        self.work, self.rowptr, self.assignment, self.limit = work, rowptr, assignment, limit
        self.n, self.parts = len(assignment), int(assignment.max()) + 1
        self.loop_weight = self_loops or 1.0
        self.lengths = np.diff(rowptr)
        self.nodes = [own for _, own in dealt(assignment)]
        self.place = np.empty(self.n, np.int64)  # of a node among those of its part
        for own in self.nodes:
            self.place[own] = np.arange(len(own))
        self.counts = np.zeros((self.parts, self.parts), np.int64)  # rows that a part reads of another

    def _columns(self, number: int) -> FileColumn:
        """Columns of the edges of a part, as nodes of the whole graph."""
        return FileColumn(self.work / f"columns-{number}", np.int32 if self.n < 2**31 else np.int64)

    def _halo(self, number: int) -> FileColumn:
        return FileColumn(self.work / f"halo-{number}", np.int64)

    def deal(self, col: FileColumn) -> None:
        """Write the edges of each part to a file of its own, then its halo."""
        for number, (piece,) in deal_entries(self.rowptr, (col,), self.assignment, self.limit):
            self._columns(number).append(piece)
        for number in range(self.parts):
            halo = np.empty(0, np.int64)
            for _, piece in self._pieces(number):
                outside = piece[self.assignment[piece] != number]
                halo = np.union1d(halo, outside)
            owners = self.assignment[halo]
            self._halo(number).append(halo[np.argsort(owners, kind="stable")])
            self.counts[number] = np.bincount(owners, minlength=self.parts)

    def _pieces(self, number: int) -> Iterator[tuple[int, Array]]:
        columns = self._columns(number)
        for start in range(0, len(columns), self.limit):
            yield start, columns[start : start + self.limit]

    def part(self, number: int) -> tuple[dict[str, Array], tuple[int, ...], tuple[int, ...]]:
        """Arrays of a :class:`~graphdiffusion.partition.Part`, and its counts of halo and send."""
        nodes, halo = self.nodes[number], self._halo(number)[:]
        n, wide = len(nodes), len(nodes) + len(halo)
        lengths = self.lengths[nodes]
        total = int(lengths.sum())
        index = np.int32 if max(total, wide) < 2**31 else np.int64
        rowptr = np.concatenate([[0], lengths.cumsum()]).astype(index)
        col = self._numbered(number, halo, index)
        self._columns(number).remove()
        by_row = scipy.sparse.csr_array((np.zeros(total, np.int8), col, rowptr), (n, wide))
        by_row.has_sorted_indices = False
        by_row.sort_indices()
        col = by_row.indices.astype(index, copy=False)
        # the transpose of a matrix with the places of its entries: linear time, where a sort takes more
        by_col = scipy.sparse.csr_array((np.arange(total, dtype=index), col, rowptr), (n, wide)).tocsc()
        arrays = {
            "nodes": nodes,
            "halo": halo,
            "send": self._send(number),
            "first_edge": self.rowptr[nodes],
            "row": np.repeat(np.arange(n, dtype=index), lengths),
            "col": col,
            "rowptr": rowptr,
            "perm": by_col.data,
            "colptr": by_col.indptr.astype(index, copy=False),
        }
        if self.loop_weight != 1:
            arrays["weight"] = np.where(arrays["row"] == col, float(self.loop_weight), 1.0)
        counts = self.counts[number].tolist(), self.counts[:, number].tolist()
        return arrays, tuple(counts[0]), tuple(counts[1])

    def _numbered(self, number: int, halo: Array, index: Any) -> Array:
        """Columns of a part as it stores them: place among its nodes, or behind them place in the halo."""
        own = len(self.nodes[number])
        keys = self.assignment[halo] * self.n + halo
        found = np.empty(len(self._columns(number)), index)
        for start, piece in self._pieces(number):
            owners = self.assignment[piece]
            local = self.place[piece]
            outside = np.flatnonzero(owners != number)
            local[outside] = own + np.searchsorted(keys, owners[outside] * self.n + piece[outside])
            found[start : start + len(piece)] = local
        return found

    def _send(self, number: int) -> Array:
        """Own rows that other parts read: by reading part, in the order of its halo."""
        found = [np.empty(0, np.int64)]
        for reader in range(self.parts):
            first = int(self.counts[reader, :number].sum())
            read = self._halo(reader)[first : first + int(self.counts[reader, number])]
            found.append(self.place[read])
        return np.concatenate(found)
