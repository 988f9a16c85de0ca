"""The graph attention network."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import elu, leaky_relu

from ...graph import Graph
from ...ops import normalise, propagate, spread
from ...ops.noise import derive
from ...options import Bounds, check_arguments
from ..base import MODELS, Model, Output, checked, drawn_key
from ..modules import Dropout, Features, Linear


@MODELS.register("gat")
class GAT(Model):
    r"""Graph attention network (GAT).

    From `"Graph Attention Networks" <https://arxiv.org/abs/1710.10903>`_. Each head is

    .. math:: \mathbf{x}'_i = \sum_j \alpha_{ij} \mathbf{W} \mathbf{x}_j, \quad
        \alpha_{ij} = \operatorname{softmax}_j \operatorname{LeakyReLU}(\mathbf{a}^\top
        [\mathbf{W} \mathbf{x}_i \Vert \mathbf{W} \mathbf{x}_j]),

    over the neighbourhood with the self-loops that the graph is given; edge weights multiply before the
    softmax. Heads are concatenated in hidden layers, with ELU after them, and averaged in the last.

    Args:
        in_channels: Width of the features.
        out_channels: Number of classes.
        hidden: Width of each head of the hidden layers.
        heads: Attention heads of the hidden layers.
        output_heads: Attention heads of the last layer.
        layers: Number of layers.
        dropout: Dropout before every layer, and of the attention.
    """

    members = capturable = takes_sparse = takes_parts = True
    per_member: ClassVar[tuple[str, ...]] = ("dropout",)

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        hidden: Annotated[int, Bounds(1)] = 8,
        heads: Annotated[int, Bounds(1)] = 8,
        output_heads: Annotated[int, Bounds(1)] = 1,
        layers: Annotated[int, Bounds(1, 1000)] = 2,
        dropout: Annotated[float, Bounds(0, 0.999)] = 0.6,
    ) -> None:
        super().__init__()
        check_arguments(GAT, locals())
        widths = [in_channels, *[heads * hidden] * (layers - 1)]
        self.layers = nn.ModuleList(Attention(width, hidden, heads, dropout) for width in widths[:-1])
        self.layers.append(Attention(widths[-1], out_channels, output_heads, dropout, mean=True))

    def run(self, x: Features, graph: Graph, *, key: Tensor | None = None, **more: Any) -> Output:
        first = cast(Attention, self.layers[0]).linear.weight
        state: Any = checked(x, first)
        key = drawn_key(state, self.training, first) if key is None else key
        for place, layer in enumerate(self.layers):
            state = layer(elu(state) if place else state, graph, derive(key, place))
        return Output(state)

    def work(self, nodes: int, edges: int, entries: int) -> float:
        total = 0.0
        for place, layer in enumerate(cast(Attention, own) for own in self.layers):
            heads, width, _ = layer.vector.shape
            inputs = nodes * layer.linear.weight.shape[1] if place else entries
            # softmax and dropout cost as much as some tens of multiplications an edge and head
            total += inputs * heads * width + edges * heads * (3 * width + 64)
        return total

    def memory(self, nodes: int, edges: int, entries: int) -> int:
        heads = sum(cast(Attention, layer).vector.shape[-3] for layer in self.layers)
        return super().memory(nodes, edges, entries) + 24 * edges * heads

    @classmethod
    def row(cls, options: Mapping[str, Any]) -> str:
        return "gat-rewired" if _rewired(options) else "gat"

    @classmethod
    def title(cls, options: Mapping[str, Any]) -> str:
        return f"GAT-{options['rewire']}" if _rewired(options) else "GAT"


class Attention(nn.Module):
    """One layer: dropout, a linear map, attention of every head, then a bias."""

    def __init__(
        self, in_channels: int, width: int, heads: int, dropout: float, *, mean: bool = False
    ) -> None:
        super().__init__()
        self.mean = mean  # of the heads, or all of them side by side
        self.dropout = Dropout(dropout)
        self.linear = Linear(in_channels, heads * width, bias=False)
        self.vector = nn.Parameter(torch.empty(heads, width, 2))  # the halves of a, for i and for j
        self.bias = nn.Parameter(torch.empty(width if mean else heads * width))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.xavier_uniform_(self.linear.weight)
        bound = math.sqrt(6 / (2 * self.vector.shape[-2] + 1))  # Glorot's, for a map to one number
        nn.init.uniform_(self.vector, -bound, bound)
        nn.init.zeros_(self.bias)

    def forward(self, x: Features, graph: Graph, key: Tensor) -> Tensor:
        if self.training:
            x = self.dropout(x, derive(key, 0))
        state = self._heads(x)
        values = self._weights(state, graph)
        if self.training:
            values = self.dropout(values, derive(key, 1), edges=True)
        state = propagate(graph, values, state)
        state = state.mean(-3) if self.mean else state.transpose(-2, -3).flatten(-2)
        return state + self.bias.unsqueeze(-2)

    def weights(self, x: Features, graph: Graph) -> Tensor:
        """The attention of every head without dropout, ``(..., heads, E)``, of what the layer is given."""
        return self._weights(self._heads(x), graph)

    def _heads(self, x: Features) -> Tensor:
        return self.linear(x).unflatten(-1, (self.vector.shape[-3], -1)).transpose(-2, -3)

    def _weights(self, state: Tensor, graph: Graph) -> Tensor:
        # a score is a sum of two numbers, one of each end of the edge
        receives, sends = (state @ self.vector).unbind(-1)
        scores = spread(graph, receives, "rows") + spread(graph, sends, "columns")
        return normalise(graph, leaky_relu(scores, 0.2), graph.weight)


def _rewired(options: Mapping[str, Any]) -> bool:
    """Whether the graph is rewired before training: the tables of the paper have a row for that."""
    return options.get("rewire", "none") != "none"
