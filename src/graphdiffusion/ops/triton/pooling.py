"""The largest entries among neighbours in Triton, and sums over the neighbours that have them.

A program takes one row and a tile of channels of one member, a few edges at a time. Rows are not cut into
segments: the longest row bounds the time.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...pattern import Pattern
from .launch import accumulator, launch, member_stride, pieces, power_of_2, rows_in_place

EDGES = 8  # taken at a time
WIDEST = 64  # channels of a tile, at most


@triton.jit
def _larger(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit(do_not_specialize=["rows"])
def _pool_kernel(
    out, own, other, field, pointer, index, out_member, own_member, own_row, other_member, other_row,
    field_member, field_row, rows, D: tl.constexpr, WIDTH: tl.constexpr, EDGES: tl.constexpr,
    MATCH: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    # Programs of one tile of one member stand side by side: what they read together stays in cache.
    pid = tl.program_id(0)
    tiles: tl.constexpr = (D + WIDTH - 1) // WIDTH
    row = (pid % rows).to(tl.int64)
    c = (pid // rows) % tiles * WIDTH + tl.arange(0, WIDTH)
    member = (pid // rows // tiles).to(tl.int64)
    c_ok = c < D
    first = tl.load(pointer + row)
    last = tl.load(pointer + row + 1)
    lane = tl.arange(0, EDGES)
    other += member * other_member
    if MATCH:
        field += member * field_member
        u = tl.load(own + member * own_member + row * own_row + c, mask=c_ok, other=0.0)
        acc = tl.zeros([EDGES, WIDTH], ACC)
    else:
        acc = tl.full([EDGES, WIDTH], float("-inf"), ACC)
    for e in range(first, last, EDGES):
        e_ok = e + lane < last
        j = tl.load(index + e + lane, mask=e_ok, other=0).to(tl.int64)
        ok = e_ok[:, None] & c_ok[None, :]
        v = tl.load(other + j[:, None] * other_row + c[None, :], mask=ok, other=float("-inf"))
        if MATCH:
            same = ok & (v == u[None, :])
            acc += tl.load(field + j[:, None] * field_row + c[None, :], mask=same, other=0.0)
        else:
            acc = _larger(acc, v)
    found = tl.sum(acc, axis=0) if MATCH else tl.where(last > first, tl.reduce(acc, 0, _larger), 0.0)
    tl.store(out + member * out_member + row * D + c, found, mask=c_ok)


def pool(graph: Pattern, x: Tensor) -> Tensor:
    """``max_j x_j`` in each channel, 0 for an empty row: x ``(L, cols, d)`` → ``(L, rows, d)``."""
    return _run(graph, x, x, x, False)


def match(graph: Pattern, own: Tensor, other: Tensor, field: Tensor) -> Tensor:
    """``Σ_j [u_i = v_j] z_j`` in each channel → ``(L, rows, d)``.

    own is u ``(L, rows, d)``; other and field are v and z ``(L, cols, d)``.
    """
    return _run(graph, own, other, field, True)


def _run(graph: Pattern, own: Tensor, other: Tensor, field: Tensor, match: bool) -> Tensor:
    own, other, field = (rows_in_place(tensor) for tensor in (own, other, field))
    members, _, d = other.shape
    out = torch.empty(members, graph.rows, d, dtype=other.dtype, device=other.device)
    width = min(power_of_2(d), WIDEST)
    launch(
        _pool_kernel, graph.rows * pieces(d, width) * members, other, out, own, other, field, graph.rowptr,
        graph.col, member_stride(out), member_stride(own), own.stride(1), member_stride(other),
        other.stride(1), member_stride(field), field.stride(1), graph.rows, D=d, WIDTH=width, EDGES=EDGES,
        MATCH=match, ACC=accumulator(other), num_warps=4,
    )  # fmt: skip
    return out
