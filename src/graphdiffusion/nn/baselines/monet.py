"""The mixture model network."""

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
from .sage import mean_weights


@MODELS.register("monet")
class MoNet(Model):
    r"""Mixture model network (MoNet): a matrix for each Gaussian kernel of the degrees of two neighbours.

    From `"Geometric deep learning on graphs and manifolds using mixture model CNNs"
    <https://arxiv.org/abs/1611.08402>`_,

    .. math:: \mathbf{x}'_i = \mathbf{W}_0 \mathbf{x}_i + \operatorname{mean}_j \sum_k
        \exp\left(-\tfrac12 \left\Vert (\mathbf{u}_{ij} - \mu_k) / \sigma_k \right\Vert^2\right)
        \mathbf{W}_k \mathbf{x}_j + \mathbf{b}, \quad
        \mathbf{u}_{ij} = \tanh(\mathbf{A} (d_i^{-1/2}, d_j^{-1/2})^\top + \mathbf{a}),

    with ReLU and dropout between layers. That is PyG's ``GMMConv`` with the paper's coordinates
    :math:`\mathbf{u}`; d counts incoming edges, and is at least 1. The node itself has its own map, so that
    self-loops are left out. Edge weights are not used.

    Args:
        in_channels: Width of the features.
        out_channels: Number of classes.
        hidden: Width of the hidden layers.
        kernels: Gaussian kernels of each layer.
        layers: Number of layers.
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
        kernels: Annotated[int, Bounds(1)] = 3,
        layers: Annotated[int, Bounds(1, 1000)] = 2,
        dropout: Annotated[float, Bounds(0, 0.999)] = 0.5,
    ) -> None:
        super().__init__()
        check_arguments(MoNet, locals())
        widths = [in_channels, *[hidden] * (layers - 1), out_channels]
        self.layers = nn.ModuleList(Mixture(a, b, kernels) for a, b in pairwise(widths))
        self.dropout = Dropout(dropout)

    def prepare(self, graph: Graph) -> tuple[Tensor, Tensor]:
        """The degrees at both ends of an edge, to the power -1/2, and the weights of the mean."""
        mean = mean_weights(graph, cast(Mixture, self.layers[0]).own.weight)
        degree = group_sum(graph, (mean > 0).to(mean.dtype), "rows")
        root = degree.clamp_min(1).rsqrt()
        return torch.stack([spread(graph, root, "rows"), spread(graph, root, "columns")], -1), mean

    def decay(self, name: str) -> float:
        """Kernels do not decay: a kernel of width 0 would leave no edge."""
        return 0.0 if any(part in name for part in ("coordinates", "centre", "width")) else 1.0

    def run(
        self, x: Features, graph: Graph, *, prepared: Any = None, key: Tensor | None = None, **more: Any
    ) -> Output:
        first = cast(Mixture, self.layers[0]).own.weight
        state: Any = checked(x, first)
        key = drawn_key(state, self.training, first) if key is None else key
        degrees, mean = self.prepare(graph) if prepared is None else prepared
        for place, layer in enumerate(self.layers):
            if place:
                state = relu(state)
            if self.training:
                state = self.dropout(state, derive(key, place))
            state = layer(state, graph, degrees, mean)
        return Output(state)

    def work(self, nodes: int, edges: int, entries: int) -> float:
        total = 0.0
        for place, layer in enumerate(cast(Mixture, own) for own in self.layers):
            (width, inputs), kernels = layer.own.weight.shape, len(layer.centre)
            numbers = nodes * inputs if place else entries
            # a kernel costs as much as some tens of multiplications an edge
            total += (kernels + 1) * numbers * width + kernels * edges * (width + 32)
        return total

    def memory(self, nodes: int, edges: int, entries: int) -> int:
        kernels = sum(len(cast(Mixture, layer).centre) for layer in self.layers)
        return super().memory(nodes, edges, entries) + 48 * edges * kernels

    @classmethod
    def title(cls, options: Mapping[str, Any]) -> str:
        return "MoNet"


class Mixture(nn.Module):
    """One layer: a product with the mean for each kernel, and the map of the node itself."""

    def __init__(self, in_channels: int, out_channels: int, kernels: int) -> None:
        super().__init__()
        self.own = Linear(in_channels, out_channels, bias=False)
        self.others = Linear(in_channels, kernels * out_channels, bias=False)
        self.coordinates = Linear(2, 2)
        self.centre = nn.Parameter(torch.empty(kernels, 2))
        self.width = nn.Parameter(torch.empty(kernels, 2))
        self.bias = nn.Parameter(torch.empty(out_channels))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.xavier_uniform_(self.own.weight)
        nn.init.xavier_uniform_(self.others.weight)
        self.coordinates.reset_parameters()
        nn.init.uniform_(self.centre, -1, 1)  # the range of tanh
        nn.init.ones_(self.width)
        nn.init.zeros_(self.bias)

    def forward(self, x: Features, graph: Graph, degrees: Tensor, mean: Tensor) -> Tensor:
        apart = self.coordinates(degrees).tanh().unsqueeze(-3) - self.centre.unsqueeze(-2)
        spans = (self.width.square() + 1e-15).unsqueeze(-2)  # PyG's least width
        values = mean * (apart.square() / spans).sum(-1).mul(-0.5).exp()
        state = self.others(x).unflatten(-1, (self.centre.shape[-2], -1)).transpose(-2, -3)
        return self.own(x) + propagate(graph, values, state).sum(-3) + self.bias.unsqueeze(-2)
