"""Queries and keys: what most diffusivities of the form φ(⟨q, k⟩) share."""

from __future__ import annotations

import math
from typing import Annotated, Any

import torch
from torch import Tensor, nn

from ..errors import ArgumentError
from ..ops.dense import affine, affines
from ..options import Bounds
from .base import Bilinear


class Projection(nn.Module):
    """Linear map of node features to every head: ``(..., n, c)`` → ``(..., heads, n, d_k)``.

    The weights start constant, so that training starts from uniform diffusion, a well-conditioned
    system (section 5, implementation details); random biases tell the heads apart.
    """

    def __init__(self, channels: int, heads: int, dim: int, constant: float, bias: bool = True) -> None:
        super().__init__()
        self.heads, self.constant = heads, constant
        self.weight = nn.Parameter(torch.empty(heads * dim, channels))
        self.bias = nn.Parameter(torch.empty(heads * dim)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.constant_(self.weight, self.constant)
        if self.bias is not None:
            bound = 1 / math.sqrt(self.weight.shape[-1])
            nn.init.uniform_(self.bias, -bound, bound)

    def forward(self, x: Tensor) -> Tensor:
        return affine(x, self.weight, self.bias).unflatten(-1, (self.heads, -1)).transpose(-2, -3)


def head_width(heads: int, attention_dim: int) -> int:
    """:math:`d_k`, the share of one head."""
    if heads < 1 or attention_dim < heads or attention_dim % heads:
        raise ArgumentError(
            f"attention_dim must be a positive multiple of heads, got attention_dim={attention_dim} "
            f"and heads={heads}."
        )
    return attention_dim // heads


class QueryKey(Bilinear):
    r"""Base of diffusivities that compare :math:`q_i = W_K x_i` with :math:`k_j = W_Q x_j`.

    Args:
        channels: Width of the node features.
        heads: Attention heads; their matrices are averaged.
        attention_dim: Width of all heads together, a multiple of heads: :math:`h \cdot d_k`.
        start: Initial value of all entries of the two matrices.
    """

    def __init__(
        self,
        channels: int,
        heads: Annotated[int, Bounds(1)] = 8,
        attention_dim: Annotated[int, Bounds(1)] = 128,
        *,
        start: float = 1e-5,
        **how: Any,
    ) -> None:
        super().__init__(**how)
        self.dim = head_width(heads, attention_dim)
        self.factor = 1.0  # of every inner product
        self.query = Projection(channels, heads, self.dim, start, bias=self.idle_bias() != "query")
        self.key = Projection(channels, heads, self.dim, start, bias=self.idle_bias() != "key")

    def idle_bias(self) -> str | None:
        """Name of the projection in which a bias would have no effect, or ``None``."""
        return None

    def reset_parameters(self) -> None:
        self.query.reset_parameters()
        self.key.reset_parameters()

    def features(self, x: Tensor) -> tuple[Tensor, Tensor]:
        # the factor stands on the small side of the product
        bias = None if self.query.bias is None else self.query.bias * self.factor
        both = affines(x, [(self.query.weight * self.factor, bias), (self.key.weight, self.key.bias)])
        q, k = (y.unflatten(-1, (self.query.heads, self.dim)).transpose(-2, -3) for y in both)
        return q, k

    def memory(self, nodes: int, edges: int, channels: int) -> int:
        heads = self.query.heads
        # the kernels of a GPU keep nothing of the heads, where one side is normalised
        in_one_piece = 0 if torch.cuda.is_available() else 8
        by_head = edges * heads * (16 if self.over == "symmetric" else in_one_piece)
        return 8 * nodes * heads * self.dim + 12 * edges + by_head

    def extra_repr(self) -> str:
        return f"heads={self.query.heads}, d_k={self.dim}, {super().extra_repr()}"
