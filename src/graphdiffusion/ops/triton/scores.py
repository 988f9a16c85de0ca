"""The sampled product in Triton: ``⟨q_i, k_j⟩`` on the edges."""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...pattern import Pattern
from .launch import (
    accumulator,
    is_wide,
    launch,
    member_stride,
    pieces,
    rows_in_place,
    statistic,
    tile_width,
)

EDGES, WIDTH, WARPS = 64, 32, 4  # edges of a program, widest tile of their vectors


@triton.jit
def _sddmm_kernel(
    out,
    q,
    k,
    row,
    col,
    out_member,
    q_member,
    q_row,
    k_member,
    k_row,
    num_edges,
    blocks,
    D: tl.constexpr,
    WIDTH: tl.constexpr,
    EDGES: tl.constexpr,
    ACCUMULATE: tl.constexpr,
    WIDE: tl.constexpr,
    ACC: tl.constexpr,
):
    pid = tl.program_id(0)
    member = (pid // blocks).to(tl.int64)
    e = (pid % blocks) * EDGES + tl.arange(0, EDGES)
    ok = e < num_edges
    i = tl.load(row + e, mask=ok, other=0)
    j = tl.load(col + e, mask=ok, other=0)
    if WIDE:
        i = i.to(tl.int64)
        j = j.to(tl.int64)
    q += member * q_member
    k += member * k_member
    products = tl.zeros([EDGES, WIDTH], ACC)
    for first in tl.static_range(0, D, WIDTH):
        c = first + tl.arange(0, WIDTH)
        both = ok[:, None] & (c < D)[None, :]
        q_i = tl.load(q + i[:, None] * q_row + c[None, :], mask=both, other=0.0).to(ACC)
        k_j = tl.load(k + j[:, None] * k_row + c[None, :], mask=both, other=0.0).to(ACC)
        products += q_i * k_j
    s = tl.sum(products, axis=1)
    out += member * out_member
    if ACCUMULATE:
        s += tl.load(out + e, mask=ok, other=0.0).to(ACC)
    tl.store(out + e, s, mask=ok)


def sddmm(graph: Pattern, q: Tensor, k: Tensor, out: Tensor | None = None) -> Tensor:
    """``⟨q_i, k_j⟩`` on every edge: q, k ``(L, n, d)`` → ``(L, E)``; added to ``out`` if given."""
    members, _, d = q.shape
    q, k = rows_in_place(q), rows_in_place(k)
    accumulate = out is not None
    if out is None:
        out = torch.empty(members, graph.num_edges, dtype=statistic(q), device=q.device)
    blocks = pieces(graph.num_edges, EDGES)
    launch(
        _sddmm_kernel,
        blocks * members,
        q,
        out,
        q,
        k,
        graph.row,
        graph.col,
        member_stride(out),
        member_stride(q),
        q.stride(1),
        member_stride(k),
        k.stride(1),
        graph.num_edges,
        blocks,
        D=d,
        WIDTH=tile_width(d, WIDTH),
        EDGES=EDGES,
        ACCUMULATE=accumulate,
        WIDE=is_wide(q, k),
        ACC=accumulator(q),
        num_warps=WARPS,
    )
    return out
