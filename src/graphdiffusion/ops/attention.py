"""The attention of all heads as one operator, with its rules of differentiation.

Used where the backend has the kernels ``attend`` and ``attend_backward``. They keep the mean attention
``(L, E)`` and, for a gradient, the statistics of each group and head ``(L, n, h)``, never a field of
E × heads. All tensors here have one leading dimension: q, k ``(L, h, n, d_k)``, weight ``(L, E)`` or None.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.func import vjp

from ..pattern import Pattern
from .backends import backend
from .functions import Normalise, Score, add_up, normalise_tangent
from .library import Places, as_pattern, library, run
from .torch.pointwise import activate
from .transforms import Fused, Operator


def _by_head(weight: Tensor | None, heads: int) -> Tensor | None:
    """An edge field of the members ``(L, E)`` for each of their heads ``(L h, E)``."""
    return None if weight is None else weight.unsqueeze(1).expand(-1, heads, -1).flatten(0, 1)


def composed(
    graph: Pattern, q: Tensor, k: Tensor, weight: Tensor | None, activation: str, kind: str, over: str
) -> Tensor:
    """The same attention from the other operators, one field of E × heads after the other."""
    members, heads = q.shape[:2]
    scores = activate(Score.apply(graph, q.flatten(0, 1), k.flatten(0, 1)), activation)
    values = Normalise.apply(graph, scores, _by_head(weight, heads), kind, over)
    return values.unflatten(0, (members, heads)).mean(1)


def _fake_backward(places: list[Tensor], q: Tensor, k: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return q.new_empty(q.shape), k.new_empty(k.shape)


@library(
    "attend_backward(Tensor q, Tensor k, Tensor? weight, Tensor sums, Tensor peaks, Tensor grad,"
    " str activation, str kind, str over) -> (Tensor, Tensor)",
    _fake_backward,
)
class AttendBackward(Fused):
    """Gradients of q and k from the gradient of the attention and the statistics of the groups."""

    @staticmethod
    def forward(graph: Pattern, q: Tensor, k: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
        return backend(q).attend_backward(graph, q, k, *rest)

    @staticmethod
    def formula(
        places: Places, q: Tensor, k: Tensor, weight: Tensor | None, sums: Tensor, peaks: Tensor,
        grad: Tensor, *how: str,
    ) -> tuple[Tensor, ...]:  # fmt: skip
        graph = as_pattern(places)
        return vjp(lambda q, k: composed(graph, q, k, weight, *how), q, k)[1](grad)


def _fake_attend(
    places: list[Tensor], q: Tensor, k: Tensor, weight: Tensor | None, activation: str, kind: str,
    over: str, keep: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    members, heads, n, _ = q.shape
    sums = q.new_empty(members, n if keep else 0, heads)
    peaks = q.new_empty(members, n if keep and kind == "softmax" else 0, heads)
    return q.new_empty(members, places[0].shape[0]), sums, peaks


@library(
    "attend(Tensor q, Tensor k, Tensor? weight, str activation, str kind, str over, bool keep)"
    " -> (Tensor, Tensor, Tensor)",
    _fake_attend,
)
class Attend(Operator):
    r"""Mean over the heads of ``normalise(act(⟨q_i, k_j⟩))`` → ``(L, E)``, and statistics of the groups.

    It has no gradient of the weight: :func:`graphdiffusion.ops.attention` is composed of other operators
    where one may be computed. The statistics are kept for the gradient if ``keep``; they have no
    derivatives of their own. Forward mode computes the scores again: one product of all heads, and one more
    for each of q and k that has a tangent.
    """

    @staticmethod
    def forward(graph: Pattern, q: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
        return backend(q).attend(graph, q, *rest)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.graph, q, k, weight, *ctx.how, _ = inputs
        ctx.save_for_backward(q, k, weight, *output[1:])
        ctx.save_for_forward(q, k, weight)
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        q, k, weight, sums, peaks = ctx.saved_tensors
        found: tuple[Tensor | None, ...] = (None, None)
        if grads[0] is not None:
            found = run(AttendBackward, ctx.graph, q, k, weight, sums, peaks, grads[0], *ctx.how)
        return None, *found, None, None, None, None, None

    @staticmethod
    def tangent(ctx: Any, saved: tuple[Any, ...], *tangents: Any) -> Any:
        q, k, weight = saved
        d_q, d_k, d_weight = tangents[1:4]
        graph, (activation, kind, over) = ctx.graph, ctx.how
        members, heads = q.shape[:2]
        q, k, d_q, d_k = (None if t is None else t.flatten(0, 1) for t in (q, k, d_q, d_k))
        weight, d_weight = _by_head(weight, heads), _by_head(d_weight, heads)
        raw = run(Score, graph, q, k)
        d_raw = add_up(
            None if d_q is None else run(Score, graph, d_q, k),
            None if d_k is None else run(Score, graph, q, d_k),
        )
        # the Jacobian of a pointwise function is its own transpose
        scores, push, *_ = vjp(lambda raw: activate(raw, activation), raw)
        d_scores = None if d_raw is None else push(d_raw)[0]
        values = run(Normalise, graph, scores, weight, kind, over)
        found = normalise_tangent(graph, values, scores, weight, d_scores, d_weight, kind, over)
        return found.unflatten(0, (members, heads)).mean(1), None, None
