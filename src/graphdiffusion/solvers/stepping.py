"""Schemes that march: the contract of a step, and the loop over steps of a fixed size."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from ..errors import ArgumentError, StabilityWarning
from ..ops import combine
from .solution import MAX_EVALUATIONS, Counted, Field, Stats, too_many_evaluations
from .tableaux import Tableau

State = tuple[Tensor, ...]  # the solution first, then what the scheme remembers


class Solver:
    """Base of all solvers. ``explicit`` schemes have a ``limit`` on τα (theorem 1)."""

    explicit = True
    limit = 1.0
    max_evaluations: int  # of the right-hand side, for each member on its own

    def advance(
        self, field: Field, x: Tensor, start: Tensor, end: Tensor, stats: Stats, thrifty: bool
    ) -> Tensor:
        """x(end) from x(start).

        Args:
            start, end: Times, ``(..., 1, 1)``: one for each member, or ``(1, 1)``.
            thrifty: Keep only every √N-th state for the backward pass and recompute the others.
        """
        raise NotImplementedError


def runge_kutta(
    tableau: Tableau, field: Field, t: Tensor, h: Tensor | float, x: Tensor, first: Tensor
) -> tuple[Tensor, list[Tensor]]:
    """One explicit step from x, given f(t, x): the new state and the stages (appendix F)."""
    stages = [first]
    for c, row in zip(tableau.c[1:], tableau.a, strict=True):
        y = weighted(x, h, row, stages)
        stages.append(field(t + c * h, y))
    # where the last stage is the first of the next step, it was evaluated at the new state
    return y if tableau.first_same_as_last else weighted(x, h, tableau.b, stages), stages


def weighted(
    x: Tensor | None, h: Tensor | float, weights: tuple[float, ...], stages: list[Tensor]
) -> Tensor:
    """``x + h Σ w_i k_i``."""
    pairs = [(w, k) for w, k in zip(weights, stages, strict=False) if w]
    if isinstance(h, float):  # known beforehand: the step goes into the weights
        (w, k), *others = pairs
        total = k * (h * w) if x is None else torch.add(x, k, alpha=h * w)
        for w, k in others:
            total.add_(k, alpha=h * w)
        return total
    return combine([w * h for w, _ in pairs], [k for _, k in pairs], x)


class FixedStep(Solver):
    """Steps of one size.

    Args:
        step_size: The largest step τ. The interval is cut into the fewest equal steps no longer than
            that; members with different T take different numbers of steps.
        max_evaluations: Limit on evaluations of the right-hand side, known before the first step; the
            iterations inside an implicit step are not counted.
        max_steps: Capacity: the loop takes so many steps, and T is not read from the device. A member that
            needs fewer takes the rest with size zero; one that needs more is NaN at the end.
    """

    evaluations = 1  # in one step

    def __init__(
        self,
        step_size: float = 0.5,
        *,
        max_evaluations: int = MAX_EVALUATIONS,
        max_steps: int | None = None,
    ) -> None:
        if not (0 < step_size < math.inf):
            raise ArgumentError(f"step_size must be a positive number, got {step_size}.")
        if max_steps is not None and max_steps < 1:
            raise ArgumentError(f"max_steps must be at least 1, got {max_steps}.")
        self.step_size, self.max_evaluations, self.max_steps = step_size, max_evaluations, max_steps

    def begin(self, field: Field, t: Tensor, x: Tensor) -> State:
        return (x,)

    def step(self, field: Field, t: Tensor, h: Tensor, state: State, index: int, stats: Stats) -> State:
        raise NotImplementedError

    def advance(
        self, field: Field, x: Tensor, start: Tensor, end: Tensor, stats: Stats, thrifty: bool
    ) -> Tensor:
        counted = Counted(field, stats, None)
        span = end - start
        steps = self.steps(span.detach())
        longest = self.max_steps
        if longest is None:
            longest = self.longest(steps[..., 0, 0].expand(x.shape[:-2]))
        together = self.max_steps is None and steps.numel() == 1  # all members arrive in the last step
        size = span / steps
        stats.last_step = size.detach()
        stats.accepted += longest

        def march(state: State, first: int, last: int) -> State:
            for index in range(first, last):
                t = start + index * size
                if together:
                    state = self.step(counted, t, size.to(x.dtype), state, index, stats)
                    continue
                # a member that has arrived takes steps of size zero; selected, because 0 · ∞ is NaN
                going = index < steps
                h = torch.where(going, size, 0.0)
                new, *memory = self.step(counted, t, h.to(x.dtype), state, index, stats)
                state = (torch.where(going, new, state[0]), *memory)
            return state

        out = segmented(march, self.begin(counted, start, x), longest, thrifty)[0]
        return out if together else torch.where(steps <= longest, out, torch.nan)

    def steps(self, span: Tensor) -> Tensor:
        """Number of steps for a time span, as floats; NaN where the span is NaN."""
        return torch.ceil(span / self.step_size - 1e-6).clamp_min(1)

    def check_capacity(self, spans: Tensor) -> None:
        """Refuse to integrate over spans that need more than ``max_steps``."""
        needed = self.steps(spans.detach()).max()
        if self.max_steps is not None and bool(needed > self.max_steps):
            raise ArgumentError(
                f"{int(needed)} steps of τ = {self.step_size:g} are needed, but max_steps is "
                f"{self.max_steps}: raise it, or leave it out."
            )

    def longest(self, steps: Tensor) -> int:
        """Steps of the member that needs most, of all members ``(*members)``; NaN needs one."""
        over = steps * self.evaluations > self.max_evaluations
        if bool(over.any()):
            raise too_many_evaluations(self.max_evaluations, over)
        return int(steps.nan_to_num(1.0).max())

    def __repr__(self) -> str:
        return f"{type(self).__name__}(step_size={self.step_size})"


def segmented(march: Callable[[State, int, int], State], state: State, steps: int, thrifty: bool) -> State:
    """All steps; if ``thrifty``, in √N segments whose inside is recomputed in the backward pass."""
    if not thrifty or not torch.is_grad_enabled():
        return march(state, 0, steps)
    length = math.ceil(math.sqrt(steps))
    for first in range(0, steps, length):
        last = min(first + length, steps)
        out: Any = checkpoint(_positional(march, first, last), *state, use_reentrant=False)
        state = tuple(out)
    return state


def _positional(march: Callable[[State, int, int], State], first: int, last: int) -> Callable[..., State]:
    return lambda *state: march(state, first, last)


class RungeKutta(FixedStep):
    """Explicit Runge-Kutta scheme with a fixed step; the subclasses name the tableau."""

    tableau: Tableau

    @property
    def order(self) -> int:
        return self.tableau.order

    @property
    def evaluations(self) -> int:  # type: ignore[override]
        return len(self.tableau.b)

    def step(self, field: Field, t: Tensor, h: Tensor, state: State, index: int, stats: Stats) -> State:
        (x,) = state
        return (runge_kutta(self.tableau, field, t, h, x, field(t, x))[0],)


def warn_if_unstable(solver: FixedStep, rate: float) -> None:
    """Theorem 1: explicit Euler is stable for 0 < τ < 1 (here τα, with α the scale of diffusion)."""
    size = solver.step_size * rate
    if solver.explicit and size >= min(1.0, solver.limit):
        warnings.warn(
            f"step size τ = {solver.step_size:g} at diffusion scale α = {rate:g} gives τα = {size:g}. "
            f"Theorem 1 guarantees a stable explicit scheme for τα < 1; the limit of "
            f"{type(solver).__name__} is {solver.limit:g}. Take a smaller step, an adaptive scheme, "
            "SemiImplicitEuler or (linear model) Exponential.",
            StabilityWarning,
            stacklevel=3,
        )
