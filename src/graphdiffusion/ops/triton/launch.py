"""What all Triton kernels share: the launch, types, strides and tile widths."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
import triton.language as tl
from torch import Tensor

_ACCUMULATE = {torch.float64: tl.float64, torch.float32: tl.float32, torch.bfloat16: tl.float32}
_STATISTIC = {torch.float64: torch.float64, torch.float32: torch.float32, torch.bfloat16: torch.float32}


def accumulator(tensor: Tensor) -> tl.dtype:
    """The type a kernel computes in: float64 for float64, else float32."""
    return _ACCUMULATE[tensor.dtype]


def statistic(tensor: Tensor) -> torch.dtype:
    """The torch type of edge fields and statistics made from this tensor."""
    return _STATISTIC[tensor.dtype]


# What triton.cdiv and triton.next_power_of_2 give, in a tenth of the time: every launch needs them.


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
