"""The commutator-free scheme of order 4, with steps of one size and with the midpoint rule inside it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from .base import SOLVERS, State, Step, hermite
from .exponential_steps import AdaptiveExponential, ExponentialSteps, FixedExponential
from .field import Field
from .frozen import freeze, mixed
from .solution import Stats


class _CommutatorFree(ExponentialSteps):
    order = 4

    def step(self, field: Field, t: Tensor, h: Tensor, state: State, index: int, stats: Stats) -> Step:
        x = state[0]
        first = self.first(field, t, x, index, stats)
        cut = self.cut(field, h, x.dtype)
        half = first.solve(h, x, cut, stats, share=0.5)
        second = freeze(field, t + h / 2, half)
        third = freeze(field, t + h / 2, second.solve(h, x, cut, stats, share=0.5))
        fourth = freeze(field, t + h, mixed((1.0, -0.5), (third, first)).solve(h, half, cut, stats))
        parts = (first, second, third, fourth)
        middle = mixed((1 / 4, 1 / 6, 1 / 6, -1 / 12), parts).solve(h, x, cut, stats)
        new = mixed((-1 / 12, 1 / 6, 1 / 6, 1 / 4), parts).solve(h, middle, cut, stats)

        def error() -> Tensor:
            return new - second.solve(h, x, cut, stats)

        parted: tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]] | None = None

        def between(theta: Tensor) -> Tensor:
            nonlocal parted
            if parted is None:  # a solution with A frozen, and a cubic for what is left: 0 where A is fixed
                end = second.solve(h, x, cut, stats)
                start, stop = first(x) - second(x), field(t + h, new) - second(end)
                left = hermite(field, t, h, torch.zeros_like(x), start, new - end, stop)
                parted = second.curve(h, x, end, cut), left
            frozen, left = parted
            found = frozen(theta) + left(theta)
            # at the end the new state itself, with the gradient of the curve
            return torch.where(theta == 1, new.detach() + (found - found.detach()), found)

        return Step((new,), (x,), error, between)


@SOLVERS.register("exponential-cf4")
class ExponentialCF4(_CommutatorFree, FixedExponential):
    r"""Commutator-free scheme of Celledoni, Marthinsen and Owren, 2003. Order 4, 4 evaluations of A a step.

    .. math::
        &y_2 = e^{\frac12 F_1} x, \quad y_3 = e^{\frac12 F_2} x, \quad y_4 = e^{F_3 - \frac12 F_1} y_2, \\
        &x^+ = e^{\frac1{12}(-F_1 + 2F_2 + 2F_3 + 3F_4)}\, e^{\frac1{12}(3F_1 + 2F_2 + 2F_3 - F_4)} x

    with :math:`F_i = \tau\alpha(A(y_i) - I)`; sources and other terms are frozen beside A, so that a
    factor is an affine map. Exact for the linear model. The last two factors and that of :math:`y_4` have
    a negative weight: where A changes much in a step they are no convex combinations, and the bound of
    equation (3) is lost. Their norms stay below :math:`e^{\tau\alpha/6}` and :math:`e^{\tau\alpha}`.
    """

    cutoff = 1e-5  # its steps are more accurate
    evaluations = 4
    series = (1 / 2, 1 / 2, 3 / 2, 2 / 3, 2 / 3)


@SOLVERS.register("exponential42")
class ExponentialCF42(_CommutatorFree, AdaptiveExponential):
    """Commutator-free scheme with the exponential midpoint rule inside it, 4(2). Order 4, 4 evaluations.

    As :class:`~graphdiffusion.solvers.ExponentialCF4`, with steps that follow the difference of the two.
    On the stages of a step there is no other of order 3, so the estimate is cautious.
    """

    stages = 4  # a step evaluates its start itself, also after a rejected one
