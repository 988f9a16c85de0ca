"""Heun's scheme with Euler's inside it."""

from __future__ import annotations

from .base import SOLVERS
from .runge_kutta import AdaptiveRungeKutta
from .tableau import Tableau


@SOLVERS.register("heun21")
class HeunEuler(AdaptiveRungeKutta):
    """Heun-Euler 2(1). Order 2, 2 evaluations a step. For loose tolerances."""

    tableau = Tableau(2, ((1.0,),), (1 / 2, 1 / 2), error=(-1 / 2, 1 / 2))
