"""Sums of powers of a sparse matrix, ``Σ_k c_k A^k x``, with a backward pass of their own."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NoReturn

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from ..errors import ArgumentError, DtypeError
from ..graph import Graph
from ..ops import propagate
from ..ops import torch as torch_kernels
from ..ops.backends import backend
from ..ops.functions import transposed
from ..ops.tracing import traced
from ..pattern import Pattern

_TOGETHER = 8  # powers that are added up at once: as many as one kernel takes


def power_series(
    graph: Graph,
    values: Tensor,
    x: Tensor,
    c: Tensor,
    through: Tensor,
    checkpoint: bool,
    rounded: bool = False,
    added: Tensor | None = None,
    among_others: bool = False,
) -> tuple[Tensor, ...]:
    """``Σ_k c_k A^k x`` for every output time, to which ``added`` ``(..., n, d)`` is added.

    Args:
        c: Coefficients ``(m, ..., 1, 1, K+1)``, or ``(m, ..., 1, d, K+1)`` with one for each channel.
        through: The coefficients that the gradient of x sees.
        checkpoint: Keep only every √K-th power for the backward pass.
        rounded: The powers are rounded to bfloat16, one after the other. Sums and gradients are float32,
            and the gradient is that of the sum without rounding, at these powers.
        among_others: A single sum, and its gradient, is rounded as one of several is, to the same bits.

    Returns:
        m states ``(..., n, d)``.
    """
    if rounded:
        check_rounded(x, c)
    if c.shape[-2] > 1 or traced():
        found = composed(partial(propagate, graph, values), x, c, through).unbind()
        return found if added is None else tuple(added + out for out in found)
    c, through = c.squeeze(-2), c.squeeze(-2) if through is c else through.squeeze(-2)
    own = [values.shape[:-1], x.shape[:-2], c.shape[1:-2], () if added is None else added.shape[:-2]]
    lead = torch.broadcast_shapes(*own)
    n, d = x.shape[-2:]

    def flat(weights: Tensor) -> Tensor:
        m, *members, _, k = weights.shape  # members may be fewer than those of x: never align them with m
        wide = weights.to(x.dtype).reshape(m, *[1] * (len(lead) - len(members)), *members, k)
        return wide.expand(m, *lead, k).reshape(m, -1, k).transpose(1, 2).contiguous()

    same = through is c or through.data_ptr() == c.data_ptr()
    found = _Series.apply(
        graph,
        values.expand(*lead, -1).reshape(-1, values.shape[-1]),
        x.expand(*lead, n, d).reshape(-1, n, d),
        None if added is None else added.expand(*lead, n, d).reshape(-1, n, d),
        flat(c),
        None if same else flat(through.detach()),
        math.ceil(math.sqrt(c.shape[-1])) if checkpoint else 1,
        rounded,
        among_others or len(c) > 1,
    )
    return tuple(out.reshape(*lead, n, d) for out in found)


def refuse_channels() -> NoReturn:
    """ArgumentError for powers in bfloat16 with coefficients of each channel."""
    raise ArgumentError(
        "precision bfloat16 needs coefficients that all channels share: take coefficients scalar and no "
        "rates of channels, or leave it out."
    )


def check_rounded(x: Tensor, c: Tensor) -> None:
    """Refuse what powers in bfloat16 are not made for: states x, coefficients c."""
    if x.dtype != torch.float32:
        raise DtypeError(f"precision bfloat16 needs a model in float32, got {x.dtype}: leave it out.")
    if c.shape[-2] > 1:
        refuse_channels()
    if traced():
        raise ArgumentError(
            "precision bfloat16 cannot be compiled, exported or transformed by torch.func: leave it out."
        )


def composed(product: Callable[[Tensor], Tensor], x: Tensor, c: Tensor, through: Tensor) -> Tensor:
    """The same from single products; every power is kept for the gradient.

    For coefficients of each channel, and for programs that are traced or transformed.

    Args:
        product: Gives A y for y.
    """
    if through is not c:  # what the gradient of x does not see starts from a copy without one
        parts = ((x, through), (x.detach(), c - through))
        return sum(composed(product, start, own, own) for start, own in parts)  # type: ignore[return-value]
    shares = c.to(x.dtype)
    y, total = x, shares[..., 0] * x
    for k in range(1, shares.shape[-1]):
        y = product(y)
        total = total + shares[..., k] * y
    return total


class _Series(Function):
    """Forward: powers ``y_k = A y_{k−1}``. Backward: Horner with Aᵀ, ``g_k = Aᵀ g_{k+1} + c_k g``.

    values ``(L, E)``, x ``(L, n, d)``, c ``(m, K+1, L)``.
    """

    @staticmethod
    def forward(
        ctx: Any,
        graph: Graph,
        values: Tensor,
        x: Tensor,
        added: Tensor | None,
        c: Tensor,
        through: Tensor | None,
        stride: int,
        rounded: bool,
        several: bool,
    ) -> tuple[Tensor, ...]:
        kernels, start = backend(x, graph), x.bfloat16() if rounded else x
        needs_basis = ctx.needs_input_grad[1] or ctx.needs_input_grad[4]
        ctx.graph, ctx.stride, ctx.through, ctx.several = graph, stride, through, several
        ctx.buffered = not x.is_cuda and kernels is torch_kernels
        ctx.set_materialize_grads(False)  # an output that nothing reads costs nothing
        if ctx.buffered and needs_basis and stride == 1:
            basis = torch_kernels.powers(graph, values, start, c.shape[1] - 1)
            ctx.save_for_backward(values, c, basis)
            return _plus(added, torch_kernels.power_sums(c, basis).unbind())
        # Horner here too: no sum to carry along. Rounded powers are those of the training, too
        if not (needs_basis or several or rounded):
            ctx.save_for_backward(values, c)
            if ctx.buffered:
                return _plus(added, [torch_kernels.horner(graph, values, c, x.unsqueeze(0))[0]])
            return _plus(added, [_horner(kernels, (graph, values), c, [x], False)])
        # powers are added up when all are there, or, where they are not kept, a few at a time
        most = c.shape[1] if needs_basis and stride == 1 else _TOGETHER
        kept: list[Tensor] = []
        waiting: list[Tensor] = []
        sums = None if added is None else added.expand(len(c), *x.shape)
        y = start
        for k in range(c.shape[1]):
            if k:
                y = kernels.spmm(graph, values, y)
            waiting.append(y)
            if needs_basis and k % stride == 0:
                kept.append(y)
            if len(waiting) == most or k + 1 == c.shape[1]:
                sums = kernels.combine(c[:, k + 1 - len(waiting) : k + 1], waiting, sums)
                waiting = []
        ctx.save_for_backward(values, c, *kept)
        assert sums is not None
        return sums.unbind()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        values, c, *kept = ctx.saved_tensors
        read = [m for m, grad in enumerate(grads) if grad is not None]
        if not read:
            return (None,) * 9
        own, own_c = [grad for grad in grads if grad is not None], _rows(c, read)
        through = None if ctx.through is None else _rows(ctx.through, read)
        gradients = _buffered_backward if ctx.buffered and ctx.stride == 1 else _backward
        d_values, d_x, d_c = gradients(ctx, values, own_c, through, kept, own)
        if d_c is not None and len(read) < len(c):
            rows = dict(zip(read, d_c, strict=True))
            d_c = torch.stack([rows.get(m, torch.zeros_like(d_c[0])) for m in range(len(c))])
        d_added = sum(own[1:], start=own[0]) if ctx.needs_input_grad[3] else None
        return None, d_values, d_x, d_added, d_c, None, None, None, None


def _plus(added: Tensor | None, sums: Sequence[Tensor]) -> tuple[Tensor, ...]:
    return tuple(sums) if added is None else tuple(out.add_(added) for out in sums)


def _rows(c: Tensor, chosen: list[int]) -> Tensor:
    """Some rows of c; no index is sent to the device."""
    return c if len(chosen) == len(c) else torch.stack([c[m] for m in chosen])


def _backward(
    ctx: Any,
    values: Tensor,
    c: Tensor,
    through: Tensor | None,
    kept: list[Tensor],
    grads: list[Tensor],
) -> tuple[Tensor | None, ...]:
    """Gradients of values, x and c; powers that were not kept are made again."""
    graph, stride, last = ctx.graph, ctx.stride, c.shape[1] - 1
    kernels = backend(grads[0], graph)
    wants_values, wants_x, _, wants_c = ctx.needs_input_grad[1:5]
    d_values = values.new_zeros(values.shape) if wants_values else None  # whatever its strides
    transpose = transposed(graph, values)  # once, for all products
    sources = _sources(kernels, c, grads, ctx.several)
    g: Tensor | None = None
    d_c: list[Tensor] = []
    for first in range(last // stride * stride, -1, -stride):
        stop = min(first + stride, last + 1)
        powers = [kept[first // stride]] if wants_values or wants_c else []
        while powers and len(powers) < stop - first:
            powers.append(kernels.spmm(graph, values, powers[-1]))
        for k in range(stop - 1, first - 1, -1):
            if g is not None and d_values is not None:
                kernels.sddmm(graph, g, powers[k - first], out=d_values)
            g = _next(kernels, transpose, g, *next(sources))
        if wants_c and stride > 1:
            d_c.insert(0, kernels.dots(grads, powers))
    if wants_c and stride == 1:  # all powers at once: gradients are read less often
        d_c = [kernels.dots(grads, kept)]
    if through is not None and wants_x:
        g = _horner(kernels, transpose, through, grads, ctx.several)
    return d_values, g if wants_x else None, torch.cat(d_c, 1) if wants_c else None


def _buffered_backward(
    ctx: Any,
    values: Tensor,
    c: Tensor,
    through: Tensor | None,
    kept: list[Tensor],
    grads: list[Tensor],
) -> tuple[Tensor | None, ...]:
    """The same where all powers are kept, or none is needed, on a CPU."""
    wants_values, wants_x, _, wants_c = ctx.needs_input_grad[1:5]
    transpose, entries = transposed(ctx.graph, values)
    grad = grads[0].unsqueeze(0) if len(grads) == 1 else torch.stack(grads)
    g = d_values = None
    if wants_values:
        g, d_values = torch_kernels.horner(transpose, entries, c, grad, kept[0], ctx.graph)
    if wants_x and (g is None or through is not None):
        g, _ = torch_kernels.horner(transpose, entries, c if through is None else through, grad)
    d_c = torch_kernels.power_dots(grad, kept[0]) if wants_c else None
    return d_values, g if wants_x else None, d_c


def _horner(
    kernels: Any,
    matrix: tuple[Pattern, Tensor],
    c: Tensor,
    fields: Sequence[Tensor],
    several: bool,
) -> Tensor:
    """``Σ_m Σ_k c_mk A^k z_m``: c ``(m, K+1, L)``, m fields z ``(L, n, d)``."""
    g: Tensor | None = None
    for share, source in _sources(kernels, c, fields, several):
        g = _next(kernels, matrix, g, share, source)
    assert g is not None
    return g


def _next(
    kernels: Any, matrix: tuple[Pattern, Tensor], g: Tensor | None, share: Tensor, source: Tensor
) -> Tensor:
    """``A g + share · source``."""
    if g is None:
        return share[:, None, None] * source
    return kernels.spmm(*matrix, g, add=(share, source))


def _sources(
    kernels: Any, c: Tensor, fields: Sequence[Tensor], several: bool
) -> Iterator[tuple[Tensor, Tensor]]:
    """``Σ_m c_mk z_m`` as a share of a field, from the last k to the first.

    Where there are several fields, read or not, each sum is rounded before it is added.
    """
    if not several:
        yield from ((share, fields[0]) for share in reversed(c[0].unbind()))
        return
    ones = torch.ones_like(c[0, 0])
    for stop in range(c.shape[1], 0, -_TOGETHER):  # the fields are read once for several k
        first = max(0, stop - _TOGETHER)
        for source in reversed(kernels.combine(c[:, first:stop].transpose(0, 1), fields).unbind()):
            yield ones, source
