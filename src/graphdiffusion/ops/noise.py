"""Random numbers by counting: a mask is a function of its key, its rate and the place in it.

No generator has a state here. A member of a population draws the same numbers as it would alone, on
every device, and a training that is interrupted needs no random state to go on.
"""

from __future__ import annotations

import torch
from torch import Tensor

_FIRST = 0x7FEB352D
_SECOND = 0x846CA68B - 2**32  # the same 32 bits, as a signed number
_GOLDEN = 0x9E3779B97F4A7C15 - 2**64
_RESOLUTION = 24  # bits of a draw


def derive(key: Tensor, salt: int | Tensor) -> Tensor:
    """A new key from a key and a number (splitmix64): int64, any shape."""
    step = (salt + 1) * _GOLDEN
    if isinstance(step, int):  # wrap to 64 bits, as tensors do
        step = (step + 2**63) % 2**64 - 2**63
    z = key + step
    z = (z ^ _shift(z, 30, 64)) * (0xBF58476D1CE4E5B9 - 2**64)
    z = (z ^ _shift(z, 27, 64)) * (0x94D049BB133111EB - 2**64)
    return z ^ _shift(z, 31, 64)


def random_bits(key: Tensor, count: int) -> Tensor:
    """``count`` draws of 24 random bits for each key: ``(...)`` int64 → ``(..., count)`` int32.

    Two rounds of the 32-bit mixer "lowbias32" (C. Wellons, hash-prospector, public domain) around the
    two halves of the key.
    """
    low, high = key.to(torch.int32).unsqueeze(-1), (key >> 32).to(torch.int32).unsqueeze(-1)
    place = torch.arange(count, dtype=torch.int32, device=key.device)
    return _shift(_mix(_mix(place ^ low) + high), 32 - _RESOLUTION, 32)


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
    rate = rate.expand(key.shape).unsqueeze(-1)
    threshold = (rate.double() * 2**_RESOLUTION).to(torch.int32)
    kept = random_bits(key, count) >= threshold
    return (kept * (1 / (1 - rate))).reshape(*key.shape, *shape)


def _mix(x: Tensor) -> Tensor:
    x = (x ^ _shift(x, 16, 32)) * _FIRST
    x = (x ^ _shift(x, 15, 32)) * _SECOND
    return x ^ _shift(x, 16, 32)


def _shift(x: Tensor, by: int, width: int) -> Tensor:
    """Shift right, filling with zeros (torch's shift copies the sign)."""
    return (x >> by) & ((1 << (width - by)) - 1)
