"""What the exponential schemes share: where their series are cut off, and what they refuse."""

from __future__ import annotations

from typing import Annotated, Any

import torch
from torch import Tensor

from ..errors import SolverError
from ..options import Bounds
from .adaptive import Adaptive
from .base import Marching
from .exponential import check_tolerance
from .fixed import FixedStep
from .frozen import Cut, Frozen, freeze
from .solution import Stats, too_many_evaluations


class ExponentialSteps(Marching):
    """Base of the schemes that freeze A for a step and solve what is then linear in closed form.

    Terms other than diffusion are frozen likewise: a source enters exactly, a reaction to the order of the
    scheme. Diffusion sets no limit of stability; a fast reaction may.
    """

    explicit = False
    tolerance: float | None
    cutoff = 1e-5  # the tolerance in float32, where none is given
    max_evaluations: int

    def first(self, field: Any, t: Tensor, x: Tensor, index: int, stats: Stats) -> Frozen:
        """The right-hand side at the start of a step; before the first step α is looked at."""
        return freeze(field, t, x, stats if index == 0 else None)

    def cut(self, field: Any, h: Tensor, dtype: torch.dtype) -> Cut:
        """Where the series of a step of size h are cut off; a member that needs more terms is NaN."""
        reach = (h.detach().double() * field.rate.detach()).nan_to_num(0.0).max()
        return Cut(min(float(reach), self.max_evaluations), self._tolerance(dtype))

    def _tolerance(self, dtype: torch.dtype) -> float:
        return self.tolerance or (1e-12 if dtype == torch.float64 else self.cutoff)


class FixedExponential(ExponentialSteps, FixedStep):
    """An exponential scheme with steps of one size.

    Args:
        tolerance: Weight of each series that may be cut off; by default 1e-4 in float32 (1e-5 in the scheme
            of order 4) and 1e-12 in float64.
    """

    # With 1e-4 the series of an integral on Cora (T = 18.3, 4 to 8 steps) change the state by less than
    # 5e-6, far less than the steps do, with a fifth fewer products than 1e-5 needs.
    cutoff = 1e-4
    captures = True
    follows_rate = True
    series: tuple[float, ...]  # the exponentials of a step, each by its share of τα

    def __init__(
        self,
        step_size: Annotated[float, Bounds(0, above=True)] = 1.0,
        *,
        tolerance: float | None = None,
        **more: Any,
    ) -> None:
        super().__init__(step_size, **more)
        check_tolerance(tolerance)
        self.tolerance = tolerance

    def capacity(self, span: Tensor, rate: Tensor, dtype: torch.dtype = torch.float32) -> int:
        """Steps of the longest member; their series have room for α ≤ 1, as the layer bounds it."""
        if bool((rate > 1).any()):
            fastest = float(rate.max())
            message = f"{type(self).__name__} has room for rates of diffusion up to 1, got {fastest:g}."
            raise SolverError(message, rate > 1)
        return super().capacity(span, rate, dtype)

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
        return Cut(min(self.step_size, self.max_evaluations), self._tolerance(dtype))

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
