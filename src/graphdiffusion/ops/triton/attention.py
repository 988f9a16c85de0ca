r"""The attention of all heads and its gradient in Triton, without a field of E × heads in memory.

Both sides of an edge look alike: :math:`s = \langle q_i, k_j\rangle`. A kernel here walks the edges of its
*own* nodes, with vectors u, and reads the vectors v of the *other* end: (u, v) is (q, k) over rows and
(k, q) over columns. Scores are computed again wherever they are needed, but for the first of a group, which
stay in registers. For the gradient are kept, for each head, the maximum and the sum of each group of the
normaliser.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...pattern import Pattern
from .attention_edges import edges_of, groups_of, launch_groups, place, vectors
from .launch import member_stride, rows_in_place, statistic
from .plan import plan
from .pointwise import activate, squareplus
from .segments import join

TILE = 512  # numbers of v that a program holds at once
WARPS = 2


@triton.jit
def _scored(
    e, own, v, weight, start, length, taken, index, edge, head, c, v_head, v_row, H: tl.constexpr,
    DK: tl.constexpr, EDGES: tl.constexpr, ACTIVATION: tl.constexpr, SLOPE: tl.constexpr,
    HAS_WEIGHT: tl.constexpr, PERMUTED: tl.constexpr, WIDE: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Edges e to e + EDGES of the groups taken: which there are, their places, scores and weights."""
    ok, at, _, _, raw = edges_of(
        e, own, v, start, length, taken, index, edge, head, c, v_head, v_row, H, DK, EDGES, PERMUTED,
        WIDE, ACC,
    )  # fmt: skip
    if HAS_WEIGHT:
        w = tl.load(weight + at, mask=ok, other=0.0).to(ACC)[:, :, None]
    else:
        w = tl.where(ok, 1.0, 0.0).to(ACC)[:, :, None]
    return ok, at, activate(raw, ACTIVATION, SLOPE), w


@triton.jit
def _add_up(top, acc, s, w, KIND: tl.constexpr):
    """Largest score so far, and the sum of φ (relative to it, for softmax), with more edges."""
    if KIND == "softmax":
        s = tl.where(w == 0, float("-inf"), s)  # an edge of weight 0 must not be the largest
        new = tl.maximum(top, s)
        safe = tl.where(new == float("-inf"), 0.0, new)
        return new, acc * tl.exp(top - safe) + w * tl.exp(s - safe)
    return top, acc + tl.where(w == 0, 0.0, w * squareplus(s))


@triton.jit
def _write(out, ok, at, s, w, m, share, KIND: tl.constexpr):
    """The mean attention of these edges."""
    phi = tl.exp(s - m[:, None, :]) if KIND == "softmax" else squareplus(s)
    phi = tl.where(w == 0, 0.0, w * phi)
    tl.store(out + at, tl.sum(phi * share[:, None, :], axis=2), mask=ok)


@triton.jit
def _attend(
    block, first_item, last_item, out, total, peak, partial, partial_peak, u, v, weight, node_of, start_of,
    length_of, index, edge, out_member, total_member, partial_member, u_member, u_head, u_row, v_member,
    v_head, v_row, weight_member, num_split, member, H: tl.constexpr, DK: tl.constexpr, HEADS: tl.constexpr,
    WIDTH: tl.constexpr, GROUPS: tl.constexpr, EDGES: tl.constexpr, ACTIVATION: tl.constexpr,
    SLOPE: tl.constexpr, KIND: tl.constexpr, HAS_WEIGHT: tl.constexpr, PERMUTED: tl.constexpr,
    KNOWN: tl.constexpr, KEEP: tl.constexpr, WIDE: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Statistics of each group and, where the whole group is here or they are KNOWN, the mean attention."""
    item, node, start, length, live, cut, whole = groups_of(
        block, first_item, last_item, num_split, node_of, start_of, length_of, GROUPS
    )
    longest = tl.max(length, axis=0)
    head = tl.arange(0, HEADS)
    c = tl.arange(0, WIDTH)
    v += member * v_member
    weight += member * weight_member
    own = vectors(u + member * u_member, node[:, None], live[:, None], head, c, u_head, u_row, H, DK, WIDE)
    own = own.to(ACC)
    at_node = member * total_member + node[:, None] * H + head[None, :]
    at_slot = member * partial_member + item.to(tl.int64)[:, None] * H + head[None, :]
    h_ok = (head < H)[None, :]
    if KNOWN:
        z = tl.load(total + at_node, mask=live[:, None] & h_ok, other=1.0)
        if KIND == "softmax":
            m = tl.load(peak + at_node, mask=live[:, None] & h_ok, other=0.0)
        else:
            m = tl.zeros([GROUPS, HEADS], ACC)
        writes = live
    else:
        # the scores of four edges, or lots of edges, stay in registers: most groups have no more
        kept = ()  # type: Any
        for i in tl.static_range(4):
            scored = _scored(
                i * EDGES, own, v, weight, start, length, live, index, edge, head, c, v_head, v_row, H, DK,
                EDGES, ACTIVATION, SLOPE, HAS_WEIGHT, PERMUTED, WIDE, ACC,
            )  # fmt: skip
            kept += (scored,)
        top = tl.full([GROUPS, EDGES, HEADS], float("-inf"), ACC)
        acc = tl.zeros([GROUPS, EDGES, HEADS], ACC)
        for i in tl.static_range(4):
            _, _, s, w = kept[i]
            top, acc = _add_up(top, acc, s, w, KIND)
        for first in range(4 * EDGES, longest, 2 * EDGES):
            for more in tl.static_range(2):  # the loads of both in flight together
                _, _, s, w = _scored(
                    first + more * EDGES, own, v, weight, start, length, live, index, edge, head, c, v_head,
                    v_row, H, DK, EDGES, ACTIVATION, SLOPE, HAS_WEIGHT, PERMUTED, WIDE, ACC,
                )  # fmt: skip
                top, acc = _add_up(top, acc, s, w, KIND)
        if KIND == "softmax":
            m = tl.max(top, axis=1)
            m = tl.where(m == float("-inf"), 0.0, m)
            z = tl.sum(acc * tl.exp(top - m[:, None, :]), axis=1)
            if KEEP:
                tl.store(peak + at_node, m, mask=whole[:, None] & h_ok)
                # A segment whose weights are all 0 has no maximum to compare with the others'.
                least = tl.where(z == 0, float("-inf"), m)
                tl.store(partial_peak + at_slot, least, mask=cut[:, None] & h_ok)
        else:
            m = tl.zeros([GROUPS, HEADS], ACC)
            z = tl.sum(acc, axis=1)
        if KEEP:
            tl.store(total + at_node, z, mask=whole[:, None] & h_ok)
            tl.store(partial + at_slot, z, mask=cut[:, None] & h_ok)
        writes = whole
    share = tl.where(h_ok, 1.0 / (z * H), 0.0)
    out += member * out_member
    done: tl.constexpr = 0 if KNOWN else 4 * EDGES
    if not KNOWN:
        for i in tl.static_range(4):
            ok, at, s, w = kept[i]
            _write(out, ok & whole[:, None], at, s, w, m, share, KIND)
    for first in range(done, longest, 2 * EDGES):  # v is in cache by now
        for more in tl.static_range(2):
            ok, at, s, w = _scored(
                first + more * EDGES, own, v, weight, start, length, writes, index, edge, head, c, v_head,
                v_row, H, DK, EDGES, ACTIVATION, SLOPE, HAS_WEIGHT, PERMUTED, WIDE, ACC,
            )  # fmt: skip
            _write(out, ok, at, s, w, m, share, KIND)


@triton.jit(do_not_specialize=["num_split", "num_long", "num_items", "blocks"])
def _attend_kernel(
    out, total, peak, partial, partial_peak, u, v, weight, node_of, start_of, length_of, index, edge,
    out_member, total_member, partial_member, u_member, u_head, u_row, v_member, v_head, v_row,
    weight_member, num_split, num_long, num_items, blocks, H: tl.constexpr, DK: tl.constexpr,
    HEADS: tl.constexpr, WIDTH: tl.constexpr, GROUPS: tl.constexpr, LONG_GROUPS: tl.constexpr,
    LONG_EDGES: tl.constexpr, ACTIVATION: tl.constexpr, SLOPE: tl.constexpr, KIND: tl.constexpr,
    HAS_WEIGHT: tl.constexpr, PERMUTED: tl.constexpr, KNOWN: tl.constexpr, KEEP: tl.constexpr,
    WIDE: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    member, block, long_blocks = place(blocks, num_long, LONG_GROUPS)
    if block < long_blocks:
        _attend(
            block, 0, num_long, out, total, peak, partial, partial_peak, u, v, weight, node_of, start_of,
            length_of, index, edge, out_member, total_member, partial_member, u_member, u_head, u_row,
            v_member, v_head, v_row, weight_member, num_split, member, H, DK, HEADS, WIDTH, LONG_GROUPS,
            LONG_EDGES, ACTIVATION, SLOPE, KIND, HAS_WEIGHT, PERMUTED, KNOWN, KEEP, WIDE, ACC,
        )  # fmt: skip
    else:
        _attend(
            block - long_blocks, num_long, num_items, out, total, peak, partial, partial_peak, u, v, weight,
            node_of, start_of, length_of, index, edge, out_member, total_member, partial_member, u_member,
            u_head, u_row, v_member, v_head, v_row, weight_member, num_split, member, H, DK, HEADS, WIDTH,
            GROUPS, 1, ACTIVATION, SLOPE, KIND, HAS_WEIGHT, PERMUTED, KNOWN, KEEP, WIDE, ACC,
        )  # fmt: skip


def attend(
    graph: Pattern, q: Tensor, k: Tensor, weight: Tensor | None, activation: str, kind: str, over: str,
    keep: bool = True,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Mean over the heads of ``w φ(s) / Σ w φ(s)``, ``s = act(⟨q_i, k_j⟩)``.

    q, k ``(L, h, n, d_k)`` with any strides but a contiguous last dimension, weight ``(L, E)`` →
    attention ``(L, E)``, and the sums and the maxima of each group, ``(L, n, h)``. Both are empty,
    ``(L, 0, h)``, unless they are to be kept for a gradient, and the maxima for all but softmax.
    """
    u, v = (q, k) if over == "rows" else (k, q)
    u, v = rows_in_place(u), rows_in_place(v)
    members, h, n, _ = u.shape
    work = plan(graph, over)
    dtype = statistic(u)
    out = torch.empty(members, graph.num_edges, dtype=dtype, device=u.device)
    held = keep or work.num_cut > 0  # the segments of a cut group are joined there
    total = torch.empty(members, n if held else 0, h, dtype=dtype, device=u.device)
    peak = torch.empty_like(total) if kind == "softmax" else total
    partial = torch.empty(members, work.num_split, h, dtype=dtype, device=u.device)
    partial_peak = torch.empty_like(partial) if kind == "softmax" else partial
    weights = out if weight is None else rows_in_place(weight)

    args = (
        out, total, peak, partial, partial_peak, u, v, weights, *work.tensors, member_stride(out),
        member_stride(total), member_stride(partial), member_stride(u), *u.stride()[1:3],
        member_stride(v), *v.stride()[1:3], member_stride(weights),
    )  # fmt: skip
    how: dict[str, Any] = {
        "ACTIVATION": activation,
        "KIND": kind,
        "HAS_WEIGHT": weight is not None,
        "KEEP": held,
    }
    launch_groups(_attend_kernel, work, TILE, WARPS, u, v, args, **how)
    if work.num_cut:
        mode = "softmax" if kind == "softmax" else "sum"
        join(work, total, partial, mode=mode, peaks=(peak, partial_peak))
        launch_groups(_attend_kernel, work, TILE, WARPS, u, v, args, known=True, **how)
    if not keep:
        return out, total.new_empty(members, 0, h), total.new_empty(members, 0, h)
    return out, total, peak if kind == "softmax" else total.new_empty(members, 0, h)
