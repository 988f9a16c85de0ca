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
from .functions import Propagate, flat

Map = tuple[Tensor, Tensor | None]  # weight (..., o, i) and bias (..., o)


def affine(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``x Wᵀ + b``: x ``(..., n, i)``, weight ``(..., o, i)``, bias ``(..., o)`` → ``(..., n, o)``."""
    return affines(x, [(weight, bias)])[0]


def affines(x: Tensor, maps: Sequence[Map]) -> list[Tensor]:
    """Several linear maps of one x, with fewer passes over the nodes than one after the other.

    A member alone, with weights ``(1, o, i)``, gets the kernel of a population. Plain ones ``(o, i)`` are
    left to torch: a module outside a CUDA graph waits for launches, of which torch's product has fewest.
    """
    if _has_kernels(x, maps):
        lead = torch.broadcast_shapes(x.shape[:-2], *(w.shape[:-2] for w, _ in maps))
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
    """``x Wᵀ + b`` for each of several (W, b), on the kernels of a backend: x ``(L, n, i)``."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, *maps: Tensor | None) -> tuple[Tensor, ...]:
        ctx.save_for_backward(x, *maps[::2])
        kernels = ctx.kernels = backend(x)
        return tuple(kernels.affine(x, w, b) for w, b in zip(maps[::2], maps[1::2], strict=True))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        x, *weights = ctx.saved_tensors
        differentiable = torch.is_grad_enabled()  # asked to be: in torch, which autograd can follow
        found: list[Tensor | None] = [None]
        if ctx.needs_input_grad[0]:
            if differentiable:
                found[0] = sum((g @ w for g, w in zip(grads, weights, strict=True)), torch.zeros_like(x))
            else:
                found[0] = ctx.kernels.affine_backward(grads, weights)
        wanted = ctx.needs_input_grad
        for k, grad in enumerate(grads):
            if not (wanted[2 * k + 1] or wanted[2 * k + 2]):
                found += [None, None]
            elif differentiable:
                found += [grad.mT @ x, grad.sum(-2)]
            else:
                found += ctx.kernels.weight_gradient(grad, x)
        return tuple(g if want else None for g, want in zip(found, wanted, strict=True))


def sparse_product(pattern: Pattern, values: Tensor, weight: Tensor) -> Tensor:
    """``S Wᵀ`` for a sparse S: values ``(..., nnz)``, weight ``(..., o, i)`` → ``(..., n, o)``."""
    lead = torch.broadcast_shapes(values.shape[:-1], weight.shape[:-2])
    columns = weight.mT.expand(*lead, *weight.mT.shape[-2:]).flatten(0, -3) if lead else weight.mT[None]
    return Propagate.apply(pattern, flat(values, lead, 1), columns, False).reshape(*lead, pattern.rows, -1)


def _has_kernels(x: Tensor, maps: Sequence[Map]) -> bool:
    tensors = [x, *(t for pair in maps for t in pair if t is not None)]
    stacked = any(weight.dim() > 2 for weight, _ in maps)
    return stacked and backend(x) is not torch_backend and all(t.dtype == torch.float32 for t in tensors)
