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
    at = (pid % blocks).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    return member, member.to(tl.int64) * size + at, at < size


@triton.jit
def _loaded(x, place, ok, ACC: tl.constexpr):
    return tl.load(x + place, mask=ok, other=0.0).to(ACC)


@triton.jit
def _all_loaded(s0, s1, s2, s3, s4, s5, s6, s7, place, ok, COUNT: tl.constexpr, ACC: tl.constexpr):
    """The numbers of up to eight states, all in flight together."""
    x0 = _loaded(s0, place, ok, ACC)
    x1 = _loaded(s1, place, ok, ACC) if COUNT > 1 else x0
    x2 = _loaded(s2, place, ok, ACC) if COUNT > 2 else x0
    x3 = _loaded(s3, place, ok, ACC) if COUNT > 3 else x0
    x4 = _loaded(s4, place, ok, ACC) if COUNT > 4 else x0
    x5 = _loaded(s5, place, ok, ACC) if COUNT > 5 else x0
    x6 = _loaded(s6, place, ok, ACC) if COUNT > 6 else x0
    x7 = _loaded(s7, place, ok, ACC) if COUNT > 7 else x0
    return x0, x1, x2, x3, x4, x5, x6, x7


@triton.jit
def _combine_states_kernel(
    out, c, start, s0, s1, s2, s3, s4, s5, s6, s7, members, size, blocks, sums, between, start_between,
    COUNT: tl.constexpr, STARTS: tl.constexpr, BLOCK: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Reads every state once, for all sums of them, which are ``between`` numbers apart."""
    member, place, ok = _block(size, blocks, BLOCK)
    start += place
    states = _all_loaded(s0, s1, s2, s3, s4, s5, s6, s7, place, ok, COUNT, ACC)
    for _ in range(sums):
        total = tl.zeros([BLOCK], ACC)
        if STARTS:
            total += tl.load(start, mask=ok, other=0.0).to(ACC)
        for k in tl.static_range(COUNT):
            total += tl.load(c + k * members + member).to(ACC) * states[k]
        tl.store(out + place, total, mask=ok)
        place += between
        start += start_between
        c += COUNT * members


def combine(c: Tensor, states: Sequence[Tensor], start: Tensor | None = None) -> Tensor:
    """``x_m + Σ_k c_mk y_k``: c ``(m, K, L)``, K states ``(L, n, d)``, perhaps x → ``(m, L, n, d)``.

    The result has the type of c: float32 of bfloat16 states beside it.
    """
    out = torch.empty(len(c), *states[0].shape, dtype=c.dtype, device=c.device)
    if len(states) > MOST:
        c, states = _filled(c, states)
    for k in range(0, len(states), MOST):
        _combine(out, c[:, k : k + MOST], states[k : k + MOST], out if k else start)
    return out


def _combine(out: Tensor, c: Tensor, states: Sequence[Tensor], start: Tensor | None) -> None:
    states = [s.contiguous() for s in states]
    first, block = states[0], BLOCK if len(c) == 1 else BLOCK // 2
    size = first[0].numel()
    blocks = pieces(size, block)
    if start is not None and not start[0].is_contiguous():
        start = start.contiguous()
    launch(
        _combine_states_kernel, blocks * len(first), first, out, c.contiguous(),
        first if start is None else start, *_padded(states), len(first), size, blocks, len(c),
        first.numel(), 0 if start is None else start.stride(0), COUNT=len(states),
        STARTS=start is not None, BLOCK=block, ACC=accumulator(first), num_warps=WARPS,
    )  # fmt: skip


def _filled(c: Tensor, states: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
    """Multiples of MOST, whatever their number: no kernel is compiled for the odd ones that are left."""
    more = -len(states) % MOST
    return torch.nn.functional.pad(c, (0, 0, 0, more)), [*states, *[states[0]] * more]


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


@triton.jit
def _dots_kernel(
    dots, g0, g1, s0, s1, s2, s3, s4, s5, s6, s7, members, size, blocks, COUNT: tl.constexpr,
    FIELDS: tl.constexpr, BLOCK: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Products of one or two fields with every state, which is read once for both."""
    _, place, ok = _block(size, blocks, BLOCK)
    g = _loaded(g0, place, ok, ACC)
    h = _loaded(g1, place, ok, ACC) if FIELDS > 1 else g
    states = (s0, s1, s2, s3, s4, s5, s6, s7)
    between = members * blocks
    for k in tl.static_range(COUNT):
        x = _loaded(states[k], place, ok, ACC)
        tl.store(dots + k * between + tl.program_id(0), tl.sum(g * x, axis=0))
        if FIELDS > 1:
            tl.store(dots + (COUNT + k) * between + tl.program_id(0), tl.sum(h * x, axis=0))


def dots(fields: Sequence[Tensor], states: Sequence[Tensor]) -> Tensor:
    """Inner products of each member: m fields and K states ``(L, n, d)`` → ``(m, K, L)``.

    In a fixed order.
    """
    count, (first, *_) = len(states), fields
    if count > MOST:
        states = [*states, *[states[0]] * (-count % MOST)]
    fields, states = [f.contiguous() for f in fields], [s.contiguous() for s in states]
    size = first[0].numel()
    blocks = pieces(size, BLOCK)
    found = []
    for pair in (fields[m : m + 2] for m in range(0, len(fields), 2)):
        parts = [
            torch.empty(len(pair), len(some), len(first), blocks, dtype=first.dtype, device=first.device)
            for some in (states[k : k + MOST] for k in range(0, len(states), MOST))
        ]
        for k, part in enumerate(parts):
            some = states[MOST * k : MOST * (k + 1)]
            launch(
                _dots_kernel, blocks * len(first), first, part, pair[0], pair[-1], *_padded(some),
                len(first), size, blocks, COUNT=len(some), FIELDS=len(pair), BLOCK=BLOCK,
                ACC=accumulator(first), num_warps=WARPS,
            )  # fmt: skip
        found.append(torch.cat([part.sum(-1) for part in parts], 1))
    return torch.cat(found)[:, :count]
