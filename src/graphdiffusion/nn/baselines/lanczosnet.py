"""LanczosNet."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Annotated, Any, ClassVar, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import relu

from ...graph import Graph
from ...ops import normalise
from ...ops.noise import derive
from ...options import Bounds, check_arguments
from ..base import MODELS, Model, Output, checked, drawn_key
from ..modules import Dropout, Features
from .lanczos import MultiScale, Perceptron, lanczos, scales, starting_vectors, symmetric_product


@MODELS.register("lanczosnet")
class LanczosNet(Model):
    r"""Convolutions of many scales with learnt spectral filters (LanczosNet).

    From `"LanczosNet: Multi-Scale Deep Graph Convolutional Networks" <https://arxiv.org/abs/1901.01484>`_,

    .. math:: \mathbf{X}' = \bigl[\mathbf{S}^{s_1} \mathbf{X}, \ldots, \mathbf{S}^{s_M} \mathbf{X},
        \mathbf{V} f_1(\mathbf{R}) \mathbf{V}^\top \mathbf{X}, \ldots,
        \mathbf{V} f_N(\mathbf{R}) \mathbf{V}^\top \mathbf{X}\bigr] \mathbf{W} + \mathbf{b}, \quad
        \mathbf{S} = \hat{\mathbf{D}}^{-1/2} \hat{\mathbf{A}} \hat{\mathbf{D}}^{-1/2},

    with ReLU and dropout between the layers. :math:`\hat{\mathbf{A}}` has the self-loops that the graph is
    given. R and V are Ritz values and vectors of S, computed once for a graph, and a perceptron with one
    hidden layer gives :math:`f_1, \ldots, f_N` at a Ritz value r from its powers
    :math:`r^{l_1}, \ldots, r^{l_N}`.

    S is symmetric on undirected graphs. On a directed one, Ritz pairs are those of its symmetric part.

    Args:
        in_channels: Width of the features.
        out_channels: Number of classes.
        hidden: Width of the hidden layers.
        layers: Number of layers.
        short_scales: The powers s of S, whole numbers with commas between them.
        long_scales: The powers l of the filters, likewise.
        lanczos_steps: Steps of Lanczos' algorithm, the number of Ritz pairs; at most one for each node.
        filter_width: Hidden units of the filters.
        dropout: Dropout before every layer.
    """

    members = capturable = takes_sparse = True
    per_member: ClassVar[tuple[str, ...]] = ("dropout",)

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        hidden: Annotated[int, Bounds(1)] = 64,
        layers: Annotated[int, Bounds(1, 1000)] = 2,
        short_scales: str = "1,3,5,7",
        long_scales: str = "10,20,30",
        lanczos_steps: Annotated[int, Bounds(1, 1000)] = 20,
        filter_width: Annotated[int, Bounds(1)] = 128,
        dropout: Annotated[float, Bounds(0, 0.999)] = 0.5,
    ) -> None:
        super().__init__()
        check_arguments(LanczosNet, locals())
        short, self.long = scales(short_scales, "short_scales"), scales(long_scales, "long_scales")
        self.steps, count = lanczos_steps, len(self.long)
        widths = [in_channels, *[hidden] * (layers - 1), out_channels]
        self.layers = nn.ModuleList(MultiScale(a, b, short, count) for a, b in pairwise(widths))
        self.filters = self.make_filters(filter_width)
        self.dropout = Dropout(dropout)

    @property
    def scaled(self) -> list[MultiScale]:
        return [cast(MultiScale, layer) for layer in self.layers]

    def make_filters(self, width: int) -> nn.ModuleList:
        count = len(self.long)
        return nn.ModuleList(Perceptron(count, width, count) for _ in self.layers)

    def prepare(self, graph: Graph) -> Any:
        zeros = torch.zeros(graph.num_edges, dtype=torch.float64, device=graph.device)
        values = normalise(graph, zeros, graph.weight, over="symmetric")
        basis, matrix = lanczos(
            symmetric_product(graph, values), starting_vectors(graph, self.steps, torch.float64)
        )
        ritz, rotation = torch.linalg.eigh(matrix)
        powers = torch.stack([ritz**scale for scale in self.long], -1)
        return tuple(v.to(self.scaled[0].bias.dtype) for v in (values, basis @ rotation, powers))

    def spectrum(self, x: Features, graph: Graph, prepared: Any) -> tuple[Tensor, Tensor, list[Tensor]]:
        """S ``(..., E)``, a basis ``(..., n, K)``, and the filters ``(..., N, K, K)`` of each layer."""
        values, vectors, powers = prepared
        return values, vectors, [torch.diag_embed(own(powers).mT) for own in self.filters]

    def run(
        self, x: Features, graph: Graph, *, prepared: Any = None, key: Tensor | None = None, **more: Any
    ) -> Output:
        first = self.scaled[0].linear.weight
        state: Any = checked(x, first)
        key = drawn_key(state, self.training, first) if key is None else key
        prepared = self.prepare(graph) if prepared is None else prepared
        values, basis, filters = self.spectrum(state, graph, prepared)
        for place, (layer, own) in enumerate(zip(self.scaled, filters, strict=True)):
            if place:
                state = relu(state)
            if self.training:
                state = self.dropout(state, derive(key, place))
            state = layer(state, graph, values, basis, own)
        return Output(state)

    def work(self, nodes: int, edges: int, entries: int) -> float:
        total, steps = 0.0, min(self.steps, nodes)
        for place, layer in enumerate(self.scaled):
            (mapped, inputs), wide = layer.linear.weight.shape, layer.bias.shape[0]
            total += mapped * (nodes * inputs if place else entries)
            total += edges * wide * layer.short[-1] + nodes * steps * wide * (layer.count + 1)
        return total

    def memory(self, nodes: int, edges: int, entries: int) -> int:
        weights = sum(p.numel() for p in self.parameters())
        wide = sum(3 * own.linear.weight.shape[0] + 4 * own.bias.shape[0] for own in self.scaled)
        return 4 * (6 * weights + 3 * entries + 4 * edges + nodes * wide)

    @classmethod
    def title(cls, options: Mapping[str, Any]) -> str:
        return cls.__name__
