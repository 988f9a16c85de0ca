"""Linear maps of node features with one set of parameters, or one set for each member."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn.functional import linear

from ..pattern import Pattern
from . import torch_backend
from .backends import backend
from .functions import Propagate, broadcast, flat

Map = tuple[Tensor, Tensor | None]  # weight (..., o, i) and bias (..., o)


def affine(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``x Wᵀ + b``: x ``(..., n, i)``, weight ``(..., o, i)``, bias ``(..., o)`` → ``(..., n, o)``.

    A member alone, with weights ``(1, o, i)``, gets the kernel of a population. Plain ones ``(o, i)`` are
    left to torch: a module outside a CUDA graph waits for launches, of which torch's product has fewest.
    """
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
    return Columns.apply(affine(x, weight, bias), [w.shape[-2] for w, _ in maps])


class Affine(Function):
    """``x Wᵀ + b`` on the kernels of a backend: x ``(L, n, i)``."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        kernels = ctx.kernels = backend(x)
        return kernels.affine(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        (grad,) = grads
        x, weight = ctx.saved_tensors
        if torch.is_grad_enabled():  # asked to be differentiable: in torch, which autograd can follow
            found = grad @ weight, grad.mT @ x, grad.sum(1)
        else:
            wants_x, *wants_map = ctx.needs_input_grad
            d_x = ctx.kernels.affine(grad, weight.mT, None) if wants_x else None
            found = d_x, *(ctx.kernels.weight_gradient(grad, x) if any(wants_map) else (None, None))
        return tuple(g if want else None for g, want in zip(found, ctx.needs_input_grad, strict=True))


class Columns(Function):
    """``x.split(sizes, -1)``, whose gradient is not copied where its parts lie side by side already."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, sizes: list[int]) -> tuple[Tensor, ...]:
        return x.split(sizes, -1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return _together(grads, grads[0].dim() - 1), None


def _together(parts: Sequence[Tensor], dim: int) -> Tensor:
    """The parts as one tensor: without a copy where they lie side by side in one already."""
    first = parts[0]
    if len(parts) == 1:
        return first
    if torch.is_grad_enabled():  # as_strided knows of the first part alone
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


def sparse_product(pattern: Pattern, values: Tensor, weight: Tensor) -> Tensor:
    """``S Wᵀ`` for a sparse S: values ``(..., nnz)``, weight ``(..., o, i)`` → ``(..., n, o)``."""
    lead = broadcast(values.shape[:-1], weight.shape[:-2])
    columns = weight.mT.expand(*lead, *weight.mT.shape[-2:]).flatten(0, -3) if lead else weight.mT[None]
    return Propagate.apply(pattern, flat(values, lead, 1), columns, False).reshape(*lead, pattern.rows, -1)


def _has_kernels(x: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    single = all(t is None or t.dtype == torch.float32 for t in (x, weight, bias))
    return weight.dim() > 2 and backend(x) is not torch_backend and single
