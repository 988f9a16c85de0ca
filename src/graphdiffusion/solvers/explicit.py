"""Explicit schemes with a fixed step: Runge-Kutta and Adams-Bashforth."""

from __future__ import annotations

from torch import Tensor

from . import tableaux
from .solution import Field, Stats
from .stepping import FixedStep, RungeKutta, State, runge_kutta, weighted


class Euler(RungeKutta):
    """Forward Euler, equation (7). Order 1, 1 evaluation. Stable for τα < 1 (theorem 1)."""

    tableau = tableaux.EULER


class Midpoint(RungeKutta):
    """Explicit midpoint. Order 2, 2 evaluations. Stable for τα < 1."""

    tableau = tableaux.MIDPOINT


class Heun(RungeKutta):
    """Heun's scheme, the explicit trapezium. Order 2, 2 evaluations. Stable for τα < 1."""

    tableau = tableaux.HEUN


class RK4(RungeKutta):
    """The classical Runge-Kutta scheme of appendix F. Order 4, 4 evaluations. Stable for τα < 1.39."""

    tableau = tableaux.RK4
    limit = tableaux.RK4.limit


class RK4ThreeEighths(RungeKutta):
    """Kutta's 3/8 rule, which torchdiffeq calls ``rk4``. Order 4, 4 evaluations, τα < 1.39."""

    tableau = tableaux.THREE_EIGHTHS
    limit = tableaux.THREE_EIGHTHS.limit


class AdamsBashforth4(FixedStep):
    """Four-step Adams-Bashforth. Order 4, 1 evaluation a step, started by three steps of RK4.

    Its region of stability is small: τα < 0.15 for diffusion.
    """

    order = 4
    limit = 0.15
    weights = (55 / 24, -59 / 24, 37 / 24, -9 / 24)

    def step(self, field: Field, t: Tensor, h: Tensor, state: State, index: int, stats: Stats) -> State:
        x, *past = state
        now = field(t, x)
        if index < 3:
            new, _ = runge_kutta(tableaux.RK4, field, t, h, x, now)
        else:
            new = weighted(x, h, self.weights, [now, *past])
        return (new, now, *past[:2])
