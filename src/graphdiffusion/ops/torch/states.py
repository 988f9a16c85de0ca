"""Sums over whole states: linear combinations, inner products of members."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def combine(c: Tensor, states: Sequence[Tensor], start: Tensor | None = None) -> Tensor:
    """``x + Σ_k c_k x_k``: c ``(K, L)``, K states and perhaps x ``(L, n, d)`` → ``(L, n, d)``.

    The result has the type of c: float32 of bfloat16 states beside it.
    """
    shares = c[:, :, None, None]
    out = shares[0] * states[0] if start is None else torch.addcmul(start, shares[0], states[0])
    for share, state in zip(shares[1:], states[1:], strict=True):
        out.addcmul_(share, state)
    return out


def combine_backward(
    c: Tensor, states: Sequence[Tensor], grad: Tensor, wanted: Sequence[bool], wants_c: bool
) -> tuple[Tensor | None, list[Tensor | None]]:
    """Gradients of :func:`combine`: of c ``(K, L)``, and ``c_k g`` of the states where it is wanted."""
    d_c = dots(grad, states) if wants_c else None
    return d_c, [s[:, None, None] * grad if want else None for s, want in zip(c, wanted, strict=True)]


def dots(a: Tensor, states: Sequence[Tensor]) -> Tensor:
    """Inner products of each member: a and K states ``(L, n, d)`` → ``(K, L)``."""
    return torch.stack([(a * b).sum((1, 2)) for b in states])
