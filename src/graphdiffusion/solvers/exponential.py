r"""The closed form of the linear model, by uniformisation.

With A stochastic and fixed, :math:`\dot x = \alpha(A - I)x + \beta x_0` has the solution

.. math::
    x(T) = \sum_k c_k A^k x_0, \quad
    c_k = p_k + \beta T \sum_{i \ge k} \frac{p_i}{i + 1}, \quad
    p_k = e^{-\lambda} \frac{\lambda^k}{k!}, \quad \lambda = \alpha T.

For β = 0 the sum is a convex combination, so the bound of equation (3) holds exactly. The number of
products is known in advance, α, β and T enter through c alone, and all output times share one basis.
Equations with other powers of A have a closed form too: :mod:`~graphdiffusion.solvers.polynomial`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self, get_args

import numpy as np
import torch
from scipy.special import gammainc
from torch import Tensor

from ..errors import ArgumentError, SolverError
from ..options import Bounds
from .base import SOLVERS, Room, Solver
from .field import Field, described
from .polynomial import polynomial_states
from .series import power_series
from .solution import MAX_EVALUATIONS, Stats, too_many_evaluations
from .truncation import SLOPE, fewest_terms

Precision = Literal["full", "bfloat16"]


@SOLVERS.register("exponential")
class Exponential(Solver):
    """The closed form of the linear model, exact up to a chosen truncation error.

    λ + O(√λ) sparse products, no step size. For equations that are affine in x, with coefficients that are
    constant in time. With other powers of A − I than the first it takes up to four times the products,
    and has neither a capacity nor a captured step.

    Args:
        tolerance: Weight of the series that may be cut off; by default 1e-6 in float32 and 1e-15 in
            float64.
        max_evaluations: Limit on sparse products, for each member on its own.
        precision: Of the powers of A times x: that of the model (full), or bfloat16, which takes half the
            memory and is an approximation. Sums of them, and gradients, stay float32.
        terms: Capacity: so many products are taken, and λ is not read from the device. A member that needs
            more is NaN at the end.
    """

    explicit = False
    captures = True
    follows_rate = True

    def __init__(
        self,
        *,
        tolerance: float | None = None,
        max_evaluations: Annotated[int, Bounds(1)] = MAX_EVALUATIONS,
        precision: Precision = "full",
        terms: int | None = None,
    ) -> None:
        super().__init__()
        check_tolerance(tolerance)
        if terms is not None and terms < 0:
            raise ArgumentError(f"terms must not be negative, got {terms}.")
        self.tolerance, self.max_evaluations, self.terms = tolerance, max_evaluations, terms
        self.rounded = is_rounded(precision)

    @staticmethod
    def accepts(field: Any) -> bool:
        """Whether a field has the closed form."""
        affine = getattr(field, "affine", lambda: None)()
        return affine is not None and Exponential.fits(affine, field.stable)

    @staticmethod
    def fits(affine: Any, stable: bool) -> bool:
        """Whether an equation has the closed form: affine in x, a polynomial in A, and ‖A‖ ≤ 1."""
        return affine is not None and stable and bool(affine.powers) and min(affine.powers) >= 0

    def capacity(self, span: Tensor, rate: Tensor, dtype: torch.dtype = torch.float32) -> Room:
        tolerance = self.tolerance or default_tolerance(dtype)
        return (number_of_terms(limited(rate * span, tolerance, self.max_evaluations, Stats()), tolerance),)

    def with_capacity(self, room: Room) -> Self:
        return self._copy(terms=room[0])

    def held(self, time: float) -> int:
        return number_of_terms(torch.tensor(time), default_tolerance(torch.float32))

    def marks(self, time: float) -> int:
        return self.held(time)

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
        if not self.accepts(field):
            raise ArgumentError(
                "Exponential integrates the linear model only: a polynomial in a normalised A times x, and "
                f"sources, all constant in time and no other term in x, got {described(field)}. Take "
                "DormandPrince or another scheme."
            )
        flow: Any = field
        stops = (end if times is None else torch.cat([times, end.expand_as(times[:1])])) - start
        stops = stops.unsqueeze(0) if times is None else stops
        affine = flow.affine()
        # as many dimensions as the members have: output times are never aligned with members
        missing = max(*(c.dim() for c in affine.powers.values()), x.dim()) - (stops.dim() - 1)
        stops = stops.reshape(len(stops), *[1] * missing, *stops.shape[1:])
        if set(affine.powers) != {1}:
            if self.terms is not None:
                raise ArgumentError("the closed form of a polynomial in A has no capacity: omit terms.")
            if self.rounded:
                refuse_polynomial(affine)
            tolerance, most = self.tolerance or default_tolerance(x.dtype), self.max_evaluations
            found = polynomial_states(flow.graph, affine, x, stops, tolerance, most, stats, checkpoint)
            return found[-1], found[:-1]
        *states, last = self._series(flow, affine, x, stops, stats, checkpoint)
        return last, states

    def _series(
        self, flow: Any, affine: Any, x: Tensor, times: Tensor, stats: Stats, checkpoint: bool
    ) -> list[Tensor]:
        """x at the m times ``(m, ..., 1, 1)``."""
        tolerance = self.tolerance or default_tolerance(x.dtype)
        rate = affine.powers[1].double() * times  # (m, ..., 1, 1), or a rate for each channel
        terms = self.terms
        if terms is None:
            lead = torch.broadcast_shapes(rate.shape[1:-2], x.shape[:-2])
            last = rate[-1].detach()  # the longest time
            lowest, highest = (bound((-2, -1)).expand(lead) for bound in (last.amin, last.amax))
            known = limited(
                torch.where(lowest < 0, lowest, highest), tolerance, self.max_evaluations, stats
            )
            rate = (
                torch.where(torch.isnan(known)[..., None, None], torch.nan, rate)
                if stats.failures
                else rate
            )
            # where T = 0 only the gradient of T needs a product
            still = not times.requires_grad and not bool(times[-1].any())
            terms = 0 if still else number_of_terms(known, tolerance)
        powers, sources = coefficients(rate.unsqueeze(-1), times.unsqueeze(-1), terms, tolerance)
        stats.evaluations += terms
        stats.accepted += 1
        stats.last_step = times[-1].detach()
        # a source that starts where the state starts shares its basis, whether or not its gradient does
        total = through = powers
        elsewhere: list[tuple[Tensor, ...]] = []
        for source in affine.sources:
            fed = source.coefficient.unsqueeze(-1) * sources
            if source.field is not x:
                stats.evaluations += terms
                origin = source.field.detach() if source.detached else source.field
                more = power_series(flow.graph, affine.values, origin, fed, fed, checkpoint, self.rounded)
                elsewhere.append(more)
                continue
            total = total + fed
            through = through if source.detached else through + fed
        if not any(source.detached for source in affine.sources):
            through = total
        out = power_series(flow.graph, affine.values, x, total, through, checkpoint, self.rounded)
        return [sum(parts[1:], start=parts[0]) for parts in zip(out, *elsewhere, strict=True)]

    def __repr__(self) -> str:
        return f"Exponential(tolerance={self.tolerance})"


def is_rounded(precision: str) -> bool:
    """Whether powers are to be bfloat16."""
    if precision not in get_args(Precision):
        raise ArgumentError(
            f"precision must be one of {', '.join(get_args(Precision))}, got {precision!r}."
        )
    return precision == "bfloat16"


def refuse_polynomial(affine: Any) -> None:
    """ArgumentError for powers in bfloat16 where the equation is another polynomial than αA − αI."""
    if set(affine.powers) != {1}:
        raise ArgumentError(
            "precision bfloat16 is for diffusion and sources: terms of a polynomial in A cancel each "
            "other, and rounding would be left. Leave it out."
        )


def check_tolerance(tolerance: float | None) -> None:
    """Refuse a weight to leave out that is none; ``None`` stands for the default."""
    if tolerance is not None and not 0 < tolerance < 1:
        raise ArgumentError(f"tolerance must lie between 0 and 1, got {tolerance}.")


def default_tolerance(dtype: torch.dtype) -> float:
    """Weight that the series may leave out: about what rounding adds up to in as many products."""
    return 1e-15 if dtype == torch.float64 else 1e-6


def limited(rate: Tensor, tolerance: float, most: int, stats: Stats) -> Tensor:
    """λ of each member ``(*members)``, NaN for those that have no closed form or need too many products."""
    known = rate.detach().double()
    negative = known < 0
    if bool(negative.any()):
        message = f"Exponential needs λ = αT ≥ 0, got {float(known[negative].min()):g}: bound α, or take "
        stats.fail(SolverError(f"{message}DormandPrince.", negative))
    known = torch.where(negative, torch.nan, known)
    spans = np.asarray(known.nan_to_num(0.0, posinf=torch.inf).tolist())  # torch.func has no numpy()
    over = gammainc(most + 1, spans) > tolerance
    if over.any():
        mask = torch.as_tensor(over, device=rate.device)
        stats.fail(too_many_evaluations(most, mask))
        known = torch.where(mask, torch.nan, known)
    return known


def number_of_terms(rate: Tensor, tolerance: float) -> int:
    """Smallest K for which a Poisson variable of mean λ exceeds K with probability below tolerance.

    The slope of that probability is p_K, which for small λ is far larger: for the gradients of A, α and T
    it must not exceed ``SLOPE`` tolerances either. So K is at least 1.

    Args:
        rate: λ of each member, ``(*members)``; NaN needs one term.
    """
    return fewest_terms(float(rate.detach().double().nan_to_num(0.0).max()), tolerance)


def coefficients(rate: Tensor, times: Tensor, terms: int, tolerance: float) -> tuple[Tensor, Tensor]:
    """``p_k`` and ``T Σ_{i≥k} p_i/(i+1)``: rate, times ``(..., 1)`` → ``(..., terms+1)``.

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
        enough = enough | (times == 0)  # the start is exact
    p = torch.where(kept, p, 0.0)
    p = torch.where(enough, p / p.sum(-1, keepdim=True), torch.nan)
    share = p / (k + 1)
    return p, times * share.flip(-1).cumsum(-1).flip(-1)
