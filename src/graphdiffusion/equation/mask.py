"""Rewiring by attention (equation 12): which edges to keep for the whole integral."""

from __future__ import annotations

from typing import get_args

import torch
from torch import Tensor

from ..errors import ArgumentError, DtypeError, ShapeError
from ..graph import Graph
from ..ops import Over, Side, sides
from ..ops.backends import backend
from ..partition.part import Part
from ..partition.select import largest_entries


@torch.no_grad()
def attention_mask(
    graph: Graph,
    values: Tensor,
    *,
    threshold: float | None = None,
    keep: float | None = None,
    mass: float | None = None,
    over: Over = "rows",
) -> Tensor:
    r"""The rewired edge set :math:`\mathcal E'` of equation (12), as a mask of zeros and ones.

    Give the result as ``weight`` to :func:`graphdiffusion.ops.normalise` and hold it constant through
    the integral: an edge of weight 0 is left out. Exactly one rule is chosen:

    - ``threshold`` ρ: :math:`\mathcal E' = \{(i,j) : a_{ij} > \rho\}`;
    - ``keep``: the given fraction of the edges, those of the largest attention in the whole graph;
    - ``mass`` (hard attention): in each group, the fewest edges that together hold the given share of
      its attention. The groups are rows or columns, as ``over`` says, or both (symmetric).

    A node never loses its last edge: the largest entry of each row and of each column stays, on top of
    the rule, so that attention can be normalised over either. Ties go to the edge that comes first.

    Each member of a population gets a mask of its own. Shapes do not depend on the values and nothing
    is read from the device, so the call may stand inside a captured CUDA graph.

    Args:
        values: Attention at t = 0, an edge field ``(..., E)``.
        threshold: ρ ≥ 0.
        keep, mass: In (0, 1].
        over: The groups of ``mass``; take what the attention was normalised over.

    Returns:
        Edge field ``(..., E)`` of 0 and 1 in the dtype of ``values``, not differentiated.
    """
    _check(graph, values, {"threshold": threshold, "keep": keep, "mass": mass}, over)
    infinity = float("inf")  # NaN counts as the smallest value: a diverged member keeps one edge a node
    field = values.reshape(-1, graph.num_edges).nan_to_num(-infinity, infinity, -infinity)
    if threshold is not None:
        mask = field > threshold
    elif keep is not None:
        mask = _largest(graph, field, keep)
    else:
        assert mass is not None
        mask = torch.stack([_heaviest(graph, field, mass, side) for side in sides(over)]).any(0)
    for side in sides("symmetric"):
        mask |= _first_largest(graph, field, side)
    return mask.to(values.dtype).reshape(values.shape)


def _largest(graph: Graph, field: Tensor, keep: float) -> Tensor:
    """The share ``keep`` of all edges: ``(L, E)``."""
    if isinstance(graph, Part):
        return largest_entries(field, graph.places, round(keep * graph.all_edges))
    order = field.sort(dim=1, descending=True, stable=True).indices
    kept = torch.arange(graph.num_edges, device=field.device) < round(keep * graph.num_edges)
    return torch.zeros_like(field, dtype=torch.bool).scatter_(1, order, kept.expand_as(field))


def _heaviest(graph: Graph, field: Tensor, mass: float, over: Side) -> Tensor:
    """In each row or column the largest entries, until they hold the share ``mass``: ``(L, E)``."""
    if isinstance(graph, Part):
        if over == "columns":
            raise ArgumentError(
                "mass over columns needs whole columns, and a part of a graph has whole rows: take keep or "
                "threshold, or normalise over rows."
            )
        # among equals the first in the whole graph: edges of a row are stored in another order here
        order = torch.argsort(graph.places)
        mask = _heaviest_in_groups(field[:, order], graph.row, graph.rowptr, mass)
        return torch.zeros_like(mask).index_copy_(1, order, mask)
    group, pointer = (graph.row, graph.rowptr) if over == "rows" else (graph.col, graph.colptr)
    return _heaviest_in_groups(field, group, pointer, mass)


def _heaviest_in_groups(field: Tensor, group: Tensor, pointer: Tensor, mass: float) -> Tensor:
    # Two stable sorts put the edges in order of group and, within it, of falling attention.
    order = field.sort(dim=1, descending=True, stable=True).indices
    order = order.gather(1, group[order].sort(dim=1, stable=True).indices)
    # Running sums over all edges, in float64 so that the differences keep the digits of the field.
    sums = torch.nn.functional.pad(field.gather(1, order).double().cumsum(1), (1, 0))
    start = sums.index_select(1, pointer[:-1])
    total = sums.index_select(1, pointer[1:]) - start
    group_of = group[order].long()  # equal in all members: groups have one size, whatever the values
    larger = sums[:, :-1] - start.gather(1, group_of)  # mass of the entries before this one
    kept = larger < mass * total.gather(1, group_of)
    return torch.zeros_like(kept).scatter_(1, order, kept)


def _first_largest(graph: Graph, field: Tensor, over: Side) -> Tensor:
    """Mask ``(L, E)`` of one edge of each row or column, the first among its largest."""
    if isinstance(graph, Part):
        kernels = backend(field, graph)

        def peak(values: Tensor) -> Tensor:
            return kernels.spread(graph, kernels.group_max(graph, values, over), over)

        order = torch.where(field == peak(field), -graph.places.double(), -torch.inf)
        return (order == peak(order)) & torch.isfinite(order)
    index = (graph.row if over == "rows" else graph.col).long().expand_as(field)
    shape, edges = (len(field), graph.num_nodes), graph.num_edges
    largest = field.new_full(shape, -float("inf")).scatter_reduce_(1, index, field, "amax")
    number = torch.arange(edges, device=field.device)
    candidate = torch.where(field == largest.gather(1, index), number, edges)
    first = candidate.new_full(shape, edges).scatter_reduce_(1, index, candidate, "amin")
    return first.gather(1, index) == number


def _check(graph: Graph, values: Tensor, rules: dict[str, float | None], over: str) -> None:
    if values.dim() < 1 or values.shape[-1] != graph.num_edges:
        raise ShapeError(
            f"values must have shape (..., {graph.num_edges}), one value for each edge of {graph}, "
            f"got {tuple(values.shape)}."
        )
    if values.dtype not in (torch.float32, torch.float64):
        raise DtypeError(f"values must be float32 or float64, got {values.dtype}.")
    if over not in get_args(Over):
        raise ArgumentError(f"over must be one of {', '.join(get_args(Over))}, got {over!r}.")
    given = {name: value for name, value in rules.items() if value is not None}
    if len(given) != 1:
        raise ArgumentError(f"choose exactly one of threshold, keep and mass, got {given or 'none'}.")
    ((name, value),) = given.items()
    if name == "threshold" and not value >= 0:
        raise ArgumentError(f"threshold must be ≥ 0, got {value}.")
    if name != "threshold" and not 0 < value <= 1:
        raise ArgumentError(f"{name} must lie in (0, 1], got {value}.")
