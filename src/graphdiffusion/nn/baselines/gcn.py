"""The graph convolutional network."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Annotated, Any, ClassVar, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import relu

from ...graph import Graph
from ...ops import group_sum, propagate, spread
from ...ops.noise import derive
from ...options import Bounds, check_arguments
from ..base import MODELS, Model, Output, checked, drawn_key
from ..modules import Dropout, Features, Linear


@MODELS.register("gcn")
class GCN(Model):
    r"""Graph convolutional network (GCN).

    From `"Semi-Supervised Classification with Graph Convolutional Networks"
    <https://arxiv.org/abs/1609.02907>`_,

    .. math:: \mathbf{X}' = \hat{\mathbf{D}}^{-1/2} \hat{\mathbf{A}} \hat{\mathbf{D}}^{-1/2}
        \mathbf{X} \mathbf{W}^\top + \mathbf{b},

    with ReLU and dropout between them. :math:`\hat{\mathbf{A}}` has the self-loops that the graph is given.
    With ``residual`` a convolution between two hidden layers adds to what it is given:
    :math:`\operatorname{ReLU}(\mathbf{X}') + \mathbf{X}` (appendix B there, and section 5.2 of GRAND).

    Args:
        in_channels: Width of the features.
        out_channels: Number of classes.
        hidden: Width of the hidden layers.
        layers: Number of convolutions.
        dropout: Dropout before every convolution.
        residual: Residual connections between the hidden layers.
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
        residual: bool = False,
    ) -> None:
        super().__init__()
        check_arguments(GCN, locals())
        self.residual = residual
        widths = [in_channels, *[hidden] * (layers - 1), out_channels]
        self.layers = nn.ModuleList(Convolution(a, b) for a, b in pairwise(widths))
        self.dropout = Dropout(dropout)

    def prepare(self, graph: Graph) -> Tensor:
        return symmetric_weights(graph, cast(Convolution, self.layers[0]).bias)

    def decay(self, name: str) -> float:
        """As in the paper, the first convolution alone decays."""
        return 1.0 if name.startswith("layers.0.") else 0.0

    def run(
        self, x: Features, graph: Graph, *, prepared: Any = None, key: Tensor | None = None, **more: Any
    ) -> Output:
        first = cast(Convolution, self.layers[0]).linear.weight
        state: Any = checked(x, first)
        key = drawn_key(state, self.training, first) if key is None else key
        weights = self.prepare(graph) if prepared is None else prepared
        last = len(self.layers) - 1
        for place, layer in enumerate(self.layers):
            given = state
            if self.training:
                state = self.dropout(state, derive(key, place))
            state = layer(state, graph, weights)
            if place < last:
                state = relu(state)
            if self.residual and 0 < place < last:
                state = state + given
        return Output(state)

    def warnings(self) -> list[str]:
        if self.residual and len(self.layers) < 3:
            return ["residual has no effect with fewer than 3 layers: there is one hidden layer at most."]
        return []

    @classmethod
    def row(cls, options: Mapping[str, Any]) -> str:
        return "gcn-residual" if options.get("residual") else "gcn"

    @classmethod
    def title(cls, options: Mapping[str, Any]) -> str:
        return "GCN-residual" if options.get("residual") else "GCN"


class Convolution(nn.Module):
    """One convolution: a linear map, then a product with the normalised matrix, then a bias."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.linear = Linear(in_channels, out_channels, bias=False)
        self.bias = nn.Parameter(torch.empty(out_channels))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.xavier_uniform_(self.linear.weight)
        nn.init.zeros_(self.bias)

    def forward(self, x: Features, graph: Graph, weights: Tensor) -> Tensor:
        return propagate(graph, weights, self.linear(x)) + self.bias.unsqueeze(-2)


def symmetric_weights(graph: Graph, like: Tensor) -> Tensor:
    """Edge weights :math:`d_i^{-1/2} w_{ij} d_j^{-1/2}`, d the sums of rows; ``like`` gives the dtype.

    On undirected graphs that is the symmetric normaliser. On directed ones PyG takes the sums of rows on
    both sides, and so does this.
    """
    given = graph.weight
    if given is None:
        weight = torch.ones(graph.num_edges, dtype=like.dtype, device=graph.row.device)
    else:
        weight = given.to(like.dtype)
    degree = group_sum(graph, weight, "rows")
    root = torch.where(degree > 0, degree, 1.0).rsqrt() * (degree > 0)
    return spread(graph, root, "rows") * weight * spread(graph, root, "columns")
