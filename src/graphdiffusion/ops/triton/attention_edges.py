"""The edges of a block of groups, with their vectors: shared by the attention and its gradient."""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from ..torch.pointwise import LEAKY_SLOPE
from .launch import accumulator, is_wide, launch, pieces, power_of_2
from .plan import Plan

LONG_EDGES = 8  # edges of a long group taken together


@triton.jit
def vectors(v, j, ok, head, c, v_head, v_row, H: tl.constexpr, DK: tl.constexpr, WIDE: tl.constexpr):
    """Vectors ``(groups, edges, heads, d_k)`` of the nodes j ``(groups, edges)``."""
    if WIDE:
        j = j.to(tl.int64)
    inside = (head < H)[:, None] & (c < DK)[None, :]
    offset = head[:, None] * v_head + c[None, :]
    at = j[:, :, None, None] * v_row + offset[None, None, :, :]
    return tl.load(v + at, mask=ok[:, :, None, None] & inside[None, None, :, :], other=0.0)


@triton.jit
def edges_of(
    e, own, v, start, length, taken, index, edge, head, c, v_head, v_row, H: tl.constexpr, DK: tl.constexpr,
    EDGES: tl.constexpr, PERMUTED: tl.constexpr, WIDE: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Edges e to e + EDGES of the groups taken: which there are, their places, other ends, v and ⟨u, v⟩."""
    lane = e + tl.arange(0, EDGES)[None, :]
    ok = (lane < length[:, None]) & taken[:, None]
    at = start[:, None] + lane
    j = tl.load(index + at, mask=ok, other=0)
    if PERMUTED:
        at = tl.load(edge + at, mask=ok, other=0)
    v_j = vectors(v, j, ok, head, c, v_head, v_row, H, DK, WIDE).to(ACC)
    return ok, at, j, v_j, tl.sum(own * v_j, axis=3)


@triton.jit
def place(blocks, num_long, LONG_GROUPS: tl.constexpr):
    """Member and block of this program, and the number of blocks of long groups, which come first."""
    pid = tl.program_id(0)
    return (pid // blocks).to(tl.int64), pid % blocks, (num_long + LONG_GROUPS - 1) // LONG_GROUPS


@triton.jit
def groups_of(block, first_item, last_item, num_split, node_of, start_of, length_of, GROUPS: tl.constexpr):
    """The groups of a block: items, nodes, first edges, lengths; which are there, are pieces, are whole."""
    item = first_item + block * GROUPS + tl.arange(0, GROUPS)
    live = item < last_item
    node = tl.load(node_of + item, mask=live, other=0).to(tl.int64)
    start = tl.load(start_of + item, mask=live, other=0)
    length = tl.load(length_of + item, mask=live, other=0)
    return item, node, start, length, live, live & (item < num_split), live & (item >= num_split)


def launch_groups(
    kernel: Any, work: Plan, tile: int, warps: int, u: Tensor, v: Tensor, args: Sequence[Any],
    known: bool = False, **meta: Any,
) -> None:  # fmt: skip
    """Run an attention kernel on all groups, or again on those that were cut, whose sums are then known.

    u, v ``(L, h, n, d_k)`` are the own and the other vectors; a program holds ``tile`` numbers of v.
    """
    members, h, _, dk = u.shape
    heads, width = power_of_2(h), power_of_2(dk)
    taken = max(tile // (heads * width), 1)
    edges = min(LONG_EDGES, taken)
    num_long, num_items = (work.num_split, work.num_split) if known else (work.num_long, work.num_items)
    blocks = pieces(num_long, taken // edges) + pieces(num_items - num_long, taken)
    launch(
        kernel, blocks * members, u, *args, work.num_split, num_long, num_items, blocks, H=h, DK=dk,
        HEADS=heads, WIDTH=width, GROUPS=taken, LONG_GROUPS=taken // edges, LONG_EDGES=edges,
        SLOPE=LEAKY_SLOPE, PERMUTED=work.edge is not None, KNOWN=known, WIDE=is_wide(u, v),
        ACC=accumulator(u), num_warps=warps, **meta,
    )  # fmt: skip
