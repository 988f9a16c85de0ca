"""What the parts of a graph send each other: rows of the halo, and what was added to them on the way back.

Every process takes part in every exchange, also with nothing to send. Nothing here has a gradient: the
rules of differentiation are those of the operators, which use one exchange in the forward pass and the
opposite one in the backward pass.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from .part import Part


@dataclass
class Traffic:
    """What this process has sent to others so far."""

    exchanges: int = 0
    bytes: int = 0


traffic = Traffic()


@dataclass(frozen=True, eq=False)
class Arriving:
    """Rows that are on their way: ``(rows, L, d)``."""

    rows: Tensor
    work: dist.Work | None
    sent: Tensor  # kept until the work is done

    def wait(self) -> Tensor:
        """The rows as ``(L, rows, d)``."""
        if self.work is not None:
            self.work.wait()
        return self.rows.transpose(0, 1)


def fetch(part: Part, x: Tensor) -> Arriving:
    """Start to fetch the rows of the halo: x ``(L, n, d)`` → ``(L, h, d)``."""
    rows = x.index_select(1, part.send).transpose(0, 1).contiguous()
    return _exchange(rows, part.send_counts, part.halo_counts)


def give_back(part: Part, halo: Tensor) -> Arriving:
    """Start to send rows of the halo to the parts that own them: ``(L, h, d)`` → ``(L, s, d)``."""
    return _exchange(halo.transpose(0, 1).contiguous(), part.halo_counts, part.send_counts)


def _exchange(rows: Tensor, sent: tuple[int, ...], expected: tuple[int, ...]) -> Arriving:
    out = rows.new_empty(sum(expected), *rows.shape[1:])
    if len(sent) == 1:
        return Arriving(out, None, rows)
    traffic.exchanges += 1
    traffic.bytes += rows.numel() * rows.element_size()
    # one flat row for each node: backends cut the first dimension
    work = dist.all_to_all_single(
        out.flatten(1), rows.flatten(1), list(expected), list(sent), async_op=True
    )
    return Arriving(out, work, rows)


def extended(part: Part, x: Tensor) -> Tensor:
    """Own rows and those of the halo: ``(L, n, d)`` → ``(L, n + h, d)``."""
    arriving = fetch(part, x)
    return torch.cat([x, arriving.wait()], 1)
