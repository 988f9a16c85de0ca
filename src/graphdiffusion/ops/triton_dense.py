"""Sums over whole states in Triton: linear combinations in one pass, inner products of members."""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from .triton_launch import accumulator, launch

BLOCK, WARPS = 2048, 4
MOST = 8  # states that one kernel adds up


@triton.jit
def _combine_states_kernel(
    out, c, s0, s1, s2, s3, s4, s5, s6, s7, members, size, blocks, COUNT: tl.constexpr, BLOCK: tl.constexpr,
    ACC: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0)
    member = pid // blocks
    at = (pid % blocks) * BLOCK + tl.arange(0, BLOCK)
    ok = at < size
    place = member.to(tl.int64) * size + at
    total = tl.zeros([BLOCK], ACC)
    states = (s0, s1, s2, s3, s4, s5, s6, s7)
    for k in tl.static_range(COUNT):
        share = tl.load(c + k * members + member).to(ACC)
        total += share * tl.load(states[k] + place, mask=ok, other=0.0).to(ACC)
    tl.store(out + place, total, mask=ok)


@triton.jit
def _dots_kernel(out, a, b, size, blocks, BLOCK: tl.constexpr, STEPS: tl.constexpr, ACC: tl.constexpr):
    pid = tl.program_id(0)
    member = pid // blocks
    first = (pid % blocks) * BLOCK * STEPS
    total = tl.zeros([BLOCK], ACC)
    base = member.to(tl.int64) * size
    for step in tl.static_range(STEPS):
        at = first + step * BLOCK + tl.arange(0, BLOCK)
        ok = at < size
        left = tl.load(a + base + at, mask=ok, other=0.0).to(ACC)
        total += left * tl.load(b + base + at, mask=ok, other=0.0).to(ACC)
    tl.store(out + pid, tl.sum(total, axis=0))


def combine(c: Tensor, states: Sequence[Tensor]) -> Tensor:
    """``Σ_k c_k x_k``: c ``(K, L)``, K states ``(L, n, d)`` → ``(L, n, d)``."""
    if len(states) > MOST:
        head = combine(c[:MOST], states[:MOST])
        return combine(torch.cat([torch.ones_like(c[:1]), c[MOST:]]), [head, *states[MOST:]])
    states = [s.contiguous() for s in states]
    first = states[0]
    out = torch.empty_like(first)
    size = first[0].numel()
    blocks = triton.cdiv(size, BLOCK)
    padded = [*states, *[first] * (MOST - len(states))]
    launch(
        _combine_states_kernel, blocks * len(first), first, out, c.contiguous(), *padded, len(first), size,
        blocks, COUNT=len(states), BLOCK=BLOCK, ACC=accumulator(first), num_warps=WARPS,
    )  # fmt: skip
    return out


def dots(a: Tensor, b: Tensor) -> Tensor:
    """Inner product of each member: ``(L, n, d)`` twice → ``(L,)``; added up in a fixed order."""
    a, b = a.contiguous(), b.contiguous()
    size, steps = a[0].numel(), 4
    blocks = triton.cdiv(size, BLOCK * steps)
    out = torch.empty(len(a), blocks, dtype=a.dtype, device=a.device)
    launch(
        _dots_kernel, blocks * len(a), a, out, a, b, size, blocks, BLOCK=BLOCK, STEPS=steps,
        ACC=accumulator(a), num_warps=WARPS,
    )  # fmt: skip
    return out.sum(1)


@triton.jit
def _mix(x):
    x = (x ^ (x >> 16)) * 0x7FEB352D
    x = (x ^ (x >> 15)) * 0x846CA68B
    return x ^ (x >> 16)


@triton.jit
def _dropout_kernel(out, key, rate, size, blocks, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    member = pid // blocks
    at = (pid % blocks) * BLOCK + tl.arange(0, BLOCK)
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
    blocks = triton.cdiv(size, BLOCK)
    launch(_dropout_kernel, blocks * len(key), out, out, key.contiguous(), rate.contiguous(), size, blocks,
           BLOCK=BLOCK, num_warps=WARPS)  # fmt: skip
    return out
