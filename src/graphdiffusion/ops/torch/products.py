"""Products with sparse matrices on stock torch.

A product with a CSR tensor and its sampled counterpart are several times faster than gathering and
scattering rows. Members and heads become the blocks of a block-diagonal matrix.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import torch
from torch import Tensor

from ...pattern import Pattern

# what torch says of its CSR tensors, once in every process; the products used here are tested
for _said in ("Sparse CSR tensor support is in beta", "Sparse invariant checks are implicitly disabled"):
    warnings.filterwarnings("ignore", message=_said)

TOGETHER = 2**22  # entries of all blocks in one call: their indices are held in memory


def csr(graph: Pattern, values: Tensor) -> Tensor:
    """The matrices with the values ``(L, E)`` as one, block-diagonal."""
    count = len(values)
    pointer, index = _blocks(graph, count)
    shape = (count * graph.rows, count * graph.cols)
    return torch.sparse_csr_tensor(pointer, index, values.reshape(-1), shape, check_invariants=False)


def _blocks(graph: Pattern, count: int) -> tuple[Tensor, Tensor]:
    """Row pointer and columns of a block-diagonal matrix of ``count`` equal patterns; remembered."""
    pointer, index = graph.rowptr, graph.col
    if count == 1:
        return pointer, index

    def make() -> tuple[Tensor, Tensor]:
        block = torch.arange(count, dtype=index.dtype, device=index.device)[:, None]
        starts = (pointer[:-1] + block * graph.num_edges).flatten()
        end = pointer.new_full((1,), count * graph.num_edges)
        return torch.cat([starts, end]), (index + block * graph.cols).flatten()

    return graph.once(("blocks", count), make)


def pieces(graph: Pattern, count: int) -> Iterator[slice]:
    """Members and heads to take in one call: one call costs as much as a small product."""
    size = max(1, TOGETHER // max(1, graph.num_edges))
    for first in range(0, count, size):
        yield slice(first, min(first + size, count))


def spmm(
    graph: Pattern,
    values: Tensor,
    x: Tensor,
    add: tuple[Tensor, Tensor] | None = None,
    *,
    minus: Tensor | None = None,
) -> Tensor:
    """``A x``, plus ``c z`` if ``add = (c, z)`` is given, less ``minus``.

    values ``(L, E)``, x ``(L, cols, d)``, c ``(L,)``, z, minus and the result ``(L, rows, d)``. A
    bfloat16 x beside float32 values is multiplied in float32, and the result is rounded once.
    """
    # addmm_ in place is the one form that neither copies nor clears the result
    shape = (len(x), graph.rows, x.shape[-1])
    out = values.new_empty(shape) if add is None else add[0][:, None, None] * add[1]
    for piece in pieces(graph, len(x)):
        matrix, state = csr(graph, values[piece]), x[piece].reshape(-1, x.shape[-1]).to(values.dtype)
        out[piece].view(-1, x.shape[-1]).addmm_(matrix, state.contiguous(), beta=0 if add is None else 1)
    return (out if minus is None else out.sub_(minus)).to(x.dtype)


def sddmm(graph: Pattern, q: Tensor, k: Tensor, out: Tensor | None = None) -> Tensor:
    """``⟨q_i, k_j⟩`` on every edge: q, k ``(L, n, d)`` → ``(L, E)``; added to ``out`` if given.

    Where q or k is bfloat16, both are taken in float32, and so is the result.
    """
    dtype = torch.float32 if torch.bfloat16 in (q.dtype, k.dtype) else q.dtype
    parts = []
    for piece in pieces(graph, len(q)):
        a, b = (v[piece].reshape(-1, v.shape[-1]).to(dtype).contiguous() for v in (q, k))
        pattern = csr(graph, a.new_ones(1, 1).expand(piece.stop - piece.start, graph.num_edges))
        scores = torch.sparse.sampled_addmm(pattern, a, b.t(), beta=0.0).values()
        parts.append(scores.view(piece.stop - piece.start, graph.num_edges))
    scores = parts[0] if len(parts) == 1 else torch.cat(parts)
    return scores if out is None else out.add_(scores)
