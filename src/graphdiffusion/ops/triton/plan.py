"""Work lists: how the edges of the rows (or columns) of a graph are dealt out to programs.

Degrees follow power laws. A program that takes a block of rows runs as long as the longest of them, and
a hub would hold up everybody else. So rows are taken in the order of their length, and the longest are
cut into segments whose partial results a second pass puts together in a fixed order.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ...pattern import Pattern

SHORT = 64  # a row of at most so many edges is walked in order, a longer one by many lanes at once
CHUNK = 512  # a row of more than so many edges is cut into segments of at most so many


@dataclass(frozen=True)
class Plan:
    """The groups (rows or columns) of a graph as items of work, ``I`` in all.

    Items ``0 … num_split`` are the segments of groups that were cut, in the order of the groups; then
    come whole long groups to ``num_long`` and whole short ones to ``num_items``, the longest first.
    """

    node: Tensor  # (I,) the group of each item
    start: Tensor  # (I,) its first edge, in the order of this side
    length: Tensor  # (I,) its number of edges
    index: Tensor  # (E,) the other end of each edge, in the order of this side
    edge: Tensor | None  # (E,) its place in CSR order, or None where the orders are the same
    split_node: Tensor  # (S,) the groups that were cut
    split_slot: Tensor  # (S+1,) items split_slot[s]:split_slot[s+1] belong to split_node[s]
    num_split: int
    num_long: int
    num_items: int

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """Node, start, length, index and edge, as kernels take them."""
        edge = self.index if self.edge is None else self.edge
        return self.node, self.start, self.length, self.index, edge

    @property
    def num_cut(self) -> int:
        """Number of groups that were cut."""
        return self.split_node.numel()


def plan(graph: Pattern, over: str) -> Plan:
    """The work list of the rows or columns, made once for each graph.

    Making it reads from the device: call a verb once on a graph before capturing it in a CUDA graph.
    """

    def make() -> Plan:
        if over == "rows":
            return _make(graph, SHORT, CHUNK)
        return replace(plan(graph.transposed, "rows"), edge=graph.perm)

    return graph.once(("plan", over, SHORT, CHUNK), make)


def _make(graph: Pattern, short: int, chunk: int) -> Plan:
    pointer = graph.rowptr.long()
    length = pointer[1:] - pointer[:-1]
    cut = (length > chunk).nonzero().flatten()
    pieces = (length[cut] + chunk - 1) // chunk
    slot = torch.cat([pieces.new_zeros(1), pieces.cumsum(0)])
    # Piece k of p of a group of m edges is edges k m // p to (k+1) m // p: nearly equal lengths.
    group = torch.repeat_interleave(torch.arange(len(cut), device=cut.device), pieces)
    k = torch.arange(len(group), device=cut.device) - slot[group]
    m, p = length[cut][group], pieces[group]
    first, last = k * m // p, (k + 1) * m // p

    whole = torch.sort(length, descending=True, stable=True).indices
    whole = whole[length[whole] <= chunk]
    long_whole = int((length[whole] > short).sum())
    dtype = graph.row.dtype
    return Plan(
        node=torch.cat([cut[group], whole]).to(dtype),
        start=torch.cat([pointer[cut[group]] + first, pointer[whole]]).to(dtype),
        length=torch.cat([last - first, length[whole]]).to(dtype),
        index=graph.col,
        edge=None,
        split_node=cut.to(dtype),
        split_slot=slot.to(dtype),
        num_split=len(group),
        num_long=len(group) + long_whole,
        num_items=len(group) + len(whole),
    )
