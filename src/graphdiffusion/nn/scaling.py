"""Scaling of input features: by rows, or by columns with the statistics of one graph."""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from ..errors import ArgumentError, DataError, ShapeError
from .modules import Features, SparseFeatures, as_features

Kind = Literal["none", "rows", "columns", "auto"]

PREFIX = "scaling."  # before the names of stored tensors
UNITS = 10.0  # columns that differ by more have different units
ROWS = 2**12  # rows that are in memory in float64 at once


@dataclass(frozen=True, eq=False)
class Scaling:
    """What is done to features before a model sees them.

    - ``"none"``: nothing.
    - ``"rows"``: each row is divided by the sum of its absolute values; rows of zeros stay.
    - ``"columns"``: ``(x − shift) / scale`` in each column, with the mean and the standard deviation of the
      graph of :meth:`fit`. Of sparse features the shift is 0 and the scale the root mean square, so that
      zeros stay zeros. A column that was constant (sparse: zero) becomes 0.
    - ``"auto"``: :meth:`fit` takes columns where features have different units: where the size of a column,
      the root mean square of its nonzero entries, is over ``UNITS`` or over ``UNITS`` times that of another
      column; otherwise none.

    Attributes:
        kind: One of these.
        shift, scale: float32 ``(F,)``; 0 and 1 where they are not used. A scale of 0 makes a column 0.
    """

    kind: Kind
    shift: Tensor
    scale: Tensor

    @classmethod
    def fit(cls, x: Features, kind: Kind) -> Scaling:
        """The scaling of features ``(n, F)``, dense or sparse. Sums are computed in float64."""
        if kind not in get_args(Kind):
            raise ArgumentError(f"kind must be one of {', '.join(get_args(Kind))}, got {kind!r}.")
        x = as_features(x)
        values = x.values if isinstance(x, SparseFeatures) else x
        if kind == "auto":
            sizes = _sizes(x)
            units = len(sizes) and float(sizes.max()) > UNITS * min(1.0, float(sizes.min()))
            kind = "columns" if units else "none"
        shift = torch.zeros(x.shape[-1], dtype=torch.float64, device=values.device)
        scale = torch.ones_like(shift)
        if kind == "columns":
            shift, scale = _moments(x)
        shift, scale = shift.float(), scale.float()
        if not bool((torch.isfinite(shift) & torch.isfinite(scale)).all()):
            raise DataError("the features hold NaN, or numbers beyond float32: clean them first.")
        return cls(kind, shift, scale)

    def __call__(self, x: Features) -> Features:
        """Features ``(n, F)`` of this graph or another, scaled."""
        x = as_features(x)
        if x.shape[-1] != len(self.shift):
            raise ShapeError(
                f"x must have {len(self.shift)} features a node, as the scaling has, got {x.shape[-1]}."
            )
        if self.kind == "none":
            return x
        if self.kind == "rows":
            return _by_row(x)
        if isinstance(x, SparseFeatures):
            if not bool(self.shift.any()):
                return SparseFeatures(x.pattern, self._by_column(x.values, x.pattern.col.long()))
            x = x.dense()  # centred, zeros are no longer zeros
        return torch.cat([self._by_column(part, slice(None)) for part in x.split(ROWS)])

    def _by_column(self, values: Tensor, column: Tensor | slice) -> Tensor:
        """Values of these columns, ``(..., len(column))``."""
        shift, scale = (t.to(values.device, torch.float64)[column] for t in (self.shift, self.scale))
        moved = (values - shift) / torch.where(scale == 0, 1.0, scale)
        # far from what was fitted, a quotient may be beyond all numbers
        largest = torch.finfo(values.dtype).max
        return torch.where(scale == 0, 0.0, moved).clamp(-largest, largest).to(values.dtype)

    def tensors(self) -> dict[str, Tensor]:
        """What has to be stored beside the kind and the number of features."""
        if self.kind != "columns":
            return {}
        return {f"{PREFIX}shift": self.shift.cpu(), f"{PREFIX}scale": self.scale.cpu()}

    @classmethod
    def from_tensors(cls, kind: Kind, stored: MutableMapping[str, Tensor], width: int) -> Scaling:
        """From what :meth:`tensors` gave, which is taken out of ``stored``.

        Raises:
            ValueError: they are not those of ``width`` features.
        """
        if kind == "auto":
            kind = "columns" if f"{PREFIX}shift" in stored else "none"
        if kind != "columns":
            return cls(kind, torch.zeros(width), torch.ones(width))
        found = [stored.pop(f"{PREFIX}{name}", None) for name in ("shift", "scale")]
        for value in found:
            if value is None or value.shape != (width,) or value.dtype != torch.float32:
                raise ValueError("its scaling is not that of its features")
            if not bool(value.isfinite().all()):
                raise ValueError("its scaling is not finite")
        shift, scale = found
        assert shift is not None and scale is not None
        return cls(kind, shift, scale)


def _sizes(x: Features) -> Tensor:
    """Root mean square of the nonzero entries of each column that has any, in float64."""
    values = x.values if isinstance(x, SparseFeatures) else x
    total = torch.zeros(x.shape[1], dtype=torch.float64, device=values.device)
    count = total.clone()
    if isinstance(x, SparseFeatures):
        total.index_add_(0, x.pattern.col.long(), x.values.double().square())
        count.index_add_(0, x.pattern.col.long(), (x.values != 0).double())
    else:
        for part in x.split(ROWS):
            total += part.double().square().sum(0)
            count += (part != 0).sum(0)
    return (total / count.clamp_min(1)).sqrt()[count > 0]


def _moments(x: Features) -> tuple[Tensor, Tensor]:
    """Shift and scale of each column in float64; a scale of 0 where all entries are equal."""
    if isinstance(x, SparseFeatures):
        squares = torch.zeros(x.shape[1], dtype=torch.float64, device=x.values.device)
        squares.index_add_(0, x.pattern.col.long(), x.values.double().square())
        return torch.zeros_like(squares), (squares / x.shape[0]).sqrt()
    mean = x.mean(0, dtype=torch.float64)
    squares = torch.zeros_like(mean)
    for part in x.split(ROWS):
        squares += (part.double() - mean).square().sum(0)
    # the mean of equal numbers need not be that number to the last digit
    return mean, torch.where(x.amax(0) == x.amin(0), 0.0, (squares / len(x)).sqrt())


def _by_row(x: Features) -> Features:
    """Rows divided by the sums of their absolute values; those of zeros stay."""
    if not isinstance(x, SparseFeatures):
        peak = x.abs().amax(1, keepdim=True)
        x = x / torch.where(peak == 0, 1.0, peak)  # at most 1: the sum does not overflow
        total = x.abs().sum(1, keepdim=True, dtype=torch.float64)
        return x / torch.where(total == 0, 1.0, total).to(x.dtype)
    row, rows, values = x.pattern.row.long(), x.shape[0], x.values
    peak = values.new_zeros(rows).scatter_reduce(0, row, values.abs(), "amax")
    values = values / torch.where(peak == 0, 1.0, peak)[row]
    total = torch.zeros(rows, dtype=torch.float64, device=values.device)
    total.index_add_(0, row, values.double().abs())
    return SparseFeatures(x.pattern, values / torch.where(total == 0, 1.0, total).to(values.dtype)[row])
