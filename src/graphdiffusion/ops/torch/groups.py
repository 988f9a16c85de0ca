"""Sums, maxima and the normaliser of edge fields over rows or columns, on stock torch."""

from __future__ import annotations

from collections.abc import Callable

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
    return shares(
        scores,
        weight,
        kind,
        lambda field: spread(graph, group_max(graph, field, over), over),
        lambda field: spread(graph, group_sum(graph, field, over), over),
    )


def normalise_backward(
    graph: Pattern, grad: Tensor, values: Tensor, scores: Tensor, kind: str, over: str
) -> Tensor:
    """Gradient of :func:`normalise` with respect to the scores."""
    return shares_backward(
        grad, values, scores, kind, lambda field: spread(graph, group_sum(graph, field, over), over)
    )


OnEdges = Callable[[Tensor], Tensor]  # from an edge field to the largest entry or sum of each edge's group


def shares(scores: Tensor, weight: Tensor | None, kind: str, peak: OnEdges, total: OnEdges) -> Tensor:
    """The normaliser, whatever finds the largest entries and the sums of the groups."""
    if kind == "softmax":
        if weight is not None:  # an edge of weight 0 must not be the largest
            scores = scores.masked_fill(weight == 0, float("-inf"))
        phi = (scores - peak(scores)).exp_()
    else:
        phi = squareplus(scores)
    if weight is not None:
        phi = phi * weight
    return phi / total(phi)


def shares_backward(grad: Tensor, values: Tensor, scores: Tensor, kind: str, total: OnEdges) -> Tensor:
    """Gradient of :func:`shares` with respect to the scores."""
    flow = values * grad
    out = flow - values * total(flow)
    return out if kind == "softmax" else out * squareplus_slope(scores)
