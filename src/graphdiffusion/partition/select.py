"""The largest entries of a field whose parts lie in several processes, without bringing them together."""

from __future__ import annotations

import torch
from torch import Tensor

from .whole import total

_BITS = 16  # of a number that one round looks at
_HIGHEST = 48


def largest_entries(values: Tensor, places: Tensor, count: int) -> Tensor:
    """Boolean mask of the ``count`` largest entries over all parts, for each row ``(L, E)``.

    Among equal ones those with the smallest places are taken. Four rounds, in each of which the processes
    add up a histogram of 65,536 numbers, find the last entry; four more decide between equals.

    Args:
        values: float32 or float64, without NaN.
        places: Different numbers for different entries, over all parts, ``(E,)`` int64.
        count: How many, over all parts.
    """
    keys = _ordered(values)
    wanted = torch.full((len(values), 1), count, device=values.device)
    last, above = _last_of_largest(keys, torch.ones_like(keys, dtype=torch.bool), wanted)
    equal = keys == last
    order = (-places).expand_as(keys)
    furthest, _ = _last_of_largest(order, equal, wanted - above)
    return (wanted > 0) & ((keys > last) | (equal & (order >= furthest)))


def _ordered(values: Tensor) -> Tensor:
    """Integers in the order of the values."""
    bits = (values.double() + 0.0).view(torch.int64)  # −0 becomes 0
    return bits ^ ((bits >> 63) & 0x7FFF_FFFF_FFFF_FFFF)


def _last_of_largest(keys: Tensor, among: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
    """The smallest of the ``count`` largest keys, and how many keys are larger: ``(L, 1)`` each.

    Keys ``(L, E)`` int64, ``among`` those that are looked at, count ``(L, 1)``, at most as many as there
    are.
    """
    found, above = torch.zeros_like(count), torch.zeros_like(count)
    for shift in range(_HIGHEST, -1, -_BITS):
        digit = (keys >> shift) & 0xFFFF
        if shift == _HIGHEST:
            digit = digit ^ 0x8000  # negative numbers come first
        tally = torch.zeros(len(keys), 1 << _BITS, dtype=torch.int64, device=keys.device)
        tally = total(tally.scatter_add_(1, digit, among.long()))
        # how many have this digit or a larger one
        upwards = tally.flip(1).cumsum(1).flip(1)
        chosen = ((upwards >= count - above).sum(1, keepdim=True) - 1).clamp_min(0)
        above = above + upwards.gather(1, chosen) - tally.gather(1, chosen)
        among = among & (digit == chosen)
        own = chosen ^ 0x8000 if shift == _HIGHEST else chosen
        found = found | (own << shift)
    return found, above
