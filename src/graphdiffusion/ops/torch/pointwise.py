"""Functions of single scores: the activation, φ of the normaliser and its slope."""

from __future__ import annotations

import torch
from torch import Tensor

LEAKY_SLOPE = 0.2  # as in GAT


def squareplus(s: Tensor) -> Tensor:
    """``(s + √(s² + 4)) / 2`` as ``max(s, 0) + 2 / (|s| + √(s² + 4))``, which does not cancel for s < 0."""
    return _root(s).add_(s.abs()).mul_(0.5).reciprocal_().add_(s.clamp_min(0))


def squareplus_slope(s: Tensor) -> Tensor:
    """``φ'(s) / φ(s) = 1 / √(s² + 4)`` for φ = squareplus."""
    return _root(s).reciprocal_()


def _root(s: Tensor) -> Tensor:
    """``√(s² + 4)``, several times faster than ``hypot``; 10¹⁸ stands for all that is larger."""
    return s.clamp(-1e18, 1e18).square_().add_(4).sqrt_()


def activate(scores: Tensor, activation: str) -> Tensor:
    """The pointwise function between the inner products and the normaliser."""
    if activation == "leaky_relu":
        return torch.nn.functional.leaky_relu(scores, LEAKY_SLOPE)
    return scores.exp() if activation == "exp" else scores
