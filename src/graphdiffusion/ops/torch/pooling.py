"""The largest entries among neighbours on stock torch, and sums over the neighbours that have them."""

from __future__ import annotations

import torch
from torch import Tensor

from ...pattern import Pattern
from .products import csr, pieces

AT_ONCE = 2**17  # numbers on edges that are made at once: they stay in cache


def pool(graph: Pattern, x: Tensor) -> Tensor:
    """``max_j x_j`` in each channel, 0 for an empty row: x ``(L, cols, d)`` → ``(L, rows, d)``."""
    if x.is_cuda:  # torch has products with maxima in place of sums on CPUs alone
        found = _segments(graph, x.index_select(1, graph.col), "max")
        return found.masked_fill((graph.rowptr.diff() == 0)[:, None], 0.0)
    out = x.new_empty(len(x), graph.rows, x.shape[-1])
    for piece in pieces(graph, len(x)):
        matrix = csr(graph, x.new_ones(1, 1).expand(piece.stop - piece.start, graph.num_edges))
        out[piece] = torch.sparse.mm(matrix, x[piece].flatten(0, 1), "amax").view_as(out[piece])
    return out


def match(graph: Pattern, own: Tensor, other: Tensor, field: Tensor) -> Tensor:
    """``Σ_j [u_i = v_j] z_j`` in each channel → ``(L, rows, d)``.

    own is u ``(L, rows, d)``; other and field are v and z ``(L, cols, d)``.
    """
    row, col = graph.row.long(), graph.col.long()  # torch has a fast path for 64-bit indices alone
    if own.is_cuda:  # index_add would add in an order that changes from run to run
        equal = own.index_select(1, row).eq_(other.index_select(1, col))
        return _segments(graph, equal.mul_(field.index_select(1, col)), "sum")
    out = torch.zeros_like(own, memory_format=torch.contiguous_format)
    step = max(1, AT_ONCE // max(1, own.shape[-1]))
    for u, v, z, total in zip(own, other, field, out, strict=True):
        for i, j in zip(row.split(step), col.split(step), strict=True):
            equal = u.index_select(0, i).eq_(v.index_select(0, j))  # 1 or 0
            total.index_add_(0, i, equal.mul_(z.index_select(0, j)))
    return out


def _segments(graph: Pattern, values: Tensor, reduce: str) -> Tensor:
    """Reduce values on edges ``(L, E, d)`` over each row."""
    offsets = graph.rowptr.long().expand(len(values), -1)
    return torch.segment_reduce(values, reduce, offsets=offsets, axis=1)
