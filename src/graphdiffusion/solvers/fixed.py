"""Steps of one size."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Any, Self

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint as recompute

from ..errors import ArgumentError
from ..options import Bounds
from .base import Hits, Marching, Room, State, Step, record, unset
from .field import Counted, Field
from .solution import MAX_EVALUATIONS, Stats, too_many_evaluations


class FixedStep(Marching):
    """Steps of one size; subclasses give a step.

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
        step_size: Annotated[float, Bounds(0, above=True)] = 1.0,
        *,
        max_evaluations: Annotated[int, Bounds(1)] = MAX_EVALUATIONS,
        max_steps: int | None = None,
    ) -> None:
        super().__init__()
        if not (0 < step_size < math.inf):
            raise ArgumentError(f"step_size must be a positive number, got {step_size}.")
        if max_steps is not None and max_steps < 1:
            raise ArgumentError(f"max_steps must be at least 1, got {max_steps}.")
        self.step_size, self.max_evaluations, self.max_steps = step_size, max_evaluations, max_steps

    @property
    def captures(self) -> bool:  # type: ignore[override]
        return self.explicit  # the iterations of an implicit scheme read from the device

    def steps(self, span: Tensor) -> Tensor:
        """Number of steps for a time span, as floats; NaN where the span is NaN."""
        return torch.ceil(span / self.step_size - 1e-6).clamp_min(1)

    def capacity(self, span: Tensor, rate: Tensor, dtype: torch.dtype = torch.float32) -> Room:
        return (self._longest(self._limited(self.steps(span), Stats())),)

    def with_capacity(self, room: Room) -> Self:
        return self._copy(max_steps=room[0])

    def check_capacity(self, spans: Tensor) -> None:
        """Refuse to integrate over spans that need more than ``max_steps``."""
        needed = self.steps(spans.detach()).max()
        if self.max_steps is not None and bool(needed > self.max_steps):
            raise ArgumentError(
                f"{int(needed)} steps of τ = {self.step_size:g} are needed, but max_steps is "
                f"{self.max_steps}: raise it, or leave it out."
            )

    def held(self, time: float) -> int:
        return self.marks(time) * (self.evaluations + 1)

    def marks(self, time: float) -> int:
        return int(self.steps(torch.tensor(time)))

    def last_step(self, field: Field, t: Tensor, h: Tensor, state: State, index: int, stats: Stats) -> Step:
        """The step after which there is none: a scheme may leave out what only the next one needs."""
        return self.step(field, t, h, state, index, stats)

    def _limited(self, steps: Tensor, stats: Stats) -> Tensor:
        """The numbers of steps of all members, NaN for those that need too many."""
        over = steps * self.evaluations > self.max_evaluations
        if bool(over.any()):
            stats.fail(too_many_evaluations(self.max_evaluations, over))
        return torch.where(over, torch.nan, steps)

    def _longest(self, steps: Tensor) -> int:
        """Steps of the member that needs most; NaN needs one."""
        return int(steps.nan_to_num(1.0).max())

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
        counted = Counted(field, stats)
        span = end - start
        steps = self.steps(span.detach())
        if self.max_steps is None:
            lead = torch.broadcast_shapes(steps.shape, (*x.shape[:-2], 1, 1))
            limited = self._limited(steps.expand(lead)[..., 0, 0], stats)
            steps = limited[..., None, None] if bool(torch.isnan(limited).any()) else steps
        longest = self._longest(steps) if self.max_steps is None else self.max_steps
        together = self.max_steps is None and steps.numel() == 1  # all members arrive in the last step
        size = span / steps
        stats.last_step = size.detach()
        stats.accepted += longest
        place, hits = self._places(times, start, size, steps, longest)

        def march(state: State, outputs: list[Tensor], first: int, last: int) -> tuple[State, list[Tensor]]:
            outputs = list(outputs)
            for index in range(first, last):
                t = start + index * size
                going = index < steps
                # a member that has arrived takes steps of size zero; selected, because 0 · ∞ is NaN
                h = size if together else torch.where(going, size, 0.0)
                take = self.step if index + 1 < longest else self.last_step
                step = take(counted, t, h.to(x.dtype), state, index, stats)
                if times is not None and hits[index]:
                    record(outputs, hits[index], place == index, times, t, h, step.between)
                state = step.state
                if not together:
                    state = (torch.where(going, state[0], step.retry[0]), *state[1:])
            return state, outputs

        begin = self.begin(counted, start, x)
        state, outputs = segmented(march, begin, unset(x, times), longest, checkpoint)
        out = state[0]
        if together:
            return out, outputs
        valid = steps <= longest
        return torch.where(valid, out, torch.nan), [torch.where(valid, o, torch.nan) for o in outputs]

    def _places(
        self, times: Tensor | None, start: Tensor, size: Tensor, steps: Tensor, longest: int
    ) -> tuple[Tensor, list[Hits]]:
        """The step in which each output lies, ``(m, ..., 1, 1)``, and for each step the outputs in it."""
        if times is None:
            return start, []
        size = torch.where(size == 0, 1.0, size).detach()  # T = 0: all outputs are at the start
        place = torch.ceil((times - start).detach() / size - 1e-9) - 1
        place = torch.minimum(place, steps - 1).clamp_min(0)
        if self.max_steps is not None:  # nothing is known beforehand
            return place, [[(number, False) for number in range(len(times))]] * longest
        found: list[Hits] = [[] for _ in range(longest)]
        for number, own in enumerate(place.flatten(1).tolist()):
            for index in {int(k) for k in own if not math.isnan(k)}:
                found[index].append((number, all(k == index for k in own)))
        return place, found

    def __repr__(self) -> str:
        return f"{type(self).__name__}(step_size={self.step_size})"


March = Callable[[State, list[Tensor], int, int], tuple[State, list[Tensor]]]


def segmented(
    march: March, state: State, outputs: list[Tensor], steps: int, checkpoint: bool
) -> tuple[State, list[Tensor]]:
    """All steps; with ``checkpoint`` in √N segments, which are recomputed in the backward pass."""
    if not checkpoint or not torch.is_grad_enabled():
        return march(state, outputs, 0, steps)
    length = math.ceil(math.sqrt(steps))
    for first in range(0, steps, length):
        last = min(first + length, steps)
        found: Any = recompute(
            _flat(march, len(outputs), first, last), *outputs, *state, use_reentrant=False
        )
        outputs, state = list(found[: len(outputs)]), tuple(found[len(outputs) :])
    return state, outputs


def _flat(march: March, count: int, first: int, last: int) -> Callable[..., tuple[Tensor, ...]]:
    """A segment as a function of tensors alone: the outputs first, then the state."""

    def run(*tensors: Tensor) -> tuple[Tensor, ...]:
        state, outputs = march(tensors[count:], list(tensors[:count]), first, last)
        return (*outputs, *state)

    return run
