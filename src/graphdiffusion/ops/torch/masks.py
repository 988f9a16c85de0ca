"""Random bits by counting, and masks of dropout."""

from __future__ import annotations

import torch
from torch import Tensor

_AT_ONCE = 2**16  # numbers that are drawn at once on a CPU: the dozen passes over them stay in cache


def random_bits(key: Tensor, count: int | Tensor) -> Tensor:
    """Draws of 24 random bits for each key: ``(...)`` int64 → ``(..., count)`` int32.

    ``count`` is how many are drawn, at the places 0, 1, 2, …, or a tensor of the places, ``(count,)``.

    Two rounds of the 32-bit mixer "lowbias32" (C. Wellons, hash-prospector, public domain) around the
    two halves of the key.
    """
    low, high = key.to(torch.int32).unsqueeze(-1), (key >> 32).to(torch.int32).unsqueeze(-1)
    if isinstance(count, Tensor):
        place = count.to(torch.int32)  # modulo 2³²
    else:
        place = torch.arange(count, dtype=torch.int32, device=key.device)
    return shift(_mix(_mix(place ^ low) + high), 8, 32)


def _mix(x: Tensor) -> Tensor:
    x = (x ^ shift(x, 16, 32)) * 0x7FEB352D
    x = (x ^ shift(x, 15, 32)) * (0x846CA68B - 2**32)  # the same 32 bits, as a signed number
    return x ^ shift(x, 16, 32)


def shift(x: Tensor, by: int, width: int) -> Tensor:
    """Shift right, filling with zeros (torch's shift copies the sign)."""
    return (x >> by) & ((1 << (width - by)) - 1)


def dropout(key: Tensor, rate: Tensor, size: int | Tensor) -> Tensor:
    """0 with probability ``rate``, else ``1/(1 − rate)``: key, rate ``(L,)`` → ``(L, size)``.

    ``size`` as in :func:`random_bits`.
    """
    if key.device.type != "cpu" or torch.compiler.is_compiling():
        return _factors(key, rate, size)
    count = len(size) if isinstance(size, Tensor) else size
    out = rate.new_empty(len(key), count)
    for first in range(0, count, _AT_ONCE):
        last = min(first + _AT_ONCE, count)
        at = size[first:last] if isinstance(size, Tensor) else torch.arange(first, last, device=key.device)
        out[:, first:last] = _factors(key, rate, at)
    return out


def _factors(key: Tensor, rate: Tensor, size: int | Tensor) -> Tensor:
    threshold = (rate.double() * 2**24).to(torch.int32)
    return (random_bits(key, size) >= threshold[:, None]) * (1 / (1 - rate))[:, None]
