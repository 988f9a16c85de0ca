"""Coefficients of an equation: numbers that are fixed or learnt, for all channels or for each."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from ..diffusivity.timebasis import combine, legendre
from ..errors import ArgumentError


class Coefficient(nn.Module):
    """A number of the equation: fixed or learnt, constant or a polynomial in time.

    Args:
        initial: Its value at the start.
        learn: Whether it is a parameter.
        bounded: Keep it in (0, 1) by a sigmoid; ``initial`` must lie there.
        channels: One number for each of so many channels; ``None``: one for all.
        terms: Number of Legendre polynomials on ``[0, horizon]``; 1 is a constant.
        horizon: Needed for more than one term. At later times the value is that at the horizon.
    """

    horizon: Tensor

    def __init__(
        self,
        initial: float,
        *,
        learn: bool = True,
        bounded: bool = False,
        channels: int | None = None,
        terms: int = 1,
        horizon: float | None = None,
    ) -> None:
        super().__init__()
        if bounded and not 0 < initial < 1:
            raise ArgumentError(f"a bounded coefficient starts between 0 and 1, got {initial}.")
        if not math.isfinite(initial):
            raise ArgumentError(f"a coefficient must start finite, got {initial}.")
        if terms < 1 or (terms > 1 and not (horizon and horizon > 0)):
            raise ArgumentError(
                f"need terms ≥ 1, and a horizon > 0 for more than one; got terms={terms}, "
                f"horizon={horizon}."
            )
        self.initial, self.bounded, self.terms = initial, bounded, terms
        # (terms, 1, channels): stacked over members, a term broadcasts against states (..., n, d)
        self.raw = nn.Parameter(torch.empty(terms, 1, channels or 1), requires_grad=learn)
        # a buffer, so that members may differ in it
        self.register_buffer("horizon", torch.full((1, 1), float(horizon or 1)), persistent=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the coefficient to its start."""
        start = math.log(self.initial / (1 - self.initial)) if self.bounded else self.initial
        with torch.no_grad():
            self.raw.zero_()[0] = start

    def forward(self, t: Tensor | None = None) -> Tensor:
        """Its value at time t, ``(..., 1, 1)`` or ``(..., 1, channels)``."""
        if self.terms == 1 or t is None:
            value = self.raw[..., 0, :, :]
        else:
            value = combine(legendre(t, self.horizon, self.terms), self.raw, 2)
        return torch.sigmoid(value) if self.bounded else value

    def largest(self, reach: Tensor | float = 0.0) -> Tensor:
        """A bound of its absolute value at all times and in all channels, ``(..., 1, 1)``.

        Args:
            reach: How far each entry of a learnt parameter may still move, ``(..., 1, 1)``.
        """
        raw = self.raw.detach().double()
        move = reach if self.raw.requires_grad else 0.0
        # polynomials lie in [−1, 1]
        first, rest = raw[..., 0, :, :], raw[..., 1:, :, :].abs().sum(-3)
        if self.terms > 1:
            rest = rest + (self.terms - 1) * move
        value = torch.sigmoid(first + move + rest) if self.bounded else first.abs() + move + rest
        return value.amax(-1, keepdim=True)

    def extra_repr(self) -> str:
        wide = "" if self.raw.shape[-1] == 1 else f", channels={self.raw.shape[-1]}"
        return f"{self.initial}, learn={self.raw.requires_grad}, terms={self.terms}{wide}"
