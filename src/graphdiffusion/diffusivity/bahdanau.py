"""Additive attention, as in GAT."""

from __future__ import annotations

from typing import Annotated, Any

import torch
from torch import Tensor, nn

from ..ops import Activation
from ..options import Bounds
from .base import DIFFUSIVITIES, Bilinear
from .bilinear import Projection, head_width


@DIFFUSIVITIES.register("bahdanau")
class Bahdanau(Bilinear):
    r"""Additive attention, as in GAT (appendix B).

    The score is :math:`\operatorname{LeakyReLU}(a^\top [W x_i \Vert W x_j])`. With a split into its halves,
    it is a function of :math:`u_i + v_j`, which is an inner product of width two.

    Args:
        channels: Width of the node features.
        heads: Attention heads; their matrices are averaged.
        attention_dim: Width of all heads together, a multiple of heads.
        start: Initial value of all entries of W.
    """

    capturable = takes_parts = True

    activation: Activation = "leaky_relu"

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
        dim = head_width(heads, attention_dim)
        self.project = Projection(channels, heads, dim, start, bias=False)
        self.vector = nn.Parameter(torch.empty(heads, dim, 2))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        self.project.reset_parameters()
        nn.init.xavier_uniform_(self.vector)

    def features(self, x: Tensor) -> tuple[Tensor, Tensor]:
        both = self.project(x) @ self.vector
        u, v = both[..., :1], both[..., 1:]
        one = torch.ones_like(u)
        return torch.cat([u, one], -1), torch.cat([one, v], -1)

    def memory(self, nodes: int, edges: int, channels: int) -> int:
        heads = self.vector.shape[-3]
        return 16 * nodes * heads + edges * (12 + 16 * heads)
