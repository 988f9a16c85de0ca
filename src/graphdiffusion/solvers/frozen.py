r"""The equation with its matrices held fixed: what the exponential schemes solve in closed form.

A frozen right-hand side is a sum of matrices on one pattern and a source,

.. math:: F(x) = \sum_j c_j (A_j - I)\,x + g.

Its solution after a time h follows by uniformisation. With :math:`\mu = h\sum_j |c_j|`,
:math:`\lambda = h\sum_j c_j` and :math:`B = h\sum_j c_j A_j / \mu`, the norm of which is at most 1,

.. math::
    x(h) = e^{\mu - \lambda} \sum_k p_k B^k x \;\text{ for } g = 0, \quad
    x(h) = x + h\,e^{\mu - \lambda} \sum_k q_k B^k F(x), \quad
    q_k = \sum_{i \ge k} \Bigl(\frac{\lambda}{\mu}\Bigr)^{i-k} \frac{p_i}{i + 1}

with :math:`p_k = e^{-\mu}\mu^k/k!`. The second form is :math:`x + h\varphi_1(hM)F(x)`: it takes one product
more than the first and no second series for the source. Where no :math:`c_j` is negative, μ = λ, and the
first sum is a convex combination.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..errors import ArgumentError, SolverError
from ..graph import Graph
from ..ops import combine, propagate
from .exponential import coefficients, fewest_terms
from .field import NEEDS, described
from .series import check_rounded, composed, power_series
from .solution import Stats


class Cut(NamedTuple):
    """Where the series of a step are cut off.

    Attributes:
        reach: A bound of hα, of all members.
        tolerance: Weight that a series may leave out.
        rounded: Whether its powers are bfloat16.
    """

    reach: float
    tolerance: float
    rounded: bool = False

    def terms(self, weight: float) -> int:
        """Products that a series needs for ``weight`` times the step."""
        return _terms(weight * self.reach, self.tolerance)


@torch.compiler.assume_constant_result  # a number of the program that is compiled
def _terms(rate: float, tolerance: float) -> int:
    return fewest_terms(rate, tolerance)


@dataclass(frozen=True, eq=False)
class Frozen:
    """A frozen right-hand side.

    Attributes:
        graph: The pattern of the matrices.
        matrices: B as an edge field ``(..., E)``; or, where the channels have different ones, the A_j.
        shares: Factors of the A_j in B, ``(..., 1, d)`` each; empty where B is one matrix.
        largest: Σ|c_j|, ``(..., 1, 1)`` or ``(..., 1, d)``.
        total: Σ c_j.
        source: g ``(..., n, d)``, or ``None``.
        ratio: Σ c_j / Σ|c_j|; ``None``: 1.
        weight: A bound of Σ|c_j| over the largest α: 1 for the equation itself.
    """

    graph: Graph
    matrices: tuple[Tensor, ...]
    shares: tuple[Tensor, ...]
    largest: Tensor
    total: Tensor
    source: Tensor | None
    ratio: Tensor | None = None
    weight: float = 1.0

    def product(self, x: Tensor) -> Tensor:
        """B x."""
        if not self.shares:
            return propagate(self.graph, self.matrices[0], x)
        parts = zip(self.matrices, self.shares, strict=True)
        return sum(propagate(self.graph, values, share * x) for values, share in parts)  # type: ignore[return-value]

    def __call__(self, x: Tensor) -> Tensor:
        """F(x)."""
        weights, states = [self.largest, -self.total], [self.product(x), x]
        if self.source is not None:
            weights, states = [*weights, torch.ones_like(self.total)], [*states, self.source]
        return combine(weights, states)

    def start(self, x: Tensor) -> Tensor:
        """The y of the sum Σ c_k B^k y: x, or F(x) where there is a source."""
        return x if self.source is None else self(x)

    def coefficients(self, h: Tensor, terms: int, tolerance: float) -> Tensor:
        """The c_k of that sum for a time h, ``(..., 1, 1 or d, terms+1)``."""
        span = h.double().unsqueeze(-1)
        mu, total = (span * c.double().unsqueeze(-1) for c in (self.largest, self.total))
        p, q = coefficients(mu, span, terms, tolerance)
        if self.ratio is None:
            return p if self.source is None else q
        growth = torch.exp(mu - total)
        if self.source is None:
            return growth * p
        k = torch.arange(terms + 1, device=p.device)
        apart = k - k[:, None]  # i − k
        powers = torch.where(apart < 0, 0.0, self.ratio.double()[..., None, None] ** apart.clamp_min(0))
        return span * growth * (powers @ (p / (k + 1)).unsqueeze(-1)).squeeze(-1)

    def solve(self, h: Tensor, x: Tensor, cut: Cut, stats: Stats, share: float = 1.0) -> Tensor:
        """The solution after a share of the step h from x."""
        return self.solutions(h, x, cut, stats, (share,))[0]

    def solutions(
        self,
        h: Tensor,
        x: Tensor,
        cut: Cut,
        stats: Stats,
        shares: Sequence[float],
        among_others: bool = False,
    ) -> tuple[Tensor, ...]:
        """The solutions after several shares of the step h from x; they have their products in common.

        Args:
            among_others: As in :func:`~graphdiffusion.solvers.series.power_series`.
        """
        terms = cut.terms(max(shares) * self.weight)
        c = torch.stack([self.coefficients(share * h, terms, cut.tolerance) for share in shares])
        y = self.start(x)
        stats.inner_iterations += terms
        if self.shares:
            if cut.rounded:
                check_rounded(y, c)
            found = composed(self.product, y, c, c).unbind()
            return found if self.source is None else tuple(x + part for part in found)
        added = None if self.source is None else x
        how = (False, cut.rounded, added, among_others)
        return power_series(self.graph, self.matrices[0], y, c, c, *how)

    def curve(self, h: Tensor, x: Tensor, new: Tensor, cut: Cut) -> Callable[[Tensor], Tensor]:
        """The solution at a share θ of the step h from x to ``new``; all θ have the products in common."""
        terms = cut.terms(self.weight)
        powers: list[Tensor] = []

        def between(theta: Tensor) -> Tensor:
            if not powers:
                powers.append(self.start(x))
                while len(powers) <= terms:
                    powers.append(self.product(powers[-1]))
            c = self.coefficients(theta * h, terms, cut.tolerance)
            found = combine(list(c.unbind(-1)), powers, None if self.source is None else x)
            # at the end the new state itself, with the gradient of the curve
            return torch.where(theta == 1, new.detach() + (found - found.detach()), found)

        return between


def freeze(field: Any, t: Tensor, x: Tensor, stats: Stats | None = None) -> Frozen:
    """The right-hand side at time t and state x: one evaluation of the attention.

    Where α is negative there is no convex combination, and no short series: those members become NaN.

    Args:
        stats: Where to note members with a negative α; ``None``: nothing is read from the device.
    """
    parts = field.stiff(t, x)
    if parts is None:
        raise ArgumentError(f"the exponential schemes need {NEEDS['stiff']}; got {described(field)}.")
    negative = parts.coefficient < 0
    if stats is not None and bool(negative.any()):
        lowest = float(parts.coefficient.detach().min())
        message = f"the exponential schemes need α ≥ 0, got {lowest:g}: bound α, or take DormandPrince."
        stats.fail(SolverError(message, negative.any(-1)[..., 0]))
    rate = torch.where(negative, torch.nan, parts.coefficient)
    return Frozen(field.graph, (parts.values,), (), rate, rate, parts.rest)


def mixed(weights: Sequence[float], parts: Sequence[Frozen]) -> Frozen:
    """Σ w_j F_j, of right-hand sides with one matrix each."""
    weight, pairs = sum(map(abs, weights)), list(zip(weights, parts, strict=True))
    largest: Tensor = sum(abs(w) * part.total for w, part in pairs)  # type: ignore[assignment]
    total: Tensor = sum(w * part.total for w, part in pairs)  # type: ignore[assignment]
    none = largest == 0  # where all α are 0 any shares will do; these have the right slope
    divisor = torch.where(none, 1.0, largest)
    shares = tuple(torch.where(none, w / weight, w * part.total / divisor) for w, part in pairs)
    ratio: Tensor = sum(shares)  # type: ignore[assignment]
    matrices = tuple(part.matrices[0] for part in parts)
    if largest.shape[-1] == 1:  # one matrix for all channels
        merged = sum(share[..., 0] * values for share, values in zip(shares, matrices, strict=True))
        matrices, shares = (merged,), ()  # type: ignore[assignment]
    source = None
    if parts[0].source is not None:
        ones = torch.ones_like(total[..., :1])
        source = combine([w * ones for w in weights], [part.source for part in parts])  # type: ignore[misc]
    return Frozen(parts[0].graph, matrices, shares, largest, total, source, ratio, weight)
