"""The explicit midpoint rule."""

from __future__ import annotations

from .base import SOLVERS
from .runge_kutta import FixedRungeKutta
from .tableau import Tableau


@SOLVERS.register("midpoint")
class Midpoint(FixedRungeKutta):
    """Explicit midpoint rule. Order 2, 2 evaluations. Stable for τα < 1."""

    tableau = Tableau(2, ((1 / 2,),), (0.0, 1.0))
