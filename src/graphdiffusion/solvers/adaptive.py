"""Adaptive explicit schemes: the step follows an estimate of the error (appendices F and G).

Every member has its own time and step size: a member of a population takes the steps that it would
take alone.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..errors import ArgumentError, StepSizeUnderflow
from . import tableaux
from .solution import Counted, Field, Stats, too_many_evaluations
from .stepping import Solver, State, runge_kutta, segmented, weighted
from .tableaux import Tableau


class Adaptive(Solver):
    """Runge-Kutta pair with step-size control; the subclasses name the tableau.

    Args:
        rtol, atol: The error of a step is kept below ``atol + rtol·max(|x|, |x⁺|)`` in root mean square
            over nodes and channels (appendix G); numbers, or one for each member as ``(..., 1, 1)``.
        max_evaluations: Limit on evaluations of the right-hand side, for each member on its own.
    """

    tableau: Tableau
    safety, shrink, grow = 0.9, 0.2, 10.0

    def __init__(
        self,
        rtol: float | Tensor = 1e-4,
        atol: float | Tensor = 1e-6,
        *,
        max_evaluations: int = 10_000,
    ) -> None:
        for name, value in (("rtol", rtol), ("atol", atol)):
            if not bool((torch.as_tensor(value) >= 0).all()):
                raise ArgumentError(f"{name} must not be negative, got {value}.")
        if not bool((torch.as_tensor(rtol) + torch.as_tensor(atol) > 0).all()):
            raise ArgumentError("one of rtol and atol must be positive, got 0 and 0.")
        self.rtol, self.atol, self.max_evaluations = rtol, atol, max_evaluations

    @property
    def order(self) -> int:
        return self.tableau.order

    def advance(
        self, field: Field, x: Tensor, start: Tensor, end: Tensor, stats: Stats, thrifty: bool
    ) -> Tensor:
        lead = torch.broadcast_shapes(start.shape, end.shape, (*x.shape[:-2], 1, 1))
        # The loop of one member is differentiated as it is. For several members the accepted steps are
        # taken again, without the tries in between.
        replay = torch.is_grad_enabled() and (thrifty or math.prod(lead) > 1)
        with torch.set_grad_enabled(torch.is_grad_enabled() and not replay):
            out, sizes = self._march(Counted(field, stats, None), x, start.expand(lead), end, stats)
        if not replay:
            return out
        extra = _gradient_of(end - start)
        if extra is not None:
            last = (torch.stack(sizes) != 0).sum(0).clamp_min(1) - 1
            sizes = [h + torch.where(last == k, extra, 0.0) for k, h in enumerate(sizes)]
        return self._replay(field, x, start, sizes, thrifty)

    def _march(
        self, field: Field, x: Tensor, t: Tensor, end: Tensor, stats: Stats
    ) -> tuple[Tensor, list[Tensor]]:
        """Step from t to end with step-size control, each member with a time and a step of its own.

        Returns the state and the accepted steps.
        """
        if x.shape[:-2] != t.shape[:-2]:
            x = x.expand(*t.shape[:-2], *x.shape[-2:])
        first = field(t, x)
        size = self._first_step(field, t, x, first, end)
        extra = _gradient_of(end - t)
        clock, stop = t.detach(), end.detach()
        taken: list[Tensor] = []
        accepted, rejected, latest = (torch.zeros_like(clock) for _ in range(3))
        active = ~(clock >= stop)  # where T is NaN, the first step finds it
        going = bool(active.any())
        while going:
            self._check_spent(active, accepted, rejected, stats)
            left = stop - clock
            h = torch.where(active, torch.minimum(size, left), 0.0)
            last = ~(h < left)
            step = h if extra is None else h + torch.where(last, extra, 0.0)
            new, stages = runge_kutta(self.tableau, field, t, step.to(x.dtype), x, first)
            ratio = self._error_ratio(h.to(x.dtype), stages, x, new)
            accept = active & (ratio <= 1)
            refused = active & ~accept
            tiny = refused & ~(h > _smallest(x) * stop)
            every, some, hopeless = torch.stack([accept.all(), accept.any(), tiny.any()]).tolist()
            if hopeless:
                # a member that turned NaN ends with NaN; the others go on
                lost = tiny & ~torch.isfinite(new).all(-1, keepdim=True).all(-2, keepdim=True)
                if bool((failing := tiny & ~lost).any()):
                    at = failing.flatten().nonzero()[0]
                    raise _underflow(float(clock.flatten()[at]), float(h.flatten()[at]), failing[..., 0, 0])
                stats.lost = min(stats.lost, float(clock[lost].min()))
                accept, last, h = accept | lost, last | lost, torch.where(lost, torch.nan, h)
                new, some = torch.where(lost, torch.nan, new), True
            taken.append(torch.where(accept, h, 0.0))
            latest = torch.where(accept, h, latest)
            t = torch.where(accept, torch.where(last, end, t + h), t)
            clock = t.detach()
            active = ~(clock >= stop) & ~torch.isnan(latest)
            going = bool(active.any())
            if some:
                x = new if every else torch.where(accept, new, x)
                if self.tableau.first_same_as_last:
                    first = stages[-1] if every else torch.where(accept, stages[-1], first)
                elif going:
                    again = field(t, x)
                    first = again if every else torch.where(accept, again, first)
            accepted, rejected = accepted + accept, rejected + refused
            factor = (self.safety * ratio.pow(-1 / self.order)).clamp(self.shrink, self.grow)
            factor = torch.where(accept, factor, factor.clamp(max=1.0)).nan_to_num(self.shrink)
            size = torch.where(active, h * factor, size)
        stats.accepted += int(accepted.max())
        stats.rejected += int(rejected.max())
        stats.last_step = latest
        stats.spent = self._spent(active, accepted, rejected, stats)
        return x, _packed(taken or [torch.zeros_like(clock)], max(1, int(accepted.max())))

    def _spent(self, active: Tensor, accepted: Tensor, rejected: Tensor, stats: Stats) -> Tensor:
        """Evaluations that each member has needed so far, as if alone."""
        starts = 1 if self.tableau.first_same_as_last else accepted + active
        return stats.spent + 1 + starts + len(self.tableau.a) * (accepted + rejected)

    def _check_spent(self, active: Tensor, accepted: Tensor, rejected: Tensor, stats: Stats) -> None:
        """Stop before a step that is one too many for a member, whoever else is there."""
        most = self.max_evaluations - len(self.tableau.a)
        if stats.evaluations > most:  # before that, no member can have come so far
            over = active & (self._spent(active, accepted, rejected, stats) > most)
            if bool(over.any()):
                raise too_many_evaluations(self.max_evaluations, over[..., 0, 0])

    def _replay(self, field: Field, x: Tensor, start: Tensor, sizes: list[Tensor], thrifty: bool) -> Tensor:
        """The accepted steps again, for the gradient."""
        times = [start]
        for h in sizes[:-1]:
            times.append(times[-1] + h.detach())

        padded = (torch.stack(sizes) == 0).flatten(1).any(1).tolist()

        def march(state: State, begin: int, stop: int) -> State:
            y, first = state
            for t, h, some in zip(times[begin:stop], sizes[begin:stop], padded[begin:stop], strict=True):
                new, stages = runge_kutta(self.tableau, field, t, h.to(x.dtype), y, first)
                y = torch.where(h == 0, y, new) if some else new  # selected, because 0 · ∞ is NaN
                again = self.tableau.first_same_as_last
                first = stages[-1] if again else field(t + h.detach(), y)
            return y, first

        return segmented(march, (x, field(start, x)), len(sizes), thrifty)[0]

    @torch.no_grad()
    def _error_ratio(self, h: Tensor | float, stages: list[Tensor], x: Tensor, new: Tensor) -> Tensor:
        """Error of a step over its tolerance, ``(..., 1, 1)``."""
        assert self.tableau.error is not None
        error = weighted(None, h, self.tableau.error, stages)
        rtol, atol = (v.to(x.dtype) if isinstance(v, Tensor) else v for v in (self.rtol, self.atol))
        scale = torch.maximum(x.abs(), new.abs()) * rtol + atol
        return self.norm(error.div_(scale)).double()

    def norm(self, x: Tensor) -> Tensor:
        """Root mean square over nodes and channels, ``(..., 1, 1)``."""
        count = x.shape[-2] * x.shape[-1]
        return torch.linalg.vector_norm(x, dim=(-2, -1), keepdim=True) / math.sqrt(count)

    def _first_step(self, field: Field, t: Tensor, x: Tensor, first: Tensor, end: Tensor) -> Tensor:
        """Starting step of Hairer, Nørsett and Wanner (Solving ODEs I, section II.4)."""
        with torch.no_grad():
            x, f, span = x.detach(), first.detach(), (end - t).detach()
            rtol, atol = (v.to(x.dtype) if isinstance(v, Tensor) else v for v in (self.rtol, self.atol))
            scale = atol + rtol * x.abs()
            size, slope = self.norm(x / scale).double(), self.norm(f / scale).double()
            h0 = torch.where((size < 1e-5) | (slope < 1e-5), 1e-6, 0.01 * size / slope)
            h0 = torch.minimum(h0, span)
            second = field(t + h0, torch.addcmul(x, f, h0.to(x.dtype)))
            bend = self.norm((second - f) / scale).double() / h0.clamp_min(1e-300)
            largest = torch.maximum(slope, bend)
            h1 = torch.where(
                largest <= 1e-15, (h0 * 1e-3).clamp_min(1e-6), (0.01 / largest) ** (1 / (self.order + 1))
            )
            return torch.minimum(torch.minimum(100 * h0, h1), span)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(rtol={self.rtol}, atol={self.atol})"


def _gradient_of(span: Tensor) -> Tensor | None:
    """Zero with the gradient of a time span, for the last step, which depends on it."""
    return span - span.detach() if torch.is_grad_enabled() and span.requires_grad else None


def _underflow(t: float, h: float, members: Tensor | None = None) -> StepSizeUnderflow:
    return StepSizeUnderflow(
        f"the step size fell to {h:.3g} at t = {t:g}. Randomness inside the right-hand side (dropout) "
        "drives the step to zero; otherwise loosen rtol and atol, or use SemiImplicitEuler.",
        members,
    )


def _smallest(x: Tensor) -> float:
    """Share of the end time below which a step is lost in the rounding of the state."""
    return 4 * torch.finfo(x.dtype).eps


def _packed(taken: list[Tensor], count: int) -> list[Tensor]:
    """Each member's accepted steps moved to the front, the rest zero."""
    steps = torch.stack(taken)
    order = torch.argsort((steps == 0).to(torch.int8), dim=0, stable=True)
    return list(steps.gather(0, order)[:count])


class HeunEuler(Adaptive):
    """Heun 2(1). Order 2, 2 evaluations a step (one more after an accepted one)."""

    tableau = tableaux.HEUN21


class BogackiShampine(Adaptive):
    """Bogacki-Shampine 3(2). Order 3, 3 evaluations a step."""

    tableau = tableaux.BOGACKI_SHAMPINE


class DormandPrince(Adaptive):
    """Dormand-Prince 5(4), the paper's DOPRI5. Order 5, 6 evaluations a step."""

    tableau = tableaux.DORMAND_PRINCE
