"""Bogacki and Shampine's pair."""

from __future__ import annotations

from .base import SOLVERS
from .runge_kutta import AdaptiveRungeKutta
from .tableau import Tableau


@SOLVERS.register("bosh3")
class BogackiShampine(AdaptiveRungeKutta):
    """Bogacki-Shampine 3(2), 1989. Order 3, 3 evaluations a step. For loose tolerances."""

    tableau = Tableau(
        3,
        ((1 / 2,), (0.0, 3 / 4), (2 / 9, 1 / 3, 4 / 9)),
        (2 / 9, 1 / 3, 4 / 9, 0.0),
        error=(2 / 9 - 7 / 24, 1 / 3 - 1 / 4, 4 / 9 - 1 / 3, -1 / 8),
    )
