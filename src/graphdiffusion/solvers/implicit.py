"""Implicit steps: stages found by Newton-Krylov, with steps of one size or steps that follow the error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import torch
from torch import Tensor

from ..errors import ArgumentError, NotConverged
from ..options import Bounds
from ..partition.whole import largest_entry
from .adaptive import Adaptive
from .field import Field
from .fixed import FixedStep
from .newton_krylov import Root, find_root
from .runge_kutta import RungeKutta, weighted
from .solution import Stats


class FixedImplicit(FixedStep):
    """Steps of one size with implicit stages; a stage that is not found fails its member.

    Args:
        rtol: Relative tolerance of a stage: Newton's method stops when its residual, in the root mean
            square, is at most a tenth of ``atol + rtol·max|x|``.
        atol: Absolute tolerance likewise.
        max_iterations: Iterations allowed in one linear solve.
    """

    explicit = False
    evaluates_again = True

    def __init__(
        self,
        step_size: Annotated[float, Bounds(0, above=True)] = 1.0,
        *,
        rtol: Annotated[float, Bounds(0)] = 1e-3,
        atol: Annotated[float, Bounds(0)] = 1e-4,
        max_iterations: Annotated[int, Bounds(1)] = 200,
        **more: Any,
    ) -> None:
        super().__init__(step_size, **more)
        if rtol < 0 or atol < 0 or rtol + atol == 0 or max_iterations < 1:
            raise ArgumentError(
                f"need rtol ≥ 0, atol ≥ 0, one of them positive, and max_iterations ≥ 1; got rtol={rtol}, "
                f"atol={atol}, max_iterations={max_iterations}."
            )
        self.rtol, self.atol, self.max_iterations = rtol, atol, max_iterations

    def root(
        self, field: Field, t: Tensor, c: Tensor, s: Tensor, guess: Tensor, x: Tensor, stats: Stats
    ) -> Root:
        """Solve y = c + s f(t, y) in a step from x; members that fail are noted in ``stats``, and NaN."""
        scale = self.atol + self.rtol * largest_entry(x)
        found = find_root(field, t, c, s, guess, scale, most=self.max_iterations, stats=stats)
        if not bool(found.failed.any()):
            return found
        stats.fail(
            NotConverged(
                f"Newton's method did not converge in a step of {type(self).__name__} at τ = "
                f"{self.step_size:g}. Take a smaller step, float64, or esdirk, which takes smaller steps "
                "by itself; or loosen rtol and atol, or raise max_iterations.",
                found.failed[..., 0, 0],
            )
        )
        none = torch.zeros_like(found.failed)
        return Root(torch.where(found.failed, torch.nan, found.x), none, found.evaluations)


class AdaptiveImplicit(Adaptive):
    """Steps that follow the error, with implicit stages; where one is not found, the step is refused.

    Newton's method stops when its residual, in the root mean square, is at most a tenth of the error that
    the step may have, ``atol + rtol·|x|``.

    Args:
        max_iterations: Iterations allowed in one linear solve.
    """

    explicit = False
    evaluates_again = True
    stages = 0  # each member's evaluations are counted in its stages

    def __init__(
        self,
        rtol: Annotated[float | Tensor, Bounds(0)] = 1e-3,
        atol: Annotated[float | Tensor, Bounds(0)] = 1e-4,
        *,
        max_iterations: Annotated[int, Bounds(1)] = 200,
        **more: Any,
    ) -> None:
        super().__init__(rtol, atol, **more)
        if max_iterations < 1:
            raise ArgumentError(f"max_iterations must be at least 1, got {max_iterations}.")
        self.max_iterations = max_iterations

    def root(
        self, field: Field, t: Tensor, c: Tensor, s: Tensor, guess: Tensor, x: Tensor, stats: Stats
    ) -> Root:
        """Solve y = c + s f(t, y) in a step from x."""
        scale = self.atol.to(x) + self.rtol.to(x) * x.detach().abs()
        found = find_root(field, t, c, s, guess, scale, most=self.max_iterations, stats=stats)
        stats.spent = stats.spent + found.evaluations
        return found


class DiagonallyImplicit(RungeKutta):
    r"""The stages of a tableau with a diagonal γ, after a first one that is explicit.

    .. math:: y_i = x + h\sum_{j<i} a_{ij} k_j + \gamma h\, f(t + c_i h, y_i)

    Their slopes are :math:`k_i = (y_i - x - h\sum a_{ij}k_j)/(\gamma h)`: f itself would multiply the error
    of a stage by the stiffness (Shampine, 1980). A first guess continues the last two slopes in time.
    """

    root: Callable[..., Root]  # of the control of the step size

    def slopes(
        self, field: Field, t: Tensor, h: Tensor, x: Tensor, first: Tensor, stats: Stats
    ) -> tuple[Tensor, list[Tensor]]:
        tableau = self.tableau
        s = tableau.diagonal * h
        divisor = torch.where(h == 0, 1.0, s)
        slopes, failed = [first], torch.zeros_like(h, dtype=torch.bool)
        for i, row in enumerate(tableau.a, 1):
            base, (earlier, before, now) = weighted(x, h, row, slopes), (0.0, *tableau.c)[i - 1 : i + 2]
            guess = torch.addcmul(base, slopes[-1], s)
            if i > 1:
                share = (now - before) / (before - earlier)
                guess = torch.addcmul(guess, slopes[-1] - slopes[-2], s, value=share)
            found = self.root(field, t + now * h, base, s, guess, x, stats)
            failed = failed | found.failed
            slopes.append(torch.where(found.failed, torch.nan, (found.x - base) / divisor))
        # slopes that are NaN refuse the step; a state that is NaN would say that the solution is
        return torch.where(failed, x, found.x), slopes
