"""Parameters as polynomials in time."""

from __future__ import annotations

import torch
from torch import Tensor


def legendre(t: Tensor, horizon: Tensor, terms: int) -> Tensor:
    """The first Legendre polynomials on ``[0, horizon]``: t ``(...)`` → ``(..., terms)``.

    Outside they keep the values of the nearer end, where they would grow without bound.
    """
    s = (2 * t / horizon - 1).clamp(-1, 1)
    columns = [torch.ones_like(s), s]
    for k in range(1, terms - 1):
        columns.append(((2 * k + 1) * s * columns[k] - k * columns[k - 1]) / (k + 1))
    return torch.stack(columns[:terms], -1)


def combine(basis: Tensor, coefficients: Tensor, own: int) -> Tensor:
    """``Σ_b P_b(t) θ_b``.

    Args:
        basis: ``(1, 1, terms)``, or ``(*members, 1, 1, terms)`` where each member has its own time.
        coefficients: ``(*members, terms, ...)`` with ``own`` trailing dimensions.
    """
    basis = basis.flatten(-3, -2).squeeze(-2)
    weights = basis.to(coefficients.dtype).reshape(*basis.shape, *[1] * own)
    return (weights * coefficients).sum(-1 - own)
