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
    """

    name: str
    order: int
    a: tuple[tuple[float, ...], ...]
    b: tuple[float, ...]
    error: tuple[float, ...] | None = None
    limit: float = 1.0

    @property
    def c(self) -> tuple[float, ...]:
        """Times of the stages, as fractions of the step."""
        return (0.0, *(sum(row) for row in self.a))

    @property
    def first_same_as_last(self) -> bool:
        """The last stage is the first of the next step."""
        return bool(self.a) and self.a[-1] == self.b[:-1] and self.b[-1] == 0


EULER = Tableau("Euler", 1, (), (1.0,))
MIDPOINT = Tableau("midpoint", 2, ((1 / 2,),), (0.0, 1.0))
HEUN = Tableau("Heun", 2, ((1.0,),), (1 / 2, 1 / 2))
RK4 = Tableau(
    "classical Runge-Kutta 4",
    4,
    ((1 / 2,), (0.0, 1 / 2), (0.0, 0.0, 1.0)),
    (1 / 6, 1 / 3, 1 / 3, 1 / 6),
    limit=1.3926,
)
THREE_EIGHTHS = Tableau(
    "Runge-Kutta 4, 3/8 rule",
    4,
    ((1 / 3,), (-1 / 3, 1.0), (1.0, -1.0, 1.0)),
    (1 / 8, 3 / 8, 3 / 8, 1 / 8),
    limit=1.3926,
)
# Heun 2(1): Heun's scheme, with Euler's inside it
HEUN21 = Tableau("Heun 2(1)", 2, ((1.0,),), (1 / 2, 1 / 2), error=(-1 / 2, 1 / 2))
# Bogacki and Shampine 1989
BOGACKI_SHAMPINE = Tableau(
    "Bogacki-Shampine 3(2)",
    3,
    ((1 / 2,), (0.0, 3 / 4), (2 / 9, 1 / 3, 4 / 9)),
    (2 / 9, 1 / 3, 4 / 9, 0.0),
    error=(2 / 9 - 7 / 24, 1 / 3 - 1 / 4, 4 / 9 - 1 / 3, -1 / 8),
)
# Dormand and Prince 1980
DORMAND_PRINCE = Tableau(
    "Dormand-Prince 5(4)",
    5,
    (
        (1 / 5,),
        (3 / 40, 9 / 40),
        (44 / 45, -56 / 15, 32 / 9),
        (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
        (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
        (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
    ),
    (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84, 0.0),
    error=(
        35 / 384 - 5179 / 57600,
        0.0,
        500 / 1113 - 7571 / 16695,
        125 / 192 - 393 / 640,
        -2187 / 6784 + 92097 / 339200,
        11 / 84 - 187 / 2100,
        -1 / 40,
    ),
)
