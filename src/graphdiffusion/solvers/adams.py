"""Linear multistep schemes of Adams: explicit, and implicit with predictor and corrector (section 3.3)."""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from torch import Tensor

from ..errors import ArgumentError, NotConverged
from ..options import Bounds
from ..partition.whole import largest_entry
from .base import SOLVERS, State, Step, hermite
from .field import Field
from .fixed import FixedStep
from .implicit import FixedImplicit
from .rk4 import RK4
from .runge_kutta import explicit_stages, weighted
from .solution import MAX_EVALUATIONS, Stats


class _Multistep(FixedStep):
    """Four steps of memory, started by three steps of RK4."""

    order = 4

    def step(self, field: Field, t: Tensor, h: Tensor, state: State, index: int, stats: Stats) -> Step:
        x, *past = state
        now = field(t, x)
        if index < 3:
            new, _ = explicit_stages(RK4.tableau, field, t, h, x, now)
        else:
            new = self.formula(field, t, h, x, [now, *past], stats)
        return Step((new, now, *past[:2]), state, None, hermite(field, t, h, x, now, new))

    def formula(
        self, field: Field, t: Tensor, h: Tensor, x: Tensor, slopes: list[Tensor], stats: Stats
    ) -> Tensor:
        """The new state from the slopes of now and of the three steps before."""
        raise NotImplementedError


@SOLVERS.register("adams-bashforth")
class AdamsBashforth4(_Multistep):
    """Four-step Adams-Bashforth. Order 4, 1 evaluation a step, started by three steps of RK4.

    Its region of stability is small: τα < 0.15 for diffusion.
    """

    limit = 0.15
    weights = (55 / 24, -59 / 24, 37 / 24, -9 / 24)

    def formula(
        self, field: Field, t: Tensor, h: Tensor, x: Tensor, slopes: list[Tensor], stats: Stats
    ) -> Tensor:
        return weighted(x, h, self.weights, slopes)


@SOLVERS.register("adams-moulton")
class AdamsMoulton4(_Multistep, FixedImplicit):
    r"""Three-step Adams-Moulton, implicit. Order 4, with a predictor and a corrector.

    .. math:: x^+ = x + \tau(9f^+ + 19f - 5f_{-1} + f_{-2})/24

    or with four steps, of order 5,

    .. math:: x^+ = x + \tau(251f^+ + 646f - 264f_{-1} + 106f_{-2} - 19f_{-3})/720

    Predicted by Adams-Bashforth, then corrected until two iterates differ by less than the tolerance;
    started by three steps of RK4. With three steps the scheme is stable for τα < 1.5, with four for
    τα < 0.92. The paper's corrector, a fixed-point iteration, converges for τα < 4/3 with three steps;
    beyond that it fails with :class:`NotConverged`. Newton's converges wherever the scheme is stable.

    Args:
        memory: Steps of the formula, 3 or 4.
        corrector: Fixed-point iteration, or Newton-Krylov.
        rtol: Relative tolerance: the corrector stops when the change of every entry is at most
            ``atol + rtol·max|x|``, Newton's when its residual is at most a tenth of it.
        atol: Absolute tolerance likewise.
        max_iterations: Corrections allowed in one step; of Newton's, iterations in one linear solve.
    """

    explicit = False
    limit = 1.5
    weights: tuple[float, ...] = (9 / 24, 19 / 24, -5 / 24, 1 / 24)

    def __init__(
        self,
        step_size: Annotated[float, Bounds(0, above=True)] = 1.0,
        *,
        memory: Annotated[int, Bounds(3, 4)] = 3,
        corrector: Literal["fixed-point", "newton"] = "fixed-point",
        rtol: Annotated[float, Bounds(0)] = 1e-3,
        atol: Annotated[float, Bounds(0)] = 1e-4,
        max_iterations: Annotated[int, Bounds(1)] = 100,
        max_evaluations: Annotated[int, Bounds(1)] = MAX_EVALUATIONS,
        max_steps: int | None = None,
    ) -> None:
        super().__init__(
            step_size, rtol=rtol, atol=atol, max_iterations=max_iterations, max_evaluations=max_evaluations,
            max_steps=max_steps,
        )  # fmt: skip
        if memory not in (3, 4) or corrector not in ("fixed-point", "newton"):
            raise ArgumentError(
                f"need memory 3 or 4, and corrector fixed-point or newton; got {memory} and {corrector!r}."
            )
        self.corrector, self.evaluates_again = corrector, corrector == "newton"
        if memory == 4:
            self.order, self.limit = 5, 45 / 49
            self.weights = (251 / 720, 646 / 720, -264 / 720, 106 / 720, -19 / 720)

    def formula(
        self, field: Field, t: Tensor, h: Tensor, x: Tensor, slopes: list[Tensor], stats: Stats
    ) -> Tensor:
        guess = weighted(x, h, AdamsBashforth4.weights, slopes)
        base = weighted(x, h, self.weights[1:], slopes)
        if self.corrector == "newton":
            return self.root(field, t + h, base, self.weights[0] * h, guess, x, stats).x
        scale = self.atol + self.rtol * largest_entry(x)
        for _ in range(self.max_iterations):
            new = torch.addcmul(base, field(t + h, guess), h, value=self.weights[0])
            stats.inner_iterations += 1
            change = largest_entry(new.detach() - guess.detach())
            going = (change > scale) & torch.isfinite(change)  # a member that is NaN stays so, alone
            if not bool(going.any()):
                return new
            # a member that has converged stands still, as it would alone
            guess = new if going.numel() == 1 else torch.where(going, new, guess)
        stats.fail(
            NotConverged(
                f"the corrector of AdamsMoulton4 still changed by {float(change.max()):.3g} after "
                f"{self.max_iterations} iterations at τ = {self.step_size:g} (it converges for τα < 4/3). "
                "Take a smaller step, corrector newton, or esdirk, which is stable for every step.",
                going[..., 0, 0],
            )
        )
        return torch.where(going, torch.nan, new)
