"""Sums over whole states in Triton: linear combinations in one pass, inner products of members."""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from .launch import accumulator, launch, pieces

BLOCK, WARPS = 2048, 4
MOST = 8  # states that one kernel adds up


@triton.jit
def _block(size, blocks, BLOCK: tl.constexpr):
    """The member of this program, the places of its numbers, and which of them there are."""
    pid = tl.program_id(0)
    member = pid // blocks
    at = (pid % blocks) * BLOCK + tl.arange(0, BLOCK)
    return member, member.to(tl.int64) * size + at, at < size


@triton.jit
def _combine_states_kernel(
    out, c, start, s0, s1, s2, s3, s4, s5, s6, s7, members, size, blocks, COUNT: tl.constexpr,
    STARTS: tl.constexpr, BLOCK: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    member, place, ok = _block(size, blocks, BLOCK)
    total = tl.zeros([BLOCK], ACC)
    if STARTS:
        total += tl.load(start + place, mask=ok, other=0.0).to(ACC)
    states = (s0, s1, s2, s3, s4, s5, s6, s7)
    for k in tl.static_range(COUNT):
        share = tl.load(c + k * members + member).to(ACC)
        total += share * tl.load(states[k] + place, mask=ok, other=0.0).to(ACC)
    tl.store(out + place, total, mask=ok)


def combine(c: Tensor, states: Sequence[Tensor], start: Tensor | None = None) -> Tensor:
    """``x + Σ_k c_k x_k``: c ``(K, L)``, K states and perhaps x ``(L, n, d)`` → ``(L, n, d)``.

    The result has the type of c: float32 of bfloat16 states beside it.
    """
    if len(states) > MOST:
        c, states = _filled(c, states)
        for k in range(0, len(states), MOST):
            start = combine(c[k : k + MOST], states[k : k + MOST], start)
        assert start is not None
        return start
    states = [s.contiguous() for s in states]
    first = states[0]
    out = torch.empty_like(first, dtype=c.dtype)
    size = first[0].numel()
    blocks = pieces(size, BLOCK)
    launch(
        _combine_states_kernel, blocks * len(first), first, out, c.contiguous(),
        first if start is None else start.contiguous(), *_padded(states), len(first), size, blocks,
        COUNT=len(states), STARTS=start is not None, BLOCK=BLOCK, ACC=accumulator(first), num_warps=WARPS,
    )  # fmt: skip
    return out


def _filled(c: Tensor, states: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
    """Multiples of MOST, whatever their number: no kernel is compiled for the odd ones that are left."""
    more = -len(states) % MOST
    return torch.cat([c, c.new_zeros(more, c.shape[1])]), [*states, *[states[0]] * more]


def _padded(states: Sequence[Tensor]) -> list[Tensor]:
    return [*states, *[states[0]] * (MOST - len(states))]


@triton.jit
def _combine_backward_kernel(
    dots, c, grad, o0, o1, o2, o3, o4, o5, o6, o7, s0, s1, s2, s3, s4, s5, s6, s7, members, size, blocks,
    COUNT: tl.constexpr, WANTED: tl.constexpr, DOTS: tl.constexpr, BLOCK: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Reads the gradient once: its multiples ``c_k g`` (bit k of WANTED) and products with the states."""
    member, place, ok = _block(size, blocks, BLOCK)
    g = tl.load(grad + place, mask=ok, other=0.0).to(ACC)
    outs = (o0, o1, o2, o3, o4, o5, o6, o7)
    states = (s0, s1, s2, s3, s4, s5, s6, s7)
    for k in tl.static_range(COUNT):
        if (WANTED >> k) & 1:
            tl.store(outs[k] + place, g * tl.load(c + k * members + member).to(ACC), mask=ok)
        if DOTS:
            product = g * tl.load(states[k] + place, mask=ok, other=0.0).to(ACC)
            tl.store(dots + k * members * blocks + tl.program_id(0), tl.sum(product, axis=0))


def combine_backward(
    c: Tensor, states: Sequence[Tensor], grad: Tensor, wanted: Sequence[bool], wants_c: bool
) -> tuple[Tensor | None, list[Tensor | None]]:
    """Gradients of :func:`combine`: of c ``(K, L)``, and ``c_k g`` of the states where it is wanted."""
    if len(states) > MOST:
        some = [
            combine_backward(c[k : k + MOST], states[k : k + MOST], grad, wanted[k : k + MOST], wants_c)
            for k in range(0, len(states), MOST)
        ]
        d_c = torch.cat([d for d, _ in some if d is not None]) if wants_c else None
        return d_c, [d for _, own in some for d in own]
    grad, states = grad.contiguous(), [s.contiguous() for s in states]
    found = [torch.empty_like(grad) if want else None for want in wanted]
    if not wants_c and not any(wanted):
        return None, found
    size = grad[0].numel()
    blocks = pieces(size, BLOCK)
    parts = torch.empty(len(states), len(grad), blocks if wants_c else 0, dtype=c.dtype, device=c.device)
    launch(
        _combine_backward_kernel, blocks * len(grad), grad, parts, c.contiguous(), grad,
        *_padded([grad if f is None else f for f in found]), *_padded(states), len(grad), size, blocks,
        COUNT=len(states), WANTED=sum(1 << k for k, want in enumerate(wanted) if want), DOTS=wants_c,
        BLOCK=BLOCK, ACC=accumulator(grad), num_warps=WARPS,
    )  # fmt: skip
    return parts.sum(-1) if wants_c else None, found


def dots(a: Tensor, states: Sequence[Tensor]) -> Tensor:
    """Inner products of each member: a and K states ``(L, n, d)`` → ``(K, L)``; in a fixed order."""
    count = len(states)
    c = a.new_zeros(count, len(a))
    if count > MOST:
        c, states = _filled(c, states)
    found, _ = combine_backward(c, states, a, [False] * len(states), wants_c=True)
    assert found is not None
    return found[:count]
