"""Linear maps of node features with one set of parameters, or one set for each member."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn.functional import linear

from ..graph import Pattern
from . import torch_backend
from .backends import backend
from .functions import Propagate, broadcast, flat

Map = tuple[Tensor, Tensor | None]  # weight (..., o, i) and bias (..., o)


def affine(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``x Wᵀ + b``: x ``(..., n, i)``, weight ``(..., o, i)``, bias ``(..., o)`` → ``(..., n, o)``."""
    return affines(x, [(weight, bias)])[0]


def affines(x: Tensor, maps: Sequence[Map]) -> list[Tensor]:
    """Several linear maps of one x, with fewer passes over the nodes than one after the other.

    The results may be views of one tensor: do not change them in place.

    A member alone, with weights ``(1, o, i)``, gets the kernel of a population. Plain ones ``(o, i)`` are
    left to torch: a module outside a CUDA graph waits for launches, of which torch's product has fewest.
    """
    if _has_kernels(x, maps):
        lead = broadcast(x.shape[:-2], *(w.shape[:-2] for w, _ in maps))
        both = [t for w, b in maps for t in (flat(w, lead, 2), None if b is None else flat(b, lead, 1))]
        out = Affines.apply(flat(x, lead, 2), *both)
        return [y.reshape(*lead, *y.shape[-2:]) for y in out]
    if len(maps) == 1:
        return [_affine(x, *maps[0])]
    biases = [w.new_zeros(w.shape[:-1]) if b is None else b for w, b in maps]
    together = _affine(x, torch.cat([w for w, _ in maps], -2), torch.cat(biases, -1))
    return list(together.split([w.shape[-2] for w, _ in maps], -1))


def _affine(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    if weight.dim() == 2:
        return linear(x, weight, bias)
    if bias is None:
        return x @ weight.mT
    if x.dim() == weight.dim() == 3 and len(x) == len(weight):
        return torch.baddbmm(bias.unsqueeze(-2), x, weight.mT)
    return x @ weight.mT + bias.unsqueeze(-2)


class Affines(Function):
    """``x Wᵀ + b`` for several (W, b), as one product on the kernels of a backend: x ``(L, n, i)``."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, *maps: Tensor | None) -> tuple[Tensor, ...]:
        weights = [w for w in maps[::2] if w is not None]
        ctx.save_for_backward(x, *weights)
        kernels = ctx.kernels = backend(x)
        bias = None
        if any(b is not None for b in maps[1::2]):
            each = zip(weights, maps[1::2], strict=True)
            bias = _together([w.new_zeros(w.shape[:2]) if b is None else b for w, b in each], 1)
        out = kernels.affine(x, _together(weights, 1), bias)
        return out.split([w.shape[1] for w in weights], 2) if len(weights) > 1 else (out,)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        x, *weights = ctx.saved_tensors
        sizes = [w.shape[1] for w in weights]
        grad, weight = _together(grads, 2), _together(weights, 1)
        d_x = d_w = d_b = None
        wanted = ctx.needs_input_grad
        if torch.is_grad_enabled():  # asked to be differentiable: in torch, which autograd can follow
            d_x, d_w, d_b = grad @ weight, grad.mT @ x, grad.sum(1)
        else:
            d_x = ctx.kernels.affine(grad, weight.mT, None) if wanted[0] else None
            d_w, d_b = ctx.kernels.weight_gradient(grad, x) if any(wanted[1:]) else (None, None)
        found = [d_x]
        for k in range(len(weights)):
            for d in (d_w, d_b):
                found.append(None if d is None else d.split(sizes, 1)[k])
        return tuple(g if want else None for g, want in zip(found, wanted, strict=True))


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


def _has_kernels(x: Tensor, maps: Sequence[Map]) -> bool:
    tensors = [x, *(t for pair in maps for t in pair if t is not None)]
    stacked = any(weight.dim() > 2 for weight, _ in maps)
    return stacked and backend(x) is not torch_backend and all(t.dtype == torch.float32 for t in tensors)
