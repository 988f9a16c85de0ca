"""Scaled dot-product attention, the paper's diffusivity."""

from __future__ import annotations

import math
from typing import Any, Literal

from ..errors import ArgumentError
from .base import DIFFUSIVITIES
from .bilinear import QueryKey


@DIFFUSIVITIES.register("scaled-dot")
class ScaledDotProduct(QueryKey):
    r"""Scaled dot product of queries and keys, equation (10).

    The score is :math:`\langle W_K x_i, W_Q x_j\rangle / \sqrt{d_k}`; the paper divides by :math:`d_k`.

    Args:
        scale: Divide by √d_k (sqrt), or by d_k as the paper writes (dim).
    """

    capturable = takes_parts = True

    def __init__(self, *args: Any, scale: Literal["sqrt", "dim"] = "sqrt", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if scale not in ("dim", "sqrt"):
            raise ArgumentError(f"scale must be 'dim' or 'sqrt', got {scale!r}.")
        self.factor = 1 / self.dim if scale == "dim" else 1 / math.sqrt(self.dim)

    def idle_bias(self) -> str | None:
        # ⟨q_i, b⟩ is the same along a row, and softmax does not see what is the same along its group
        if self.normaliser != "softmax":
            return None
        return {"rows": "key", "columns": "query", "symmetric": None}[self.over]
