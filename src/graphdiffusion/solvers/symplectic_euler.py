"""Symplectic Euler, for equations of second order."""

from __future__ import annotations

import torch
from torch import Tensor

from .base import SOLVERS, State, Step, lacking
from .field import Field
from .fixed import FixedStep
from .solution import Stats


@SOLVERS.register("symplectic-euler")
class SymplecticEuler(FixedStep):
    r"""Symplectic Euler, for equations of second order. Order 1, 1 evaluation a step.

    .. math:: v^+ = v + \tau f(x, v), \quad x^+ = x + \tau v^+

    It is the scheme of GraphCON, explicit in the force and implicit in the velocity. An oscillator with the
    angular frequency ω and the damping δ is stable for :math:`\tau^2\omega^2 < 4 - 2\tau\delta`. Without
    damping its energy stays bounded for all times, while that of forward Euler grows at every step size.
    Between steps the state is interpolated linearly.

    It asks the equation for its positions and velocities, and refuses one that has none.
    """

    order = 1
    needs = "parts"

    def step(self, field: Field, t: Tensor, h: Tensor, state: State, index: int, stats: Stats) -> Step:
        (x,) = state
        parts = getattr(field, "parts", lambda channels: None)(x.shape[-1])
        if parts is None:
            raise lacking(self, field)
        position, velocity = parts
        pushed = torch.addcmul(x[..., velocity], h, field(t, x)[..., velocity])
        moved = torch.addcmul(x[..., position], h, pushed)
        new = x
        for part, own in ((position, moved), (velocity, pushed)):
            first, stop, _ = part.indices(x.shape[-1])
            new = new.slice_scatter(own, -1, first, stop)
        return Step((new,), (x,), None, lambda theta: torch.lerp(x, new, theta.to(x.dtype)))
