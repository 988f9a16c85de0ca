"""The sparse product in Triton: ``A x``."""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from dataclasses import dataclass

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
    power_of_2,
    rows_in_place,
    statistic,
)
from .plan import plan
from .segments import join


@dataclass(frozen=True)
class SpmmTiling:
    """How a product is cut up. A program multiplies a block of rows and a tile of columns of one member."""

    width: int  # columns of x in a tile
    rows: int  # short rows taken together; long rows take rows / edges at a time
    edges: int = 16  # edges of a long row taken together
    warps: int = 4


def spmm_tiling(d: int) -> SpmmTiling:
    """Tiling for a width, the best of a sweep on an H200 (``benchmarks/sweep.py``).

    The number of members decides nothing: a member alone and a member of a population are added up
    in the same order.
    """
    if d % 128 == 0:
        return SpmmTiling(128, rows=4, edges=4)
    width = min(power_of_2(d), 32)
    return SpmmTiling(width, rows=1024 // width)


@triton.jit
def _store_rows(
    acc, out, z, row, c, ok, scale, z_row, D: tl.constexpr, ADD: tl.constexpr, ACC: tl.constexpr
):
    row = row.to(tl.int64)
    if ADD != "nothing":
        acc += scale * tl.load(z + row[:, None] * z_row + c[None, :], mask=ok, other=0.0).to(ACC)
    tl.store(out + row[:, None] * D + c[None, :], acc, mask=ok)


@triton.jit
def _long_rows(
    block,
    out,
    partial,
    values,
    x,
    z,
    node_of,
    start_of,
    length_of,
    index,
    c,
    scale,
    x_row,
    z_row,
    num_split,
    num_long,
    D: tl.constexpr,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    EDGES: tl.constexpr,
    ADD: tl.constexpr,
    WIDE: tl.constexpr,
    ACC: tl.constexpr,
):
    """A few rows, many edges of each at once; the lanes are added up at the end."""
    item = block * ROWS + tl.arange(0, ROWS)
    live = item < num_long
    start = tl.load(start_of + item, mask=live, other=0)
    length = tl.load(length_of + item, mask=live, other=0)
    lane = tl.arange(0, EDGES)
    c_ok = c < D
    lanes = tl.zeros([ROWS, EDGES, WIDTH], ACC)
    for e in range(0, tl.max(length, axis=0), EDGES):
        ok = (e + lane)[None, :] < length[:, None]
        at = start[:, None] + (e + lane)[None, :]
        j = tl.load(index + at, mask=ok, other=0)
        a = tl.load(values + at, mask=ok, other=0.0).to(ACC)
        if WIDE:
            j = j.to(tl.int64)
        x_ok = ok[:, :, None] & c_ok[None, None, :]
        x_j = tl.load(x + j[:, :, None] * x_row + c[None, None, :], mask=x_ok, other=0.0)
        lanes += a[:, :, None] * x_j.to(ACC)
    acc = tl.sum(lanes, axis=1)
    cut = item < num_split
    ok = (live & cut)[:, None] & c_ok[None, :]
    tl.store(partial + item.to(tl.int64)[:, None] * D + c[None, :], acc, mask=ok)
    row = tl.load(node_of + item, mask=live, other=0)
    ok = (live & (item >= num_split))[:, None] & c_ok[None, :]
    _store_rows(acc, out, z, row, c, ok, scale, z_row, D, ADD, ACC)


@triton.jit
def _edges(
    acc, e, values, x, start, length, index, c, x_row, D: tl.constexpr, COUNT: tl.constexpr,
    WIDE: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """The next COUNT edges of many rows, their loads in flight together."""
    for u in tl.static_range(COUNT):
        ok = e + u < length
        at = start + e + u
        j = tl.load(index + at, mask=ok, other=0)
        a = tl.load(values + at, mask=ok, other=0.0).to(ACC)
        if WIDE:
            j = j.to(tl.int64)
        x_ok = ok[:, None] & (c < D)[None, :]
        x_j = tl.load(x + j[:, None] * x_row + c[None, :], mask=x_ok, other=0.0)
        acc += a[:, None] * x_j.to(ACC)
    return acc


@triton.jit
def _short_rows(
    first, out, values, x, z, node_of, start_of, length_of, index, c, scale, x_row, z_row, num_items,
    D: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr, ADD: tl.constexpr, WIDE: tl.constexpr,
    ACC: tl.constexpr,
):  # fmt: skip
    """Many rows, walked four edges at a time, and the last one to three together."""
    item = first + tl.arange(0, ROWS)
    live = item < num_items
    start = tl.load(start_of + item, mask=live, other=0)
    length = tl.load(length_of + item, mask=live, other=0)
    longest = tl.load(length_of + first)  # the first row
    acc = tl.zeros([ROWS, WIDTH], ACC)
    for e in range(0, longest - 3, 4):
        acc = _edges(acc, e, values, x, start, length, index, c, x_row, D, 4, WIDE, ACC)
    left = longest % 4
    if left == 1:
        acc = _edges(acc, longest - 1, values, x, start, length, index, c, x_row, D, 1, WIDE, ACC)
    elif left == 2:
        acc = _edges(acc, longest - 2, values, x, start, length, index, c, x_row, D, 2, WIDE, ACC)
    elif left == 3:
        acc = _edges(acc, longest - 3, values, x, start, length, index, c, x_row, D, 3, WIDE, ACC)
    row = tl.load(node_of + item, mask=live, other=0)
    _store_rows(acc, out, z, row, c, live[:, None] & (c < D)[None, :], scale, z_row, D, ADD, ACC)


@triton.jit(do_not_specialize=["blocks", "num_split", "num_long", "num_items"])
def _spmm_kernel(
    out,
    partial,
    values,
    x,
    coefficient,
    z,
    node_of,
    start_of,
    length_of,
    index,
    out_member,
    partial_member,
    values_member,
    x_member,
    x_row,
    z_member,
    z_row,
    blocks,
    num_split,
    num_long,
    num_items,
    D: tl.constexpr,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    LONG_ROWS: tl.constexpr,
    EDGES: tl.constexpr,
    ADD: tl.constexpr,
    WIDE: tl.constexpr,
    ACC: tl.constexpr,
):
    # Programs of one tile of one member stand side by side: what they read together stays in cache.
    pid = tl.program_id(0)
    tiles: tl.constexpr = (D + WIDTH - 1) // WIDTH
    block = pid % blocks
    tile = (pid // blocks) % tiles
    member = (pid // blocks // tiles).to(tl.int64)
    values += member * values_member
    x += member * x_member
    out += member * out_member
    z += member * z_member
    partial += member * partial_member
    scale = tl.load(coefficient + member).to(ACC) if ADD == "scaled" else tl.full([], -1.0, ACC)
    c = tile * WIDTH + tl.arange(0, WIDTH)
    long_blocks = (num_long + LONG_ROWS - 1) // LONG_ROWS
    if block < long_blocks:
        _long_rows(
            block,
            out,
            partial,
            values,
            x,
            z,
            node_of,
            start_of,
            length_of,
            index,
            c,
            scale,
            x_row,
            z_row,
            num_split,
            num_long,
            D,
            WIDTH,
            LONG_ROWS,
            EDGES,
            ADD,
            WIDE,
            ACC,
        )
    else:
        _short_rows(
            num_long + (block - long_blocks) * ROWS,
            out,
            values,
            x,
            z,
            node_of,
            start_of,
            length_of,
            index,
            c,
            scale,
            x_row,
            z_row,
            num_items,
            D,
            WIDTH,
            ROWS,
            ADD,
            WIDE,
            ACC,
        )


def spmm(
    graph: Pattern,
    values: Tensor,
    x: Tensor,
    add: tuple[Tensor, Tensor] | None = None,
    *,
    minus: Tensor | None = None,
    tiling: SpmmTiling | None = None,
) -> Tensor:
    """``A x``, plus ``c z`` if ``add = (c, z)`` is given, less ``minus``.

    values ``(L, E)``, x ``(L, cols, d)``, c ``(L,)``, z, minus and the result ``(L, rows, d)``, in the
    type of x.
    """
    members, _, d = x.shape
    work = plan(graph, "rows")
    how = tiling or spmm_tiling(d)
    x, values = rows_in_place(x), rows_in_place(values)
    coefficient, z = add if add is not None else (None, minus)
    mode = "scaled" if add is not None else "nothing" if minus is None else "minus"
    z = x if z is None else rows_in_place(z)
    out = torch.empty(members, graph.rows, d, dtype=x.dtype, device=x.device)
    partial = torch.empty(members, work.num_split, d, dtype=statistic(x), device=x.device)
    long_rows = max(how.rows // how.edges, 1)
    blocks = pieces(work.num_long, long_rows) + pieces(work.num_items - work.num_long, how.rows)
    launch(
        _spmm_kernel, blocks * pieces(d, how.width) * members, x, out, partial, values, x,
        x if coefficient is None else coefficient, z, *work.tensors[:4], member_stride(out),
        member_stride(partial), member_stride(values), member_stride(x), x.stride(1), member_stride(z),
        z.stride(1), blocks, work.num_split, work.num_long, work.num_items, D=d, WIDTH=how.width,
        ROWS=how.rows, LONG_ROWS=long_rows, EDGES=how.edges,
        ADD=mode, WIDE=is_wide(x), ACC=accumulator(x), num_warps=how.warps,
    )  # fmt: skip
    join(work, out, partial, add=mode, coefficient=coefficient, z=z)
    return out
