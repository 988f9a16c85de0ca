"""Linear maps of node features with one set of parameters, or one set for each member."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear

from ..pattern import Pattern
from .autocast import single
from .backends import backend, has_triton
from .functions import Propagate, add_up, broadcast, flat
from .library import places, run
from .transforms import Fused, Operator, is_differentiated

Map = tuple[Tensor, Tensor | None]  # weight (..., o, i) and bias (..., o)


def affine(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``x Wᵀ + b``: x ``(..., n, i)``, weight ``(..., o, i)``, bias ``(..., o)`` → ``(..., n, o)``.

    A member alone, with weights ``(1, o, i)``, gets the kernel of a population. Plain ones ``(o, i)`` are
    left to torch: outside of a CUDA graph, launches bound the time, and torch's product has fewest.
    """
    if torch._C._is_any_autocast_enabled():  # which would make torch's own products half precision
        tensors = single(x, weight, bias)
        with torch.autocast(x.device.type, enabled=False):
            return _affine(*tensors)
    return _affine(x, weight, bias)


def _affine(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    if _has_kernels(x, weight, bias):
        lead = broadcast(x.shape[:-2], weight.shape[:-2])
        out = Affine.apply(
            flat(x, lead, 2), flat(weight, lead, 2), None if bias is None else flat(bias, lead, 1)
        )
        return out.reshape(*lead, *out.shape[-2:])
    if weight.dim() == 2:
        return linear(x, weight, bias)
    if bias is None:
        return x @ weight.mT
    if x.dim() == weight.dim() == 3 and len(x) == len(weight):
        return torch.baddbmm(bias.unsqueeze(-2), x, weight.mT)
    return x @ weight.mT + bias.unsqueeze(-2)


def affines(x: Tensor, maps: Sequence[Map]) -> tuple[Tensor, ...]:
    """Several linear maps of one x as one product. The results are views of one tensor."""
    weight = torch.cat([w for w, _ in maps], -2)
    bias = None
    if any(b is not None for _, b in maps):
        bias = torch.cat([w.new_zeros(w.shape[:-1]) if b is None else b for w, b in maps], -1)
    out, sizes = affine(x, weight, bias), [w.shape[-2] for w, _ in maps]
    return out.split(sizes, -1) if torch.compiler.is_compiling() else Columns.apply(out, sizes)


def sparse_product(pattern: Pattern, values: Tensor, weight: Tensor) -> Tensor:
    """``S Wᵀ`` for a sparse S: values ``(..., nnz)``, weight ``(..., o, i)`` → ``(..., n, o)``."""
    values, weight = single(values, weight)
    lead = broadcast(values.shape[:-1], weight.shape[:-2])
    columns = weight.mT.expand(*lead, *weight.mT.shape[-2:]).flatten(0, -3) if lead else weight.mT[None]
    out = run(Propagate, places(pattern), flat(values, lead, 1), columns, False, False)
    return out.reshape(*lead, pattern.rows, -1)


def _has_kernels(x: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    if weight.dim() == 2 or torch.compiler.is_compiling() or not has_triton(x):
        return False
    return all(t is None or t.dtype == torch.float32 for t in (x, weight, bias))


class Affine(Operator):
    """``x Wᵀ + b``: x ``(L, n, i)``, W ``(L, o, i)``, b ``(L, o)`` or None.

    Forward mode: a product for each of x and W.
    """

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return backend(x).affine(x, weight, bias)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, weight, _ = inputs
        ctx.save_for_backward(x, weight)
        ctx.save_for_forward(x, weight)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        (grad,) = grads
        x, weight = ctx.saved_tensors
        wants_x, wants_weight, wants_bias = ctx.needs_input_grad
        d_x = d_weight = d_bias = None
        if grad is not None and wants_x:
            d_x = Affine.apply(grad, weight.mT, None)
        if grad is not None and (wants_weight or wants_bias):
            d_weight, d_bias = WeightGradient.apply(grad, x)
        return d_x, d_weight if wants_weight else None, d_bias if wants_bias else None

    @staticmethod
    def tangent(ctx: Any, saved: tuple[Any, ...], *tangents: Any) -> Any:
        x, weight = saved
        d_x, d_weight, d_bias = tangents
        moved = None
        if d_weight is not None:
            moved = Affine.apply(x, d_weight, d_bias)
        elif d_bias is not None:
            moved = d_bias.unsqueeze(1).expand(-1, x.shape[1], -1)
        return add_up(moved, None if d_x is None else Affine.apply(d_x, weight, None))


class WeightGradient(Fused):
    """``gᵀ x`` and ``Σ_n g``: the gradients of :class:`Affine` in weight and bias."""

    @staticmethod
    def forward(grad: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        return backend(x).weight_gradient(grad, x)

    @staticmethod
    def formula(grad: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        return grad.mT @ x, grad.sum(1)


class Columns(Operator):
    """``x.split(sizes, -1)``, with a gradient that is not copied where its parts are side by side."""

    @staticmethod
    def forward(x: Tensor, sizes: list[int]) -> tuple[Tensor, ...]:
        return x.split(sizes, -1)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.sizes = inputs[1]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return together(grads, grads[0].dim() - 1), None

    @staticmethod
    def tangent(ctx: Any, saved: tuple[Any, ...], *tangents: Any) -> Any:
        return tangents[0].split(ctx.sizes, -1)


def together(parts: Sequence[Tensor], dim: int) -> Tensor:
    """The parts as one tensor: without a copy where they are side by side in one already."""
    first = parts[0]
    if len(parts) == 1:
        return first
    if is_differentiated():  # the derivatives of as_strided are those of the first part alone
        return torch.cat(list(parts), dim)
    place = first.storage_offset()
    for part in parts:
        beside = part.storage_offset() == place and part.stride() == first.stride()
        if part.untyped_storage().data_ptr() != first.untyped_storage().data_ptr() or not beside:
            return torch.cat(list(parts), dim)
        place += part.shape[dim] * part.stride(dim)
    shape = list(first.shape)
    shape[dim] = sum(part.shape[dim] for part in parts)
    return first.as_strided(shape, first.stride(), first.storage_offset())
