"""The classical Runge-Kutta scheme."""

from __future__ import annotations

from .base import SOLVERS
from .runge_kutta import FixedRungeKutta
from .tableau import Tableau


@SOLVERS.register("rk4")
class RK4(FixedRungeKutta):
    """The classical Runge-Kutta scheme of appendix F. Order 4, 4 evaluations. Stable for τα < 1.39."""

    tableau = Tableau(
        4,
        ((1 / 2,), (0.0, 1 / 2), (0.0, 0.0, 1.0)),
        (1 / 6, 1 / 3, 1 / 3, 1 / 6),
        limit=1.3926,
    )
