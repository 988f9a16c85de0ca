"""A Gaussian kernel of the distance between queries and keys."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ..ops import Activation
from ..partition.whole import mean_nodes
from .base import DIFFUSIVITIES
from .bilinear import QueryKey


@DIFFUSIVITIES.register("exponential")
class ExponentialKernel(QueryKey):
    r"""Gaussian kernel of the distance between queries and keys.

    The score is :math:`\sigma^2 \exp(-\lVert W_K x_i - W_Q x_j \rVert^2 / 2\ell^2)`, with σ and ℓ learnt
    for each head. The squared distance is an inner product of features widened by two entries. Both sides
    are measured from their common mean over the nodes, which changes no distance and keeps an offset of the
    features from cancelling.
    """

    capturable = takes_parts = True

    activation: Activation = "exp"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.log_amplitude = nn.Parameter(torch.zeros(self.query.heads, 1, 1))
        self.log_length = nn.Parameter(torch.zeros(self.query.heads, 1, 1))

    def reset_parameters(self) -> None:
        super().reset_parameters()
        nn.init.zeros_(self.log_amplitude)
        nn.init.zeros_(self.log_length)

    def features(self, x: Tensor) -> tuple[Tensor, Tensor]:
        q, k = super().features(x)
        # no gradient: moving both sides changes nothing
        centre = (mean_nodes(q.detach()) + mean_nodes(k.detach())) / 2
        q, k = (q - centre) * torch.exp(-self.log_length), (k - centre) * torch.exp(-self.log_length)
        one = torch.ones_like(q[..., :1])
        q_norm = 2 * self.log_amplitude - q.square().sum(-1, keepdim=True) / 2
        k_norm = -k.square().sum(-1, keepdim=True) / 2
        return torch.cat([q, q_norm, one], -1), torch.cat([k, one, k_norm], -1)
