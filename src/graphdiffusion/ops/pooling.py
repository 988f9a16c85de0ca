"""The largest entries among neighbours, and their derivatives.

A maximum is linear where no two neighbours are equal: each entry of the result is that of one neighbour.
Among equal ones the derivative is split evenly.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..pattern import Pattern
from .backends import backend
from .library import Places, library, run
from .transforms import Operator


def _fake_match(places: list[Tensor], own: Tensor, other: Tensor, field: Tensor, transpose: bool) -> Tensor:
    return field.new_empty(own.shape)


@library("match(Tensor own, Tensor other, Tensor field, bool transpose) -> Tensor", _fake_match)
class Match(Operator):
    """``Σ_j [u_i = v_j] z_j`` in each channel, over the rows of A or of Aᵀ: linear in z."""

    @staticmethod
    def forward(graph: Pattern, own: Tensor, other: Tensor, field: Tensor, transpose: bool) -> Tensor:
        pattern = graph.transposed if transpose else graph
        return backend(field, pattern).match(pattern, own, other, field)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.graph, own, other, _, ctx.transpose = inputs
        ctx.save_for_backward(own, other)
        ctx.save_for_forward(own, other)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        (grad,) = grads
        own, other = ctx.saved_tensors
        d_field = None
        if grad is not None and ctx.needs_input_grad[3]:
            d_field = run(Match, ctx.graph, other, own, grad, not ctx.transpose)
        return None, None, None, d_field, None

    @staticmethod
    def tangent(ctx: Any, saved: tuple[Any, ...], *tangents: Any) -> Any:
        own, other = saved
        d_field = tangents[3]
        if d_field is None:
            return torch.zeros_like(own)
        return run(Match, ctx.graph, own, other, d_field, ctx.transpose)


def _fake_pool(places: list[Tensor], x: Tensor) -> Tensor:
    return x.new_empty(x.shape[0], places[2].shape[0] - 1, x.shape[2])


@library("pool(Tensor x) -> Tensor", _fake_pool)
class Pool(Operator):
    """``y_i = max_j x_j`` in each channel; 0 for an empty row."""

    @staticmethod
    def forward(graph: Pattern, x: Tensor) -> Tensor:
        return backend(x, graph).pool(graph, x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.graph, x = inputs
        ctx.save_for_backward(x, output)
        ctx.save_for_forward(x, output)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        x, y = ctx.saved_tensors
        share = grads[0] / _equals(ctx.graph, x, y)
        return None, run(Match, ctx.graph, x, y, share, True)

    @staticmethod
    def tangent(ctx: Any, saved: tuple[Any, ...], *tangents: Any) -> Any:
        x, y = saved
        return run(Match, ctx.graph, y, x, tangents[1], False) / _equals(ctx.graph, x, y)


def _equals(graph: Places, x: Tensor, y: Tensor) -> Tensor:
    """How many neighbours have the largest entry; 1 for an empty row."""
    return run(Match, graph, y, x, torch.ones_like(x), False).clamp_min(1)
