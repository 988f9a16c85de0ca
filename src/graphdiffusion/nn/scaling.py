"""Scaling of input features: by row, or by column with statistics that are kept for other graphs."""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..errors import ArgumentError, ShapeError
from .modules import Features, SparseFeatures

KINDS = ("none", "rows", "columns")
PREFIX = "scaling."  # before the names of the stored tensors
CONSTANT = 1e-6  # a deviation below so much of the largest value is rounding


@dataclass(frozen=True, eq=False)
class Scaling:
    """How features are scaled, on the graph that it was fitted to and on others.

    Attributes:
        kind: ``"none"``; ``"rows"``: each row is divided by its sum of absolute values; ``"columns"``: each
            column has mean 0 and deviation 1, and is 0 if it is constant. Sparse columns are divided by
            their root mean square, so that zeros stay zeros.
        shift, factor: Subtracted from each column, then multiplied with it, ``(F,)``; only for columns.
    """

    kind: str
    shift: Tensor | None = None
    factor: Tensor | None = None

    @classmethod
    def fit(cls, x: Features, kind: str) -> Scaling:
        """The scaling for features ``(n, F)``."""
        if kind not in KINDS:
            raise ArgumentError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}.")
        if kind != "columns":
            return cls(kind)
        if isinstance(x, SparseFeatures):
            squares = torch.zeros(x.shape[1], dtype=torch.float64, device=x.values.device)
            squares.index_add_(0, x.pattern.col.long(), x.values.double().square())
            shift, spread = torch.zeros_like(squares), (squares / x.shape[0]).sqrt()
            varies = spread > 0
        else:
            values = x.double()
            shift, spread = values.mean(0), values.std(0, correction=0)
            varies = spread > CONSTANT * values.abs().amax(0)
        factor = torch.where(varies, 1 / torch.where(varies, spread, 1.0), 0.0).float()
        return cls(kind, shift.float(), torch.where(factor.isfinite(), factor, 0.0))

    def __call__(self, x: Features) -> Features:
        """Scaled features ``(n, F)``."""
        if self.kind == "none":
            return x
        if self.kind == "rows":
            return _by_rows(x)
        assert self.shift is not None and self.factor is not None
        if x.shape[1] != len(self.factor):
            raise ShapeError(
                f"x must have {len(self.factor)} columns, as the scaling has, got {x.shape[1]}."
            )
        if isinstance(x, SparseFeatures):
            if bool(self.shift.any()):  # fitted to dense features
                return self(x.dense())
            own = x.values.double() * self.factor.to(x.values.device).double()[x.pattern.col.long()]
            return replace(x, values=own.to(x.values.dtype))
        shift, factor = self.shift.to(x.device).double(), self.factor.to(x.device).double()
        return ((x.double() - shift) * factor).to(x.dtype)

    def tensors(self) -> dict[str, Tensor]:
        """What must be stored, by name."""
        if self.shift is None or self.factor is None:
            return {}
        return {f"{PREFIX}shift": self.shift.cpu(), f"{PREFIX}factor": self.factor.cpu()}

    @classmethod
    def from_tensors(cls, kind: str, stored: MutableMapping[str, Tensor], width: int) -> Scaling:
        """The scaling of tensors, which are taken out of ``stored``; ValueError if they do not fit."""
        if kind != "columns":
            return cls(kind)
        found = [stored.pop(f"{PREFIX}{name}", None) for name in ("shift", "factor")]
        for value in found:
            if value is None or value.shape != (width,) or value.dtype != torch.float32:
                raise ValueError("its scaling is not that of its features")
            if not bool(value.isfinite().all()):
                raise ValueError("its scaling is not finite")
        return cls(kind, *found)


def _by_rows(x: Features) -> Features:
    if isinstance(x, SparseFeatures):
        row = x.pattern.row.long()
        sums = torch.zeros(x.shape[0], dtype=torch.float64, device=x.values.device)
        sums.index_add_(0, row, x.values.double().abs())
        own = x.values.double() / torch.where(sums > 0, sums, 1.0)[row]
        return replace(x, values=own.to(x.values.dtype))
    sums = x.double().abs().sum(1, keepdim=True)
    return (x.double() / torch.where(sums > 0, sums, 1.0)).to(x.dtype)
