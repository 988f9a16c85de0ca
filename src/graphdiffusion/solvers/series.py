"""Sums of powers of a sparse matrix, ``Σ_k c_k A^k x``, with a backward pass of their own."""

from __future__ import annotations

import math
from collections.abc import Callable
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
) -> Tensor:
    """``Σ_k c_k A^k x`` for every output time.

    Args:
        c: Coefficients ``(m, ..., 1, 1, K+1)``, or ``(m, ..., 1, d, K+1)`` with one for each channel.
        through: The coefficients that the gradient of x sees.
        checkpoint: Keep only every √K-th power for the backward pass.
        rounded: The powers are rounded to bfloat16, one after the other. Sums and gradients are float32,
            and the gradient is that of the sum without rounding, at these powers.

    Returns:
        ``(m, ..., n, d)``.
    """
    if rounded:
        check_rounded(x, c)
    if c.shape[-2] > 1 or traced():
        return composed(partial(propagate, graph, values), x, c, through)
    c, through = c.squeeze(-2), c.squeeze(-2) if through is c else through.squeeze(-2)
    lead = torch.broadcast_shapes(values.shape[:-1], x.shape[:-2], c.shape[1:-2])
    n, d = x.shape[-2:]

    def flat(weights: Tensor) -> Tensor:
        m, *members, _, k = weights.shape  # members may be fewer than those of x: never align them with m
        wide = weights.to(x.dtype).reshape(m, *[1] * (len(lead) - len(members)), *members, k)
        return wide.expand(m, *lead, k).reshape(m, -1, k).transpose(1, 2).contiguous()

    same = through is c or through.data_ptr() == c.data_ptr()
    out = _Series.apply(
        graph,
        values.expand(*lead, -1).reshape(-1, values.shape[-1]),
        x.expand(*lead, n, d).reshape(-1, n, d),
        flat(c),
        None if same else flat(through.detach()),
        math.ceil(math.sqrt(c.shape[-1])) if checkpoint else 1,
        rounded,
    )
    return out.reshape(len(c), *lead, n, d)


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
        c: Tensor,
        through: Tensor | None,
        stride: int,
        rounded: bool,
    ) -> Tensor:
        kernels, start = backend(x, graph), x.bfloat16() if rounded else x
        needs_basis = ctx.needs_input_grad[1] or ctx.needs_input_grad[3]
        ctx.graph, ctx.stride, ctx.through = graph, stride, through
        ctx.buffered = not x.is_cuda and kernels is torch_kernels
        if ctx.buffered and needs_basis and stride == 1:
            basis = torch_kernels.powers(graph, values, start, c.shape[1] - 1)
            ctx.save_for_backward(values, c, basis)
            return torch_kernels.power_sums(c, basis)
        # Horner here too: no sum to carry along. Rounded powers are those of the training, too
        if not needs_basis and len(c) == 1 and not rounded:
            ctx.save_for_backward(values, c)
            if ctx.buffered:
                return torch_kernels.horner(graph, values, c, x.unsqueeze(0))[0].unsqueeze(0)
            out = c[0, -1, :, None, None] * x
            for k in range(c.shape[1] - 2, -1, -1):
                out = kernels.spmm(graph, values, out, add=(c[0, k], x))
            return out.unsqueeze(0)
        # powers are added up when all are there, or, where they are not kept, a few at a time
        most = c.shape[1] if needs_basis and stride == 1 else _TOGETHER
        kept: list[Tensor] = []
        waiting: list[Tensor] = []
        sums: list[Any] = [None] * len(c)
        y = start
        for k in range(c.shape[1]):
            if k:
                y = kernels.spmm(graph, values, y)
            waiting.append(y)
            if needs_basis and k % stride == 0:
                kept.append(y)
            if len(waiting) == most or k + 1 == c.shape[1]:
                own = c[:, k + 1 - len(waiting) : k + 1]
                sums = [kernels.combine(o, waiting, s) for o, s in zip(own, sums, strict=True)]
                waiting = []
        ctx.save_for_backward(values, c, *kept)
        return sums[0].unsqueeze(0) if len(sums) == 1 else torch.stack(sums)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        (grad,) = grads
        values, c, *kept = ctx.saved_tensors
        graph, stride, last = ctx.graph, ctx.stride, c.shape[1] - 1
        kernels = backend(grad, graph)
        wants_values, wants_c = ctx.needs_input_grad[1], ctx.needs_input_grad[3]
        if ctx.buffered and stride == 1 and (kept or not (wants_values or wants_c)):
            return _buffered_backward(ctx, values, c, kept, grad)
        d_values = values.new_zeros(values.shape) if wants_values else None  # whatever its strides
        d_c = torch.empty_like(c) if wants_c else None
        transpose = transposed(graph, values)  # once, for all products
        g: Tensor | None = None
        for first in range(last // stride * stride, -1, -stride):
            stop = min(first + stride, last + 1)
            powers = [kept[first // stride]] if wants_values or wants_c else []
            while powers and len(powers) < stop - first:
                powers.append(kernels.spmm(graph, values, powers[-1]))
            for k in range(stop - 1, first - 1, -1):
                if g is not None and d_values is not None:
                    kernels.sddmm(graph, g, powers[k - first], out=d_values)
                g = _horner(kernels, transpose, g, c[:, k], grad)
            if d_c is not None and stride > 1:
                for row, part in zip(d_c, grad, strict=True):
                    row[first:stop] = kernels.dots(part, powers)
        if d_c is not None and stride == 1:  # all powers at once: the gradient is read less often
            for row, part in zip(d_c, grad, strict=True):
                row.copy_(kernels.dots(part, kept))
        if ctx.through is not None and ctx.needs_input_grad[2]:
            g = None
            for k in range(last, -1, -1):
                g = _horner(kernels, transpose, g, ctx.through[:, k], grad)
        return None, d_values, g if ctx.needs_input_grad[2] else None, d_c, None, None, None


def _buffered_backward(
    ctx: Any, values: Tensor, c: Tensor, kept: list[Tensor], grad: Tensor
) -> tuple[Tensor | None, ...]:
    """The backward pass where all powers are kept, or none is needed, on a CPU."""
    wants_values, wants_x, wants_c = ctx.needs_input_grad[1:4]
    transpose, entries = transposed(ctx.graph, values)
    g = d_values = None
    if wants_values:
        g, d_values = torch_kernels.horner(transpose, entries, c, grad, kept[0], ctx.graph)
    if wants_x and (g is None or ctx.through is not None):
        shares = c if ctx.through is None else ctx.through
        g, _ = torch_kernels.horner(transpose, entries, shares, grad)
    d_c = torch_kernels.power_dots(grad, kept[0]) if wants_c else None
    return None, d_values, g if wants_x else None, d_c, None, None, None


def _horner(
    kernels: Any, matrix: tuple[Pattern, Tensor], g: Tensor | None, c: Tensor, grad: Tensor
) -> Tensor:
    """``Aᵀ g + Σ_m c_m grad_m``, with the matrix Aᵀ."""
    if len(c) == 1:
        share, source = c[0], grad[0]
    else:
        share, source = torch.ones_like(c[0]), kernels.combine(c, grad.unbind())
    if g is None:
        return share[:, None, None] * source
    return kernels.spmm(*matrix, g, add=(share, source))
