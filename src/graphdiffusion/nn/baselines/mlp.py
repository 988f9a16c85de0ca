"""A perceptron: what the features alone can tell."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Annotated, Any, ClassVar, cast

from torch import Tensor, nn
from torch.nn.functional import relu

from ...graph import Graph
from ...ops.noise import derive
from ...options import Bounds, check_arguments
from ..base import MODELS, Model, Output, checked, drawn_key
from ..modules import Dropout, Features, Linear


@MODELS.register("mlp")
class MLP(Model):
    """Multilayer perceptron: linear layers with ReLU and dropout between them. The graph is not used.

    Args:
        in_channels: Width of the features.
        out_channels: Number of classes.
        hidden: Width of the hidden layers.
        layers: Number of linear layers.
        dropout: Dropout before every layer.
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
    ) -> None:
        super().__init__()
        check_arguments(MLP, locals())
        widths = [in_channels, *[hidden] * (layers - 1), out_channels]
        self.layers = nn.ModuleList(Linear(a, b) for a, b in pairwise(widths))
        self.dropout = Dropout(dropout)

    @classmethod
    def row(cls, options: Mapping[str, Any]) -> str:
        return "logistic" if options.get("layers") == 1 else "mlp"

    def work(self, nodes: int, edges: int, entries: int) -> float:
        return super().work(nodes, 0, entries)  # the graph is not used

    def run(self, x: Features, graph: Graph, *, key: Tensor | None = None, **more: Any) -> Output:
        first = cast(Linear, self.layers[0]).weight
        state: Any = checked(x, first)
        key = drawn_key(state, self.training, first) if key is None else key
        for place, layer in enumerate(self.layers):
            if place:
                state = relu(state)
            if self.training:
                state = self.dropout(state, derive(key, place))
            state = layer(state)
        return Output(state)
