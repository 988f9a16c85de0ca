"""The semi-implicit Euler scheme of the paper."""

from __future__ import annotations

import torch
from torch import Tensor

from ..dynamics import Flow
from ..errors import ArgumentError
from .linear_solve import solve
from .solution import MAX_EVALUATIONS, Counted, Field, Stats
from .stepping import FixedStep, State


class SemiImplicitEuler(FixedStep):
    r""":math:`(I - \tau\alpha\bar A(x^{(k)}))\,x^{(k+1)} = x^{(k)} + \tau f(x^{(k)})`, equation (8).

    f stands for the terms other than diffusion. Order 1. Stable for every τ (theorem 2). A sparse
    linear system is solved in each step; its gradient comes from the implicit function theorem, so
    memory does not grow with the iterations.

    Args:
        step_size: The largest step τ.
        tolerance: Relative residual of the linear solve, which is computed in float64; by default 1e-8 for
            a state in float32, 1e-12 in float64. Rounding leaves 2e-15 τα, however small it is.
        max_iterations: Iterations allowed in one solve.
    """

    order = 1
    explicit = False

    def __init__(
        self,
        step_size: float = 1.0,
        *,
        tolerance: float | None = None,
        max_iterations: int = 1000,
        max_evaluations: int = MAX_EVALUATIONS,
        max_steps: int | None = None,
    ) -> None:
        super().__init__(step_size, max_evaluations=max_evaluations, max_steps=max_steps)
        if tolerance is not None and not 0 < tolerance < 1:
            raise ArgumentError(f"tolerance must lie between 0 and 1, got {tolerance}.")
        self.tolerance, self.max_iterations = tolerance, max_iterations

    def step(self, field: Field, t: Tensor, h: Tensor, state: State, index: int, stats: Stats) -> State:
        (x,) = state
        flow = field.field if isinstance(field, Counted) else field
        if not isinstance(flow, Flow):
            raise ArgumentError(
                "SemiImplicitEuler needs the structure of the equation: pass Diffusion(...).bind(graph, x0)"
                f", got {type(flow).__name__}."
            )
        stats.evaluations += 1
        forcing = flow.forcing(t, x)
        tolerance = self.tolerance or (1e-12 if x.dtype == torch.float64 else 1e-8)
        new = solve(
            flow.graph,
            flow.attention(t, x),
            h * flow.alpha(t),
            x if forcing is None else torch.addcmul(x, forcing, h),
            over=flow.equation.diffusivity.over,
            tolerance=tolerance,
            max_iterations=self.max_iterations,
            stats=stats,
        )
        return (new,)
