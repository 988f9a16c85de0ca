"""The gradient of the attention of all heads in Triton; see :mod:`graphdiffusion.ops.triton.attention`."""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...pattern import Pattern
from .attention_edges import edges_of, groups_of, launch_groups, place, vectors
from .launch import member_stride, rows_in_place
from .plan import plan
from .pointwise import activate, squareplus, squareplus_slope
from .segments import join

TILE = 256  # numbers of v that a program holds at once
WARPS = 1


@triton.jit
def _share(s, m, z, at, ok, weight, KIND: tl.constexpr, HAS_WEIGHT: tl.constexpr, ACC: tl.constexpr):
    """``w φ(s) / Σ w φ(s)`` of each head, 0 where there is no edge."""
    a = tl.exp(s - m) / z if KIND == "softmax" else squareplus(s) / z
    if HAS_WEIGHT:
        w = tl.load(weight + at, mask=ok, other=0.0).to(ACC)[:, :, None]
        a = tl.where(w == 0, 0.0, w * a)
    return tl.where(ok[:, :, None], a, 0.0)


@triton.jit
def _descend(
    block, first_item, last_item, d_u, partial_d_u, flow, partial_flow, total, peak, u, v, weight, p,
    node_of, start_of, length_of, index, edge, d_member, d_row, partial_d_member, total_member,
    partial_member, u_member, u_head, u_row, v_member, v_head, v_row, weight_member, p_member, num_split,
    member, H: tl.constexpr, DK: tl.constexpr, HEADS: tl.constexpr, WIDTH: tl.constexpr,
    GROUPS: tl.constexpr, EDGES: tl.constexpr, ACTIVATION: tl.constexpr, SLOPE: tl.constexpr,
    KIND: tl.constexpr, HAS_WEIGHT: tl.constexpr, PERMUTED: tl.constexpr, GROUPED: tl.constexpr,
    KNOWN: tl.constexpr, WIDE: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Gradient of the own vectors.

    GROUPED: the normaliser sums over the edges of the own node. Unless it is KNOWN, ``t = Σ a p/h`` is
    found on the way and taken off at the end: ``Σ ds v = Σ (slope p/h) v - t Σ slope v``. The slope of exp
    knows no bound, and the difference of these sums would be noise: there t is found first. If not GROUPED,
    t is read, with the statistics, at the other end.
    """
    item, node, start, length, live, cut, whole = groups_of(
        block, first_item, last_item, num_split, node_of, start_of, length_of, GROUPS
    )
    longest = tl.max(length, axis=0)
    head = tl.arange(0, HEADS)
    c = tl.arange(0, WIDTH)
    v += member * v_member
    weight += member * weight_member
    p += member * p_member
    total += member * total_member
    peak += member * total_member
    flow += member * total_member
    own = vectors(u + member * u_member, node[:, None], live[:, None], head, c, u_head, u_row, H, DK, WIDE)
    own = own.to(ACC)
    h_ok = head < H
    at_own = node[:, None] * H + head[None, :]
    own_ok = live[:, None] & h_ok[None, :]
    if GROUPED:
        z = tl.load(total + at_own, mask=own_ok, other=1.0)[:, None, :]
        m = tl.zeros([GROUPS, 1, HEADS], ACC)
        if KIND == "softmax":
            m = tl.load(peak + at_own, mask=own_ok, other=0.0)[:, None, :]
        t = tl.zeros([GROUPS, HEADS], ACC)
        sums = tl.zeros([GROUPS, EDGES, HEADS], ACC)
        base = tl.zeros([GROUPS, EDGES, HEADS, WIDTH], ACC)
        if KNOWN:
            t = tl.load(flow + at_own, mask=own_ok, other=0.0)
        elif ACTIVATION == "exp":
            for first in range(0, longest, EDGES):
                ok, at, _, _, raw = edges_of(
                    first, own, v, start, length, live, index, edge, head, c,
                    v_head, v_row, H, DK, EDGES, PERMUTED, WIDE, ACC,
                )  # fmt: skip
                a = _share(tl.exp(raw), m, z, at, ok, weight, KIND, HAS_WEIGHT, ACC)
                sums += a * tl.load(p + at, mask=ok, other=0.0)[:, :, None] / H
            t = tl.sum(sums, axis=1)
    acc = tl.zeros([GROUPS, EDGES, HEADS, WIDTH], ACC)
    for first in range(0, longest, EDGES):
        ok, at, j, v_j, raw = edges_of(
            first, own, v, start, length, live, index, edge, head, c,
            v_head, v_row, H, DK, EDGES, PERMUTED, WIDE, ACC,
        )  # fmt: skip
        s = activate(raw, ACTIVATION, SLOPE)
        if GROUPED:
            z_e, m_e = z, m
        else:
            at_other = j.to(tl.int64)[:, :, None] * H + head[None, None, :]
            other_ok = ok[:, :, None] & h_ok[None, None, :]
            z_e = tl.load(total + at_other, mask=other_ok, other=1.0)
            m_e = tl.zeros([GROUPS, EDGES, HEADS], ACC)
            if KIND == "softmax":
                m_e = tl.load(peak + at_other, mask=other_ok, other=0.0)
        a = _share(s, m_e, z_e, at, ok, weight, KIND, HAS_WEIGHT, ACC)
        slope = a  # of the mean attention in the raw score, but for (p - Σ a p) / h
        if KIND == "squareplus":
            slope = slope * squareplus_slope(s)
        if ACTIVATION == "leaky_relu":
            slope = tl.where(raw > 0, slope, SLOPE * slope)
        elif ACTIVATION == "exp":
            slope = slope * s
        p_e = tl.load(p + at, mask=ok, other=0.0)[:, :, None] / H
        if not GROUPED:
            p_e -= tl.load(flow + at_other, mask=other_ok, other=0.0)
        elif KNOWN or ACTIVATION == "exp":
            p_e -= t[:, None, :]
        else:
            sums += a * p_e
            base += slope[:, :, :, None] * v_j
        acc += (slope * p_e)[:, :, :, None] * v_j
    result = tl.sum(acc, axis=1)
    writes = live
    if GROUPED and not KNOWN:
        if ACTIVATION != "exp":
            t = tl.sum(sums, axis=1)
            result -= t[:, :, None] * tl.sum(base, axis=1)
        tl.store(flow + at_own, t, mask=whole[:, None] & h_ok[None, :])
        at_slot = member * partial_member + item.to(tl.int64)[:, None] * H + head[None, :]
        tl.store(partial_flow + at_slot, t, mask=cut[:, None] & h_ok[None, :])
        writes = whole
    inside = h_ok[:, None] & (c < DK)[None, :]
    offset = (head[:, None] * DK + c[None, :])[None, :, :]
    at_node = member * d_member + node[:, None, None] * d_row + offset
    tl.store(d_u + at_node, result, mask=(writes & whole)[:, None, None] & inside[None, :, :])
    at_slot = member * partial_d_member + item.to(tl.int64)[:, None, None] * (H * DK) + offset
    tl.store(partial_d_u + at_slot, result, mask=(writes & cut)[:, None, None] & inside[None, :, :])


@triton.jit(do_not_specialize=["num_split", "num_long", "num_items", "blocks"])
def _descend_kernel(
    d_u, partial_d_u, flow, partial_flow, total, peak, u, v, weight, p, node_of, start_of, length_of, index,
    edge, d_member, d_row, partial_d_member, total_member, partial_member, u_member, u_head, u_row,
    v_member, v_head, v_row, weight_member, p_member, num_split, num_long, num_items, blocks,
    H: tl.constexpr, DK: tl.constexpr, HEADS: tl.constexpr, WIDTH: tl.constexpr, GROUPS: tl.constexpr,
    LONG_GROUPS: tl.constexpr, LONG_EDGES: tl.constexpr, ACTIVATION: tl.constexpr, SLOPE: tl.constexpr,
    KIND: tl.constexpr, HAS_WEIGHT: tl.constexpr, PERMUTED: tl.constexpr, GROUPED: tl.constexpr,
    KNOWN: tl.constexpr, WIDE: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    member, block, long_blocks = place(blocks, num_long, LONG_GROUPS)
    if block < long_blocks:
        _descend(
            block, 0, num_long, d_u, partial_d_u, flow, partial_flow, total, peak, u, v, weight, p, node_of,
            start_of, length_of, index, edge, d_member, d_row, partial_d_member, total_member,
            partial_member, u_member, u_head, u_row, v_member, v_head, v_row, weight_member, p_member,
            num_split, member, H, DK, HEADS, WIDTH, LONG_GROUPS, LONG_EDGES, ACTIVATION, SLOPE, KIND,
            HAS_WEIGHT, PERMUTED, GROUPED, KNOWN, WIDE, ACC,
        )  # fmt: skip
    else:
        _descend(
            block - long_blocks, num_long, num_items, d_u, partial_d_u, flow, partial_flow, total, peak, u,
            v, weight, p, node_of, start_of, length_of, index, edge, d_member, d_row, partial_d_member,
            total_member, partial_member, u_member, u_head, u_row, v_member, v_head, v_row, weight_member,
            p_member, num_split, member, H, DK, HEADS, WIDTH, GROUPS, 1, ACTIVATION, SLOPE, KIND,
            HAS_WEIGHT, PERMUTED, GROUPED, KNOWN, WIDE, ACC,
        )  # fmt: skip


def attend_backward(
    graph: Pattern,
    q: Tensor,
    k: Tensor,
    weight: Tensor | None,
    total: Tensor,
    peak: Tensor,
    p: Tensor,
    activation: str,
    kind: str,
    over: str,
) -> tuple[Tensor, Tensor]:
    """Gradients of q and k ``(L, h, n, d_k)`` from the gradient p ``(L, E)`` of the mean attention.

    With :math:`s' = \\mathrm{act}(s)`, :math:`r = \\varphi'/\\varphi` and sums over the group of an edge,
    :math:`ds = \\mathrm{act}'(s)\\, r(s')\\, a\\, (p/h - \\sum a\\,p/h)`, :math:`dq_i = \\sum_j ds\\,k_j`,
    :math:`dk_j = \\sum_i ds\\,q_i`.
    """
    q, k, p = rows_in_place(q), rows_in_place(k), rows_in_place(p)
    total = total.contiguous()  # its strides are those of flow
    flow = torch.empty_like(total)
    peak = peak.contiguous() if kind == "softmax" else total  # else not read
    weights = p if weight is None else rows_in_place(weight)
    members, h, n, dk = q.shape

    # side by side, as the linear map that made q and k laid them out
    d_q, d_k = torch.empty(members, n, 2 * h * dk, dtype=q.dtype, device=q.device).chunk(2, -1)
    sides = [(q, k, "rows", d_q), (k, q, "columns", d_k)]
    # The side of the normaliser goes first: it finds the sums that the other side reads.
    for u, v, side, d_u in sides if over == "rows" else sides[::-1]:
        work, grouped = plan(graph, side), side == over
        partial_d_u = torch.empty(members, work.num_split, h * dk, dtype=total.dtype, device=u.device)
        partial_flow = torch.empty(members, work.num_split, h, dtype=total.dtype, device=u.device)
        args = (
            d_u, partial_d_u, flow, partial_flow, total, peak, u, v, weights, p, *work.tensors,
            member_stride(d_u), d_u.stride(1), member_stride(partial_d_u), member_stride(total),
            member_stride(partial_flow), member_stride(u), *u.stride()[1:3], member_stride(v),
            *v.stride()[1:3], member_stride(weights), member_stride(p),
        )  # fmt: skip
        how: dict[str, Any] = {
            "ACTIVATION": activation, "KIND": kind, "HAS_WEIGHT": weight is not None, "GROUPED": grouped,
        }  # fmt: skip
        launch_groups(_descend_kernel, work, TILE, WARPS, u, v, args, **how)
        if work.num_cut:
            if grouped:
                join(work, flow, partial_flow)
                launch_groups(_descend_kernel, work, TILE, WARPS, u, v, args, known=True, **how)
            join(work, d_u, partial_d_u)
    d_q, d_k = (d.view(members, n, h, dk).transpose(1, 2) for d in (d_q, d_k))
    return d_q, d_k
