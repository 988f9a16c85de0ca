"""Sums of powers of a sparse matrix on a CPU, and their gradients.

Matrices are built once for all products. Powers that are kept lie in one tensor: sums of them and inner
products with them are dense products, which read every state once. Others take turns in two buffers, which
stay in cache. A bfloat16 x gives bfloat16 powers: each product is taken in float32 and rounded once, and
sums of powers are float32.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...pattern import Pattern
from .products import csr, pieces

_AT_ONCE = 2**13  # numbers of each bfloat16 power that are converted at once: they stay in cache


def powers(graph: Pattern, values: Tensor, x: Tensor, count: int) -> Tensor:
    """``A^k x`` for k up to ``count``: values ``(L, E)``, x ``(L, n, d)`` → ``(count+1, L, n, d)``."""
    out = x.new_empty(count + 1, *x.shape)
    out[0] = x
    for piece in pieces(graph, len(x)):
        matrix = csr(graph, values[piece])
        states = out[:, piece].view(count + 1, -1, x.shape[-1])
        # in place, or where powers are rounded, beside them
        product = None if x.dtype == values.dtype else torch.empty_like(states[0], dtype=values.dtype)
        for k in range(count):
            out_k = states[k + 1] if product is None else product
            out_k.addmm_(matrix, states[k].to(values.dtype), beta=0)
            if product is not None:
                states[k + 1].copy_(product)
    return out


def power_sums(c: Tensor, basis: Tensor) -> Tensor:
    """``Σ_k c_k y_k``: c ``(m, K+1, L)``, basis ``(K+1, L, n, d)`` → ``(m, L, n, d)``."""
    wide = basis.flatten(2)
    out = c.new_empty(len(c), *wide.shape[1:])
    for member in range(wide.shape[1]):
        for at in _blocks_of(wide, c.dtype):
            torch.mm(c[:, :, member], wide[:, member, at].to(c.dtype), out=out[:, member, at])
    return out.view(len(c), *basis.shape[1:])


def _blocks_of(wide: Tensor, dtype: torch.dtype) -> list[slice]:
    """What of the last dimension is taken at once: all of it, unless it is converted first."""
    size = wide.shape[-1]
    step = size if wide.dtype == dtype else _AT_ONCE
    return [slice(first, min(first + step, size)) for first in range(0, size, max(1, step))]


def power_dots(grad: Tensor, basis: Tensor) -> Tensor:
    """Inner products ``⟨g, y_k⟩``: grad ``(m, L, n, d)``, basis ``(K+1, L, n, d)`` → ``(m, K+1, L)``."""
    left, right = grad.flatten(2), basis.flatten(2)
    out = grad.new_zeros(len(grad), len(basis), left.shape[1])
    for at in _blocks_of(right, grad.dtype):
        for k in range(left.shape[1]):
            wide = right[:, k, at].to(grad.dtype)
            for m in range(len(grad)):  # one by one: a product is not rounded by what stands beside it
                out[m, :, k] += wide @ left[m, k, at]
    return out


def horner(
    graph: Pattern,
    values: Tensor,
    c: Tensor,
    fields: Tensor,
    basis: Tensor | None = None,
    sampled: Pattern | None = None,
) -> tuple[Tensor, Tensor | None]:
    """``Σ_m Σ_k c_mk A^k z_m`` by Horner's rule, ``g_k = A g_{k+1} + Σ_m c_mk z_m``.

    Args:
        c: ``(m, K+1, L)``.
        fields: z, ``(m, L, n, d)``.
        basis: Powers of the transposed matrix, ``(K+1, L, n, d)``.
        sampled: The pattern of that matrix.

    Returns:
        The sum ``(L, n, d)``, and with a basis ``Σ_k ⟨g_{k+1}, y_k⟩`` on the edges of ``sampled``.
    """
    out, edges = torch.empty_like(fields[0], memory_format=torch.contiguous_format), None
    if basis is not None and sampled is not None:
        edges = values.new_zeros(values.shape)
    last, width = c.shape[1] - 1, fields.shape[-1]
    for piece in pieces(graph, fields.shape[1]):
        matrix, shares, own = csr(graph, values[piece]), c[:, :, piece, None, None], fields[:, piece]
        total = None if edges is None or sampled is None else csr(sampled, edges[piece])
        turns = (out[piece], torch.empty_like(out[piece]))
        for k in range(last, -1, -1):
            now, before = turns[k % 2], turns[1 - k % 2].view(-1, width)
            torch.mul(own[0], shares[0, k], out=now)
            for field, share in zip(own[1:], shares[1:], strict=True):
                now.addcmul_(field, share[k])
            if k == last:
                continue
            now.view(-1, width).addmm_(matrix, before)
            if total is not None and basis is not None:  # its entries become themselves plus ⟨g, y⟩
                power = basis[k, piece].view(-1, width).to(values.dtype).t()
                torch.sparse.sampled_addmm(total, before, power, beta=1.0, out=total)
        if total is not None and edges is not None:
            edges[piece] = total.values().view(-1, edges.shape[1])
    return out, edges
