"""Implicit multistep: Adams-Moulton with predictor and corrector (section 3.3, appendix F)."""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import ArgumentError, NotConverged
from . import tableaux
from .explicit import AdamsBashforth4
from .solution import MAX_EVALUATIONS, Field, Stats
from .stepping import FixedStep, State, runge_kutta, weighted


class AdamsMoulton4(FixedStep):
    r"""Adams-Moulton of order 4, :math:`x^+ = x + \tau(9f^+ + 19f - 5f_{-1} + f_{-2})/24`.

    Predicted by Adams-Bashforth, then corrected until two iterates differ by less than the tolerance;
    started by three steps of RK4. The scheme is stable for τα < 1.5; the corrector, a fixed-point
    iteration, converges for τα < 4/3. Beyond that it raises :class:`NotConverged`.

    Args:
        rtol, atol: The corrector stops when the change of every entry is at most
            ``atol + rtol·max|x|``.
        max_iterations: Corrections allowed in one step.
    """

    order = 4
    explicit = False
    limit = 1.5
    weights = (9 / 24, 19 / 24, -5 / 24, 1 / 24)

    def __init__(
        self,
        step_size: float = 0.5,
        *,
        rtol: float = 1e-5,
        atol: float = 1e-7,
        max_iterations: int = 100,
        max_evaluations: int = MAX_EVALUATIONS,
        max_steps: int | None = None,
    ) -> None:
        super().__init__(step_size, max_evaluations=max_evaluations, max_steps=max_steps)
        if rtol < 0 or atol < 0 or rtol + atol == 0 or max_iterations < 1:
            raise ArgumentError(
                f"need rtol ≥ 0, atol ≥ 0, one of them positive, and max_iterations ≥ 1; got rtol={rtol}, "
                f"atol={atol}, max_iterations={max_iterations}."
            )
        self.rtol, self.atol, self.max_iterations = rtol, atol, max_iterations

    def step(self, field: Field, t: Tensor, h: Tensor, state: State, index: int, stats: Stats) -> State:
        x, *past = state
        now = field(t, x)
        if index < 3:
            new, _ = runge_kutta(tableaux.RK4, field, t, h, x, now)
            return (new, now, *past[:2])
        predicted = weighted(x, h, AdamsBashforth4.weights, [now, *past])
        return (self._correct(field, t + h, h, x, predicted, [now, *past[:2]], stats), now, *past[:2])

    def _correct(
        self,
        field: Field,
        t: Tensor,
        h: Tensor,
        x: Tensor,
        guess: Tensor,
        known: list[Tensor],
        stats: Stats,
    ) -> Tensor:
        base = weighted(x, h, self.weights[1:], known)
        scale = self.atol + self.rtol * x.detach().abs().amax((-2, -1), keepdim=True)
        for _ in range(self.max_iterations):
            new = torch.addcmul(base, field(t, guess), h, value=self.weights[0])
            stats.inner_iterations += 1
            change = (new.detach() - guess.detach()).abs().amax((-2, -1), keepdim=True)
            going = (change > scale) & torch.isfinite(change)  # a member that is NaN stays so, alone
            if not bool(going.any()):
                return new
            # a member that has converged stands still, as it would alone
            guess = new if going.numel() == 1 else torch.where(going, new, guess)
        raise NotConverged(
            f"the corrector of AdamsMoulton4 still changed by {float(change.max()):.3g} after "
            f"{self.max_iterations} iterations at τ = {self.step_size:g} (it converges for τα < 4/3). "
            "Take a smaller step, or SemiImplicitEuler, which is stable for every step.",
            going[..., 0, 0],
        )
