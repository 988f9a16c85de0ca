"""Differentiation rules of the sparse verbs.

Propagate and score are each other's derivatives, and so are sum and spread; every backward pass is
written with the verbs themselves and can be differentiated again. All tensors here have exactly one
leading dimension; :mod:`graphdiffusion.ops` flattens and broadcasts.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from ..graph import Graph
from ..pattern import Pattern
from . import torch_backend
from .backends import backend


def flat(tensor: Tensor, lead: torch.Size, own: int) -> Tensor:
    """Broadcast the leading dimensions to ``lead`` and flatten them into one."""
    tail = tensor.shape[tensor.dim() - own :]
    return tensor.expand(*lead, *tail).reshape(-1, *tail)


def turned(graph: Pattern, values: Tensor) -> tuple[Pattern, Tensor]:
    """Pattern and entries ``(L, E)`` of the transposed matrix, sorted by its rows."""
    if values.stride(0) == 0:  # one matrix for all
        return graph.transposed, values[:1].index_select(1, graph.perm).expand_as(values)
    return graph.transposed, values.index_select(1, graph.perm)


def broadcast(*shapes: torch.Size) -> torch.Size:
    """``torch.broadcast_shapes``, which takes longer than a small product, where the shapes differ."""
    first = shapes[0]
    return first if all(shape == first for shape in shapes) else torch.broadcast_shapes(*shapes)


class Propagate(Function):
    @staticmethod
    def forward(ctx: Any, graph: Pattern, values: Tensor, x: Tensor, transpose: bool) -> Tensor:
        ctx.graph, ctx.transpose = graph, transpose
        ctx.save_for_backward(values, x)
        return backend(x).spmm(*(turned(graph, values) if transpose else (graph, values)), x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        (grad,) = grads
        values, x = ctx.saved_tensors
        d_values = d_x = None
        if ctx.needs_input_grad[1]:
            left, right = (x, grad) if ctx.transpose else (grad, x)
            d_values = Score.apply(ctx.graph, left, right)
        if ctx.needs_input_grad[2]:
            d_x = Propagate.apply(ctx.graph, values, grad, not ctx.transpose)
        return None, d_values, d_x, None


class Score(Function):
    @staticmethod
    def forward(ctx: Any, graph: Graph, q: Tensor, k: Tensor) -> Tensor:
        ctx.graph = graph
        ctx.save_for_backward(q, k)
        return backend(q).sddmm(graph, q, k)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        (grad,) = grads
        q, k = ctx.saved_tensors
        d_q = Propagate.apply(ctx.graph, grad, k, False) if ctx.needs_input_grad[1] else None
        d_k = Propagate.apply(ctx.graph, grad, q, True) if ctx.needs_input_grad[2] else None
        return None, d_q, d_k


class GroupSum(Function):
    @staticmethod
    def forward(ctx: Any, graph: Graph, values: Tensor, over: str) -> Tensor:
        ctx.graph, ctx.over = graph, over
        return backend(values).group_sum(graph, values, over)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return None, Spread.apply(ctx.graph, grads[0], ctx.over), None


class Spread(Function):
    @staticmethod
    def forward(ctx: Any, graph: Graph, nodes: Tensor, over: str) -> Tensor:
        ctx.graph, ctx.over = graph, over
        return backend(nodes).spread(graph, nodes, over)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return None, GroupSum.apply(ctx.graph, grads[0], ctx.over), None


class Normalise(Function):
    r"""``a = w φ(s) / Σ w φ(s)``; with ``r = φ'/φ``, ``ds = r a (g − Σ a g)`` and ``dw = a/w (g − Σ a g)``.

    An edge of weight 0 is left out, and so is its gradient.
    """

    @staticmethod
    def forward(
        ctx: Any, graph: Graph, scores: Tensor, weight: Tensor | None, kind: str, over: str
    ) -> Tensor:
        values = backend(scores).normalise(graph, scores, weight, kind, over)
        ctx.graph, ctx.kind, ctx.over = graph, kind, over
        ctx.save_for_backward(scores, weight, values)
        return values

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        (grad,) = grads
        scores, weight, values = ctx.saved_tensors
        wants_weight = ctx.needs_input_grad[2]
        if torch.is_grad_enabled():  # asked to be differentiable: recompute through autograd
            values = Normalise.apply(ctx.graph, scores, weight, ctx.kind, ctx.over)
        if torch.is_grad_enabled() or wants_weight:
            flow = values * grad
            total = Spread.apply(ctx.graph, GroupSum.apply(ctx.graph, flow, ctx.over), ctx.over)
            d_scores = flow - values * total
            d_weight = d_scores / torch.where(weight == 0, 1.0, weight) if wants_weight else None
            if ctx.kind == "squareplus":
                d_scores = d_scores * (scores.square() + 4).rsqrt()
            return None, d_scores, d_weight, None, None
        how = (ctx.kind, ctx.over)
        d_scores = backend(scores).normalise_backward(ctx.graph, grad, values, scores, *how)
        return None, d_scores, None, None, None


class Combine(Function):
    """``x + Σ_k c_k x_k``, whose derivatives are multiples of the gradient and inner products with it."""

    @staticmethod
    def forward(ctx: Any, c: Tensor, start: Tensor | None, *states: Tensor) -> Tensor:
        ctx.save_for_backward(c, *states)
        return backend(c).combine(c, states, start)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        (grad,) = grads
        c, *states = ctx.saved_tensors
        # asked to be differentiable: the one written in torch, which autograd can follow
        kernels = torch_backend if torch.is_grad_enabled() else backend(grad)
        wants_c, wants_start, *wanted = ctx.needs_input_grad
        d_c, d_states = kernels.combine_backward(c, states, grad, wanted, wants_c)
        return d_c, grad if wants_start else None, *d_states
