"""Masks of dropout in Triton."""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from .launch import launch, pieces

BLOCK, WARPS = 2048, 4


@triton.jit
def _mix(x):
    x = (x ^ (x >> 16)) * 0x7FEB352D
    x = (x ^ (x >> 15)) * 0x846CA68B
    return x ^ (x >> 16)


@triton.jit
def _dropout_kernel(out, key, rate, size, blocks, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    member = pid // blocks
    at = (pid % blocks).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    secret = tl.load(key + member)
    low = (secret & 0xFFFFFFFF).to(tl.uint32)
    high = ((secret >> 32) & 0xFFFFFFFF).to(tl.uint32)
    draw = _mix(_mix(at.to(tl.uint32) ^ low) + high) >> 8
    lost = tl.load(rate + member)
    threshold = (lost.to(tl.float64) * 16777216.0).to(tl.int32)
    factor = tl.where(draw.to(tl.int32) >= threshold, 1 / (1 - lost), 0.0)
    tl.store(out + member.to(tl.int64) * size + at, factor, mask=at < size)


def dropout(key: Tensor, rate: Tensor, size: int) -> Tensor:
    """The factors of :func:`graphdiffusion.ops.noise.dropout_scale`: key, rate ``(L,)`` → ``(L, size)``."""
    out = torch.empty(len(key), size, dtype=rate.dtype, device=key.device)
    blocks = pieces(size, BLOCK)
    launch(_dropout_kernel, blocks * len(key), out, out, key.contiguous(), rate.contiguous(), size, blocks,
           BLOCK=BLOCK, num_warps=WARPS)  # fmt: skip
    return out
