r"""Solve :math:`x = c + s f(t, x)`, the equation of an implicit stage, differentiably (Newton-Krylov).

Newton's method with a residual in the root mean square of its entries over their tolerances. Each linear
system with :math:`I - sJ` is solved by GMRES from Jacobian-vector products alone; a field that gives the
diagonal of J (``diagonal``) has it scaled by the diagonal of :math:`I - sJ`. Where J is dissipative, the
error of x is at most the residual.

The gradient follows from the implicit function theorem: one system with :math:`(I - sJ)^\top`, solved by
GMRES. Only x is kept for it, and the graph of one evaluation of f, whatever the number of iterations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function, forward_ad
from torch.autograd.function import once_differentiable

from ..errors import ArgumentError, NotConverged
from ..partition.whole import all_rows, norm, smallest
from .field import Counted, Field
from .gmres import ROUNDING, gmres
from .solution import Stats

NEWTON = 0.1  # residual at which Newton's method stops, in units of the tolerance
LINEAR = 0.3  # residual at which GMRES stops, in units of the one before
MOST = 20  # iterations of Newton's method, halved steps included


@dataclass(frozen=True, eq=False)
class Root:
    """The solution for each member.

    Attributes:
        x: ``(..., n, d)``; NaN where f is NaN at the first guess, the last iterate where it failed.
        failed: Members that did not converge, ``(..., 1, 1)``.
        evaluations: Evaluations and products that each member needed, ``(..., 1, 1)``.
    """

    x: Tensor
    failed: Tensor
    evaluations: Tensor


def find_root(
    field: Field,
    t: Tensor,
    c: Tensor,
    s: Tensor,
    guess: Tensor,
    scale: Tensor,
    *,
    most: int,
    stats: Stats,
) -> Root:
    """Solve x = c + s f(t, x).

    Args:
        c: ``(..., n, d)``.
        s: ``(..., 1, 1)``, like γh.
        guess: First guess.
        scale: Tolerance of each entry, which broadcasts to x. Newton's method stops at ``NEWTON`` of it,
            GMRES at ``LINEAR`` of that; where rounding of the residual is larger, at the rounding, as long
            as it stays below the whole tolerance.
        most: Iterations allowed in one linear solve.
    """
    if torch._C._are_functorch_transforms_active():
        raise ArgumentError("an implicit scheme does not work inside torch.func: take an explicit one.")
    with torch.no_grad():
        scale = scale.clamp_min(torch.finfo(c.dtype).tiny ** 0.5)
        root = _newton(field, t, c, s, guess, scale, most, stats)
    if not torch.is_grad_enabled():
        return root
    # its graph leads to everything that f depends on; the gradient that enters it is that of the root
    once = torch.addcmul(c, field(t, root.x), s)
    if not once.requires_grad:
        return root
    own = field.field if isinstance(field, Counted) else field
    x = _Root.apply(once, root.x, t.detach(), s.detach(), own, most, stats)
    return Root(x, root.failed, root.evaluations)


def _newton(
    field: Field, t: Tensor, c: Tensor, s: Tensor, x: Tensor, scale: Tensor, most: int, stats: Stats
) -> Root:
    def missing_at(x: Tensor) -> Tensor:
        return torch.addcmul(c, field(t, x), s) - x

    def size_of(missing: Tensor) -> Tensor:  # root mean square, (..., 1, 1)
        return norm(missing / scale) / root_n

    missing = missing_at(x)
    x = x.expand_as(missing).contiguous()  # all members; forward mode needs memory for each entry
    root_n = (all_rows(x) * x.shape[-1]) ** 0.5
    divisor = _diagonal(field, t, x, s)
    stretch = divisor * scale  # scale of the unknowns; that of the residual is the tolerance
    size = size_of(missing)
    known = torch.isfinite(size)
    left, step = x, torch.zeros_like(x)
    spent = operator = norms = torch.ones_like(size)
    best, goal = torch.full_like(size, torch.inf), torch.full_like(size, NEWTON)
    failed = torch.zeros_like(known)
    going = known & (size > goal)
    for _ in range(MOST):
        if not bool(going.any()):
            break
        halve = going & ~(size < best)  # the last step was too long
        solve = going & ~halve
        left, best = torch.where(solve, x, left), torch.where(solve, size, best)

        def apply(v: Tensor, x: Tensor = x) -> Tensor:
            v = v * stretch
            stats.products += 1
            return (v - s * jacobian_product(field, t, x, v)) / scale

        right = torch.where(solve, missing / scale, 0.0)
        found = gmres(apply, right, torch.full_like(size, LINEAR * NEWTON * root_n), most)
        step = torch.where(solve, found.x * stretch, step / 2)
        x = torch.where(going, left + step, x)
        stats.newton_iterations += 1
        stats.inner_iterations += found.iterations
        missing = missing_at(x)
        size = size_of(missing)
        spent = spent + found.products + going
        failed = failed | found.failed
        norms = torch.maximum(norms, found.size)
        # what rounding of f leaves, unless it is larger than the tolerance itself
        operator = torch.maximum(operator, found.size / smallest(divisor.amin((-2, -1), keepdim=True)))
        noise = ROUNDING * torch.finfo(x.dtype).eps * operator * norm(x / scale) / root_n
        goal = torch.maximum(goal, torch.where(noise <= 1, noise, 0.0))
        going = going & ~failed & ~(size <= goal)
    failed = failed | going
    # A step of Richardson's iteration from the last residual. It costs nothing, and without it a guess that
    # meets the tolerance would be kept as it is: in short steps the solution would not move.
    x = torch.addcmul(x, divisor / norms, missing)
    return Root(torch.where(failed, left, torch.where(known, x, torch.nan)), failed, spent)


def _diagonal(field: Any, t: Tensor, x: Tensor, s: Tensor) -> Tensor:
    """The inverse diagonal of I − sJ where a field gives that of J, else ones; entries that grow: 1."""
    found = getattr(field, "diagonal", lambda t, x: None)(t, x)
    return x.new_ones(1, 1) if found is None else 1 / (1 - s * found).clamp_min(1.0)


def jacobian_product(field: Field, t: Tensor, x: Tensor, v: Tensor) -> Tensor:
    """J v at x, in forward mode: no graph is kept, and a checkpoint outside does not see it."""
    # torch turns forward mode off inside the forward pass of a Function, such as that of the adjoint
    with forward_ad.dual_level(), forward_ad._set_fwd_grad_enabled(True):
        found = forward_ad.unpack_dual(field(t, forward_ad.make_dual(x, v))).tangent
    return torch.zeros_like(v) if found is None else found.detach()


class _Root(Function):
    """The identity, whose backward pass solves (I − sJ)ᵀ u = g."""

    @staticmethod
    def forward(
        ctx: Any, once: Tensor, x: Tensor, t: Tensor, s: Tensor, field: Field, most: int, stats: Stats
    ) -> Tensor:
        ctx.save_for_backward(x, t, s)
        ctx.how = field, most, stats
        return x.view_as(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        (grad,) = grads
        x, t, s = ctx.saved_tensors
        field, most, stats = ctx.how
        with torch.enable_grad():
            start = x.detach().requires_grad_()
            value = field(t, start)
        divisor = _diagonal(field, t, x, s)

        def apply(v: Tensor) -> Tensor:
            v = v * divisor
            if not value.requires_grad:
                return v
            (pulled,) = torch.autograd.grad(value, start, s * v, retain_graph=True, allow_unused=True)
            return v if pulled is None else v - pulled

        tolerance = 1e-10 if x.dtype == torch.float64 else 1e-6
        found = gmres(apply, grad, tolerance * norm(grad), most)
        if bool(found.failed.any()):
            stats.fail(
                NotConverged(
                    f"the linear system of the backward pass of an implicit step did not reach its "
                    f"tolerance in {most} iterations. Take a smaller step or raise max_iterations.",
                    found.failed[..., 0, 0],
                )
            )
        u = torch.where(found.failed | ~torch.isfinite(norm(grad)), torch.nan, found.x * divisor)
        return u, None, None, None, None, None, None
