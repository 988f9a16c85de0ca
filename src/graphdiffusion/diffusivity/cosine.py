"""Cosine of the angle between queries and keys."""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import normalize

from .base import DIFFUSIVITIES
from .bilinear import QueryKey


@DIFFUSIVITIES.register("cosine")
class Cosine(QueryKey):
    r"""Cosine of the angle between queries and keys. The score is :math:`\cos(W_K x_i, W_Q x_j)`."""

    capturable = takes_parts = True

    def features(self, x: Tensor) -> tuple[Tensor, Tensor]:
        q, k = super().features(x)
        return normalize(q, dim=-1), normalize(k, dim=-1)
