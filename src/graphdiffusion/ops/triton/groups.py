"""Sums and maxima of edge fields over rows or columns in Triton, and node values on their edges."""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...pattern import Pattern
from .launch import accumulator, launch, member_stride, pieces, rows_in_place
from .plan import Plan, plan
from .pointwise import squareplus
from .segments import join

SHORT_TILE = (64, 8)  # (groups, edges of each) taken together
LONG_TILE = (4, 128)
EDGE_BLOCK = 1024


@triton.jit(do_not_specialize=["first_item", "last_item", "num_split", "blocks"])
def _reduce_kernel(
    total,
    peak,
    partial,
    partial_peak,
    values,
    other,
    node_of,
    start_of,
    length_of,
    edge,
    total_member,
    partial_member,
    values_member,
    other_member,
    first_item,
    last_item,
    num_split,
    blocks,
    GROUPS: tl.constexpr,
    EDGES: tl.constexpr,
    MODE: tl.constexpr,
    HAS_OTHER: tl.constexpr,
    PERMUTED: tl.constexpr,
    ACC: tl.constexpr,
):
    pid = tl.program_id(0)
    member = (pid // blocks).to(tl.int64)
    item = first_item + (pid % blocks) * GROUPS + tl.arange(0, GROUPS)
    live = item < last_item
    node = tl.load(node_of + item, mask=live, other=0).to(tl.int64)
    start = tl.load(start_of + item, mask=live, other=0)
    length = tl.load(length_of + item, mask=live, other=0)
    values += member * values_member
    other += member * other_member
    lane = tl.arange(0, EDGES)
    top = tl.full([GROUPS, EDGES], float("-inf"), ACC)
    acc = tl.zeros([GROUPS, EDGES], ACC)
    for e in range(0, tl.max(length, axis=0), EDGES):
        ok = (e + lane)[None, :] < length[:, None]
        at = start[:, None] + (e + lane)[None, :]
        if PERMUTED:
            at = tl.load(edge + at, mask=ok, other=0)
        v = tl.load(values + at, mask=ok, other=0.0)
        w = tl.load(other + at, mask=ok, other=0.0) if HAS_OTHER else tl.where(ok, 1.0, 0.0).to(ACC)
        if MODE == "sum":
            acc += v * w
        elif MODE == "max":
            top = tl.maximum(top, tl.where(ok, v, float("-inf")))
        elif MODE == "squareplus":
            acc += squareplus(v) * w
        else:
            v = tl.where(w == 0, float("-inf"), v)  # an edge of weight 0 must not be the largest
            new = tl.maximum(top, v)
            safe = tl.where(new == float("-inf"), 0.0, new)
            acc = acc * tl.exp(top - safe) + w * tl.exp(v - safe)
            top = new
    cut = live & (item < num_split)
    whole = live & (item >= num_split)
    at_node = member * total_member + node
    at_slot = member * partial_member + item
    if MODE == "max":
        result = tl.max(top, axis=1)
    elif MODE == "softmax":
        largest = tl.max(top, axis=1)
        safe = tl.where(largest == float("-inf"), 0.0, largest)
        result = tl.sum(acc * tl.exp(top - safe[:, None]), axis=1)
        tl.store(peak + at_node, largest, mask=whole)
        tl.store(partial_peak + at_slot, largest, mask=cut)
    else:
        result = tl.sum(acc, axis=1)
    tl.store(total + at_node, result, mask=whole)
    tl.store(partial + at_slot, result, mask=cut)


def reduce(
    graph: Pattern, values: Tensor, other: Tensor | None, mode: str, over: str
) -> tuple[Tensor, Tensor]:
    """``Σ v w`` (``"sum"``), ``Σ w φ(v)``, or largest v of each group → total and peak ``(L, n)``."""
    work, members = plan(graph, over), values.shape[0]
    values = rows_in_place(values)
    weight = values if other is None else rows_in_place(other)
    total = values.new_empty(members, graph.rows if over == "rows" else graph.cols)
    partial = values.new_empty(members, work.num_split)
    # Only softmax has both a sum and a maximum.
    peak = torch.empty_like(total) if mode == "softmax" else total
    partial_peak = torch.empty_like(partial) if mode == "softmax" else partial
    for (groups, edges), first, last in _halves(work):
        blocks = pieces(last - first, groups)
        launch(
            _reduce_kernel,
            blocks * members,
            values,
            total,
            peak,
            partial,
            partial_peak,
            values,
            weight,
            work.node,
            work.start,
            work.length,
            work.index if work.edge is None else work.edge,
            member_stride(total),
            member_stride(partial),
            member_stride(values),
            member_stride(weight),
            first,
            last,
            work.num_split,
            blocks,
            GROUPS=groups,
            EDGES=edges,
            MODE=mode,
            HAS_OTHER=other is not None,
            PERMUTED=work.edge is not None,
            ACC=accumulator(values),
            num_warps=4,
        )
    join(
        work,
        total.unsqueeze(-1),
        partial.unsqueeze(-1),
        mode=mode if mode in ("max", "softmax") else "sum",
        peaks=(peak, partial_peak),
    )
    return total, peak


def _halves(work: Plan) -> tuple[tuple[tuple[int, int], int, int], ...]:
    return (LONG_TILE, 0, work.num_long), (SHORT_TILE, work.num_long, work.num_items)


def group_sum(graph: Pattern, values: Tensor, over: str) -> Tensor:
    """Sum of the edge field ``(L, E)`` over each row or column → ``(L, n)``."""
    return reduce(graph, values, None, "sum", over)[0]


def group_max(graph: Pattern, values: Tensor, over: str) -> Tensor:
    """Largest entry of the edge field ``(L, E)`` in each row or column → ``(L, n)``."""
    return reduce(graph, values, None, "max", over)[0]


@triton.jit(do_not_specialize=["num_edges", "blocks"])
def _spread_kernel(out, nodes, group, nodes_member, out_member, num_edges, blocks, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    member = (pid // blocks).to(tl.int64)
    e = (pid % blocks) * BLOCK + tl.arange(0, BLOCK)
    ok = e < num_edges
    g = tl.load(group + e, mask=ok, other=0)
    tl.store(out + member * out_member + e, tl.load(nodes + member * nodes_member + g, mask=ok), mask=ok)


def spread(graph: Pattern, nodes: Tensor, over: str) -> Tensor:
    """Value of the row or column of each edge: ``(L, n)`` → ``(L, E)``."""
    members = nodes.shape[0]
    nodes = rows_in_place(nodes)
    out = nodes.new_empty(members, graph.num_edges)
    blocks = pieces(graph.num_edges, EDGE_BLOCK)
    launch(
        _spread_kernel,
        blocks * members,
        nodes,
        out,
        nodes,
        graph.row if over == "rows" else graph.col,
        member_stride(nodes),
        member_stride(out),
        graph.num_edges,
        blocks,
        BLOCK=EDGE_BLOCK,
        num_warps=4,
    )
    return out
