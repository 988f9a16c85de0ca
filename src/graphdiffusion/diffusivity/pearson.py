"""Correlation of queries and keys."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.nn.functional import normalize

from ..errors import ArgumentError
from .base import DIFFUSIVITIES
from .bilinear import QueryKey


@DIFFUSIVITIES.register("pearson")
class Pearson(QueryKey):
    """Correlation between the entries of queries and keys: the cosine after centring."""

    capturable = takes_parts = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.dim < 3:
            raise ArgumentError(
                f"Pearson correlation needs at least 3 entries a head, got d_k={self.dim} (of 2 entries it "
                "is always 1 or −1): raise attention_dim or lower heads."
            )

    def features(self, x: Tensor) -> tuple[Tensor, Tensor]:
        q, k = super().features(x)
        return (
            normalize(q - q.mean(-1, keepdim=True), dim=-1),
            normalize(k - k.mean(-1, keepdim=True), dim=-1),
        )
