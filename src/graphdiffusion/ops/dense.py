"""Dense maps of node fields with one set of parameters, or one set for each member."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import linear


def affine(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``x Wᵀ + b``: x ``(..., n, i)``, weight ``(..., o, i)``, bias ``(..., o)`` → ``(..., n, o)``."""
    if weight.dim() == 2:
        return linear(x, weight, bias)
    if bias is None:
        return x @ weight.mT
    if x.dim() == weight.dim() == 3 and len(x) == len(weight):
        return torch.baddbmm(bias.unsqueeze(-2), x, weight.mT)
    return x @ weight.mT + bias.unsqueeze(-2)
