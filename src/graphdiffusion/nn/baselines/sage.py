"""GraphSAGE."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal, cast

from torch import Tensor, nn
from torch.nn.functional import relu

from ...graph import Graph
from ...ops import group_sum, pool, propagate, spread
from ...ops.noise import derive
from ...options import Bounds, check_arguments
from ..base import MODELS, Model, Output, checked, drawn_key
from ..modules import Dropout, Features, Linear


@MODELS.register("sage")
class SAGE(Model):
    r"""GraphSAGE: one map for a node, another for the mean or the maximum of its neighbours.

    From `"Inductive Representation Learning on Large Graphs" <https://arxiv.org/abs/1706.02216>`_,

    .. math:: \mathbf{x}'_i = \mathbf{W}_1 \mathbf{x}_i + \mathbf{W}_2 \mathbf{h}_i + \mathbf{b}, \quad
        \mathbf{h}_i = \operatorname{mean}_j \mathbf{x}_j \quad \text{or} \quad
        \mathbf{h}_i = \max_j \operatorname{ReLU}(\mathbf{W}_3 \mathbf{x}_j + \mathbf{c}),

    with ReLU and dropout between layers, over all neighbours, as PyG's ``SAGEConv`` has it. The node itself
    has its own map, so that self-loops are left out; without neighbours :math:`\mathbf{h}_i` is 0. Edge
    weights are not used.

    Args:
        in_channels: Width of the features.
        out_channels: Number of classes.
        hidden: Width of the hidden layers, and of what the maximum is taken of.
        layers: Number of layers.
        dropout: Dropout before every layer.
        aggregator: Mean or maximum of the neighbours.
    """

    members = capturable = takes_sparse = takes_parts = True
    per_member: ClassVar[tuple[str, ...]] = ("dropout",)

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        hidden: Annotated[int, Bounds(1)] = 64,
        layers: Annotated[int, Bounds(1, 1000)] = 2,
        dropout: Annotated[float, Bounds(0, 0.999)] = 0.5,
        aggregator: Literal["mean", "max"] = "mean",
    ) -> None:
        super().__init__()
        check_arguments(SAGE, locals())
        widths = [in_channels, *[hidden] * (layers - 1), out_channels]
        pooled = hidden if aggregator == "max" else 0
        self.layers = nn.ModuleList(Aggregation(a, b, pooled) for a, b in pairwise(widths))
        self.dropout = Dropout(dropout)
        self.aggregator = aggregator

    def prepare(self, graph: Graph) -> Any:
        if self.aggregator == "max":
            return graph.neighbours
        return mean_weights(graph, cast(Aggregation, self.layers[0]).own.weight)

    def run(
        self, x: Features, graph: Graph, *, prepared: Any = None, key: Tensor | None = None, **more: Any
    ) -> Output:
        first = cast(Aggregation, self.layers[0]).own.weight
        state: Any = checked(x, first)
        key = drawn_key(state, self.training, first) if key is None else key
        prepared = self.prepare(graph) if prepared is None else prepared
        for place, layer in enumerate(self.layers):
            if place:
                state = relu(state)
            if self.training:
                state = self.dropout(state, derive(key, place))
            state = layer(state, graph, prepared)
        return Output(state)

    def work(self, nodes: int, edges: int, entries: int) -> float:
        total = 0.0
        for place, layer in enumerate(cast(Aggregation, own) for own in self.layers):
            width, inputs = layer.own.weight.shape
            numbers = nodes * inputs if place else entries
            if layer.pool is None:
                total += 2 * numbers * width + edges * width
            else:
                pooled = layer.pool.weight.shape[0]
                # the gradient of a maximum looks on all edges for entries that are equal to it
                total += numbers * (width + pooled) + nodes * pooled * width + 4 * edges * pooled
        return total

    @classmethod
    def row(cls, options: Mapping[str, Any]) -> str:
        return f"sage-{options.get('aggregator', 'mean')}"

    @classmethod
    def title(cls, options: Mapping[str, Any]) -> str:
        return f"GraphSAGE-{options.get('aggregator', 'mean')}"


class Aggregation(nn.Module):
    """One layer; ``pooled`` is the width of what the maximum is taken of, 0 for a mean."""

    def __init__(self, in_channels: int, out_channels: int, pooled: int) -> None:
        super().__init__()
        self.own = Linear(in_channels, out_channels)
        self.others = Linear(pooled or in_channels, out_channels, bias=False)
        self.pool = Linear(in_channels, pooled) if pooled else None

    def forward(self, x: Features, graph: Graph, prepared: Any) -> Tensor:
        if self.pool is None:  # the mean of a linear map is the map of the mean, and narrower
            return self.own(x) + propagate(graph, prepared, self.others(x))
        return self.own(x) + self.others(pool(prepared, relu(self.pool(x))))


def mean_weights(graph: Graph, like: Tensor) -> Tensor:
    """Edge weights of the mean over neighbours, 0 on self-loops; ``like`` gives the dtype."""
    others = (graph.row != graph.col).to(like.dtype)
    return others / spread(graph, group_sum(graph, others, "rows").clamp_min(1), "rows")
