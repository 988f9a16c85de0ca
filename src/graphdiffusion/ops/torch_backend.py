"""The sparse kernels on stock torch: any device, float32 and float64, deterministic on CPU.

Every kernel takes one flattened leading dimension ``L`` (members, heads) and no autograd: the rules of
differentiation stand in :mod:`graphdiffusion.ops.functions`. A product with a CSR tensor and its
sampled counterpart are several times faster than gathering and scattering rows; members and heads become
the blocks of a block-diagonal matrix, whose rows are worked through one block after the other.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from ..graph import Graph
from ..pattern import Pattern

# what torch says of its CSR tensors, once in every process; the products used here are tested
for _said in ("Sparse CSR tensor support is in beta", "Sparse invariant checks are implicitly disabled"):
    warnings.filterwarnings("ignore", message=_said)

LEAKY_SLOPE = 0.2  # as in GAT
TOGETHER = 2**22  # entries of all blocks in one call: their indices are held in memory


def _csr(graph: Pattern, values: Tensor) -> Tensor:
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


def _pieces(graph: Pattern, count: int) -> Iterator[slice]:
    """Members and heads to take in one call: one call costs as much as a small product."""
    size = max(1, TOGETHER // max(1, graph.num_edges))
    for first in range(0, count, size):
        yield slice(first, min(first + size, count))


def spmm(
    graph: Pattern,
    values: Tensor,
    x: Tensor,
    add: tuple[Tensor, Tensor] | None = None,
) -> Tensor:
    """``A x``, plus ``c z`` if ``add = (c, z)`` is given.

    values ``(L, E)``, x ``(L, cols, d)``, c ``(L,)``, z and the result ``(L, rows, d)``.
    """
    # addmm_ in place is the one form that neither copies nor clears the result
    shape = (len(x), graph.rows, x.shape[-1])
    out = x.new_empty(shape) if add is None else add[0][:, None, None] * add[1]
    for piece in _pieces(graph, len(x)):
        matrix, state = _csr(graph, values[piece]), x[piece].reshape(-1, x.shape[-1])
        out[piece].view(-1, x.shape[-1]).addmm_(matrix, state.contiguous(), beta=0 if add is None else 1)
    return out


def sddmm(graph: Graph, q: Tensor, k: Tensor, out: Tensor | None = None) -> Tensor:
    """``⟨q_i, k_j⟩`` on every edge: q, k ``(L, n, d)`` → ``(L, E)``; added to ``out`` if given."""
    parts = []
    for piece in _pieces(graph, len(q)):
        a, b = (v[piece].reshape(-1, v.shape[-1]).contiguous() for v in (q, k))
        pattern = _csr(graph, q.new_ones(1, 1).expand(piece.stop - piece.start, graph.num_edges))
        scores = torch.sparse.sampled_addmm(pattern, a, b.t(), beta=0.0).values()
        parts.append(scores.view(-1, graph.num_edges))
    scores = parts[0] if len(parts) == 1 else torch.cat(parts)
    return scores if out is None else out.add_(scores)


def group_sum(graph: Graph, values: Tensor, over: str) -> Tensor:
    """Sum of the edge field ``(L, E)`` over each row or column → ``(L, n)``."""
    if values.is_cuda:  # index_add would add in an order that changes from run to run
        return _segments(graph, values, over, "sum")
    out = values.new_zeros(values.shape[0], graph.num_nodes)
    # torch has a fast path for 64-bit indices alone
    return out.index_add_(1, (graph.row if over == "rows" else graph.col).long(), values)


def group_max(graph: Graph, values: Tensor, over: str) -> Tensor:
    """Largest entry of the edge field ``(L, E)`` in each row or column → ``(L, n)``."""
    if values.is_cuda or len(values) == 1:
        return _segments(graph, values, over, "max")
    index = (graph.row if over == "rows" else graph.col).long().expand_as(values)
    out = values.new_full((values.shape[0], graph.num_nodes), float("-inf"))
    return out.scatter_reduce_(1, index, values, "amax")


def _segments(graph: Graph, values: Tensor, over: str, reduce: str) -> Tensor:
    pointer = graph.rowptr
    if over == "columns":
        pointer, values = graph.colptr, values.index_select(1, graph.perm)
    by_edge = values.t().contiguous()
    return torch.segment_reduce(by_edge, reduce, offsets=pointer.long(), axis=0).t()


def spread(graph: Graph, nodes: Tensor, over: str) -> Tensor:
    """Value of the row or column of each edge: ``(L, n)`` → ``(L, E)``."""
    return nodes.index_select(1, graph.row if over == "rows" else graph.col)


def normalise(graph: Graph, scores: Tensor, weight: Tensor | None, kind: str, over: str) -> Tensor:
    """``w φ(s) / Σ w φ(s)`` over each row or column: scores ``(L, E)`` → ``(L, E)``."""
    if kind == "softmax":
        if weight is not None:  # an edge of weight 0 must not be the largest
            scores = scores.masked_fill(weight == 0, float("-inf"))
        phi = (scores - spread(graph, group_max(graph, scores, over), over)).exp_()
    else:
        phi = squareplus(scores)
    if weight is not None:
        phi = phi * weight
    return phi / spread(graph, group_sum(graph, phi, over), over)


def normalise_backward(
    graph: Graph, grad: Tensor, values: Tensor, scores: Tensor, kind: str, over: str
) -> Tensor:
    """Gradient of :func:`normalise` with respect to the scores."""
    flow = values * grad
    out = flow - values * spread(graph, group_sum(graph, flow, over), over)
    return out if kind == "softmax" else out * squareplus_slope(scores)


def squareplus(s: Tensor) -> Tensor:
    """``(s + √(s² + 4)) / 2`` as ``max(s, 0) + 2 / (|s| + √(s² + 4))``, which does not cancel for s < 0."""
    return _root(s).add_(s.abs()).mul_(0.5).reciprocal_().add_(s.clamp_min(0))


def squareplus_slope(s: Tensor) -> Tensor:
    """``φ'(s) / φ(s) = 1 / √(s² + 4)`` for φ = squareplus."""
    return _root(s).reciprocal_()


def _root(s: Tensor) -> Tensor:
    """``√(s² + 4)``, several times faster than ``hypot``; 10¹⁸ stands for all that is larger."""
    return s.clamp(-1e18, 1e18).square_().add_(4).sqrt_()


def activate(scores: Tensor, activation: str) -> Tensor:
    """The pointwise function between the inner products and the normaliser."""
    if activation == "leaky_relu":
        return torch.nn.functional.leaky_relu(scores, LEAKY_SLOPE)
    return scores.exp() if activation == "exp" else scores


def combine(c: Tensor, states: Sequence[Tensor], start: Tensor | None = None) -> Tensor:
    """``x + Σ_k c_k x_k``: c ``(K, L)``, K states and perhaps x ``(L, n, d)`` → ``(L, n, d)``."""
    shares = c[:, :, None, None]
    out = shares[0] * states[0] if start is None else torch.addcmul(start, shares[0], states[0])
    for share, state in zip(shares[1:], states[1:], strict=True):
        out.addcmul_(share, state)
    return out


def combine_backward(
    c: Tensor, states: Sequence[Tensor], grad: Tensor, wanted: Sequence[bool], wants_c: bool
) -> tuple[Tensor | None, list[Tensor | None]]:
    """Gradients of :func:`combine`: of c ``(K, L)``, and ``c_k g`` of the states where it is wanted."""
    d_c = dots(grad, states) if wants_c else None
    return d_c, [s[:, None, None] * grad if want else None for s, want in zip(c, wanted, strict=True)]


def dots(a: Tensor, states: Sequence[Tensor]) -> Tensor:
    """Inner products of each member: a and K states ``(L, n, d)`` → ``(K, L)``."""
    return torch.stack([(a * b).sum((1, 2)) for b in states])


def random_bits(key: Tensor, count: int) -> Tensor:
    """``count`` draws of 24 random bits for each key: ``(...)`` int64 → ``(..., count)`` int32.

    Two rounds of the 32-bit mixer "lowbias32" (C. Wellons, hash-prospector, public domain) around the
    two halves of the key.
    """
    low, high = key.to(torch.int32).unsqueeze(-1), (key >> 32).to(torch.int32).unsqueeze(-1)
    place = torch.arange(count, dtype=torch.int32, device=key.device)
    return shift(_mix(_mix(place ^ low) + high), 8, 32)


def _mix(x: Tensor) -> Tensor:
    x = (x ^ shift(x, 16, 32)) * 0x7FEB352D
    x = (x ^ shift(x, 15, 32)) * (0x846CA68B - 2**32)  # the same 32 bits, as a signed number
    return x ^ shift(x, 16, 32)


def shift(x: Tensor, by: int, width: int) -> Tensor:
    """Shift right, filling with zeros (torch's shift copies the sign)."""
    return (x >> by) & ((1 << (width - by)) - 1)


def dropout(key: Tensor, rate: Tensor, size: int) -> Tensor:
    """0 with probability ``rate``, else ``1/(1 − rate)``: key, rate ``(L,)`` → ``(L, size)``."""
    threshold = (rate.double() * 2**24).to(torch.int32)
    return (random_bits(key, size) >= threshold[:, None]) * (1 / (1 - rate))[:, None]
