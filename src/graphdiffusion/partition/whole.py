"""Sums over all parts of a graph, where a process holds one of them.

Outside of :func:`use_part` a process holds the whole graph, and nothing here changes a number.

What all processes know alike, such as a parameter, a mean over all nodes or a loss, is *shared*. The
gradient of something shared is what one process adds to it: the sum over the processes is the gradient.
:func:`total` gives something shared, and its backward pass is a sum over the processes too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd import Function

from ..errors import ArgumentError
from .part import Part

_active: Part | None = None  # not per thread: the backward pass may run in threads of its own


@contextmanager
def use_part(part: Part | None) -> Iterator[None]:
    """Inside, this process holds one part of a graph, and sums over nodes are sums over all parts.

    Args:
        part: The part; ``None``: the whole graph, as it is everywhere else.
    """
    global _active
    if part is not None:
        joined = dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1
        if joined != part.parts:
            raise ArgumentError(
                f"the graph has {part.parts} parts, and {joined} processes have joined: start one process "
                "for each part, and call torch.distributed.init_process_group in each."
            )
    before, _active = _active, part
    try:
        yield
    finally:
        _active = before


def active_part() -> Part | None:
    """The part that this process holds; ``None`` where it holds the whole graph."""
    return _active


def total(x: Tensor) -> Tensor:
    """Sum over all parts, entry by entry."""
    return x if _active is None or _active.parts == 1 else _Total.apply(x)


def largest(x: Tensor) -> Tensor:
    """Largest over all parts, entry by entry, without a gradient; NaN where one is NaN."""
    if _active is None or _active.parts == 1:
        return x
    lost = x.isnan() if x.is_floating_point() else torch.zeros_like(x, dtype=torch.bool)
    found = _reduced(torch.where(lost, torch.finfo(x.dtype).max if x.is_floating_point() else 0, x), "MAX")
    return torch.where(somewhere(lost), torch.nan, found) if x.is_floating_point() else found


def smallest(x: Tensor) -> Tensor:
    """Smallest over all parts, entry by entry, without a gradient."""
    return x if _active is None else -largest(-x)


def everywhere(flags: Tensor) -> Tensor:
    """Whether a flag is set on all parts, entry by entry."""
    return flags if _active is None else ~somewhere(~flags)


def somewhere(flags: Tensor) -> Tensor:
    """Whether a flag is set on one part at least, entry by entry."""
    if _active is None or _active.parts == 1:
        return flags
    return _reduced(flags.to(torch.uint8), "MAX").bool()


def all_rows(x: Tensor) -> int:
    """Rows of a node field ``(..., n, d)`` on all parts together; a state may be longer than the nodes."""
    if _active is None:
        return x.shape[-2]
    if x.shape[-2] == _active.rows:
        return _active.all_nodes
    return int(_reduced(torch.tensor(x.shape[-2], device=x.device), "SUM"))


def summed(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Sums over all parts of several tensors of one dtype, in one exchange, without a gradient."""
    if _active is None or _active.parts == 1:
        return list(tensors)
    whole = _reduced(torch.cat([t.flatten() for t in tensors]), "SUM")
    pieces = whole.split([t.numel() for t in tensors])
    return [piece.view(t.shape) for piece, t in zip(pieces, tensors, strict=True)]


def shared_gradient(x: Tensor) -> Tensor:
    """A loss that all parts know alike as what one of them adds to it, for its gradient."""
    return x if _active is None else x / _active.parts


def gathered(x: Tensor, dim: int = -2) -> Tensor | None:
    """The rows of all parts in the order of the whole graph, in the first process; ``None`` in others."""
    part = _active
    if part is None or part.parts == 1:
        return x
    rows = x.detach().movedim(dim, 0).contiguous().cpu()
    whole = None
    for sender in range(part.parts):  # one after the other: the first process holds one copy
        if part.number == 0:
            nodes, values = (part.nodes.cpu(), rows) if sender == 0 else _received(sender)
            if whole is None:
                whole = rows.new_empty(part.all_nodes, *rows.shape[1:])
            whole[nodes] = values
        elif part.number == sender:
            dist.send_object_list([part.nodes.cpu().numpy(), rows.numpy()], dst=0)
    return None if whole is None else whole.movedim(0, dim)


def _received(sender: int) -> tuple[Tensor, Tensor]:
    found: list[Any] = [None, None]
    dist.recv_object_list(found, src=sender)
    return torch.from_numpy(found[0]), torch.from_numpy(found[1])


def from_first(value: Any) -> Any:
    """The value of the first process, any object, in all processes."""
    if _active is None or _active.parts == 1:
        return value
    box = [value]
    dist.broadcast_object_list(box, src=0)
    return box[0]


def sum_nodes(x: Tensor) -> Tensor:
    """Sum over all nodes of the whole graph, ``(..., n, d)`` → ``(..., 1, d)``."""
    return total(x.sum(-2, keepdim=True))


def mean_nodes(x: Tensor) -> Tensor:
    """Mean over all nodes of the whole graph, ``(..., n, d)`` → ``(..., 1, d)``."""
    return x.mean(-2, keepdim=True) if _active is None else sum_nodes(x) / all_rows(x)


def variance_nodes(x: Tensor) -> tuple[Tensor, Tensor]:
    """Variance and mean over all nodes of the whole graph, each ``(..., n, d)`` → ``(..., d)``."""
    if _active is None:
        return torch.var_mean(x, dim=-2, correction=0)
    mean = mean_nodes(x)
    return mean_nodes((x - mean).square()).squeeze(-2), mean.squeeze(-2)


def mean_square(x: Tensor) -> Tensor:
    """Mean square over all nodes and channels, ``(..., n, d)`` → ``(...)``."""
    if _active is None:
        return x.square().mean((-2, -1))
    return total(x.square().sum((-2, -1))) / (all_rows(x) * x.shape[-1])


def norm(x: Tensor, dim: int | tuple[int, ...] = (-2, -1)) -> Tensor:
    """2-norm over all nodes, and over channels if ``dim`` has them; these dimensions are kept as 1."""
    own = torch.linalg.vector_norm(x, dim=dim, keepdim=True)
    if _active is None or _active.parts == 1:
        return own
    size = largest(own.detach())
    scale = torch.where((size > 0) & torch.isfinite(size), size, 1.0)  # squares stay in range
    return total((own / scale).square()).sqrt() * scale


def largest_entry(x: Tensor) -> Tensor:
    """Largest absolute value over all nodes and channels, ``(..., 1, 1)``, without a gradient."""
    return largest(x.detach().abs().amax((-2, -1), keepdim=True))


def node_places(rows: int, width: int) -> Tensor | None:
    """Places of the entries of a node field ``(rows, width)`` in that of the whole graph, in one dimension.

    ``None`` where this is the whole graph: they are 0, 1, 2, …
    """
    if _active is None:
        return None
    if rows != _active.rows:
        raise ArgumentError(f"a field of {rows} rows has no places in a graph: {_active}.")
    column = torch.arange(width, device=_active.device)
    return (_active.nodes[:, None] * width + column).flatten()


def edge_places(fields: int) -> Tensor | None:
    """Places of the entries of so many edge fields ``(fields, E)`` in those of the whole graph."""
    if _active is None:
        return None
    first = torch.arange(fields, device=_active.device) * _active.all_edges
    return (first[:, None] + _active.places).flatten()


def _reduced(x: Tensor, how: str) -> Tensor:
    out = x.detach().clone(memory_format=torch.contiguous_format)
    dist.all_reduce(out, getattr(dist.ReduceOp, how))
    return out


class _Total(Function):
    """The sum over all processes; its transpose is the same sum."""

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return _reduced(x, "SUM")

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return _Total.apply(grads[0])

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor) -> Any:
        return _Total.apply(tangents[0])

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], x: Tensor) -> tuple[Tensor, int | None]:
        return _Total.apply(x), in_dims[0]
