r"""The sparse operators and their rules of differentiation.

Propagate and score are each other's derivatives, and so are sum and spread. All tensors here have exactly
one leading dimension L; :mod:`graphdiffusion.ops.verbs` flattens and broadcasts. The rule of forward mode
is called ``tangent``; a tangent that is None is 0.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..pattern import Pattern
from .backends import backend
from .library import Places, as_pattern, library, run
from .transforms import Fused, Operator


def flat(tensor: Tensor, lead: torch.Size, own: int) -> Tensor:
    """Broadcast the leading dimensions to ``lead`` and flatten them into one."""
    tail = tensor.shape[tensor.dim() - own :]
    return tensor.expand(*lead, *tail).reshape(lead.numel(), *tail)  # −1 is no number where tail has a 0


def broadcast(*shapes: torch.Size) -> torch.Size:
    """``torch.broadcast_shapes``, which takes longer than a small product, where the shapes differ."""
    first = shapes[0]
    return first if all(shape == first for shape in shapes) else torch.broadcast_shapes(*shapes)


def transposed(graph: Pattern, values: Tensor) -> tuple[Pattern, Tensor]:
    """Pattern and entries ``(L, E)`` of the transposed matrix, sorted by its rows."""
    if values.stride(0) == 0:  # one matrix for all
        return graph.transposed, values[:1].index_select(1, graph.perm).expand_as(values)
    return graph.transposed, values.index_select(1, graph.perm)


def add_up(*terms: Tensor | None) -> Tensor | None:
    """The sum of the terms that are not None."""
    found = [term for term in terms if term is not None]
    return sum(found[1:], start=found[0]) if found else None


def _fake_propagate(places: list[Tensor], values: Tensor, x: Tensor, transpose: bool, less: bool) -> Tensor:
    pointer = places[4] if transpose else places[2]
    return x.new_empty(x.shape[0], pointer.shape[0] - 1, x.shape[2])


@library("propagate(Tensor values, Tensor x, bool transpose, bool less) -> Tensor", _fake_propagate)
class Propagate(Operator):
    """``A x`` or ``Aᵀ x``, less x if ``less``. Forward mode: a product for each of values and x."""

    @staticmethod
    def forward(graph: Pattern, values: Tensor, x: Tensor, transpose: bool, less: bool) -> Tensor:
        pattern, entries = transposed(graph, values) if transpose else (graph, values)
        return backend(x, pattern).spmm(pattern, entries, x, minus=x if less else None)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.graph, values, x, ctx.transpose, ctx.less = inputs
        ctx.save_for_backward(values, x)
        ctx.save_for_forward(values, x)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        (grad,) = grads
        values, x = ctx.saved_tensors
        d_values = d_x = None
        if grad is not None and ctx.needs_input_grad[1]:
            d_values = run(Score, ctx.graph, *((x, grad) if ctx.transpose else (grad, x)))
        if grad is not None and ctx.needs_input_grad[2]:
            d_x = run(Propagate, ctx.graph, values, grad, not ctx.transpose, ctx.less)
        return None, d_values, d_x, None, None

    @staticmethod
    def tangent(ctx: Any, saved: tuple[Any, ...], *tangents: Any) -> Any:
        values, x = saved
        _, d_values, d_x, _, _ = tangents
        return add_up(
            None if d_values is None else run(Propagate, ctx.graph, d_values, x, ctx.transpose, False),
            None if d_x is None else run(Propagate, ctx.graph, values, d_x, ctx.transpose, ctx.less),
        )


def _edges(places: list[Tensor], like: Tensor) -> Tensor:
    dtype = torch.float32 if like.dtype == torch.bfloat16 else like.dtype
    return like.new_empty(like.shape[0], places[0].shape[0], dtype=dtype)


@library("score(Tensor q, Tensor k) -> Tensor", lambda places, q, k: _edges(places, q))
class Score(Operator):
    """``⟨q_i, k_j⟩`` on every edge. Forward mode: a product for each of q and k."""

    @staticmethod
    def forward(graph: Pattern, q: Tensor, k: Tensor) -> Tensor:
        return backend(q, graph).sddmm(graph, q, k)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.graph, q, k = inputs
        ctx.save_for_backward(q, k)
        ctx.save_for_forward(q, k)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        (grad,) = grads
        q, k = ctx.saved_tensors
        d_q = d_k = None
        if grad is not None and ctx.needs_input_grad[1]:
            d_q = run(Propagate, ctx.graph, grad, k, False, False)
        if grad is not None and ctx.needs_input_grad[2]:
            d_k = run(Propagate, ctx.graph, grad, q, True, False)
        return None, d_q, d_k

    @staticmethod
    def tangent(ctx: Any, saved: tuple[Any, ...], *tangents: Any) -> Any:
        q, k = saved
        _, d_q, d_k = tangents
        return add_up(
            None if d_q is None else run(Score, ctx.graph, d_q, k),
            None if d_k is None else run(Score, ctx.graph, q, d_k),
        )


def _fake_sum(places: list[Tensor], values: Tensor, over: str) -> Tensor:
    return values.new_empty(values.shape[0], places[2 if over == "rows" else 4].shape[0] - 1)


class _Linear(Operator):
    """A linear map of one field over rows or columns."""

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.graph, _, ctx.over = inputs


@library("group_sum(Tensor values, str over) -> Tensor", _fake_sum)
class GroupSum(_Linear):
    """Sum of an edge field over rows or columns."""

    @staticmethod
    def forward(graph: Pattern, values: Tensor, over: str) -> Tensor:
        return backend(values, graph).group_sum(graph, values, over)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return None, run(Spread, ctx.graph, grads[0], ctx.over), None

    @staticmethod
    def tangent(ctx: Any, saved: tuple[Any, ...], *tangents: Any) -> Any:
        return run(GroupSum, ctx.graph, tangents[1], ctx.over)


@library("spread(Tensor nodes, str over) -> Tensor", lambda places, nodes, over: _edges(places, nodes))
class Spread(_Linear):
    """The value of the row or column of each edge."""

    @staticmethod
    def forward(graph: Pattern, nodes: Tensor, over: str) -> Tensor:
        return backend(nodes, graph).spread(graph, nodes, over)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return None, run(GroupSum, ctx.graph, grads[0], ctx.over), None

    @staticmethod
    def tangent(ctx: Any, saved: tuple[Any, ...], *tangents: Any) -> Any:
        return run(Spread, ctx.graph, tangents[1], ctx.over)


@library(
    "normalise_backward(Tensor grad, Tensor values, Tensor scores, str kind, str over) -> Tensor",
    lambda places, grad, values, scores, kind, over: scores.new_empty(scores.shape),
)
class NormaliseBackward(Fused):
    r"""``r a (g − Σ a g)`` with ``r = φ'/φ`` at the scores s; ``r = 1`` for softmax."""

    @staticmethod
    def forward(
        graph: Pattern, grad: Tensor, values: Tensor, scores: Tensor, kind: str, over: str
    ) -> Tensor:
        return backend(scores, graph).normalise_backward(graph, grad, values, scores, kind, over)

    @staticmethod
    def formula(
        places: Places, grad: Tensor, values: Tensor, scores: Tensor, kind: str, over: str
    ) -> Tensor:
        graph = as_pattern(places)
        flow = values * grad
        found = flow - values * Spread.apply(graph, GroupSum.apply(graph, flow, over), over)
        return times_slope(found, scores, kind)


def centre(places: Places, field: Tensor, values: Tensor, over: str) -> Tensor:
    """``a (u − Σ a u)`` of an edge field u: the derivative of the normaliser in ``log w φ(s)``."""
    return run(NormaliseBackward, places, field, values, values, "softmax", over)


@library(
    "normalise(Tensor scores, Tensor? weight, str kind, str over) -> Tensor",
    lambda places, scores, weight, kind, over: scores.new_empty(scores.shape),
)
class Normalise(Operator):
    r"""``a = w φ(s) / Σ w φ(s)``; with ``r = φ'/φ``, ``ds = r a (g − Σ a g)`` and ``dw = a/w (g − Σ a g)``.

    In forward mode ``u = r ds + dw/w`` gives ``da = a (u − Σ a u)``, in one sum over the groups. An edge of
    weight 0 is left out, and its derivative is 0.
    """

    @staticmethod
    def forward(graph: Pattern, scores: Tensor, weight: Tensor | None, kind: str, over: str) -> Tensor:
        return backend(scores, graph).normalise(graph, scores, weight, kind, over)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.graph, scores, weight, ctx.kind, ctx.over = inputs
        ctx.save_for_backward(scores, weight, output)
        ctx.save_for_forward(scores, weight, output)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        (grad,) = grads
        scores, weight, values = ctx.saved_tensors
        d_scores = d_weight = None
        _, wants_scores, wants_weight, _, _ = ctx.needs_input_grad
        if grad is not None and wants_weight:
            centred = centre(ctx.graph, grad, values, ctx.over)
            d_scores = times_slope(centred, scores, ctx.kind) if wants_scores else None
            d_weight = centred / divisor(weight)
        elif grad is not None and wants_scores:
            d_scores = run(NormaliseBackward, ctx.graph, grad, values, scores, ctx.kind, ctx.over)
        return None, d_scores, d_weight, None, None

    @staticmethod
    def tangent(ctx: Any, saved: tuple[Any, ...], *tangents: Any) -> Any:
        scores, weight, values = saved
        _, d_scores, d_weight, _, _ = tangents
        how = (ctx.kind, ctx.over)
        return normalise_tangent(ctx.graph, values, scores, weight, d_scores, d_weight, *how)


def normalise_tangent(
    places: Places,
    values: Tensor,
    scores: Tensor,
    weight: Tensor | None,
    d_scores: Tensor | None,
    d_weight: Tensor | None,
    kind: str,
    over: str,
) -> Tensor:
    """Tangent of the normaliser, whose result is ``values``, from the tangents of scores and weight."""
    return centre(places, relative_change(scores, weight, d_scores, d_weight, kind), values, over)


def relative_change(
    scores: Tensor, weight: Tensor | None, d_scores: Tensor | None, d_weight: Tensor | None, kind: str
) -> Tensor:
    """The change of ``log w φ(s)`` along the tangents of scores and weight, one of which is given."""
    found = add_up(
        None if d_scores is None else times_slope(d_scores, scores, kind),
        None if d_weight is None else d_weight / divisor(weight),
    )
    assert found is not None
    return found


def times_slope(field: Tensor, scores: Tensor, kind: str) -> Tensor:
    """An edge field times ``φ'/φ``, the slope of ``log φ`` at the scores."""
    return field if kind == "softmax" else field * (scores.square() + 4).rsqrt()


def divisor(weight: Tensor | None) -> Tensor:
    """The weights, and 1 for the edges that are left out."""
    assert weight is not None
    return torch.where(weight == 0, 1.0, weight)
