"""Attention and the nonlinear step in one piece, with their differentiation rules.

Used where the backend has the kernels ``attend`` and ``attend_backward``. They keep the mean attention
``(L, E)`` and, for a gradient, the statistics of each group and head ``(L, n, h)``, never a field of
E × heads. All tensors here have one leading dimension: q, k ``(L, h, n, d_k)``, x ``(L, n, d)``, weight
``(L, E)`` or None.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from ..graph import Graph
from .backends import backend
from .functions import Normalise, Propagate, Score, turned
from .torch_backend import activate


class Attend(Function):
    r"""Mean over the heads of ``normalise(act(⟨q_i, k_j⟩))`` → ``(L, E)``."""

    @staticmethod
    def forward(
        ctx: Any,
        graph: Graph,
        q: Tensor,
        k: Tensor,
        weight: Tensor | None,
        activation: str,
        kind: str,
        over: str,
        keep: bool,
    ) -> Tensor:
        kernels = backend(q)
        values, total, peak = kernels.attend(graph, q, k, weight, activation, kind, over, keep)
        ctx.graph, ctx.kernels, ctx.how = graph, kernels, (activation, kind, over)
        ctx.save_for_backward(q, k, weight, total, peak)
        return values

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        (grad,) = grads
        q, k, weight, total, peak = ctx.saved_tensors
        if torch.is_grad_enabled():  # asked to be differentiable: recompute through autograd
            values = _composed(ctx.graph, q, k, weight, *ctx.how)
            d_q, d_k = _gradients(values, (q, k), ctx.needs_input_grad[1:3], grad)
        else:
            d_q, d_k = ctx.kernels.attend_backward(ctx.graph, q, k, weight, total, peak, grad, *ctx.how)
        return None, d_q, d_k, None, None, None, None, None


class Diffuse(Function):
    r"""``(A − I) x`` with A from :class:`Attend`.

    With g the incoming gradient, :math:`dx = A^\top g - g`, and A receives
    :math:`p_{ij} = \langle g_i, x_j\rangle`.
    """

    @staticmethod
    def forward(
        ctx: Any,
        graph: Graph,
        q: Tensor,
        k: Tensor,
        x: Tensor,
        weight: Tensor | None,
        activation: str,
        kind: str,
        over: str,
        keep: bool,
    ) -> Tensor:
        kernels = backend(x)
        values, total, peak = kernels.attend(graph, q, k, weight, activation, kind, over, keep)
        ctx.graph, ctx.kernels, ctx.how = graph, kernels, (activation, kind, over)
        ctx.save_for_backward(q, k, x, weight, values, total, peak)
        return kernels.spmm(graph, values, x, minus=x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        (grad,) = grads
        q, k, x, weight, values, total, peak = ctx.saved_tensors
        d_q = d_k = d_x = None
        if torch.is_grad_enabled():
            out = Propagate.apply(ctx.graph, _composed(ctx.graph, q, k, weight, *ctx.how), x, False) - x
            d_q, d_k, d_x = _gradients(out, (q, k, x), ctx.needs_input_grad[1:4], grad)
        else:
            if ctx.needs_input_grad[3]:
                d_x = ctx.kernels.spmm(*turned(ctx.graph, values), grad, minus=grad)
            if ctx.needs_input_grad[1] or ctx.needs_input_grad[2]:
                p = ctx.kernels.sddmm(ctx.graph, grad, x)
                d_q, d_k = ctx.kernels.attend_backward(ctx.graph, q, k, weight, total, peak, p, *ctx.how)
        return None, d_q, d_k, d_x, None, None, None, None, None


def _composed(
    graph: Graph, q: Tensor, k: Tensor, weight: Tensor | None, activation: str, kind: str, over: str
) -> Tensor:
    """The same attention from the differentiable verbs, one field of E × heads after the other."""
    members, heads = q.shape[:2]
    scores = activate(Score.apply(graph, q.flatten(0, 1), k.flatten(0, 1)), activation)
    if weight is not None:
        weight = weight.unsqueeze(1).expand(-1, heads, -1).flatten(0, 1)
    return Normalise.apply(graph, scores, weight, kind, over).unflatten(0, (members, heads)).mean(1)


def _gradients(
    out: Tensor, inputs: tuple[Tensor, ...], wanted: tuple[bool, ...], grad: Tensor
) -> tuple[Tensor | None, ...]:
    """Differentiable gradients of ``out`` for the wanted inputs, None for the others."""
    chosen = [tensor for tensor, want in zip(inputs, wanted, strict=True) if want]
    found = iter(torch.autograd.grad(out, chosen, grad, create_graph=True))
    return tuple(next(found) if want else None for want in wanted)
