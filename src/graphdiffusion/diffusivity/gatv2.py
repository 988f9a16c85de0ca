"""The attention of GATv2, which is no inner product."""

from __future__ import annotations

import math
from typing import Annotated, Any

import torch
from torch import Tensor, nn
from torch.nn.functional import leaky_relu

from ..errors import ArgumentError
from ..ops.dense import affine
from ..options import Bounds
from .base import DIFFUSIVITIES, Pairwise
from .bilinear import head_width


@DIFFUSIVITIES.register("gatv2")
class GATv2(Pairwise):
    r"""Attention of GATv2, with edge attributes where the graph has them.

    The score is :math:`a^\top \operatorname{LeakyReLU}(W_r x_i + W_l x_j + W_e e_{ij} + b)`, from
    `"How Attentive are Graph Attention Networks?" <https://arxiv.org/abs/2105.14491>`_.

    Args:
        channels: Width of the node features.
        heads: Attention heads; their matrices are averaged.
        attention_dim: Width of all heads together, a multiple of heads.
        edge_channels: Width of the edge attributes that are used; 0: none.
    """

    members = capturable = takes_parts = True

    def __init__(
        self,
        channels: int,
        heads: Annotated[int, Bounds(1)] = 8,
        attention_dim: Annotated[int, Bounds(1)] = 128,
        *,
        edge_channels: Annotated[int, Bounds(0)] = 0,
        **how: Any,
    ) -> None:
        super().__init__(**how)
        self.heads, self.edge_channels = heads, edge_channels
        dim = head_width(heads, attention_dim)
        self.weight_i = nn.Parameter(torch.empty(attention_dim, channels))
        self.weight_j = nn.Parameter(torch.empty(attention_dim, channels))
        self.weight_e = nn.Parameter(torch.empty(attention_dim, edge_channels)) if edge_channels else None
        self.bias = nn.Parameter(torch.empty(attention_dim))
        self.vector = nn.Parameter(torch.empty(heads, dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for weight in (self.weight_i, self.weight_j, self.weight_e, self.vector):
            if weight is not None:
                bound = 1 / math.sqrt(max(weight.shape[-1], 1))
                nn.init.uniform_(weight, -bound, bound)
        nn.init.zeros_(self.bias)

    def scores(self, x_i: Tensor, x_j: Tensor, edge_attr: Tensor | None) -> Tensor:
        wide = affine(x_i, self.weight_i, self.bias) + affine(x_j, self.weight_j)
        if self.weight_e is not None:
            if edge_attr is None or edge_attr.shape[-1] != self.edge_channels:
                got = "none" if edge_attr is None else str(edge_attr.shape[-1])
                raise ArgumentError(
                    f"the graph must have {self.edge_channels} attributes an edge (edge_channels), "
                    f"got {got}."
                )
            wide = wide + affine(edge_attr.to(x_i.dtype), self.weight_e)
        split = leaky_relu(wide, 0.2).unflatten(-1, (self.heads, -1))
        return (split * self.vector.unsqueeze(-3)).sum(-1)
