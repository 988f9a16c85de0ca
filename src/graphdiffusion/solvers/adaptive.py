"""Steps that follow an estimate of the error (appendices F and G).

Every member has its own time and step size: a member of a population takes the steps that it would take
alone, and one that fails ends alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated

import torch
from torch import Tensor

from ..errors import ArgumentError, StepSizeUnderflow
from ..options import Bounds
from ..partition.whole import all_rows, everywhere, norm
from .base import Hits, Marching, State, Step, record, unset
from .field import Counted, Field
from .fixed import segmented
from .solution import MAX_EVALUATIONS, Stats, too_many_evaluations

Norm = Callable[[Tensor], Tensor]


def rms(x: Tensor) -> Tensor:
    """Root mean square over nodes and channels, ``(..., n, d)`` → ``(..., 1, 1)``."""
    return norm(x) / math.sqrt(all_rows(x) * x.shape[-1])


class Adaptive(Marching):
    """Step-size control for a scheme with an error estimate; subclasses give a step.

    Args:
        rtol: Relative tolerance: the error of a step is kept below ``atol + rtol·max(|x|, |x⁺|)`` (appendix
            G); a number, or one for each member as ``(..., 1, 1)``.
        atol: Absolute tolerance likewise.
        max_evaluations: Limit on evaluations of the right-hand side, for each member on its own.
        norm: Of the error over its tolerance; by default the root mean square over nodes and channels.
    """

    per_member = ("rtol", "atol")
    safety, shrink, grow = 0.9, 0.2, 10.0
    stages = 1  # evaluations of a step beside that at its start
    keeps_last = False  # whether a step ends with the evaluation at which the next one starts
    rtol: Tensor
    atol: Tensor

    def __init__(
        self,
        rtol: Annotated[float | Tensor, Bounds(0)] = 1e-3,
        atol: Annotated[float | Tensor, Bounds(0)] = 1e-4,
        *,
        max_evaluations: Annotated[int, Bounds(1)] = MAX_EVALUATIONS,
        norm: Norm = rms,
    ) -> None:
        super().__init__()
        for name, value in (("rtol", rtol), ("atol", atol)):
            # on the CPU, so that a model without memory is checked too
            given = torch.as_tensor(
                value, dtype=torch.float64, device=None if isinstance(value, Tensor) else "cpu"
            )
            if not bool((given >= 0).all()):
                raise ArgumentError(f"{name} must not be negative, got {value}.")
            self.register_buffer(name, given.reshape(1, 1) if given.dim() == 0 else given, persistent=False)
        if not bool((self.rtol + self.atol > 0).all()):
            raise ArgumentError("one of rtol and atol must be positive, got 0 and 0.")
        self.max_evaluations, self.norm = max_evaluations, norm

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
        lead = torch.broadcast_shapes(start.shape, end.shape, (*x.shape[:-2], 1, 1))
        # The loop of one member is differentiated as it is. For several members the accepted steps are
        # taken again, without the tries in between.
        replay = torch.is_grad_enabled() and (checkpoint or math.prod(lead) > 1)
        with torch.set_grad_enabled(torch.is_grad_enabled() and not replay):
            first = start.expand(lead)
            wanted = None if replay else times
            out, outputs, sizes = self._march(Counted(field, stats), x, first, end, wanted, stats)
            stats.steps = [h.detach() for h in sizes]
        if not replay:
            return out, outputs
        extra = _gradient_of(end - start)
        if extra is not None:
            last = (torch.stack(sizes) != 0).sum(0).clamp_min(1) - 1
            sizes = [h + torch.where(last == k, extra, 0.0) for k, h in enumerate(sizes)]
        return self._replay(field, x, start, end, times, sizes, checkpoint, stats)

    def _march(
        self, field: Field, x: Tensor, t: Tensor, end: Tensor, times: Tensor | None, stats: Stats
    ) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        """Step from t to end, each member with a time and a step of its own.

        Returns the state at the end, at the output times, and the accepted steps.
        """
        if x.shape[:-2] != t.shape[:-2]:
            x = x.expand(*t.shape[:-2], *x.shape[-2:])
        state = self.begin(field, t, x)
        size, state = self._first_step(field, t, state, end)
        size = size.detach()
        extra = _gradient_of(end - t)
        clock, stop = t.detach(), end.detach()
        taken: list[Tensor] = []
        outputs = unset(x, times)
        if times is not None and bool((times <= clock).any()):  # those at the start lie in no step
            outputs = [torch.where(own <= clock, x, out) for own, out in zip(times, outputs, strict=True)]
        accepted, rejected, latest = (torch.zeros_like(clock) for _ in range(3))
        active = ~(clock >= stop)  # where T is NaN, the first step finds it
        going, index = bool(active.any()), 0
        while going:
            over = self._overspent(active, accepted, rejected, stats)
            left = stop - clock
            h = torch.where(active, torch.minimum(size, left), 0.0)
            last = ~(h < left)
            step_size = h if extra is None else h + torch.where(last, extra, 0.0)
            step = self.step(field, t, step_size.to(x.dtype), state, index, stats)
            new, x = step.state[0], state[0]
            ratio = self._error_ratio(step, x).detach()  # steps have no derivative, in forward mode either
            accept = active & (ratio <= 1)
            refused = active & ~accept
            tiny = refused & ~(h > _smallest(x) * stop)
            reached = torch.where(last, stop, clock + h)
            flags = [accept.all(), accept.any(), tiny.any()]
            inside = clock if times is None else (times > clock) & (times <= reached) & accept
            for hit in () if times is None else inside:
                flags += [hit.any(), hit.all()]
            every, some, hopeless, *found = torch.stack(flags).tolist()
            if times is not None and some:
                hits: Hits = [(k, found[2 * k + 1]) for k in range(len(times)) if found[2 * k]]
                record(outputs, hits, inside, times, t, step_size, step.between)
            if hopeless or over is not None:
                ended = self._ended(tiny, over, new, clock, h, stats)
                accept, last, h = accept | ended, last | ended, torch.where(ended, torch.nan, h)
                step.state = (torch.where(ended, torch.nan, new), *step.state[1:])
                every, some = False, True
            taken.append(torch.where(accept, h, 0.0))
            latest = torch.where(accept, h, latest)
            t = torch.where(accept, torch.where(last, end, t + h), t)
            clock = t.detach()
            active = ~(clock >= stop) & ~torch.isnan(latest)
            state = (
                step.retry if not some else step.state if every else _chosen(accept, step.state, step.retry)
            )
            accepted, rejected = accepted + accept, rejected + refused
            factor = (self.safety * ratio.pow(-1 / self.order)).clamp(self.shrink, self.grow)
            factor = torch.where(accept, factor, factor.clamp(max=1.0)).nan_to_num(self.shrink)
            size = torch.where(active, h * factor, size)
            going, index = bool(active.any()), index + 1
        stats.accepted += int(accepted.max())
        stats.rejected += int(rejected.max())
        stats.last_step = latest
        stats.spent = self._spent(active, accepted, rejected, stats)
        return state[0], outputs, _packed(taken or [torch.zeros_like(clock)], max(1, int(accepted.max())))

    def _ended(
        self, tiny: Tensor, over: Tensor | None, new: Tensor, clock: Tensor, h: Tensor, stats: Stats
    ) -> Tensor:
        """Boolean mask of the members that fail here and become NaN; the others go on."""
        lost = tiny & ~everywhere(torch.isfinite(new).all(-1, keepdim=True).all(-2, keepdim=True))
        if bool(lost.any()):
            stats.lost = min(stats.lost, float(clock[lost].min()))
        failing = tiny & ~lost
        if bool(failing.any()):
            at = failing.flatten().nonzero()[0]
            stats.fail(_underflow(float(clock.flatten()[at]), float(h.flatten()[at]), failing[..., 0, 0]))
        return tiny if over is None else tiny | over

    def _spent(self, active: Tensor, accepted: Tensor, rejected: Tensor, stats: Stats) -> Tensor:
        """Evaluations that each member has needed so far, as if alone."""
        starts = 1 if self.keeps_last else accepted + active
        return stats.spent + 1 + starts + self.stages * (accepted + rejected)

    def _overspent(self, active: Tensor, accepted: Tensor, rejected: Tensor, stats: Stats) -> Tensor | None:
        """Members for which another step would be one too many; ``None`` if there are none."""
        most = self.max_evaluations - self.stages
        if stats.evaluations <= most:  # before that, no member can have come so far
            return None
        over = active & (self._spent(active, accepted, rejected, stats) > most)
        if not bool(over.any()):
            return None
        stats.fail(too_many_evaluations(self.max_evaluations, over[..., 0, 0]))
        return over

    def _replay(
        self,
        field: Field,
        x: Tensor,
        start: Tensor,
        end: Tensor,
        times: Tensor | None,
        sizes: list[Tensor],
        checkpoint: bool,
        stats: Stats,
    ) -> tuple[Tensor, list[Tensor]]:
        """The accepted steps again, for the gradient."""
        stats = Stats(strict=stats.strict, failures=stats.failures)  # nothing is counted twice
        starts = [start]
        for h in sizes[:-1]:
            starts.append(starts[-1] + h.detach())
        steps = torch.stack([h.detach() for h in sizes])
        padded = (steps == 0).flatten(1).any(1).tolist()
        hits: list[Hits] = [[] for _ in sizes]
        place = start
        if times is not None:
            # the step in which an output lies: the number of steps that end before it
            ends = torch.stack([t.detach() + h.detach() for t, h in zip(starts, sizes, strict=True)])
            place = (times.detach().unsqueeze(1) > ends * (1 + 1e-12)).sum(1)
            place = torch.minimum(place, (steps != 0).sum(0).clamp_min(1) - 1)
            for number, own in enumerate(place.flatten(1).tolist()):
                for k in set(own):
                    hits[k].append((number, len(set(own)) == 1))

        def march(state: State, outputs: list[Tensor], begin: int, stop: int) -> tuple[State, list[Tensor]]:
            outputs = list(outputs)
            for k in range(begin, stop):
                t, h = starts[k], sizes[k]
                step = self.step(field, t, h.to(x.dtype), state, k, stats)
                if times is not None and hits[k]:
                    record(outputs, hits[k], place == k, times, t, h, step.between)
                new = step.state[0]
                if padded[k]:  # selected, because 0 · ∞ is NaN
                    new = torch.where(h == 0, step.retry[0], new)
                state = (new, *step.state[1:])
            return state, outputs

        state, outputs = segmented(
            march, self.begin(field, start, x), unset(x, times), len(sizes), checkpoint
        )
        return state[0], outputs

    @torch.no_grad()
    def _error_ratio(self, step: Step, x: Tensor) -> Tensor:
        """Error of a step from x over its tolerance, ``(..., 1, 1)``."""
        assert step.error is not None
        rtol, atol = self.rtol.to(x), self.atol.to(x)
        scale = torch.maximum(x.abs(), step.state[0].abs()) * rtol + atol
        return self.norm(step.error() / scale).double()

    def _first_step(self, field: Field, t: Tensor, state: State, end: Tensor) -> tuple[Tensor, State]:
        """Starting step of Hairer, Nørsett and Wanner (Solving ODEs I, section II.4), and the state."""
        if len(state) == 1:
            state = (state[0], field(t, state[0]))
        with torch.no_grad():
            x, f, span = state[0].detach(), state[1].detach(), (end - t).detach()
            scale = self.atol.to(x) + self.rtol.to(x) * x.abs()
            size, slope = self.norm(x / scale).double(), self.norm(f / scale).double()
            h0 = torch.where((size < 1e-5) | (slope < 1e-5), 1e-6, 0.01 * size / slope)
            h0 = torch.minimum(h0, span)
            second = field(t + h0, torch.addcmul(x, f, h0.to(x.dtype)))
            bend = self.norm((second - f) / scale).double() / h0.clamp_min(1e-300)
            largest = torch.maximum(slope, bend)
            h1 = torch.where(
                largest <= 1e-15, (h0 * 1e-3).clamp_min(1e-6), (0.01 / largest) ** (1 / (self.order + 1))
            )
            return torch.minimum(torch.minimum(100 * h0, h1), span), state

    def __repr__(self) -> str:
        rtol, atol = (v.flatten().tolist() for v in (self.rtol, self.atol))
        shown = (v[0] if len(v) == 1 else v for v in (rtol, atol))
        return "{}(rtol={}, atol={})".format(type(self).__name__, *shown)


def _chosen(accept: Tensor, new: State, retry: State) -> State:
    """For each member the state after the step, or the one before where it was not accepted."""
    shared = zip(new, retry, strict=False)  # a slope that only one of the two has is evaluated again
    return tuple(torch.where(accept, a, b) for a, b in shared)


def _gradient_of(span: Tensor) -> Tensor | None:
    """Zero with the gradient of a time span, for the last step, which depends on it."""
    return span - span.detach() if torch.is_grad_enabled() and span.requires_grad else None


def _underflow(t: float, h: float, members: Tensor) -> StepSizeUnderflow:
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
