"""The subgraph of some nodes: their edges to each other."""

from __future__ import annotations

import torch
from torch import Tensor

from ..graph import Graph
from ..pattern import Pattern


def induced(graph: Graph, nodes: Tensor) -> Graph:
    """The graph of some nodes and the edges between them, numbered from 0.

    Edges to other nodes are left out. A node that is left without an incoming or an outgoing edge is given
    a self-loop of weight 1, as in :meth:`Graph.from_edge_index`.

    Args:
        graph: The whole graph.
        nodes: Numbers of the nodes, ``(m,)`` int64, rising.
    """
    row, place = row_entries(graph, nodes)
    local = torch.full((graph.num_nodes,), -1, device=nodes.device)
    local[nodes] = torch.arange(len(nodes), device=nodes.device)
    col = local[graph.col[place].long()]
    inside = col >= 0
    place = place[inside]
    weight, attributes = (
        None if field is None else field[place] for field in (graph.weight, graph.edge_attr)
    )
    edges = torch.stack([col[inside], row[inside]])
    return Graph.from_edge_index(edges, len(nodes), weight, None, attributes)


def row_entries(pattern: Pattern, rows: Tensor) -> tuple[Tensor, Tensor]:
    """The entries of some rows: their row, counted from 0 among ``rows``, and their places, int64."""
    counts = pattern.rowptr.diff().long()[rows]
    row = torch.repeat_interleave(torch.arange(len(rows), device=rows.device), counts)
    # the first entry of each row, less what stands before it here
    starts = pattern.rowptr[:-1].long()[rows] - (counts.cumsum(0) - counts)
    return row, torch.arange(len(row), device=rows.device) + starts[row]
