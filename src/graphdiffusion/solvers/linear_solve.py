r"""Solve :math:`(I + c(D - A))\,y = b` for a normalised A, differentiably.

D holds the row sums of A (the column sums where columns are normalised): the identity, but for rounding,
which a large c would make visible. So constants, or mass, are kept exactly. The matrix is strictly
diagonally dominant (appendix E), and its inverse has norm 1 (in the maximum norm for rows, in the norm of
sums for columns): the error of y is at most the residual. The gradient follows from the implicit function
theorem, with one solve of the transposed system. Everything is computed in float64: a state in float32
cannot hold the differences between neighbours on which c acts.

Where A is symmetric-normalised, D is the identity itself. The inverse has norm at most 1 in the 2-norm, and
:math:`(1 + c)I - cA` is an M-matrix, because :math:`A \ge 0` and :math:`\lVert A\rVert_2 \le 1`: Jacobi's
iteration converges here too. Rounding of A is not made up for, so c has a limit that follows its dtype.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from ..errors import NotConverged
from ..graph import Graph
from ..ops import Over, group_sum, propagate, score, spread
from ..partition.whole import everywhere, norm, somewhere, sum_nodes
from .solution import Stats

FLOOR = 8 * torch.finfo(torch.float64).eps  # residual that rounding leaves, times ‖I + c(D − A)‖
COARSEST = 1e-6  # a floor above this is refused
MARGIN = 0.01  # so much may the rounding of A, times c, add to the norm of A where D is the identity


def solve(
    graph: Graph,
    values: Tensor,
    c: Tensor,
    b: Tensor,
    *,
    over: Over,
    tolerance: float,
    max_iterations: int,
    stats: Stats,
) -> Tensor:
    """The solution y ``(..., n, d)``; values ``(..., E)``, c ``(..., 1, 1 or d)``, b ``(..., n, d)``.

    Members that are not solved are NaN, and noted in ``stats``.
    """
    wide = (values.double(), c.double(), b.double())
    largest = COARSEST / FLOOR
    if over == "symmetric":
        largest = min(largest, MARGIN / torch.finfo(values.dtype).eps)
    return _Solve.apply(graph, *wide, False, over, largest, tolerance, max_iterations, stats).to(b.dtype)


class _Solve(Function):
    @staticmethod
    def forward(
        ctx: Any,
        graph: Graph,
        values: Tensor,
        c: Tensor,
        b: Tensor,
        transpose: bool,
        over: Over,
        largest: float,
        tolerance: float,
        max_iterations: int,
        stats: Stats,
    ) -> Tensor:
        ctx.graph, ctx.transpose, ctx.over = graph, transpose, over
        ctx.how = (over, largest, tolerance, max_iterations, stats)
        y = bicgstab(graph, values, c, b, transpose, *ctx.how)
        ctx.save_for_backward(values, c, y)
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        values, c, y = ctx.saved_tensors
        graph = ctx.graph
        # B y = b  ⇒  db = B⁻ᵀ g, and dB = −(B⁻ᵀ g) yᵀ, where B = I + c(D − A)
        u = _Solve.apply(graph, values, c, grads[0], not ctx.transpose, *ctx.how)
        d_values = d_c = None
        if ctx.needs_input_grad[1]:
            scaled = c * u  # c may differ from channel to channel
            left, right = (y, scaled) if ctx.transpose else (scaled, y)
            d_values = score(graph, left, right)
            if ctx.over != "symmetric":  # D depends on A
                d_values = d_values - spread(graph, (scaled * y).sum(-1), ctx.over)
            d_values = d_values.sum_to_size(values.shape)
        if ctx.needs_input_grad[2]:
            change = (
                propagate(graph, values, y, transpose=ctx.transpose) - _degree(graph, values, ctx.over) * y
            )
            d_c = (u * change).sum_to_size(c.shape)
        return None, d_values, d_c, u, None, None, None, None, None, None


def bicgstab(
    graph: Graph,
    values: Tensor,
    c: Tensor,
    b: Tensor,
    transpose: bool,
    over: Over,
    largest: float,
    tolerance: float,
    max_iterations: int,
    stats: Stats,
) -> Tensor:
    """BiCGStab with Jacobi scaling, every channel of every member a system of its own.

    A channel stops moving once its residual is at most ``tolerance·‖b‖``, or what rounding leaves. Where
    the method breaks down it takes a step of Jacobi's iteration, which always converges, and starts again.
    """
    degree = _degree(graph, values, over)
    diagonal = 1 + c * (degree - _loops(graph, values))

    def apply(y: Tensor) -> Tensor:
        return y + c * (degree * y - propagate(graph, values, y, transpose=transpose))

    def dot(u: Tensor, v: Tensor) -> Tensor:
        return sum_nodes(u * v)

    def size(r: Tensor) -> Tensor:
        return norm(r, -2)

    floor = FLOOR * (1 + c.abs())
    b = torch.where(_too_large(c, largest, b, stats), torch.nan, b)
    goal = floor.clamp_min(tolerance) * size(b)
    y, r = b, b - apply(b)  # for small c the answer is near b, for large c a smooth part of it
    going = size(r) > goal
    fresh = torch.ones_like(going)  # channels that start from their residual
    shadow, p, v = r, torch.zeros_like(r), torch.zeros_like(r)
    rho = alpha = omega = torch.ones_like(goal)
    for iteration in range(max_iterations + 1):
        if not bool(going.any()):  # the residual of the recurrence drifts: compute the true one
            r = b - apply(y)
            going = fresh = size(r) > goal
            if not bool(going.any()):
                return y
        if iteration == max_iterations:
            break
        shadow = torch.where(fresh, r, shadow)
        p, v = (torch.where(fresh, 0.0, u) for u in (p, v))
        rho, alpha, omega = (torch.where(fresh, 1.0, u) for u in (rho, alpha, omega))
        rho_new = dot(shadow, r)
        beta = _ratio(rho_new, rho) * _ratio(alpha, omega)
        p = r + beta * (p - omega * v)
        p_hat = p / diagonal
        v = apply(p_hat)
        alpha = _ratio(rho_new, dot(shadow, v))
        s = r - alpha * v
        s_hat = s / diagonal
        w = apply(s_hat)
        omega = _ratio(dot(w, s), dot(w, w))
        move = alpha * p_hat + omega * s_hat
        rho = rho_new
        fresh = going & (
            (rho == 0) | (omega == 0) | ~everywhere(torch.isfinite(move).all(-2, keepdim=True))
        )
        y = torch.where(going, y + torch.where(fresh, r / diagonal, move), y)
        r = torch.where(going, s - omega * w, r)
        if bool(fresh.any()):
            r = torch.where(fresh, b - apply(y), r)
        going = going & (size(r) > goal)
        stats.inner_iterations += 1
    failed = going.any(-1, keepdim=True)
    stats.fail(
        NotConverged(
            f"the linear solve of the semi-implicit scheme did not reach its tolerance in {max_iterations} "
            f"iterations at τα = {float(c.max()):g} (residual {float(size(r).max()):.3g}). Take a smaller "
            "step, loosen the tolerance or raise max_iterations.",
            failed[..., 0, 0],
        )
    )
    return torch.where(failed, torch.nan, y)


def _too_large(c: Tensor, largest: float, b: Tensor, stats: Stats) -> Tensor:
    """Members for which rounding leaves too few digits, ``(..., 1, 1)``."""
    hopeless = (c.abs() > largest).any(-1, keepdim=True)
    if bool(hopeless.any()) and bool(
        somewhere((hopeless & ~torch.isnan(b)).any())
    ):  # noted once, in the first step
        stats.fail(
            NotConverged(
                f"τα = {float(c.abs().max()):g} is too large for the linear solve of the semi-implicit "
                f"scheme: beyond {largest:.1g} rounding leaves too few digits. Take a smaller step or α.",
                hopeless[..., 0, 0],
            )
        )
    return hopeless


def _degree(graph: Graph, values: Tensor, over: Over) -> Tensor:
    """D: row or column sums ``(..., n, 1)``, or ones."""
    if over == "symmetric":
        return values.new_ones(1, 1)
    return group_sum(graph, values, over).unsqueeze(-1)


def _loops(graph: Graph, values: Tensor) -> Tensor:
    """The diagonal of A, ``(..., n, 1)``."""
    loops = (graph.row == graph.col).to(values.dtype)
    return group_sum(graph, values * loops, "rows").unsqueeze(-1)


def _ratio(a: Tensor, b: Tensor) -> Tensor:
    """a / b, and 0 where b is 0 (a channel that has converged exactly)."""
    return torch.where(b == 0, 0.0, a / torch.where(b == 0, 1.0, b))
