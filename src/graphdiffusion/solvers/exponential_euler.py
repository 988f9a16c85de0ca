"""The exponential Euler scheme."""

from __future__ import annotations

from torch import Tensor

from .base import SOLVERS, State, Step
from .exponential_steps import FixedExponential
from .field import Field
from .solution import Stats


@SOLVERS.register("exponential-euler")
class ExponentialEuler(FixedExponential):
    r"""Exponential Euler: A is frozen at the start of a step. Order 1, 1 evaluation of A a step.

    .. math:: x^+ = e^{\tau M(x)} x + \tau\varphi_1(\tau M(x))\,g, \quad M(x) = \alpha(A(x) - I)

    with g for the terms other than diffusion. A series of sparse products gives the exponential. Without
    such terms a step is a convex combination of the states before it: the bound of equation (3) holds for
    every τ. Exact for the linear model.
    """

    order = 1
    evaluations = 1
    series = (1.0,)

    def step(self, field: Field, t: Tensor, h: Tensor, state: State, index: int, stats: Stats) -> Step:
        (x,) = state
        frozen = self.first(field, t, x, index, stats)
        cut = self.cut(field, h, x.dtype)
        new = frozen.solve(h, x, cut, stats)
        return Step((new,), (x,), None, frozen.curve(h, x, new, cut))
