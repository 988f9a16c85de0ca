"""Fractional time: the derivative of Caputo, of an order between 0 and 1."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Annotated, Any

import numpy as np
import torch
from torch import Tensor

from ..errors import ArgumentError
from ..ops import combine
from ..options import Bounds
from .base import SOLVERS, State, Step
from .field import Field
from .fixed import FixedStep
from .solution import Stats


@SOLVERS.register("fractional")
class Fractional(FixedStep):
    r"""Fractional time: :math:`D^\beta x = f(t, x)` with Caputo's derivative, as in `"FROND"
    <https://arxiv.org/abs/2404.17099>`_. Adams' predictor-corrector of order 1 + β, 2 evaluations a step.

    .. math::
        x(t) = x(0) + \frac{1}{\Gamma(\beta)} \int_0^t (t - s)^{\beta - 1} f(s, x(s))\,ds

    Any equation is integrated so, in place of dx/dt = f; β = 1 is that. The state remembers its whole past:
    features move fast at first, and approach their limit like :math:`t^{-\beta}` instead of exponentially,
    so that long diffusion forgets less. The predictor takes f as constant in each step, the corrector as
    linear (Diethelm, Ford and Freed, 2002). For diffusion with the scale α the scheme is stable for
    :math:`\tau^\beta\alpha < \Gamma(\beta + 2)/2`. N steps keep N slopes and add up N² of them.

    There is no continuous adjoint: past states are part of the equation. Between steps the state is
    interpolated linearly, in the first one like :math:`t^\beta`.

    Args:
        derivative: β, the order of the derivative, in (0, 1].
        history: Short memory: so many steps are remembered, and the derivative starts from the state before
            them; 0: all. What is left out is an error that depends on the remembered time, not on τ, and
            vanishes for β = 1.
    """

    evaluations = 2
    adjoint = False
    order = 1

    def __init__(
        self,
        step_size: Annotated[float, Bounds(0, above=True)] = 1.0,
        *,
        derivative: Annotated[float, Bounds(0, 1, above=True)] = 0.8,
        history: Annotated[int, Bounds(0)] = 0,
        **more: Any,
    ) -> None:
        super().__init__(step_size, **more)
        if not 0 < derivative <= 1 or history < 0:
            raise ArgumentError(
                f"need a derivative in (0, 1] and a history of 0 or more slopes, got {derivative} and "
                f"{history}."
            )
        self.derivative, self.history = derivative, history
        self.limit = (math.gamma(derivative + 2) / 2) ** (1 / derivative)  # for α = 1

    def limit_at(self, rate: float) -> float:
        # τ^β α < Γ(β + 2)/2, as a limit of τα
        return self.limit * rate ** (1 - 1 / self.derivative) if rate > 0 else math.inf

    def begin(self, field: Field, t: Tensor, x: Tensor) -> State:
        return (x,) if self.history else (x, x)

    def step(self, field: Field, t: Tensor, h: Tensor, state: State, index: int, stats: Stats) -> Step:
        x, *past = state
        now = field(t, x)
        if self.history:  # states and slopes of the last steps
            half = len(past) // 2
            states = [*past[:half], x][-self.history :]
            slopes = [*past[half:], now][-self.history :]
        else:  # the first state alone, and all slopes
            states, slopes = past[:1], [*past[1:], now]
        start = states[0]
        beta = self.derivative
        # a member at its end has h = 0, where the slope of the power is not finite
        scale = torch.where(h > 0, torch.where(h > 0, h, 1.0) ** beta, 0.0)
        predictor, corrector = weights(len(slopes), beta)
        guess = _added(start, scale, predictor, slopes)
        new = _added(start, scale, corrector, [*slopes, field(t + h, guess)])
        power = beta if index == 0 else 1.0

        def between(theta: Tensor) -> Tensor:
            share = theta.to(x.dtype)
            return torch.lerp(x, new, share.clamp_min(torch.finfo(x.dtype).tiny) ** power)

        return Step((new, *states, *slopes), state, None, between)

    def __repr__(self) -> str:
        memory = f", history={self.history}" if self.history else ""
        return f"Fractional(step_size={self.step_size}, derivative={self.derivative}{memory})"


@torch.compiler.assume_constant_result  # numbers of the program that is compiled
@lru_cache(maxsize=1024)
def weights(count: int, beta: float) -> tuple[tuple[float, ...], tuple[float, ...]]:
    r"""Weights of the slopes, oldest first, over :math:`\tau^\beta`: of the predictor and of the corrector.

    The corrector has one more, of the slope at the predicted end. Both are integrals of
    :math:`(t - s)^{\beta - 1}/\Gamma(\beta)` times a function that is constant or linear in each step.
    """
    age = np.arange(count, 0, -1.0)  # steps from a slope to the end
    explicit = (age**beta - (age - 1) ** beta) / math.gamma(beta + 1)
    power = beta + 1
    implicit = (age + 1) ** power + (age - 1) ** power - 2 * age**power
    last = count - 1.0
    implicit[0] = last**power - (last - beta) * count**beta
    last_weight = 1 / math.gamma(beta + 2)
    return tuple(explicit.tolist()), (*(implicit * last_weight).tolist(), last_weight)


def _added(start: Tensor, scale: Tensor, numbers: Sequence[float], slopes: list[Tensor]) -> Tensor:
    """``start + scale Σ w_j f_j``."""
    return combine([number * scale for number in numbers], slopes, start)
