"""What all operators have in common: members under ``vmap``, and the derivatives of fused kernels.

An operator is an ``autograd.Function``; its ``forward`` calls kernels. Kernels are called nowhere else: all
other rules are written with operators. So every rule can be differentiated, mapped and nested in any
order, and no rule has to find out whether a derivative of its result will be computed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch._functorch.utils import unwrap_dead_wrappers
from torch.autograd import Function, forward_ad
from torch.func import vjp


def is_differentiated() -> bool:
    """Whether a derivative of what is computed now may be taken, or whether it is mapped over."""
    return (
        torch.is_grad_enabled()
        or torch._C._are_functorch_transforms_active()
        or forward_ad._current_level >= 0
    )


class Operator(Function):
    """Base of the operators. The first dimension of every tensor counts the members."""

    traced: ClassVar[Callable[..., Any]]  # the same in ``torch.library``, where it is registered there

    @classmethod
    def apply(cls, *args: Any) -> Any:
        if torch._C._are_functorch_transforms_active():
            return super().apply(*args)
        # What torch does too, but without the signature of ``forward``: to look it up and to bind the
        # arguments in every call takes longer than a small product.
        args = unwrap_dead_wrappers(args)
        if forward_ad._current_level >= 0:
            args = tuple(_with_memory(arg) for arg in args)
        return super(Function, cls).apply(*args)  # type: ignore[misc]

    @staticmethod
    def tangent(ctx: Any, saved: tuple[Any, ...], *tangents: Any) -> Any:
        """Rule of forward mode: the tangent of the result, from the saved tensors and the tangents."""
        raise NotImplementedError

    @classmethod
    def jvp(cls, ctx: Any, *tangents: Any) -> Any:
        # torch calls this with forward mode disabled, and forward mode over forward mode would then give
        # zeros. The saved tensors still have the tangents of this level, which the rule must not follow.
        with forward_ad._set_fwd_grad_enabled(True):
            saved = (None if t is None else forward_ad.unpack_dual(t).primal for t in ctx.saved_tensors)
            return cls.tangent(ctx, tuple(saved), *tangents)

    @classmethod
    def vmap(cls, info: Any, in_dims: tuple[int | None, ...], *args: Any) -> tuple[Any, Any]:
        """The mapped dimension becomes the first part of the members' dimension."""
        size = info.batch_size
        found = cls.apply(*(_joined(arg, dim, size) for arg, dim in zip(args, in_dims, strict=True)))
        if isinstance(found, Tensor):
            return found.unflatten(0, (size, -1)), 0
        return tuple(tensor.unflatten(0, (size, -1)) for tensor in found), (0,) * len(found)


def _with_memory(arg: Any) -> Any:
    """Kernels read memory, of which the zeros that forward mode makes for a missing tangent have none."""
    return arg.new_zeros(arg.shape) if isinstance(arg, Tensor) and arg._is_zerotensor() else arg


def _joined(arg: Any, dim: int | None, size: int) -> Any:
    if not isinstance(arg, Tensor):
        return arg
    arg = arg.expand(size, *arg.shape) if dim is None else arg.movedim(dim, 0)
    return arg.flatten(0, 1)


class Fused(Operator):
    """A kernel in one piece. Its derivatives are those of ``formula``, the same from other operators."""

    @staticmethod
    def formula(*args: Any) -> Any:
        """What ``forward`` computes, as a differentiable function of the same arguments."""
        raise NotImplementedError

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.others = tuple(None if isinstance(value, Tensor) else value for value in inputs)
        ctx.places = tuple(k for k, value in enumerate(inputs) if isinstance(value, Tensor))
        tensors = [inputs[k] for k in ctx.places]
        ctx.save_for_backward(*tensors)
        ctx.save_for_forward(*tensors)

    @classmethod
    def backward(cls, ctx: Any, *grads: Tensor) -> Any:
        pull = vjp(cls._function(ctx), *ctx.saved_tensors)[1]
        found = dict(zip(ctx.places, pull(grads), strict=True))
        return tuple(found.get(k) for k in range(len(ctx.others)))

    @classmethod
    def jvp(cls, ctx: Any, *tangents: Any) -> Any:
        # the saved tensors have the tangents of this level, and the operators of the formula follow them
        with forward_ad._set_fwd_grad_enabled(True):
            found = tuple(forward_ad.unpack_dual(part) for part in cls._function(ctx)(*ctx.saved_tensors))
        moved = tuple(torch.zeros_like(p) if t is None else t for p, t in found)
        return moved if len(moved) > 1 else moved[0]

    @classmethod
    def _function(cls, ctx: Any) -> Callable[..., tuple[Tensor, ...]]:
        """The formula as a function of the tensors alone, which returns a tuple."""

        def function(*tensors: Tensor) -> tuple[Tensor, ...]:
            args = list(ctx.others)
            for k, tensor in zip(ctx.places, tensors, strict=True):
                args[k] = tensor
            found = cls.formula(*args)
            return found if isinstance(found, tuple) else (found,)

        return function
