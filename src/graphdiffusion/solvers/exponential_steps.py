"""What the exponential schemes share: where their series are cut off, and what they refuse."""

from __future__ import annotations

import math
from typing import Annotated, Any, Self

import torch
from torch import Tensor

from ..options import Bounds
from .adaptive import Adaptive
from .base import Marching, Room
from .exponential import Precision, check_tolerance, is_rounded
from .fixed import FixedStep
from .frozen import Cut, Frozen, freeze
from .solution import Stats, too_many_evaluations

_PARTS = 8  # of a unit of τα: in such pieces a capacity grows


class ExponentialSteps(Marching):
    """Base of the schemes that freeze A for a step and solve what is then linear in closed form.

    Terms other than diffusion are frozen likewise: a source enters exactly, a reaction to the order of the
    scheme. Diffusion sets no limit of stability; a fast reaction may.
    """

    explicit = False
    needs = "stiff"
    tolerance: float | None
    cutoff = 1e-5  # the tolerance in float32, where none is given
    max_evaluations: int

    def first(self, field: Any, t: Tensor, x: Tensor, index: int, stats: Stats) -> Frozen:
        """The right-hand side at the start of a step; before the first step α is looked at."""
        return freeze(field, t, x, stats if index == 0 else None)

    def cut(self, field: Any, h: Tensor, dtype: torch.dtype) -> Cut:
        """Where the series of a step of size h are cut off; a member that needs more terms is NaN."""
        reach = (h.detach().double() * field.rate.detach()).nan_to_num(0.0).max()
        return Cut(min(float(reach), self.max_evaluations), self._tolerance(dtype), self.rounded)

    def _tolerance(self, dtype: torch.dtype) -> float:
        return self.tolerance or (1e-12 if dtype == torch.float64 else self.cutoff)


class FixedExponential(ExponentialSteps, FixedStep):
    """An exponential scheme with steps of one size.

    Args:
        tolerance: Weight of each series that may be cut off; by default 1e-3 in float32 (1e-5 in the scheme
            of order 4) and 1e-12 in float64.
        precision: Of the powers of A times x in a step: that of the model (full), or bfloat16, which takes
            half the memory and is an approximation. Sums of them, the states between the steps, and
            gradients stay float32.
    """

    # With 1e-3 the series of an integral on Cora (T = 18.3, 4 to 36 steps) change the state by less than
    # 1e-4. After 60 epochs the steps err by 3e-4 to 6e-3, and this adds less than a hundredth of it, with
    # a sixth fewer products than 1e-4 needs.
    cutoff = 1e-3
    captures = True
    follows_rate = True
    series: tuple[float, ...]  # the exponentials of a step, each by its share of τα
    reach: float | None = None  # with a capacity: the largest τα that the series have room for

    def __init__(
        self,
        step_size: Annotated[float, Bounds(0, above=True)] = 1.0,
        *,
        tolerance: float | None = None,
        precision: Precision = "full",
        **more: Any,
    ) -> None:
        super().__init__(step_size, **more)
        check_tolerance(tolerance)
        self.tolerance, self.rounded = tolerance, is_rounded(precision)

    def capacity(self, span: Tensor, rate: Tensor, dtype: torch.dtype = torch.float32) -> Room:
        """Steps of the longest member, and the largest τα of a step, in eighths."""
        reach = (span / self.steps(span) * rate).nan_to_num(0.0).max()
        parts = math.ceil(_PARTS * min(float(reach), self.max_evaluations))
        return *super().capacity(span, rate, dtype), parts

    def with_capacity(self, room: Room) -> Self:
        return self._copy(max_steps=room[0], reach=room[1] / _PARTS)

    def products(self, time: float) -> int:
        steps = int(self.steps(torch.tensor(time)))
        cut = Cut(min(time / steps, self.max_evaluations), self._tolerance(torch.float32))
        return steps * sum(map(cut.terms, self.series))

    def first(self, field: Any, t: Tensor, x: Tensor, index: int, stats: Stats) -> Frozen:
        if self.max_steps is None:
            return super().first(field, t, x, index, stats)
        return freeze(field, t, x)  # nothing is read from the device

    def cut(self, field: Any, h: Tensor, dtype: torch.dtype) -> Cut:
        if self.max_steps is None:
            return super().cut(field, h, dtype)
        reach = self.step_size if self.reach is None else self.reach  # where none is given, α ≤ 1
        return Cut(min(reach, self.max_evaluations), self._tolerance(dtype), self.rounded)

    def solve(
        self,
        field: Any,
        x: Tensor,
        start: Tensor,
        end: Tensor,
        times: Tensor | None,
        stats: Stats,
        checkpoint: bool,
    ) -> tuple[Tensor, list[Tensor]]:
        if self.max_steps is None and hasattr(field, "rate"):
            span = (end - start).detach()
            over = span / self.steps(span) * field.rate.detach() > self.max_evaluations
            if bool(over.any()):  # their series would need more products than that
                stats.fail(too_many_evaluations(self.max_evaluations, over[..., 0, 0]))
        return super().solve(field, x, start, end, times, stats, checkpoint)


class AdaptiveExponential(ExponentialSteps, Adaptive):
    """An exponential scheme with steps that follow an estimate of the error.

    Args:
        tolerance: Weight of each series that may be cut off; by default 1e-5 in float32 and 1e-12 in
            float64. It should be far below rtol.
    """

    keeps_last = True

    def __init__(
        self,
        rtol: Annotated[float | Tensor, Bounds(0)] = 1e-3,
        atol: Annotated[float | Tensor, Bounds(0)] = 1e-4,
        *,
        tolerance: float | None = None,
        **more: Any,
    ) -> None:
        super().__init__(rtol, atol, **more)
        check_tolerance(tolerance)
        self.tolerance = tolerance
