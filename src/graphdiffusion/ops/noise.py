"""Random numbers by counting: a mask is a function of its key, its rate and the place in it.

No generator has a state here. A member of a population draws the same numbers as it would alone, on
every device, and a training that is interrupted needs no random state to go on.
"""

from __future__ import annotations

from torch import Tensor

from .backends import backend
from .torch_backend import random_bits, shift

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


def dropout_scale(key: Tensor, shape: tuple[int, ...], rate: Tensor) -> Tensor:
    """Factors of dropout: 0 with probability ``rate``, else ``1/(1 − rate)``.

    Args:
        key: int64 ``(...)``, one for each member.
        rate: ``(...)`` in [0, 1), likewise; its dtype is the result's.

    Returns:
        ``(..., *shape)``.
    """
    count = 1
    for size in shape:
        count *= size
    flat = key.reshape(-1)
    kernels = backend(rate)
    return kernels.dropout(flat, rate.expand(key.shape).reshape(-1), count).reshape(*key.shape, *shape)
