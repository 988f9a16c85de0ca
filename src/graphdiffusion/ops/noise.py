"""Random numbers by counting: a mask is a function of its key, its rate and the place in it.

No generator has a state here. A member of a population draws the same numbers as it would alone, on
every device, and a training that is interrupted needs no random state to go on.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from .autocast import single
from .backends import backend
from .torch.masks import dropout, random_bits, shift
from .transforms import Operator

__all__ = ["derive", "dropout_scale", "random_bits"]

_GOLDEN = 0x9E3779B97F4A7C15 - 2**64


def derive(key: Tensor, salt: int | Tensor) -> Tensor:
    """A new key from a key and a number (splitmix64): int64, any shape."""
    step = (salt + 1) * _GOLDEN
    if isinstance(step, int):  # wrap to 64 bits, as tensors do
        step = (step + 2**63) % 2**64 - 2**63
    z = key + step
    z = (z ^ shift(z, 30, 64)) * (0xBF58476D1CE4E5B9 - 2**64)
    z = (z ^ shift(z, 27, 64)) * (0x94D049BB133111EB - 2**64)
    return z ^ shift(z, 31, 64)


def dropout_scale(
    key: Tensor, shape: tuple[int, ...], rate: Tensor, places: Tensor | None = None
) -> Tensor:
    """Factors of dropout: 0 with probability ``rate``, else ``1/(1 − rate)``.

    Args:
        key: int64 ``(...)``, one for each member.
        rate: ``(...)`` in [0, 1), likewise; its dtype is the result's.
        places: Of the factors among all that are drawn from a key, one for each; ``None``: 0, 1, 2, …

    Returns:
        ``(..., *shape)``.
    """
    (rate,) = single(rate)
    keys, rates = key.reshape(-1), rate.expand(key.shape).reshape(-1)
    mask = dropout if torch.compiler.is_compiling() else Dropout.apply
    return mask(keys, rates, math.prod(shape) if places is None else places).reshape(*key.shape, *shape)


class Dropout(Operator):
    """Key and rate ``(L,)`` → ``(L, size)``.

    A factor f is 0 or ``1/(1 − rate)``: its derivative with respect to the rate is f².
    """

    @staticmethod
    def forward(key: Tensor, rate: Tensor, size: int | Tensor) -> Tensor:
        if isinstance(size, Tensor):  # places of a part, which the kernels do not know
            return dropout(key, rate, size)
        return backend(rate).dropout(key, rate, size)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(output)
        ctx.save_for_forward(output)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        (factor,) = ctx.saved_tensors
        return None, (grads[0] * factor.square()).sum(1), None

    @staticmethod
    def tangent(ctx: Any, saved: tuple[Any, ...], *tangents: Any) -> Any:
        (factor,) = saved
        return factor.square() * tangents[1][:, None]
