"""Strang's splitting: what the equation solves by itself, and the rest by the midpoint rule."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .base import SOLVERS, State, Step, lacking
from .field import Field
from .fixed import FixedStep
from .midpoint import Midpoint
from .runge_kutta import explicit_stages
from .solution import Stats


@SOLVERS.register("strang")
class Strang(FixedStep):
    r"""Strang's splitting, for equations with a stiff term that has a solution of its own. Order 2.

    .. math:: x^+ = \Phi_{\tau/2}\,\Psi_\tau\,\Phi_{\tau/2}\,x

    Φ is the exact solution of the terms that are ``solved`` (:class:`~graphdiffusion.equation.Term`),
    such as the double well of ``acmp``, and Ψ a step of the explicit midpoint rule for all others, 2
    evaluations. A solved term sets no limit to the step, however large features are: after every step of
    ``acmp`` they are below :math:`(1 - e^{-\delta\tau})^{-1/2}`. For the others τα < 1 is the limit.

    It asks the equation for these solutions, and refuses one that has none. An output time between steps
    takes a shorter step of its own.
    """

    order = 2
    evaluations = 2
    limit = Midpoint.tableau.limit
    needs = "after"

    def products(self, time: float) -> int:
        return 8 * self.marks(time)  # each of the two exact solutions of a step keeps four

    def step(self, field: Field, t: Tensor, h: Tensor, state: State, index: int, stats: Stats) -> Step:
        if not getattr(field, "offers", lambda what: False)(self.needs):
            raise lacking(self, field)
        (x,) = state
        new = split(field, t, h, x)

        def between(theta: Tensor) -> Tensor:
            found = split(field, t, theta.to(x.dtype) * h, x)
            # at the end the new state itself, with the gradient of the shorter step
            return torch.where(theta == 1, new.detach() + (found - found.detach()), found)

        return Step((new,), (x,), None, between)


def split(field: Field, t: Tensor, h: Tensor, x: Tensor) -> Tensor:
    """The state after a step of size h from x."""
    own: Any = field
    x = own.after(t + h / 4, x, h / 2)
    x, _ = explicit_stages(Midpoint.tableau, own.remainder, t, h, x, own.remainder(t, x))
    return own.after(t + 3 * h / 4, x, h / 2, True)
