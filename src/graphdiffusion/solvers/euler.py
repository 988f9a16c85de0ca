"""Forward Euler."""

from __future__ import annotations

from .base import SOLVERS
from .runge_kutta import FixedRungeKutta
from .tableau import Tableau


@SOLVERS.register("euler")
class Euler(FixedRungeKutta):
    """Forward Euler, equation (7). Order 1, 1 evaluation. Stable for τα < 1 (theorem 1).

    One step is one layer of a residual network.
    """

    tableau = Tableau(1, (), (1.0,))
