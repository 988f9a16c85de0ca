"""The segments of a row or column that was cut, put together in a fixed order."""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from .launch import accumulator, launch, member_stride, pieces, power_of_2
from .plan import Plan


@triton.jit
def _join_kernel(
    out,
    peak,
    partial,
    partial_peak,
    split_node,
    split_slot,
    coefficient,
    z,
    out_member,
    out_row,
    partial_member,
    z_member,
    z_row,
    groups,
    tiles,
    D: tl.constexpr,
    WIDTH: tl.constexpr,
    SLOTS: tl.constexpr,
    MODE: tl.constexpr,
    ADD: tl.constexpr,
    ACC: tl.constexpr,
):
    pid = tl.program_id(0)
    group = pid % groups
    tile = (pid // groups) % tiles
    member = (pid // groups // tiles).to(tl.int64)
    node = tl.load(split_node + group).to(tl.int64)
    first = tl.load(split_slot + group)
    last = tl.load(split_slot + group + 1)
    c = tile * WIDTH + tl.arange(0, WIDTH)
    c_ok = c < D
    slots = tl.arange(0, SLOTS)
    partial += member * partial_member
    partial_peak += member * partial_member
    out += member * out_member + node * out_row
    top = tl.full([SLOTS, WIDTH], float("-inf"), ACC)
    acc = tl.zeros([SLOTS, WIDTH], ACC)
    for s in range(first, last, SLOTS):
        slot = s + slots
        ok = (slot < last)[:, None] & c_ok[None, :]
        at = slot.to(tl.int64)[:, None] * D + c[None, :]
        if MODE == "sum":
            acc += tl.load(partial + at, mask=ok, other=0.0).to(ACC)
        elif MODE == "max":
            top = tl.maximum(top, tl.load(partial + at, mask=ok, other=float("-inf")))
        else:
            m = tl.load(partial_peak + at, mask=ok, other=float("-inf"))
            new = tl.maximum(top, m)
            safe = tl.where(new == float("-inf"), 0.0, new)  # no edge of positive weight so far
            acc = acc * tl.exp(top - safe) + tl.load(partial + at, mask=ok, other=0.0) * tl.exp(m - safe)
            top = new
    if MODE == "max":
        total = tl.max(top, axis=0)
    elif MODE == "softmax":
        largest = tl.max(top, axis=0)
        safe = tl.where(largest == float("-inf"), 0.0, largest)
        total = tl.sum(acc * tl.exp(top - safe[None, :]), axis=0)
        tl.store(peak + member * out_member + node * out_row + c, largest, mask=c_ok)
    else:
        total = tl.sum(acc, axis=0)
    if ADD != "nothing":
        own = tl.load(z + member * z_member + node * z_row + c, mask=c_ok, other=0.0).to(ACC)
        if ADD == "scaled":
            total += tl.load(coefficient + member).to(ACC) * own
        else:
            total -= own
    tl.store(out + c, total, mask=c_ok)


def join(
    work: Plan,
    out: Tensor,
    partial: Tensor,
    mode: str = "sum",
    peaks: tuple[Tensor, Tensor] | None = None,
    add: str = "nothing",
    coefficient: Tensor | None = None,
    z: Tensor | None = None,
) -> None:
    """Put the pieces of cut groups together: partial ``(L, num_split, d)`` → rows of out ``(L, n, d)``.

    ``mode`` is ``"sum"``, ``"max"`` or ``"softmax"`` (sums of exponentials relative to the maxima in
    ``peaks = (out, partial)``). ``add`` is ``"nothing"``, ``"scaled"`` (plus ``c z``) or ``"minus"`` (less
    z).
    """
    members, _, d = partial.shape
    width = min(power_of_2(d), 128)
    tiles = pieces(d, width)
    peak, partial_peak = peaks if peaks is not None else (out, partial)
    z = out if z is None else z
    launch(
        _join_kernel,
        work.num_cut * tiles * members,
        out,
        out,
        peak,
        partial,
        partial_peak,
        work.split_node,
        work.split_slot,
        out if coefficient is None else coefficient,
        z,
        member_stride(out),
        out.stride(1),
        member_stride(partial),
        member_stride(z),
        z.stride(1),
        work.num_cut,
        tiles,
        D=d,
        WIDTH=width,
        SLOTS=16,
        MODE=mode,
        ADD=add,
        ACC=accumulator(partial),
        num_warps=4,
    )
