"""Heun's scheme."""

from __future__ import annotations

from .base import SOLVERS
from .runge_kutta import FixedRungeKutta
from .tableau import Tableau


@SOLVERS.register("heun")
class Heun(FixedRungeKutta):
    """Heun's scheme, the explicit trapezium. Order 2, 2 evaluations. Stable for τα < 1."""

    tableau = Tableau(2, ((1.0,),), (1 / 2, 1 / 2))
