"""Sums, maxima and the normaliser of edge fields over rows or columns, on stock torch."""

from __future__ import annotations

import torch
from torch import Tensor

from ...pattern import Pattern
from .pointwise import squareplus, squareplus_slope


def group_sum(graph: Pattern, values: Tensor, over: str) -> Tensor:
    """Sum of the edge field ``(L, E)`` over each row or column → ``(L, n)``."""
    if values.is_cuda:  # index_add would add in an order that changes from run to run
        return _segments(graph, values, over, "sum")
    out = values.new_zeros(values.shape[0], _size(graph, over))
    # torch has a fast path for 64-bit indices alone
    return out.index_add_(1, (graph.row if over == "rows" else graph.col).long(), values)


def group_max(graph: Pattern, values: Tensor, over: str) -> Tensor:
    """Largest entry of the edge field ``(L, E)`` in each row or column → ``(L, n)``."""
    if values.is_cuda or len(values) == 1:
        return _segments(graph, values, over, "max")
    index = (graph.row if over == "rows" else graph.col).long().expand_as(values)
    out = values.new_full((values.shape[0], _size(graph, over)), float("-inf"))
    return out.scatter_reduce_(1, index, values, "amax")


def _size(graph: Pattern, over: str) -> int:
    return graph.rows if over == "rows" else graph.cols


def _segments(graph: Pattern, values: Tensor, over: str, reduce: str) -> Tensor:
    pointer = graph.rowptr
    if over == "columns":
        pointer, values = graph.colptr, values.index_select(1, graph.perm)
    by_edge = values.t().contiguous()
    return torch.segment_reduce(by_edge, reduce, offsets=pointer.long(), axis=0).t()


def spread(graph: Pattern, nodes: Tensor, over: str) -> Tensor:
    """Value of the row or column of each edge: ``(L, n)`` → ``(L, E)``."""
    return nodes.index_select(1, graph.row if over == "rows" else graph.col)


def normalise(graph: Pattern, scores: Tensor, weight: Tensor | None, kind: str, over: str) -> Tensor:
    """``w φ(s) / Σ w φ(s)`` over each row or column: scores ``(L, E)`` → ``(L, E)``."""
    if kind == "softmax":
        if weight is not None:  # an edge of weight 0 must not be the largest
            scores = scores.masked_fill(weight == 0, float("-inf"))
        phi = (scores - spread(graph, group_max(graph, scores, over), over)).exp_()
    else:
        phi = squareplus(scores)
    if weight is not None:
        phi = phi * weight
    return phi / spread(graph, group_sum(graph, phi, over), over)


def normalise_backward(
    graph: Pattern, grad: Tensor, values: Tensor, scores: Tensor, kind: str, over: str
) -> Tensor:
    """Gradient of :func:`normalise` with respect to the scores."""
    flow = values * grad
    out = flow - values * spread(graph, group_sum(graph, flow, over), over)
    return out if kind == "softmax" else out * squareplus_slope(scores)
