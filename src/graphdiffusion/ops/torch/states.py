"""Sums over whole states: linear combinations, inner products of members."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def combine(c: Tensor, states: Sequence[Tensor], start: Tensor | None = None) -> Tensor:
    """``x_m + Σ_k c_mk y_k``: c ``(m, K, L)``, K states ``(L, n, d)``, perhaps x → ``(m, L, n, d)``.

    The result has the type of c: float32 of bfloat16 states beside it.
    """
    out = torch.empty(len(c), *states[0].shape, dtype=c.dtype, device=c.device)
    for m, shares in enumerate(c[..., None, None]):
        if start is None:
            torch.mul(shares[0], states[0], out=out[m])
        else:
            torch.addcmul(start[m], shares[0], states[0], out=out[m])
        for share, state in zip(shares[1:], states[1:], strict=True):
            out[m].addcmul_(share, state)
    return out


def combine_backward(
    c: Tensor, states: Sequence[Tensor], grad: Tensor, wanted: Sequence[bool], wants_c: bool
) -> tuple[Tensor | None, list[Tensor | None]]:
    """Gradients of :func:`combine`: of c ``(K, L)``, and ``c_k g`` of the states where it is wanted."""
    d_c = dots([grad], states)[0] if wants_c else None
    return d_c, [s[:, None, None] * grad if want else None for s, want in zip(c, wanted, strict=True)]


def dots(fields: Sequence[Tensor], states: Sequence[Tensor]) -> Tensor:
    """Inner products of each member: m fields and K states ``(L, n, d)`` → ``(m, K, L)``."""
    return torch.stack([torch.stack([(a * b).sum((1, 2)) for b in states]) for a in fields])
