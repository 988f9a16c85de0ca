"""The semi-implicit Euler scheme of the paper."""

from __future__ import annotations

from typing import Annotated, Any

import torch
from torch import Tensor

from ..errors import ArgumentError
from ..options import Bounds
from .base import SOLVERS, State, Step, lacking
from .field import Field
from .fixed import FixedStep
from .linear_solve import solve
from .solution import Stats


@SOLVERS.register("semi-implicit")
class SemiImplicitEuler(FixedStep):
    r"""Semi-implicit Euler, equation (8).

    .. math:: (I - \tau\alpha\bar A(x^{(k)}))\,x^{(k+1)} = x^{(k)} + \tau f(x^{(k)})

    with :math:`\bar A = A - I`; f stands for the terms other than diffusion. Order 1. Stable for every τ
    (theorem 2). A sparse linear system is solved in each step; its gradient comes from the implicit
    function theorem, so memory does not grow with the iterations.

    Args:
        tolerance: Relative residual of the linear solve, which is computed in float64; by default 1e-8 for
            a state in float32, 1e-12 in float64. Rounding leaves 2e-15 τα, however small it is.
        max_iterations: Iterations allowed in one solve.
    """

    order = 1
    explicit = False
    needs = "stiff"

    def __init__(
        self,
        step_size: Annotated[float, Bounds(0, above=True)] = 1.0,
        *,
        tolerance: float | None = None,
        max_iterations: Annotated[int, Bounds(1)] = 1000,
        **more: Any,
    ) -> None:
        super().__init__(step_size, **more)
        if tolerance is not None and not 0 < tolerance < 1:
            raise ArgumentError(f"tolerance must lie between 0 and 1, got {tolerance}.")
        self.tolerance, self.max_iterations = tolerance, max_iterations

    def step(self, field: Field, t: Tensor, h: Tensor, state: State, index: int, stats: Stats) -> Step:
        (x,) = state
        if torch._C._are_functorch_transforms_active():
            raise ArgumentError("SemiImplicitEuler does not work inside torch.func: take another scheme.")
        parts: Any = field.stiff(t, x)  # type: ignore[attr-defined]
        if parts is None:
            raise lacking(self, field)
        new = solve(
            field.graph,  # type: ignore[attr-defined]
            parts.values,
            h * parts.coefficient,
            x if parts.rest is None else torch.addcmul(x, parts.rest, h),
            over=parts.over,
            tolerance=self.tolerance or (1e-12 if x.dtype == torch.float64 else 1e-8),
            max_iterations=self.max_iterations,
            stats=stats,
        )
        return Step((new,), (x,), None, lambda theta: torch.lerp(x, new, theta.to(x.dtype)))
