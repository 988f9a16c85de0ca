"""What all Triton kernels share: launching, types, tile widths, adding up the pieces of a row."""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from .triton_plan import Plan

_ACCUMULATE = {torch.float64: tl.float64, torch.float32: tl.float32, torch.bfloat16: tl.float32}
_STATISTIC = {torch.float64: torch.float64, torch.float32: torch.float32, torch.bfloat16: torch.float32}


def accumulator(tensor: Tensor) -> tl.dtype:
    """The type a kernel computes in: float64 for float64, else float32."""
    return _ACCUMULATE[tensor.dtype]


def statistic(tensor: Tensor) -> torch.dtype:
    """The torch type of edge fields and statistics made from this tensor."""
    return _STATISTIC[tensor.dtype]


# What triton.cdiv and triton.next_power_of_2 give, in a tenth of the time: launches wait for them.


def pieces(size: int, each: int) -> int:
    """How many pieces of a size there are."""
    return -(-size // each)


def power_of_2(size: int) -> int:
    """The smallest power of two that is not less."""
    return 1 << (size - 1).bit_length()


def launch(kernel: Any, programs: int, tensor: Tensor, *args: Any, **meta: Any) -> None:
    """Run ``programs`` programs of a kernel on the device of ``tensor``; none is not an error."""
    if programs == 0:
        return
    elsewhere = tensor.is_cuda and tensor.device.index != torch.cuda.current_device()
    with torch.cuda.device(tensor.device) if elsewhere else nullcontext():
        kernel[(programs,)](*args, **meta)


def rows_in_place(x: Tensor) -> Tensor:
    """A tensor whose last dimension is contiguous: x itself where it is so already."""
    return x if x.stride(-1) == 1 or x.shape[-1] == 1 else x.contiguous()


def member_stride(x: Tensor) -> int:
    """Numbers from one member to the next; 0 for a single one, whatever torch calls its stride.

    Kernels are compiled for strides that 16 divides and for others. A member alone then gets the kernel
    that it gets in a population.
    """
    return 0 if x.shape[0] == 1 else x.stride(0)


def is_wide(*tensors: Tensor) -> bool:
    """True if an offset inside one member may not fit in 32 bits."""
    return any(
        sum((size - 1) * stride for size, stride in zip(t.shape[1:], t.stride()[1:], strict=True)) >= 2**31
        for t in tensors
    )


def tile_width(d: int, most: int) -> int:
    """A power of two, at most ``most``: the largest that pads ``d`` by an eighth or less, else 16."""
    if d < 16:
        return power_of_2(d)
    width = most
    while width > 16 and pieces(d, width) * width * 8 > d * 9:
        width //= 2
    return width


@triton.jit
def _combine_kernel(
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


def combine(
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
        _combine_kernel,
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
