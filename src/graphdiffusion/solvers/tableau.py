"""Butcher tableaux of Runge-Kutta schemes (appendix F) with an explicit first stage."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import ArgumentError


@dataclass(frozen=True)
class Tableau:
    """Coefficients of a scheme that is explicit, or diagonally implicit with one diagonal (ESDIRK).

    Attributes:
        order: Order of the solution that is kept.
        a: Row i gives stage i + 2 from the earlier ones.
        b: Weights of the solution.
        error: ``b − b*``, weights of the error estimate (appendix F), or ``None``.
        limit: Largest τα for which a disc of that radius around −τα lies in the region of stability;
            the spectrum of τα(A − I) lies in such a disc for every stochastic A.
        dense: Row i holds the coefficients of θ, θ², … in the weight of stage i at a share θ of the step;
            ``None``: cubic interpolation.
        diagonal: γ, the weight of every stage but the first in itself; 0: explicit.
    """

    order: int
    a: tuple[tuple[float, ...], ...]
    b: tuple[float, ...]
    error: tuple[float, ...] | None = None
    limit: float = 1.0
    dense: tuple[tuple[float, ...], ...] | None = None
    diagonal: float = 0.0

    def __post_init__(self) -> None:
        stages = len(self.b)
        if len(self.a) != stages - 1 or any(len(row) != k + 1 for k, row in enumerate(self.a)):
            raise ArgumentError(
                f"a tableau with {stages} weights has rows of 1, 2, ... {stages - 1} entries, got rows of "
                f"{[len(row) for row in self.a]}."
            )
        for name, weights, total in (("b", self.b, 1.0), ("error", self.error, 0.0)):
            if weights is not None and (len(weights) != stages or abs(sum(weights) - total) > 1e-6):
                raise ArgumentError(
                    f"{name} of a tableau must have {stages} entries with the sum {total:g}, got "
                    f"{len(weights)} with {sum(weights):g}."
                )
        if self.dense is not None:
            ends = [sum(row) for row in self.dense]
            if len(ends) != stages or any(abs(e - b) > 1e-6 for e, b in zip(ends, self.b, strict=True)):
                raise ArgumentError(
                    "dense of a tableau must have a row for each stage, which sums up to b."
                )

    @property
    def c(self) -> tuple[float, ...]:
        """Times of the stages, as fractions of the step."""
        return (0.0, *(sum(row) + self.diagonal for row in self.a))

    @property
    def first_same_as_last(self) -> bool:
        """The last stage is the first of the next step."""
        return bool(self.a) and self.a[-1] == self.b[:-1] and self.b[-1] == self.diagonal
