"""One step of a Runge-Kutta scheme (appendix F); the stages of explicit schemes."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..ops import combine
from .adaptive import Adaptive
from .base import Marching, State, Step, hermite
from .field import Field
from .fixed import FixedStep
from .solution import Stats
from .tableau import Tableau


class RungeKutta(Marching):
    """The step that a tableau describes; a scheme adds a tableau and a control of the step size."""

    tableau: Tableau

    @property
    def order(self) -> int:  # type: ignore[override]
        return self.tableau.order

    @property
    def limit(self) -> float:  # type: ignore[override]
        return self.tableau.limit

    def begin(self, field: Field, t: Tensor, x: Tensor) -> State:
        return (x, field(t, x)) if self.tableau.first_same_as_last else (x,)

    def step(self, field: Field, t: Tensor, h: Tensor, state: State, index: int, stats: Stats) -> Step:
        x, first = state if len(state) == 2 else (state[0], field(t, state[0]))
        tableau = self.tableau
        new, stages = self.slopes(field, t, h, x, first, stats)
        last = stages[-1] if tableau.first_same_as_last else None

        def error() -> Tensor:
            assert tableau.error is not None
            return weighted(None, h, tableau.error, stages)

        def dense(theta: Tensor) -> Tensor:
            assert tableau.dense is not None
            s = theta.to(x.dtype)
            weights = [sum(p * s ** (k + 1) for k, p in enumerate(row)) * h for row in tableau.dense]
            found = combine(weights, stages, x)
            # at the end the new state itself, with the gradient of the interpolant
            return torch.where(s == 1, new.detach() + (found - found.detach()), found)

        between = dense if tableau.dense is not None else hermite(field, t, h, x, first, new, last)
        return Step((new,) if last is None else (new, last), (x, first), error, between)

    def slopes(
        self, field: Field, t: Tensor, h: Tensor, x: Tensor, first: Tensor, stats: Stats
    ) -> tuple[Tensor, list[Tensor]]:
        """The new state, and the slopes at the stages, of which the first is given."""
        return explicit_stages(self.tableau, field, t, h, x, first)


class FixedRungeKutta(RungeKutta, FixedStep):
    """A tableau with steps of one size."""

    @property
    def evaluations(self) -> int:  # type: ignore[override]
        return len(self.tableau.b)


class AdaptiveRungeKutta(RungeKutta, Adaptive):
    """A tableau with an error estimate, and steps that follow it."""

    @property
    def stages(self) -> int:  # type: ignore[override]
        return len(self.tableau.a)

    @property
    def keeps_last(self) -> bool:  # type: ignore[override]
        return self.tableau.first_same_as_last


def explicit_stages(
    tableau: Tableau, field: Field, t: Tensor, h: Tensor, x: Tensor, first: Tensor
) -> tuple[Tensor, list[Tensor]]:
    """The new state, and the slopes f at the stages, of which the first is given."""
    stages = [first]
    for c, row in zip(tableau.c[1:], tableau.a, strict=True):
        y = weighted(x, h, row, stages)
        stages.append(field(t + c * h, y))
    # where the last stage is the first of the next step, it was evaluated at the new state
    return y if tableau.first_same_as_last else weighted(x, h, tableau.b, stages), stages


def weighted(x: Tensor | None, h: Tensor, weights: Sequence[float], stages: Sequence[Tensor]) -> Tensor:
    """``x + h Σ w_i k_i``; without x the sum alone."""
    pairs = [(w, k) for w, k in zip(weights, stages, strict=False) if w]
    return combine([w * h for w, _ in pairs], [k for _, k in pairs], x)
