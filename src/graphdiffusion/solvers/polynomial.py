r"""The closed form of equations that are polynomials in A, such as sharpening :math:`\beta(A - A^2)x`.

With A fixed, :math:`\dot x = q(A)x + s` has the solution

.. math::
    x(h) = f(A)\,x + \varphi(A)\,s, \quad
    f(z) = e^{h q(z)} = \sum_k f_k z^k, \quad
    \varphi(z) = \int_0^h e^{t q(z)}\,dt, \quad
    (k + 1) f_{k+1} = h \sum_j j\,p_j f_{k+1-j}

for :math:`q(z) = \sum_j p_j z^j`. The integral over t is taken by Gauss's rule, which is exact to rounding
here. As ‖A‖ ≤ 1, what the series leaves out is at most the sum of the :math:`|f_k|` that are left out.

The :math:`p_j` have both signs, so that terms cancel each other. In one step the :math:`|f_k|` may be as
large as :math:`e^{hg}`, with the largest real part g of q on the unit circle, while the solution is small.
So the time is cut into steps with hg ≤ 2: they are exact, and rounding is multiplied by about 12 at most,
the largest sum of the :math:`|f_k|` of a step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..graph import Graph
from .series import power_series
from .solution import Stats, too_many_evaluations
from .truncation import SLOPE, fewest_terms

GROWTH = 2.0  # largest hg of a step
WEIGHT = 16.0  # largest h Σ|p_j|, j ≥ 1, of a step: Gauss's rule is then exact to rounding
NODES = 24  # of that rule
FEWEST = 20  # products: a step of that weight takes more
_ANGLES = 32  # on half of the unit circle


def polynomial_states(
    graph: Graph,
    affine: Any,
    x: Tensor,
    stops: Tensor,
    tolerance: float,
    most: int,
    stats: Stats,
    checkpoint: bool,
) -> list[Tensor]:
    """x at some times, each from the one before.

    Args:
        affine: The equation, with any powers of A − I.
        stops: Times ``(m, ..., 1, 1)``, in order.
        tolerance: Weight that each series may leave out.
        most: Products that a member may take.
        checkpoint: As in :func:`~graphdiffusion.solvers.series.power_series`.
    """
    p = in_powers_of_a(affine.powers)
    own, seen, elsewhere = _sources(affine.sources, x)
    start, states = x, []
    spans = torch.cat([stops[:1], stops.diff(dim=0)])
    spans, steps = _steps(p, spans, x, most, stats)

    def series(y: Tensor, c: Tensor, through: Tensor) -> tuple[Tensor, ...]:
        stats.evaluations += c.shape[-1] - 1
        return power_series(graph, affine.values, y, c, through, checkpoint)

    for span, count in zip(spans, steps, strict=True):
        h, left = span / count, count
        f, phi = series_coefficients(p, h, tolerance, bool(affine.sources))
        stats.accepted += count
        stats.last_step = h.detach()
        fed = None if elsewhere is None else series(elsewhere, phi[None], phi[None])[0]
        if own is not None and seen is not None:
            share = own.unsqueeze(-1) * phi
            through = share if seen is own else seen.unsqueeze(-1) * phi
            if x is start:  # the first step and the source have their powers in common
                c = torch.stack(torch.broadcast_tensors(f, share))
                same = through is share
                moved, more = series(x, c, c if same else torch.stack(torch.broadcast_tensors(f, through)))
                fed = more if fed is None else fed + more
                x, left = moved + fed, count - 1
            else:
                more = series(start, share[None], through[None])[0]
                fed = more if fed is None else fed + more
        for _ in range(left):
            x = series(x, f[None], f[None])[0]
            x = x if fed is None else x + fed
        states.append(x)
    return states


def _sources(sources: Sequence[Any], x: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Coefficient of the sources that start where the state does, the same without those that are
    detached, and the sum of the other sources.
    """
    own: Tensor | None = None
    seen: Tensor | None = None
    elsewhere: Tensor | None = None
    for part in sources:
        if part.field is x:
            kept = 0 * part.coefficient.detach() if part.detached else part.coefficient
            same = seen is own and not part.detached
            own = part.coefficient if own is None else own + part.coefficient
            seen = own if same else kept if seen is None else seen + kept
        else:
            fed = part.coefficient * (part.field.detach() if part.detached else part.field)
            elsewhere = fed if elsewhere is None else elsewhere + fed
    return own, seen, elsewhere


def in_powers_of_a(powers: dict[int, Tensor]) -> list[Tensor]:
    """The p_j of Σ_j p_j A^j from the c_k of Σ_k c_k (A − I)^k, in float64."""
    zero = next(iter(powers.values())).double() * 0
    found = [zero] * (max(powers) + 1)
    for k, c in powers.items():
        for j in range(k + 1):
            found[j] = found[j] + (-1) ** (k - j) * math.comb(k, j) * c.double()
    return found


def growth(p: list[Tensor]) -> Tensor:
    """The largest real part of q on the unit circle."""
    angles = torch.linspace(0, math.pi, _ANGLES + 1, dtype=torch.float64, device=p[0].device)
    real: Tensor = sum(c.unsqueeze(-1) * torch.cos(j * angles) for j, c in enumerate(p))  # type: ignore[assignment]
    return real.amax(-1)


def _steps(p: list[Tensor], spans: Tensor, x: Tensor, most: int, stats: Stats) -> tuple[Tensor, list[int]]:
    """The number of steps of every span; spans of members that need too many products become NaN."""
    p = [c.detach() for c in p]
    weight: Tensor = sum(c.abs() for c in p[1:])  # type: ignore[assignment]
    each = torch.maximum(growth(p) / GROWTH, weight / WEIGHT).clamp_min(0.0)
    need = (spans.detach() * each).amax((-2, -1))  # (m, ...)
    over = ~(need.sum(0) * FEWEST <= most)
    if bool(over.any()):
        stats.fail(too_many_evaluations(most, over.expand(x.shape[:-2])))
        spans = torch.where(over[..., None, None], torch.nan, spans)
        need = torch.where(over, 0.0, need)
    counts = torch.ceil(need.reshape(len(need), -1).amax(1) - 1e-9).clamp_min(1)
    return spans, [int(count) for count in counts.tolist()]


def series_coefficients(
    p: list[Tensor], h: Tensor, tolerance: float, source: bool
) -> tuple[Tensor, Tensor]:
    """``f_k`` and ``φ_k``, each ``(..., 1, 1 or d, terms+1)``; φ is f where no source asks for it.

    Terms that a member does not need are set to zero, so that it does not depend on the others.
    """
    degree = len(p) - 1
    size = [c.detach().abs() for c in p[1:]]
    weight = float((h.detach() * sum(size)).nan_to_num(0.0).max())
    terms = degree * fewest_terms(weight, tolerance * math.exp(-2 * WEIGHT)) + 1
    # the same series with |p_j|: what is left out of it bounds what is left out of f
    bound = torch.stack(_recurrence([p[0].detach(), *size], h.detach(), terms), -1)
    tail = bound.flip(-1).cumsum(-1).flip(-1)
    before = torch.cat([torch.full_like(tail[..., :degree], math.inf), tail[..., :-degree]], -1)
    kept = (tail > tolerance) | (before > SLOPE * tolerance)  # the slopes of f_k are those before it
    terms = min(terms, max(1, int(kept.flatten(0, -2).any(0).sum()) - 1))
    kept = kept[..., : terms + 1]
    f = torch.where(kept, torch.stack(_recurrence(p, h, terms), -1), 0.0)
    f = torch.where(torch.isnan(h).unsqueeze(-1), torch.nan, f)
    if not source:
        return f, f
    nodes, weights = (torch.from_numpy(v).to(h.device) for v in np.polynomial.legendre.leggauss(NODES))
    inner = _recurrence([c.unsqueeze(-1) for c in p], h.unsqueeze(-1) * (nodes + 1) / 2, terms)
    phi = h.unsqueeze(-1) / 2 * torch.stack([own @ weights for own in inner], -1)
    return f, torch.where(kept | torch.isnan(f), phi, 0.0)


def _recurrence(p: list[Tensor], h: Tensor, terms: int) -> list[Tensor]:
    """f_0, f_1, …, f_terms."""
    found = [torch.exp(h * p[0])]
    for k in range(terms):
        parts = [j * p[j] * found[k + 1 - j] for j in range(1, min(len(p) - 1, k + 1) + 1)]
        found.append(h * sum(parts) / (k + 1))
    return found
