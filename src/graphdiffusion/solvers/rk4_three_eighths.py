"""Kutta's 3/8 rule."""

from __future__ import annotations

from .base import SOLVERS
from .runge_kutta import FixedRungeKutta
from .tableau import Tableau


@SOLVERS.register("rk4-38")
class RK4ThreeEighths(FixedRungeKutta):
    """Kutta's 3/8 rule, which torchdiffeq calls ``rk4``. Order 4, 4 evaluations. Stable for τα < 1.39."""

    tableau = Tableau(
        4,
        ((1 / 3,), (-1 / 3, 1.0), (1.0, -1.0, 1.0)),
        (1 / 8, 3 / 8, 3 / 8, 1 / 8),
        limit=1.3926,
    )
