r"""Solve :math:`((1 + c)I - cA)\,y = b` for a stochastic A, differentiably.

The matrix is strictly diagonally dominant (appendix E), so the solution exists for every c ≥ 0.
The gradient follows from the implicit function theorem: one solve with the transpose.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from ..errors import NotConverged
from ..graph import Graph
from ..ops import group_sum, propagate, score
from .solution import Stats


def solve(
    graph: Graph,
    values: Tensor,
    c: Tensor,
    b: Tensor,
    *,
    tolerance: float,
    max_iterations: int,
    stats: Stats,
) -> Tensor:
    """The solution y ``(..., n, d)``; values ``(..., E)``, c ``(..., 1, 1)``, b ``(..., n, d)``."""
    return _Solve.apply(graph, values, c, b, False, tolerance, max_iterations, stats)


class _Solve(Function):
    @staticmethod
    def forward(
        ctx: Any,
        graph: Graph,
        values: Tensor,
        c: Tensor,
        b: Tensor,
        transpose: bool,
        tolerance: float,
        max_iterations: int,
        stats: Stats,
    ) -> Tensor:
        y = bicgstab(graph, values, c, b, transpose, tolerance, max_iterations, stats)
        ctx.graph, ctx.transpose, ctx.how = graph, transpose, (tolerance, max_iterations, stats)
        ctx.save_for_backward(values, c, y)
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        values, c, y = ctx.saved_tensors
        graph = ctx.graph
        # B y = b  ⇒  db = B⁻ᵀ g, and dB = −(B⁻ᵀ g) yᵀ, where dB/dA = −c and dB/dc = I − A
        u = _Solve.apply(graph, values, c, grads[0], not ctx.transpose, *ctx.how)
        d_values = d_c = None
        if ctx.needs_input_grad[1]:
            left, right = (y, u) if ctx.transpose else (u, y)
            d_values = _reduced(score(graph, left, right) * c.squeeze(-1), values)
        if ctx.needs_input_grad[2]:
            d_c = _reduced(u * (propagate(graph, values, y, transpose=ctx.transpose) - y), c)
        return None, d_values, d_c, u, None, None, None, None


def _reduced(grad: Tensor, like: Tensor) -> Tensor:
    return grad.sum_to_size(like.shape)


def bicgstab(
    graph: Graph,
    values: Tensor,
    c: Tensor,
    b: Tensor,
    transpose: bool,
    tolerance: float,
    max_iterations: int,
    stats: Stats,
) -> Tensor:
    """BiCGStab with Jacobi scaling, every channel of every member a system of its own.

    A channel stops moving once its residual is at most ``tolerance·‖b‖``. Where the method breaks
    down, the fixed-point iteration ``y ← (b + cAy)/(1 + c)``, which always converges, takes over.
    """
    diagonal = 1 + c - c * _diagonal(graph, values).unsqueeze(-1)

    def apply(y: Tensor) -> Tensor:
        return (1 + c) * y - c * propagate(graph, values, y, transpose=transpose)

    def dot(u: Tensor, v: Tensor) -> Tensor:
        return (u * v).sum(-2, keepdim=True)

    # rounding alone leaves a residual of about eps·‖I − cĀ‖
    floor = 8 * torch.finfo(b.dtype).eps * (1 + c.abs())
    goal = floor.clamp_min(tolerance) * b.norm(dim=-2, keepdim=True)
    y = b / diagonal
    r = b - apply(y)
    shadow, p, v = r, torch.zeros_like(r), torch.zeros_like(r)
    rho = alpha = omega = torch.ones_like(goal)
    going = r.norm(dim=-2, keepdim=True) > goal
    stuck = torch.zeros_like(going)
    for _ in range(max_iterations):
        if not bool(going.any()):
            break
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
        y = torch.where(going, y + move, y)
        r = torch.where(going, s - omega * w, r)
        rho = rho_new
        stats.inner_iterations += 1
        broken = (rho == 0) | (omega == 0) | ~torch.isfinite(move).all(-2, keepdim=True)
        stuck = stuck | (going & broken)
        going = going & ~broken & (r.norm(dim=-2, keepdim=True) > goal)
    return _fixed_point(apply, y, c, b, goal, going | stuck, max_iterations, stats)


def _fixed_point(
    apply: Any,
    y: Tensor,
    c: Tensor,
    b: Tensor,
    goal: Tensor,
    going: Tensor,
    max_iterations: int,
    stats: Stats,
) -> Tensor:
    """Only the channels that are still ``going`` move: the others have what they would have alone."""
    if not bool(going.any()):
        return y
    y = torch.where(going & ~torch.isfinite(y).all(-2, keepdim=True), b, y)
    # the error shrinks by c/(1+c) in each iteration
    limit = max_iterations + int(40 * (1 + float(c.abs().max())))
    for _ in range(limit):
        r = b - apply(y)
        going = going & (r.norm(dim=-2, keepdim=True) > goal)
        if not bool(going.any()):
            return y
        y = torch.where(going, y + r / (1 + c), y)
        stats.inner_iterations += 1
    raise NotConverged(
        f"the linear solve of the semi-implicit scheme did not reach its tolerance in {limit} "
        f"iterations at τα = {float(c.max()):g} (residual {float(r.norm(dim=-2).max()):.3g}). Loosen "
        "the tolerance, raise max_iterations or compute in float64.",
        going[..., 0, :].any(-1),
    )


def _diagonal(graph: Graph, values: Tensor) -> Tensor:
    loops = (graph.row == graph.col).to(values.dtype)
    return group_sum(graph, values * loops, "rows")


def _ratio(a: Tensor, b: Tensor) -> Tensor:
    """a / b, and 0 where b is 0 (a channel that has converged exactly)."""
    return torch.where(b == 0, 0.0, a / torch.where(b == 0, 1.0, b))
