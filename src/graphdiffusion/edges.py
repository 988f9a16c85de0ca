"""What an edge index and edge weights must be, with a sentence where they are not."""

from __future__ import annotations

import torch
from torch import Tensor

from .errors import DtypeError, GraphError, ShapeError


def require_tensor(edge_index: object) -> None:
    if not isinstance(edge_index, Tensor):
        raise DtypeError(f"edge_index must be a torch.Tensor, got {type(edge_index).__name__}.")


def checked_edges(edge_index: Tensor, num_nodes: int | None) -> tuple[Tensor, int]:
    require_tensor(edge_index)
    if edge_index.dim() != 2 or edge_index.shape[0] != 2:
        raise ShapeError(f"edge_index must have shape (2, E), got {tuple(edge_index.shape)}.")
    if edge_index.is_floating_point() or edge_index.is_complex() or edge_index.dtype == torch.bool:
        raise DtypeError(f"edge_index must hold integers, got {edge_index.dtype}.")
    largest = int(edge_index.max()) if edge_index.numel() else -1
    n = largest + 1 if num_nodes is None else int(num_nodes)
    if n <= 0:
        raise GraphError(f"a graph needs at least one node, got num_nodes={n}.")
    if edge_index.numel() and int(edge_index.min()) < 0:
        raise GraphError(f"edge_index holds {int(edge_index.min())}: nodes are numbered from 0 to {n - 1}.")
    if largest >= n:
        raise GraphError(
            f"edge_index holds node {largest}, but num_nodes={n}: nodes are numbered from 0 to {n - 1}."
        )
    return edge_index.long(), n


def check_weight(weight: Tensor | None, edge_index: Tensor, positive: bool = False) -> None:
    if weight is None:
        return
    if weight.shape != edge_index.shape[1:]:
        raise ShapeError(
            f"edge_weight must have shape ({edge_index.shape[1]},), one for each edge, "
            f"got {tuple(weight.shape)}."
        )
    if not weight.is_floating_point():
        raise DtypeError(f"edge_weight must be floating point, got {weight.dtype}.")
    bad = ~(torch.isfinite(weight) & ((weight > 0) if positive else (weight >= 0)))
    if bool(bad.any()):
        first = int(bad.nonzero()[0, 0])
        demand = "positive" if positive else "not negative"
        raise GraphError(
            f"edge_weight[{first}] is {float(weight[first])}: weights must be finite and {demand}."
        )
