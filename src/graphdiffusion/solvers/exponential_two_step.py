"""The exponential midpoint rule with midpoints that the step before predicts."""

from __future__ import annotations

from torch import Tensor

from .base import SOLVERS, State, Step
from .exponential_steps import FixedExponential
from .field import Field
from .frozen import freeze
from .solution import Stats


@SOLVERS.register("exponential-two-step")
class ExponentialTwoStep(FixedExponential):
    r"""Exponential midpoint rule in two steps: one evaluation of A a step, and one at the start. Order 2.

    .. math::
        x_{n+1} = e^{\tau M(y_n)} x_n, \quad y_{n+1} = e^{\frac{3\tau}2 M(y_n)} x_n, \quad
        y_0 = e^{\frac\tau2 M(x_0)} x_0, \quad M(x) = \alpha(A(x) - I)

    with sources and other terms g by :math:`\varphi_1`, as in
    :class:`~graphdiffusion.solvers.ExponentialEuler`. The next midpoint is the solution of this step,
    continued by half a step: it takes a few products more and no evaluation. Its error is of second order,
    as that of the exponential midpoint rule is. Without further terms all states are convex
    combinations: the bound of equation (3) holds for every τ. Exact for the linear model.
    """

    order = 2
    evaluations = 1
    series = (1.5,)

    def step(self, field: Field, t: Tensor, h: Tensor, state: State, index: int, stats: Stats) -> Step:
        return self._step(field, t, h, state, index, stats, (1.0, 1.5))

    def last_step(self, field: Field, t: Tensor, h: Tensor, state: State, index: int, stats: Stats) -> Step:
        return self._step(field, t, h, state, index, stats, (1.0,))

    def _step(
        self,
        field: Field,
        t: Tensor,
        h: Tensor,
        state: State,
        index: int,
        stats: Stats,
        shares: tuple[float, ...],
    ) -> Step:
        x = state[0]
        start = self.first(field, t, x, index, stats) if index == 0 else None
        cut = self.cut(field, h, x.dtype)
        middle = state[1] if start is None else start.solve(h, x, cut, stats, share=0.5)
        frozen = freeze(field, t + h / 2, middle)
        # a member whose last step comes before that of others: the same bits
        found = frozen.solutions(h, x, cut, stats, shares, among_others=True)
        return Step(found, (x,), None, frozen.curve(h, x, found[0], cut))
