r"""The closed form of the linear model, by uniformisation.

With A stochastic and fixed, :math:`\dot x = \alpha(A - I)x + \beta x_0` has the solution

.. math::
    x(T) = \sum_k c_k A^k x_0, \quad
    c_k = p_k + \beta T \sum_{i \ge k} \frac{p_i}{i + 1}, \quad
    p_k = e^{-\lambda} \frac{\lambda^k}{k!}, \quad \lambda = \alpha T.

For β = 0 the sum is a convex combination, so the bound of equation (3) holds exactly. The number of
products is known in advance, α, β and T enter through c alone, and all output times share one basis.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from scipy.special import gammainc
from scipy.stats import poisson
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from ..dynamics import Flow, Source
from ..errors import ArgumentError, SolverError
from ..graph import Graph
from ..ops.backends import backend
from ..ops.functions import turned
from ..pattern import Pattern
from .solution import MAX_EVALUATIONS, Stats, too_many_evaluations

SLOPE = 10.0  # the slope of the truncation error over λ may be so many times the error


class Exponential:
    """Exact up to a chosen truncation error. λ + O(√λ) sparse products, no step size.

    Args:
        tolerance: Weight of the series that may be cut off; by default 1e-6 in float32 and 1e-15 in
            float64.
        max_evaluations: Limit on sparse products, for each member on its own.
        terms: Capacity: so many products are taken, and λ is not read from the device. A member that needs
            more is NaN at the end.
    """

    def __init__(
        self,
        *,
        tolerance: float | None = None,
        max_evaluations: int = MAX_EVALUATIONS,
        terms: int | None = None,
    ) -> None:
        if tolerance is not None and not 0 < tolerance < 1:
            raise ArgumentError(f"tolerance must lie between 0 and 1, got {tolerance}.")
        if terms is not None and terms < 0:
            raise ArgumentError(f"terms must not be negative, got {terms}.")
        self.tolerance, self.max_evaluations, self.terms = tolerance, max_evaluations, terms

    def solve(self, flow: Flow, x0: Tensor, times: Tensor, stats: Stats, thrifty: bool) -> Tensor:
        """x at the times ``(m, ..., 1, 1)`` → ``(m, ..., n, d)``."""
        if not isinstance(flow, Flow) or not flow.is_linear:
            raise ArgumentError(
                "Exponential integrates the linear model only: Diffusion(..., linear=True) with attention, "
                "α and sources that are constant in time. Take DormandPrince or another scheme for this "
                "equation."
            )
        assert flow.values is not None
        tolerance = self.tolerance or default_tolerance(x0.dtype)
        rate = flow.alpha().double() * times
        terms = self.terms
        if terms is None:  # the last time is the longest
            longest = rate[-1, ..., 0, 0].expand(x0.shape[:-2])
            terms = number_of_terms(longest, tolerance, self.max_evaluations)
        powers, sources = coefficients(rate, times, terms, tolerance)
        stats.evaluations += terms
        stats.accepted += 1
        stats.last_step = times[-1].detach()
        # a source that starts where the state starts shares its basis, whether or not its gradient does
        total = through = powers
        elsewhere: Tensor | None = None
        for term in flow.equation.terms:
            assert isinstance(term, Source)
            fed = term.beta() * sources
            if flow.x0 is not x0:
                stats.evaluations += terms
                more = _series(flow.graph, flow.values, term.origin(flow.x0), fed, fed, thrifty)
                elsewhere = more if elsewhere is None else elsewhere + more
                continue
            total = total + fed
            through = through if term.detach else through + fed
        if not any(isinstance(term, Source) and term.detach for term in flow.equation.terms):
            through = total
        x = _series(flow.graph, flow.values, x0, total, through, thrifty)
        return x if elsewhere is None else x + elsewhere

    def __repr__(self) -> str:
        return f"Exponential(tolerance={self.tolerance})"


def default_tolerance(dtype: torch.dtype) -> float:
    """Weight that the series may leave out: about what rounding adds up to in as many products."""
    return 1e-15 if dtype == torch.float64 else 1e-6


def number_of_terms(rate: Tensor, tolerance: float, most: int = MAX_EVALUATIONS) -> int:
    """Smallest K for which a Poisson variable of mean λ exceeds K with probability below tolerance.

    The slope of that probability is p_K, which for small λ is far larger: for the gradients of A, α and T
    it must not exceed ``SLOPE`` tolerances either. So K is at least 1.

    Args:
        rate: λ of each member, ``(*members)``; NaN needs one term.
        most: Members that need more are named in an error.
    """
    known = rate.detach().double().nan_to_num(0.0, posinf=torch.inf, neginf=-torch.inf)
    if bool((known < 0).any()):
        raise SolverError(
            f"Exponential needs λ = αT ≥ 0, got {float(known.min()):g}: bound α, or take DormandPrince.",
            known < 0,
        )
    over = gammainc(most + 1, known.cpu().numpy()) > tolerance
    if over.any():
        raise too_many_evaluations(most, torch.as_tensor(over, device=rate.device))
    largest = float(known.max())
    # Chernoff's bound gives a range, the exact tail P(X ≥ k) = gammainc(k, λ) the place in it
    log = -math.log(tolerance)
    bound = math.ceil(largest + log / 3 + math.sqrt(log**2 / 9 + 2 * log * largest)) + 1
    k = np.arange(1, bound + 1)
    return int(
        ((gammainc(k, largest) > tolerance) | (poisson.pmf(k - 1, largest) > SLOPE * tolerance)).sum()
    )


def coefficients(rate: Tensor, times: Tensor, terms: int, tolerance: float) -> tuple[Tensor, Tensor]:
    """``p_k`` and ``T Σ_{i≥k} p_i/(i+1)``: rate, times ``(m, ..., 1, 1)`` → ``(m, ..., 1, terms+1)``.

    Computed in float64, for λ ≥ 1 in log space. Terms that :func:`number_of_terms` leaves out are set to
    zero member by member, so that a member's result does not depend on the others; the rest is normalised
    to sum to one. Where more terms would be needed, the result is NaN.
    """
    k = torch.arange(terms + 1, dtype=torch.float64, device=rate.device)
    # each branch sees only arguments at which its value and slope are finite
    small, large = rate.clamp_max(1.0), rate.clamp_min(1.0)
    factorial = torch.lgamma(k + 1)
    p = torch.where(
        rate < 1,
        small**k * torch.exp(-small - factorial),
        torch.exp(k * large.log() - large - factorial),
    )
    with torch.no_grad():
        tail = torch.special.gammainc(k + 1, rate.detach().expand_as(p))  # P(X > k)
        more = (tail > tolerance) | (p.detach() > SLOPE * tolerance)  # whether term k + 1 is needed
        kept = torch.cat([torch.ones_like(more[..., :1]), more[..., :-1]], -1)
        # 1%: capacities are computed with another gammainc, and perhaps from another rounding of λ
        enough = (tail[..., -1:] <= 1.01 * tolerance) & (p[..., -1:] <= 1.01 * SLOPE * tolerance)
    p = torch.where(kept, p, 0.0)
    p = torch.where(enough, p / p.sum(-1, keepdim=True), torch.nan)
    share = p / (k + 1)
    return p, times * share.flip(-1).cumsum(-1).flip(-1)


def _series(graph: Graph, values: Tensor, x: Tensor, c: Tensor, through: Tensor, thrifty: bool) -> Tensor:
    """``Σ_k c_k A^k x`` for every output time: c ``(m, ..., 1, K+1)`` → ``(m, ..., n, d)``.

    The gradient of x sees the coefficients ``through``.
    """
    lead = torch.broadcast_shapes(values.shape[:-1], x.shape[:-2], c.shape[1:-2])
    n, d = x.shape[-2:]

    def flat(weights: Tensor) -> Tensor:
        m, *members, _, k = weights.shape  # members may be fewer than those of x: never align them with m
        wide = weights.to(x.dtype).reshape(m, *[1] * (len(lead) - len(members)), *members, k)
        return wide.expand(m, *lead, k).reshape(m, -1, k).transpose(1, 2).contiguous()

    out = _Series.apply(
        graph,
        values.expand(*lead, -1).reshape(-1, values.shape[-1]),
        x.expand(*lead, n, d).reshape(-1, n, d),
        flat(c),
        None if through is c else flat(through.detach()),
        math.ceil(math.sqrt(c.shape[-1])) if thrifty else 1,
    )
    return out.reshape(len(c), *lead, n, d)


class _Series(Function):
    """Forward: powers ``y_k = A y_{k−1}``. Backward: Horner with Aᵀ, ``g_k = Aᵀ g_{k+1} + c_k g``.

    values ``(L, E)``, x ``(L, n, d)``, c ``(m, K+1, L)``.
    """

    @staticmethod
    def forward(
        ctx: Any,
        graph: Graph,
        values: Tensor,
        x: Tensor,
        c: Tensor,
        through: Tensor | None,
        stride: int,
    ) -> Tensor:
        kernels = backend(x)
        needs_basis = ctx.needs_input_grad[1] or ctx.needs_input_grad[3]
        ctx.graph, ctx.stride, ctx.through = graph, stride, through
        if not needs_basis and len(c) == 1:  # Horner here too: no sum to carry along
            ctx.save_for_backward(values, c)
            out = c[0, -1, :, None, None] * x
            for k in range(c.shape[1] - 2, -1, -1):
                out = kernels.spmm(graph, values, out, add=(c[0, k], x))
            return out.unsqueeze(0)
        if needs_basis and stride == 1:
            kept = [x]
            for _ in range(1, c.shape[1]):
                kept.append(kernels.spmm(graph, values, kept[-1]))
            sums = [kernels.combine(shares, kept) for shares in c]
            out = sums[0].unsqueeze(0) if len(sums) == 1 else torch.stack(sums)
        else:
            out = c[:, 0, :, None, None] * x
            y, kept = x, [x]
            for k in range(1, c.shape[1]):
                y = kernels.spmm(graph, values, y)
                if needs_basis and k % stride == 0:
                    kept.append(y)
                for share, total in zip(c[:, k, :, None, None], out, strict=True):
                    total.addcmul_(share, y)
        ctx.save_for_backward(values, c, *kept)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        (grad,) = grads
        values, c, *kept = ctx.saved_tensors
        graph, stride, last = ctx.graph, ctx.stride, c.shape[1] - 1
        kernels = backend(grad)
        wants_values, wants_c = ctx.needs_input_grad[1], ctx.needs_input_grad[3]
        d_values = values.new_zeros(values.shape) if wants_values else None  # whatever its strides
        d_c = torch.empty_like(c) if wants_c else None
        transpose = turned(graph, values)  # once, for all products
        g: Tensor | None = None
        for first in range(last // stride * stride, -1, -stride):
            stop = min(first + stride, last + 1)
            powers = [kept[first // stride]] if wants_values or wants_c else []
            while powers and len(powers) < stop - first:
                powers.append(kernels.spmm(graph, values, powers[-1]))
            for k in range(stop - 1, first - 1, -1):
                if g is not None and d_values is not None:
                    kernels.sddmm(graph, g, powers[k - first], out=d_values)
                g = _horner(kernels, transpose, g, c[:, k], grad)
            if d_c is not None and stride > 1:
                for row, part in zip(d_c, grad, strict=True):
                    row[first:stop] = kernels.dots(part, powers)
        if d_c is not None and stride == 1:  # all powers at once: the gradient is read less often
            for row, part in zip(d_c, grad, strict=True):
                row.copy_(kernels.dots(part, kept))
        if ctx.through is not None and ctx.needs_input_grad[2]:
            g = None
            for k in range(last, -1, -1):
                g = _horner(kernels, transpose, g, ctx.through[:, k], grad)
        return None, d_values, g if ctx.needs_input_grad[2] else None, d_c, None, None


def _horner(
    kernels: Any, matrix: tuple[Pattern, Tensor], g: Tensor | None, c: Tensor, grad: Tensor
) -> Tensor:
    """``Aᵀ g + Σ_m c_m grad_m``, with the matrix Aᵀ."""
    if len(c) == 1:
        share, source = c[0], grad[0]
    else:
        share, source = torch.ones_like(c[0]), torch.einsum("ml,mlnd->lnd", c, grad)
    if g is None:
        return share[:, None, None] * source
    return kernels.spmm(*matrix, g, add=(share, source))
