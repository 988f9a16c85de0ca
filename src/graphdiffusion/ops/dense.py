"""Linear maps of node features with one set of parameters, or one set for each member."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import linear

from ..graph import Pattern
from .functions import Propagate


def affine(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``x Wᵀ + b``: x ``(..., n, i)``, weight ``(..., o, i)``, bias ``(..., o)`` → ``(..., n, o)``."""
    if weight.dim() == 2:
        return linear(x, weight, bias)
    if bias is None:
        return x @ weight.mT
    if x.dim() == weight.dim() == 3 and len(x) == len(weight):
        return torch.baddbmm(bias.unsqueeze(-2), x, weight.mT)
    return x @ weight.mT + bias.unsqueeze(-2)


def sparse_product(pattern: Pattern, values: Tensor, weight: Tensor) -> Tensor:
    """``S Wᵀ`` for a sparse S: values ``(..., nnz)``, weight ``(..., o, i)`` → ``(..., n, o)``."""
    lead = torch.broadcast_shapes(values.shape[:-1], weight.shape[:-2])
    columns = weight.mT.expand(*lead, *weight.mT.shape[-2:]).flatten(0, -3) if lead else weight.mT[None]
    flat = values.expand(*lead, -1).reshape(-1, values.shape[-1])
    return Propagate.apply(pattern, flat, columns, False).reshape(*lead, pattern.rows, -1)
