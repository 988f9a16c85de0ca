"""The continuous adjoint: gradients by a second differential equation (section 4)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from ..errors import ArgumentError
from .base import Solver
from .dormand_prince import DormandPrince
from .field import BoundField
from .solution import Stats


@dataclass(frozen=True)
class Adjoint:
    r"""Integrate :math:`\dot a = -a^\top \partial f/\partial x` backwards; store no forward pass.

    The state is integrated backwards along with a. Backwards, diffusion is unstable: an error grows
    like :math:`e^{2\alpha t}`. The state is therefore kept at the ends of segments of the interval and
    the backward integration starts afresh from each.

    Args:
        solver: Scheme of the backward pass, with tolerances of its own.
        segment: Length of a segment in units of 1/α, so that errors grow by no more than
            :math:`e^{2\,\mathrm{segment}}`; in units of time where α is less than 1 or not known.
    """

    solver: Solver = field(default_factory=lambda: DormandPrince(rtol=1e-5, atol=1e-7))
    segment: float = 1.0

    def __post_init__(self) -> None:
        if not self.segment > 0:
            raise ArgumentError(f"segment must be positive, got {self.segment}.")

    def solve(
        self, forward: Solver, flow: BoundField, x: Tensor, start: Tensor, end: Tensor, stats: Stats
    ) -> Tensor:
        rate = getattr(flow, "rate", end.new_ones(1, 1)).double().clamp_min(1).to(end.device)
        length = self.segment / rate  # of each member
        spans = ((end - start).detach() / length).nan_to_num(0.0)  # a diverged member needs no piece
        pieces = max(1, math.ceil(float(spans.max()) - 1e-9))
        for k in range(pieces):
            # the cuts of a member do not depend on how long the others go on
            left = torch.minimum(start + k * length, end)
            right = end if k == pieces - 1 else torch.minimum(start + (k + 1) * length, end)
            x = _Adjoint.apply(flow, forward, self.solver, stats, x, left, right, *flow.tensors)
        return x


class _Adjoint(Function):
    @staticmethod
    def forward(
        ctx: Any,
        flow: BoundField,
        forward: Solver,
        backward: Solver,
        stats: Stats,
        x: Tensor,
        start: Tensor,
        end: Tensor,
        *tensors: Tensor,
    ) -> Tensor:
        ctx.flow, ctx.solver, ctx.stats = flow, backward, stats
        ctx.apart = _apart(flow, x, tensors)  # now, while the parameters are those of the members
        out, _ = forward.solve(flow, x, start, end, None, stats, False)
        ctx.save_for_backward(x, out, start, end, *tensors)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        (grad,) = grads
        x0, x1, start, end, *tensors = ctx.saved_tensors
        equation = _Backward(ctx.flow, x1, start, end, tensors, ctx.apart)
        state = equation.join([x1, grad, *(torch.zeros_like(v) for v in tensors)])
        # the step is controlled by the state and its adjoint alone; the parameters' integrals follow
        solver = _on_rows(ctx.solver, sum(equation.sizes[:2]))
        zero = end.new_zeros(1, 1)
        own = Stats(strict=ctx.stats.strict)
        # scaled to the unit interval, so that members with different times march together
        state, _ = solver.solve(equation, state, zero, zero + 1, None, own, False)
        ctx.stats.failures += own.failures
        _, a, *d_tensors = equation.split(state)
        d_start = d_end = None
        if ctx.needs_input_grad[6]:
            d_end = (grad * ctx.flow(end, x1)).sum_to_size(end.shape).to(end.dtype)
        if ctx.needs_input_grad[5]:
            d_start = -(a * ctx.flow(start, x0)).sum_to_size(start.shape).to(start.dtype)
        return None, None, None, None, a, d_start, d_end, *d_tensors


class _Backward:
    """The adjoint equation in s ∈ [0, 1], t = end − s (end − start), as a column for each member.

    Members that share a parameter share a column: its integral needs all of them at one time.
    """

    def __init__(
        self, flow: BoundField, x: Tensor, start: Tensor, end: Tensor, tensors: list[Tensor], apart: bool
    ) -> None:
        # detached copies: the attention of the linear model must not be followed to its own inputs
        self.tensors = [v.detach().requires_grad_() for v in tensors]
        self.flow = flow.rebound(self.tensors)
        self.end, self.span = end, end - start
        self.members = x.shape[:-2] if apart else torch.Size()
        self.shapes = [x.shape, x.shape, *(v.shape for v in tensors)]
        self.sizes = [math.prod(shape[len(self.members) :]) for shape in self.shapes]

    def join(self, parts: list[Tensor]) -> Tensor:
        return torch.cat([v.reshape(*self.members, -1, 1) for v in parts], -2)

    def split(self, state: Tensor) -> list[Tensor]:
        parts = state.split(self.sizes, -2)
        return [v.reshape(shape) for v, shape in zip(parts, self.shapes, strict=True)]

    def __call__(self, s: Tensor, state: Tensor) -> Tensor:
        x, a, *_ = self.split(state)
        span = self.span.to(x.dtype)
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            change = span * self.flow(self.end - s * self.span, x)
            found = torch.autograd.grad(change, (x, *self.tensors), a, allow_unused=True)
        parts = [-change.detach()]
        for v, g in zip((x, *self.tensors), found, strict=True):
            parts.append(torch.zeros_like(v) if g is None else g)
        return self.join(parts)


def _apart(flow: BoundField, x: Tensor, tensors: Sequence[Tensor]) -> bool:
    """Whether no two members of x share a parameter."""
    members = x.shape[:-2]
    return getattr(flow, "stacked", False) and all(v.shape[: len(members)] == members for v in tensors)


def _on_rows(solver: Solver, rows: int) -> Solver:
    """The scheme with a norm over the first rows of a state, where it has a norm."""
    whole = getattr(solver, "norm", None)
    return solver if whole is None else solver._copy(norm=lambda v: whole(v[..., :rows, :]))
