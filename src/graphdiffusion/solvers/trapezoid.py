"""The trapezoidal rule."""

from __future__ import annotations

from .base import SOLVERS
from .implicit import DiagonallyImplicit, FixedImplicit
from .tableau import Tableau


@SOLVERS.register("trapezoid")
class Trapezoid(DiagonallyImplicit, FixedImplicit):
    r"""The trapezoidal rule (Crank and Nicolson), implicit. Order 2, stable for every step.

    .. math:: x^+ = x + \tau(f + f^+)/2

    A-stable, not L-stable: what decays much faster than τ alternates in sign and hardly decays.
    """

    tableau = Tableau(2, ((1 / 2,),), (1 / 2, 1 / 2), diagonal=1 / 2)
    evaluations = 2
