"""Butcher tableaux of explicit Runge-Kutta schemes (appendix F)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tableau:
    """Coefficients of an explicit scheme.

    Attributes:
        order: Order of the solution that is kept.
        a: Row i gives stage i + 2 from the earlier ones.
        b: Weights of the solution.
        error: ``b − b*``, weights of the error estimate (appendix F), or ``None``.
        limit: Largest τα for which a disc of that radius around −τα lies in the region of stability;
            the spectrum of τα(A − I) lies in such a disc for every stochastic A.
        dense: Row i holds the coefficients of θ, θ², … in the weight of stage i at a share θ of the step;
            ``None``: cubic interpolation.
    """

    order: int
    a: tuple[tuple[float, ...], ...]
    b: tuple[float, ...]
    error: tuple[float, ...] | None = None
    limit: float = 1.0
    dense: tuple[tuple[float, ...], ...] | None = None

    @property
    def c(self) -> tuple[float, ...]:
        """Times of the stages, as fractions of the step."""
        return (0.0, *(sum(row) for row in self.a))

    @property
    def first_same_as_last(self) -> bool:
        """The last stage is the first of the next step."""
        return bool(self.a) and self.a[-1] == self.b[:-1] and self.b[-1] == 0
