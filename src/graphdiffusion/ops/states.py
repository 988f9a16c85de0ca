"""Linear combinations of whole states as one operator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..errors import ArgumentError, ShapeError
from .autocast import single
from .backends import backend
from .functions import broadcast, flat
from .torch.states import combine_backward
from .transforms import Fused, Operator


def combine(
    coefficients: Sequence[Tensor], states: Sequence[Tensor], start: Tensor | None = None
) -> Tensor:
    r"""Linear combination :math:`x + \sum_k c_k x_k`, in one pass where the :math:`c_k` are numbers.

    Args:
        coefficients: For each state a number for each member, ``(..., 1, 1)``, or a number for each member
            and channel, ``(..., 1, d)``.
        states: Node fields ``(..., n, d)``.
        start: The x to which they are added, or ``None`` for 0.
    """
    _check(coefficients, states, start)
    start, *states = single(start, *states)
    coefficients = [c.to(states[0].dtype) for c in coefficients]
    if torch.compiler.is_compiling() or any(c.shape[-1:].numel() > 1 for c in coefficients):
        total = coefficients[0] * states[0]
        if start is not None:
            total = start + total
        for c, x in zip(coefficients[1:], states[1:], strict=True):
            total = torch.addcmul(total, c, x)
        return total
    fields = states if start is None else [*states, start]
    lead = broadcast(*(x.shape[:-2] for x in fields), *(c.shape[:-2] for c in coefficients))
    numbers = [c.expand(*lead, 1, 1).reshape(-1) for c in coefficients]
    start = None if start is None else flat(start, lead, 2)
    out = Combine.apply(len(states), start, *numbers, *(flat(x, lead, 2) for x in states))
    return out.reshape(*lead, *states[0].shape[-2:])


def _check(coefficients: Sequence[Tensor], states: Sequence[Tensor], start: Tensor | None) -> None:
    if not states or len(coefficients) != len(states):
        raise ArgumentError(
            f"combine needs as many coefficients as states, at least one of each, got {len(coefficients)} "
            f"and {len(states)}."
        )
    own = states[0].shape[-2:]
    for x in states if start is None else (*states, start):
        if x.shape[-2:] != own or len(own) < 2:
            raise ShapeError(
                "all states must have shape (..., n, d) with the same n and d, got "
                f"{tuple(x.shape)} beside {tuple(states[0].shape)}."
            )
    for c in coefficients:
        if (tail := c.shape[-2:]) != (1, 1) and tail not in ((1, own[1]), (1,), ()):
            raise ShapeError(
                f"a coefficient must have shape (..., 1, 1) or (..., 1, {own[1]}), got {tuple(c.shape)}."
            )


class CombineBackward(Fused):
    """Gradients of :class:`Combine`: those of all coefficients if ``wants_c``, and of the wanted states."""

    @staticmethod
    def forward(
        grad: Tensor, wants_c: bool, wanted: tuple[bool, ...], *fields: Tensor
    ) -> tuple[Tensor, ...]:
        return _gradients(backend(grad).combine_backward, grad, wants_c, wanted, fields)

    @staticmethod
    def formula(
        grad: Tensor, wants_c: bool, wanted: tuple[bool, ...], *fields: Tensor
    ) -> tuple[Tensor, ...]:
        return _gradients(combine_backward, grad, wants_c, wanted, fields)


def _gradients(
    kernel: Any, grad: Tensor, wants_c: bool, wanted: tuple[bool, ...], fields: tuple[Tensor, ...]
) -> tuple[Tensor, ...]:
    c, states = torch.stack(fields[: len(wanted)]), fields[len(wanted) :]
    d_c, d_states = kernel(c, states, grad, wanted, wants_c)
    return *(() if d_c is None else d_c.unbind()), *(d for d in d_states if d is not None)


class Combine(Operator):
    """``x + Σ_k c_k x_k``: x ``(L, n, d)`` or None, K coefficients ``(L,)``, K states ``(L, n, d)``."""

    @staticmethod
    def forward(count: int, start: Tensor | None, *fields: Tensor) -> Tensor:
        states = fields[count:]
        c, start = torch.stack(fields[:count]).unsqueeze(0), None if start is None else start.unsqueeze(0)
        return backend(states[0]).combine(c, states, start).squeeze(0)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.count, _, *fields = inputs
        ctx.save_for_backward(*fields)
        ctx.save_for_forward(*fields)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        (grad,) = grads
        _, wants_start, *wants = ctx.needs_input_grad
        if grad is None or not any(wants):
            return None, grad if wants_start else None, *[None] * len(wants)
        wants_c, wanted = any(wants[: ctx.count]), tuple(wants[ctx.count :])
        found = iter(CombineBackward.apply(grad, wants_c, wanted, *ctx.saved_tensors))
        d_c = [next(found) if wants_c else None for _ in wanted]
        return (
            None,
            grad if wants_start else None,
            *d_c,
            *(next(found) if want else None for want in wanted),
        )

    @staticmethod
    def tangent(ctx: Any, saved: tuple[Any, ...], *tangents: Any) -> Any:
        _, start, *moved = tangents
        fields, count = saved, ctx.count
        pairs = [(moved[k], fields[count + k]) for k in range(count) if moved[k] is not None]
        pairs += [(fields[k], moved[count + k]) for k in range(count) if moved[count + k] is not None]
        if not pairs:
            return start.clone()
        return Combine.apply(len(pairs), start, *(c for c, _ in pairs), *(x for _, x in pairs))
