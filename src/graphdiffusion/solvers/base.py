"""What a scheme is: one step of it, and where it may be used."""

from __future__ import annotations

import copy
import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor, nn

from ..errors import ArgumentError
from ..ops import combine
from ..registry import Registry
from .field import NEEDS, Field, described
from .solution import Stats

State = tuple[Tensor, ...]  # the solution first, then what the scheme remembers
Room = tuple[int, ...]  # a capacity: steps, products, or both


class Solver(nn.Module):
    """Base of all solvers. Tolerances are buffers, so that members may differ in them.

    Attributes:
        order: Of the error at the end.
        explicit: Whether a step has a limit of stability.
        limit: Largest stable τα for diffusion (theorem 1).
        captures: Whether a step needs no look at the device, so that it can be part of a CUDA graph once
            its capacity is fixed (:meth:`with_capacity`).
        follows_rate: Whether the capacity depends on the rate of the equation beside T.
        needs: What it needs of an equation beside dx/dt: ``"parts"``, ``"stiff"`` or ``"after"``, the name
            of the method; ``None``: nothing.
        adjoint: Whether the continuous adjoint of what it integrates exists.
        evaluates_again: Whether the backward pass evaluates the right-hand side again.
        rounded: Whether powers of A times a state are bfloat16.
    """

    group = "solver"
    order: int
    explicit = True
    limit = 1.0
    captures = False
    follows_rate = False
    needs: str | None = None
    adjoint = True
    evaluates_again = rounded = False

    @abstractmethod
    def solve(
        self,
        field: Field,
        x: Tensor,
        start: Tensor,
        end: Tensor,
        times: Tensor | None,
        stats: Stats,
        checkpoint: bool,
    ) -> tuple[Tensor, list[Tensor]]:
        """x(end) from x(start), and x at the output times.

        Args:
            start, end: Times, ``(..., 1, 1)``: one for each member, or ``(1, 1)``.
            times: Output times in [start, end], ``(m, ..., 1, 1)``, in order; ``None``: none.
            checkpoint: Keep only every √N-th state for the backward pass and recompute the others.
        """

    def capacity(self, span: Tensor, rate: Tensor, dtype: torch.dtype = torch.float32) -> Room:
        """Steps, products, or both, for the members that need most of them.

        Args:
            span, rate: T and the rate of diffusion of each member, ``(P,)``.
            dtype: Of the states.
        """
        raise NotImplementedError(f"{type(self).__name__} has no capacity that is known beforehand.")

    def limit_at(self, rate: float) -> float:
        """Largest stable τα at the scale α of diffusion."""
        return self.limit

    def held(self, time: float) -> int:
        """Estimate of the states that the backward pass of an integral needs, at rate 1."""
        return 12 * self.marks(time)

    def marks(self, time: float) -> int:
        """Estimate of the steps or products between which checkpoints can lie, at rate 1."""
        return max(math.ceil(time / 2), 4)

    def products(self, time: float) -> int:
        """Estimate of the states that steps keep besides, such as those of sparse products, at rate 1."""
        return 0

    def check_capacity(self, span: Tensor) -> None:
        """Refuse to integrate over a span that needs more than a given capacity."""

    def with_capacity(self, room: Room) -> Self:
        """The same scheme with that capacity, whatever T is."""
        raise NotImplementedError(f"{type(self).__name__} has no capacity that is known beforehand.")

    def _copy(self, **changes: Any) -> Self:
        other = copy.copy(self)
        for name, value in changes.items():
            setattr(other, name, value)
        return other


SOLVERS: Registry[Solver] = Registry("solver", "graphdiffusion.solvers")


@dataclass
class Step:
    """One step of a scheme that marches.

    Attributes:
        state: After it.
        retry: Where to start again if it is not accepted.
        error: Gives an estimate of the error, like the solution; ``None`` where the scheme has none.
        between: The solution at a share θ of the step, ``(..., 1, 1)`` → ``(..., n, d)``.
    """

    state: State
    retry: State
    error: Callable[[], Tensor] | None
    between: Callable[[Tensor], Tensor]


class Marching(Solver):
    """Base of schemes that go from step to step, with a control of the step size in a subclass."""

    def begin(self, field: Field, t: Tensor, x: Tensor) -> State:
        """The state before the first step."""
        return (x,)

    @abstractmethod
    def step(self, field: Field, t: Tensor, h: Tensor, state: State, index: int, stats: Stats) -> Step:
        """One step of size h ``(..., 1, 1)``, zero for members at their end; ``index`` counts from 0."""


def hermite(
    field: Field, t: Tensor, h: Tensor, x: Tensor, slope: Tensor, new: Tensor, end: Tensor | None = None
) -> Callable[[Tensor], Tensor]:
    """Cubic interpolation of a step from values and slopes at both ends; error O(h⁴).

    Args:
        slope: f at the start of the step.
        end: f at its end; evaluated when it is first needed if it is not known.
    """

    def between(theta: Tensor) -> Tensor:
        nonlocal end
        if end is None:
            end = field(t + h, new)
        s = theta.to(x.dtype)
        weights = [
            (1 + 2 * s) * (1 - s) ** 2, h * s * (1 - s) ** 2, s**2 * (3 - 2 * s), h * s**2 * (s - 1),
        ]  # fmt: skip
        return combine(weights, [x, slope, new, end])

    return between


Hits = list[tuple[int, bool]]  # outputs that lie in a step for some member, and whether for all members


def unset(x: Tensor, times: Tensor | None) -> list[Tensor]:
    """Outputs before the first step: NaN, which stays where a member fails before their time."""
    return [] if times is None else [x.new_full((), torch.nan).expand_as(x)] * len(times)


def record(
    outputs: list[Tensor],
    hits: Hits,
    inside: Tensor,
    times: Tensor,
    t: Tensor,
    h: Tensor,
    between: Callable[[Tensor], Tensor],
) -> None:
    """Set the outputs with times inside a step.

    Args:
        outputs: States so far, changed in place.
        inside: Whether an output lies in the step, ``(m, ..., 1, 1)``.
        times: Of the outputs, likewise.
        t, h: Start and size of the step.
    """
    for number, every in hits:
        theta = (times[number] - t) / torch.where(h == 0, 1.0, h)
        # the end of a step, but for rounding, is its end; the gradient of the time stays
        theta = torch.where((theta - 1).abs() < 1e-9, 1 + (theta - theta.detach()), theta)
        found = between(theta.clamp(0, 1))
        outputs[number] = found if every else torch.where(inside[number], found, outputs[number])


def lacking(solver: Solver, field: Any, name: str | None = None) -> ArgumentError:
    """For a right-hand side, or an equation, without what the scheme needs."""
    named = f"solver {name}" if name else type(solver).__name__
    return ArgumentError(
        f"{named} needs {NEEDS[solver.needs or '']}; got {described(field)}. Schemes for any equation are "
        "dopri5 and rk4."
    )


def refuse_adjoint(solver: Solver) -> None:
    """ArgumentError for a scheme whose equation has no continuous adjoint, or that would gain nothing."""
    if not solver.adjoint:
        raise ArgumentError(
            f"{type(solver).__name__} has no continuous adjoint, because past states are part of its "
            "equation: take the gradient backprop or checkpoint."
        )
    if solver.rounded and isinstance(solver, Marching):
        raise ArgumentError(
            "precision bfloat16 saves nothing with the adjoint, which keeps no powers: take the gradient "
            "backprop or checkpoint, or leave precision out."
        )


def instability(solver: Solver, step_size: float, rate: float, stable: bool) -> str | None:
    """A sentence about a step that is too long, or ``None``.

    Theorem 1: explicit Euler is stable for 0 < τ < 1 (here τα, with α the scale of diffusion).
    """
    size, limit = step_size * rate, solver.limit_at(rate)
    if not solver.explicit or (stable and size < min(1.0, limit)):
        return None
    if stable:
        reason = (
            f"Theorem 1 guarantees a stable explicit scheme for τα < 1; the limit of "
            f"{type(solver).__name__} is {limit:g}."
        )
    else:
        reason = "A matrix that is not normalised may amplify: no step is stable for it."
    return (
        f"step size τ = {step_size:g} at diffusion scale α = {rate:g} gives τα = {size:g}. {reason} Take a "
        "smaller step, an adaptive scheme, ExponentialMidpoint, SemiImplicitEuler or (linear model) "
        "Exponential."
    )
