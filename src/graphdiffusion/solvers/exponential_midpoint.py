"""The exponential midpoint rule, with steps of one size and with Euler's scheme inside it."""

from __future__ import annotations

from torch import Tensor

from .base import SOLVERS, State, Step
from .exponential_steps import AdaptiveExponential, ExponentialSteps, FixedExponential
from .field import Field
from .frozen import freeze
from .solution import Stats


class _Midpoint(ExponentialSteps):
    order = 2

    def step(self, field: Field, t: Tensor, h: Tensor, state: State, index: int, stats: Stats) -> Step:
        x = state[0]
        first = self.first(field, t, x, index, stats)
        cut = self.cut(field, h, x.dtype)
        middle = freeze(field, t + h / 2, first.solve(h, x, cut, stats, share=0.5))
        new = middle.solve(h, x, cut, stats)

        def error() -> Tensor:
            return new - first.solve(h, x, cut, stats)

        return Step((new,), (x,), error, middle.curve(h, x, new, cut))


@SOLVERS.register("exponential-midpoint")
class ExponentialMidpoint(_Midpoint, FixedExponential):
    r"""Exponential midpoint rule: A is frozen at half a step. Order 2, 2 evaluations of A a step.

    .. math::
        y = e^{\frac\tau2 M(x)} x, \quad x^+ = e^{\tau M(y)} x, \quad M(x) = \alpha(A(x) - I)

    with sources and other terms g by :math:`\varphi_1`, as in
    :class:`~graphdiffusion.solvers.ExponentialEuler`. Without such terms both exponentials are convex
    combinations: the bound of equation (3) holds for every τ. Exact for the linear model.
    """

    evaluations = 2
    series = (0.5, 1.0)


@SOLVERS.register("exponential21")
class ExponentialMidpointEuler(_Midpoint, AdaptiveExponential):
    """Exponential midpoint rule with exponential Euler inside it, 2(1). Order 2, 2 evaluations a step.

    As :class:`~graphdiffusion.solvers.ExponentialMidpoint`, with steps that follow the difference of the
    two: the bound of equation (3) holds here too.
    """

    stages = 2  # a step evaluates its start itself, also after a rejected one
