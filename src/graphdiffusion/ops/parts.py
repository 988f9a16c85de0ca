"""The sparse kernels on a part of a graph: those of one device, around an exchange between the parts.

A product with A fetches the rows of the halo and multiplies by the inner edges while they are on their way;
a score takes the inner edges meanwhile.
A product with Aᵀ computes what belongs to other parts first, and multiplies by the inner edges while it is
on its way back. Results have the rows of the part's own nodes. As everywhere below the operators, there is
no autograd here, and tensors have one leading dimension L.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..partition.exchange import extended, fetch, give_back
from ..partition.part import Part, Transposed
from .backends import backend
from .torch import groups as torch_groups
from .torch.groups import shares, shares_backward


def spmm(
    graph: Part | Transposed,
    values: Tensor,
    x: Tensor,
    add: tuple[Tensor, Tensor] | None = None,
    *,
    minus: Tensor | None = None,
) -> Tensor:
    """``A x`` or ``Aᵀ x``, plus ``c z`` if ``add = (c, z)`` is given, less ``minus``.

    Rows of a bfloat16 x are exchanged as they are. Both products with A are taken in float32, and their sum
    is rounded once, as in one process.
    """
    kernels, one = backend(x), values.new_ones(len(x))
    if isinstance(graph, Transposed):
        part, inner = graph.part, graph.inner
        kind, x = x.dtype, x.to(values.dtype)
        rest = kernels.spmm(graph.outer, values[:, inner.num_edges :], x)
        arriving = give_back(part, rest)
        out = kernels.spmm(inner, values[:, : inner.num_edges], x, add, minus=minus)
        return _returned(part, arriving.wait(), out).to(kind)
    arriving = fetch(graph, x)
    (inner, inside), (outer, outside) = graph.inner, graph.outer
    out = kernels.spmm(inner, values.index_select(1, inside), x.to(values.dtype), add, minus=minus)
    rows = arriving.wait().to(values.dtype)
    return kernels.spmm(outer, values.index_select(1, outside), rows, add=(one, out)).to(x.dtype)


def _returned(part: Part, rows: Tensor, own: Tensor) -> Tensor:
    """Own rows ``(L, n, d)``, and added to them what readers have sent back, ``(L, s, d)``."""
    pattern, one = part.returned, rows.new_ones(1, 1)
    kernels = backend(rows)
    return kernels.spmm(
        pattern,
        one.expand(len(rows), pattern.num_edges),
        rows.contiguous(),
        add=(one[0].expand(len(rows)), own),
    )


def _sent_back(part: Part, wide: Tensor) -> Tensor:
    """Sums at own nodes and halo ``(L, n + h)`` as sums at own nodes, over all parts → ``(L, n)``."""
    own, halo = wide[:, : part.rows, None], wide[:, part.rows :, None]
    arriving = give_back(part, halo)
    return _returned(part, arriving.wait(), own.contiguous()).squeeze(-1)


def sddmm(graph: Part, q: Tensor, k: Tensor, out: Tensor | None = None) -> Tensor:
    """``⟨q_i, k_j⟩`` on every edge; added to ``out`` if given."""
    kernels, arriving = backend(q), fetch(graph, k)
    (inner, inside), (outer, outside) = graph.inner, graph.outer
    own = kernels.sddmm(inner, q, k)
    found = own.new_empty(len(own), graph.num_edges).index_copy_(1, inside, own)
    found.index_copy_(1, outside, kernels.sddmm(outer, q, arriving.wait().contiguous()))
    return found if out is None else out.add_(found)


def group_sum(graph: Part, values: Tensor, over: str) -> Tensor:
    """Sum of an edge field over each row or column of the whole graph → ``(L, n)``."""
    found = backend(values).group_sum(graph.reach, values, over)
    return found if over == "rows" else _sent_back(graph, found)


def spread(graph: Part, nodes: Tensor, over: str) -> Tensor:
    """Value of the row or column of each edge."""
    if over == "columns":
        nodes = extended(graph, nodes.unsqueeze(-1)).squeeze(-1)
    return backend(nodes).spread(graph.reach, nodes, over)


def group_max(graph: Part, values: Tensor, over: str) -> Tensor:
    """Largest entry of an edge field in each row or column of the whole graph → ``(L, n)``."""
    if over == "rows":
        return torch_groups.group_max(graph.reach, values, over)
    index = graph.col.long().expand_as(values)
    wide = values.new_full((len(values), graph.rows + len(graph.halo)), -torch.inf)
    wide = wide.scatter_reduce_(1, index, values, "amax")
    arriving = give_back(graph, wide[:, graph.rows :, None])
    index = graph.send.long().expand(len(values), -1)
    return wide[:, : graph.rows].scatter_reduce(1, index, arriving.wait().squeeze(-1), "amax")


def normalise(graph: Part, scores: Tensor, weight: Tensor | None, kind: str, over: str) -> Tensor:
    """``w φ(s) / Σ w φ(s)`` over each row or column of the whole graph."""
    if over == "rows":
        return backend(scores).normalise(graph.reach, scores, weight, kind, over)
    return shares(
        scores,
        weight,
        kind,
        lambda field: spread(graph, group_max(graph, field, over), over),
        lambda field: _column_sums(graph, field),
    )


def normalise_backward(
    graph: Part, grad: Tensor, values: Tensor, scores: Tensor, kind: str, over: str
) -> Tensor:
    """Gradient of :func:`normalise` with respect to the scores."""
    if over == "rows":
        return backend(scores).normalise_backward(graph.reach, grad, values, scores, kind, over)
    return shares_backward(grad, values, scores, kind, lambda field: _column_sums(graph, field))


def _column_sums(graph: Part, field: Tensor) -> Tensor:
    """The sum over its column, on each edge."""
    return spread(graph, group_sum(graph, field, "columns"), "columns")


def pool(graph: Part, x: Tensor) -> Tensor:
    """``max_j x_j`` in each channel, 0 for an empty row."""
    return backend(x).pool(graph.reach, extended(graph, x))


def match(graph: Part | Transposed, own: Tensor, other: Tensor, field: Tensor) -> Tensor:
    """``Σ_j [u_i = v_j] z_j`` in each channel, over the rows of A or of Aᵀ."""
    kernels = backend(field)
    if isinstance(graph, Part):
        both = extended(graph, torch.cat([other, field], -1)).chunk(2, -1)
        return kernels.match(graph.reach, own, *(v.contiguous() for v in both))
    part = graph.part
    wide = kernels.match(part.reach.transposed, extended(part, own), other, field)
    arriving = give_back(part, wide[:, part.rows :])
    return _returned(part, arriving.wait(), wide[:, : part.rows].contiguous())


def combine(c: Tensor, states: Sequence[Tensor], start: Tensor | None = None) -> Tensor:
    """``x_m + Σ_k c_mk y_k``, row by row: nothing is exchanged."""
    return backend(states[0]).combine(c, states, start)


def dots(fields: Sequence[Tensor], states: Sequence[Tensor]) -> Tensor:
    """Inner products over own nodes: what this part adds to the gradient of something shared."""
    return backend(fields[0]).dots(fields, states)
