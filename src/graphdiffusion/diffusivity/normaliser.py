"""From scores to a matrix: the mean over heads of normalised scores."""

from __future__ import annotations

import torch
from torch import Tensor

from ..graph import Graph
from ..ops import Over, group_sum, sides, spread
from ..ops import normalise as stochastic


def normalise(graph: Graph, scores: Tensor, weight: Tensor | None, kind: str, over: Over) -> Tensor:
    """Mean matrix of the heads: scores ``(..., heads, E)``, weight ``(..., E)`` or None → ``(..., E)``.

    ``"signed"`` divides by the sum of absolute values of each row or column (0 where all are 0), or by the
    roots of both; ``"none"`` leaves the scores as they are. For the others see
    :func:`graphdiffusion.ops.normalise`.
    """
    weight = None if weight is None else weight.unsqueeze(-2)
    if kind in ("softmax", "squareplus"):
        return stochastic(graph, scores, weight, kind=kind, over=over).mean(-2)  # type: ignore[arg-type]
    if weight is not None:
        scores = scores * weight
    if kind == "signed":
        size = scores.abs()
        for side in sides(over):
            total = spread(graph, group_sum(graph, size, side), side)
            safe = torch.where(total == 0, 1.0, total)
            scores = torch.where(total == 0, 0.0, scores / (safe.sqrt() if over == "symmetric" else safe))
    return scores.mean(-2)
