"""No attention: the constant matrix of the graph."""

from __future__ import annotations

from torch import Tensor

from ..graph import Graph
from ..ops import Over, normalise
from .base import DIFFUSIVITIES, Diffusivity


@DIFFUSIVITIES.register("laplacian")
class ConstantLaplacian(Diffusivity):
    """No attention: the weight of each edge over the sum of its row or column.

    Symmetric it is GCN's matrix :math:`D^{-1/2} A D^{-1/2}`.

    Args:
        over: What sums to one: rows or columns; symmetric: divide by the roots of both sums, as GCN does.
        reweight: Count the weights of the edges; otherwise every edge counts as 1.
    """

    members = capturable = takes_parts = True

    def __init__(self, *, over: Over = "columns", reweight: bool = True) -> None:
        super().__init__(normaliser="softmax", over=over, reweight=reweight)

    def forward(
        self, graph: Graph, x: Tensor, mask: Tensor | None = None, t: Tensor | None = None
    ) -> Tensor:
        zeros = x.new_zeros(graph.num_edges)
        return normalise(graph, zeros, self.weight(graph, mask), over=self.over)
