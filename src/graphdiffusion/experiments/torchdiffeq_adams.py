"""torchdiffeq's Adams schemes behind the face of a solver, for comparison."""

from __future__ import annotations

import math
import warnings

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint as recompute

from ..errors import ArgumentError, GraphDiffusionError
from ..solvers import Field, Solver, Stats


class TorchdiffeqAdams(Solver):
    """``explicit_adams`` or ``implicit_adams`` of torchdiffeq, with steps of one size.

    They are not the schemes of the paper's text. The explicit one climbs to order 11 as slopes come in,
    the implicit one to 12. The corrector of the latter takes at most four iterations; where they do not
    converge it goes on all the same, and drops its oldest slope, so that at long steps it is a scheme of
    order 4 with four corrections. Whether it has converged is asked of all members at once.

    Steps are equal, as in :class:`~graphdiffusion.solvers.FixedStep`. Left to itself torchdiffeq makes the
    last one shorter, without other weights.

    Args:
        method: ``"explicit_adams"`` or ``"implicit_adams"``.
        step_size: The largest step.
        rtol, atol: Of the corrector.

    Members have one T and the same output times.

    Attributes:
        unconverged: Steps with a corrector that did not converge, of all integrals so far.
    """

    order = 12
    explicit = False  # no warning: that its steps are too long is what is measured

    def __init__(self, method: str, step_size: float, rtol: float = 1e-3, atol: float = 1e-4) -> None:
        super().__init__()
        if method not in ("explicit_adams", "implicit_adams"):
            raise ArgumentError(f"method must be explicit_adams or implicit_adams, got {method!r}.")
        self.method, self.step_size, self.rtol, self.atol = method, step_size, rtol, atol
        self.unconverged = 0

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
        try:
            from torchdiffeq import odeint
        except ImportError:
            raise GraphDiffusionError(
                "torchdiffeq's schemes need torchdiffeq: pip install torchdiffeq."
            ) from None
        first, last = float(start.detach().min()), float(end.detach().max())
        steps = max(1, math.ceil((last - first) / self.step_size - 1e-6))
        ends = torch.linspace(first, last, steps + 1, dtype=torch.float64, device=x.device)
        stops = ends[[0, -1]] if times is None else torch.cat([ends[:1], times.flatten(), ends[-1:]])

        def slope(t: Tensor, state: Tensor) -> Tensor:
            stats.evaluations += 1
            when = t.reshape(1, 1).double()
            if checkpoint and torch.is_grad_enabled():  # keep the state alone for the backward pass
                return recompute(field, when, state, use_reentrant=False)
            return field(when, state)

        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            _, *outputs, state = odeint(
                slope,
                x,
                stops,
                rtol=self.rtol,
                atol=self.atol,
                method=self.method,
                options={"grid_constructor": lambda f, y, t: ends.to(t.dtype)},
            )
        self.unconverged += sum("did not converge" in str(w.message) for w in caught)
        stats.accepted += steps
        stats.last_step = (end - start).detach() / steps
        return state, outputs

    def __repr__(self) -> str:
        return f"TorchdiffeqAdams({self.method!r}, step_size={self.step_size})"
