"""The symmetric normaliser: scores over the roots of the sums of their row and of their column."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ..pattern import Pattern
from .backends import backend
from .functions import GroupSum, Normalise, Spread, divisor, relative_change, times_slope
from .library import Places, library, run
from .transforms import Operator

SIDES = ("rows", "columns")


@library(
    "symmetric(Tensor scores, Tensor? weight, str kind) -> Tensor",
    lambda places, scores, weight, kind: scores.new_empty(scores.shape),
)
class Symmetric(Operator):
    r"""``a = w φ(s) / √(r_i c_j)`` with the sums r of rows and c of columns of ``w φ(s)``.

    That is ``√(p q)`` with the values p and q that are normalised over rows and over columns. A change u of
    ``log w φ(s)`` gives ``da = a (u − ½ Σ_i p u − ½ Σ_j q u)``, where nothing is divided by a, p or q: they
    may underflow to 0, and they are 0 on edges of weight 0. p and q are computed again for the gradient.
    """

    @staticmethod
    def forward(graph: Pattern, scores: Tensor, weight: Tensor | None, kind: str) -> Tensor:
        p, q = (backend(scores, graph).normalise(graph, scores, weight, kind, side) for side in SIDES)
        return p.sqrt_().mul_(q.sqrt_())  # the product p q would underflow earlier than its root

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.graph, scores, weight, ctx.kind = inputs
        ctx.save_for_backward(scores, weight, output)
        ctx.save_for_forward(scores, weight, output)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        (grad,) = grads
        scores, weight, values = ctx.saved_tensors
        _, wants_scores, wants_weight, _ = ctx.needs_input_grad
        if grad is None:
            return None, None, None, None
        flow = found = values * grad
        for side, share in _shares(ctx.graph, scores, weight, ctx.kind):
            found = found - share * _spread_sum(ctx.graph, flow, side) / 2
        d_scores = times_slope(found, scores, ctx.kind) if wants_scores else None
        return None, d_scores, found / divisor(weight) if wants_weight else None, None

    @staticmethod
    def tangent(ctx: Any, saved: tuple[Any, ...], *tangents: Any) -> Any:
        scores, weight, values = saved
        _, d_scores, d_weight, _ = tangents
        change = relative_change(scores, weight, d_scores, d_weight, ctx.kind)
        found = change
        for side, share in _shares(ctx.graph, scores, weight, ctx.kind):
            found = found - _spread_sum(ctx.graph, share * change, side) / 2
        return values * found


def _shares(graph: Places, scores: Tensor, weight: Tensor | None, kind: str) -> list[tuple[str, Tensor]]:
    """The values normalised over rows, and over columns."""
    return [(side, run(Normalise, graph, scores, weight, kind, side)) for side in SIDES]


def _spread_sum(graph: Places, field: Tensor, side: str) -> Tensor:
    """The sum over its row or column, on each edge."""
    return run(Spread, graph, run(GroupSum, graph, field, side), side)
