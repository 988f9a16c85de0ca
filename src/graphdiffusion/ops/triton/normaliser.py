"""The normaliser of an edge field over rows or columns in Triton, and its gradient."""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...pattern import Pattern
from .groups import EDGE_BLOCK, reduce
from .launch import launch, member_stride, pieces, rows_in_place
from .pointwise import squareplus, squareplus_slope


@triton.jit(do_not_specialize=["num_edges", "blocks"])
def _normalise_kernel(
    out,
    scores,
    weight,
    peak,
    total,
    group,
    out_member,
    scores_member,
    weight_member,
    total_member,
    num_edges,
    blocks,
    KIND: tl.constexpr,
    HAS_WEIGHT: tl.constexpr,
    BLOCK: tl.constexpr,
):
    pid = tl.program_id(0)
    member = (pid // blocks).to(tl.int64)
    e = (pid % blocks) * BLOCK + tl.arange(0, BLOCK)
    ok = e < num_edges
    g = member * total_member + tl.load(group + e, mask=ok, other=0)
    s = tl.load(scores + member * scores_member + e, mask=ok, other=0.0)
    phi = tl.exp(s - tl.load(peak + g, mask=ok, other=0.0)) if KIND == "softmax" else squareplus(s)
    if HAS_WEIGHT:
        w = tl.load(weight + member * weight_member + e, mask=ok, other=0.0)
        phi = tl.where(w == 0, 0.0, phi * w)  # the score of an edge of weight 0 may exceed the maximum
    tl.store(out + member * out_member + e, phi / tl.load(total + g, mask=ok, other=1.0), mask=ok)


def normalise(graph: Pattern, scores: Tensor, weight: Tensor | None, kind: str, over: str) -> Tensor:
    """``w φ(s) / Σ w φ(s)`` over each row or column: scores ``(L, E)`` → ``(L, E)``."""
    scores = rows_in_place(scores)
    total, peak = reduce(graph, scores, weight, kind, over)
    weights = scores if weight is None else rows_in_place(weight)
    out = torch.empty(scores.shape, dtype=scores.dtype, device=scores.device)
    blocks = pieces(graph.num_edges, EDGE_BLOCK)
    launch(
        _normalise_kernel,
        blocks * scores.shape[0],
        scores,
        out,
        scores,
        weights,
        peak,
        total,
        graph.row if over == "rows" else graph.col,
        member_stride(out),
        member_stride(scores),
        member_stride(weights),
        member_stride(total),
        graph.num_edges,
        blocks,
        KIND=kind,
        HAS_WEIGHT=weight is not None,
        BLOCK=EDGE_BLOCK,
        num_warps=4,
    )
    return out


@triton.jit(do_not_specialize=["num_edges", "blocks"])
def _normalise_backward_kernel(
    out,
    grad,
    values,
    scores,
    flow,
    group,
    out_member,
    grad_member,
    values_member,
    scores_member,
    flow_member,
    num_edges,
    blocks,
    KIND: tl.constexpr,
    BLOCK: tl.constexpr,
):
    pid = tl.program_id(0)
    member = (pid // blocks).to(tl.int64)
    e = (pid % blocks) * BLOCK + tl.arange(0, BLOCK)
    ok = e < num_edges
    g = member * flow_member + tl.load(group + e, mask=ok, other=0)
    a = tl.load(values + member * values_member + e, mask=ok, other=0.0)
    d = a * (
        tl.load(grad + member * grad_member + e, mask=ok, other=0.0) - tl.load(flow + g, mask=ok, other=0.0)
    )
    if KIND == "squareplus":
        d = d * squareplus_slope(tl.load(scores + member * scores_member + e, mask=ok, other=0.0))
    tl.store(out + member * out_member + e, d, mask=ok)


def normalise_backward(
    graph: Pattern, grad: Tensor, values: Tensor, scores: Tensor, kind: str, over: str
) -> Tensor:
    """Gradient of :func:`normalise` with respect to the scores: ``r a (g − Σ a g)``, ``r = φ'/φ``."""
    grad, values, scores = rows_in_place(grad), rows_in_place(values), rows_in_place(scores)
    flow, _ = reduce(graph, values, grad, "sum", over)
    out = torch.empty(scores.shape, dtype=scores.dtype, device=scores.device)
    blocks = pieces(graph.num_edges, EDGE_BLOCK)
    launch(
        _normalise_backward_kernel,
        blocks * scores.shape[0],
        scores,
        out,
        grad,
        values,
        scores,
        flow,
        graph.row if over == "rows" else graph.col,
        member_stride(out),
        member_stride(grad),
        member_stride(values),
        member_stride(scores),
        member_stride(flow),
        graph.num_edges,
        blocks,
        KIND=kind,
        BLOCK=EDGE_BLOCK,
        num_warps=4,
    )
    return out
