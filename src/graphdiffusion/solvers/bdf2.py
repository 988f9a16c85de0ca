"""The backward differentiation formula with two steps."""

from __future__ import annotations

from torch import Tensor

from .base import SOLVERS, State, Step
from .field import Field
from .implicit import FixedImplicit
from .solution import Stats


@SOLVERS.register("bdf2")
class BDF2(FixedImplicit):
    r"""Two-step backward differentiation (Curtiss and Hirschfelder, 1952), implicit. Order 2, L-stable.

    .. math:: x^+ = (4x - x_{-1})/3 + \tfrac23\tau f^+

    Stable for every step. Started by one step of backward Euler, whose error is of order 2 as well.
    Between steps the parabola through the last three states.
    """

    order = 2

    def step(self, field: Field, t: Tensor, h: Tensor, state: State, index: int, stats: Stats) -> Step:
        x = state[0]
        if index == 0:
            base, s, guess, bend = x, h, x, x.new_zeros(1, 1)
        else:
            base, s = (4 * x - state[1]) / 3, 2 / 3 * h
            guess = 2 * x - state[1]
        new = self.root(field, t + h, base, s, guess, x, stats).x
        if index:
            bend = new - guess

        def between(theta: Tensor) -> Tensor:
            share = theta.to(x.dtype)
            return x + share * (new - x) + share * (share - 1) / 2 * bend

        return Step((new, x), state, None, between)
