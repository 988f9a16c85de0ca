"""AdaLanczosNet: LanczosNet on a graph with learnt weights."""

from __future__ import annotations

from typing import Annotated, Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from ...graph import Graph
from ...ops import normalise, score, spread
from ...options import Bounds, check_arguments
from ..base import MODELS
from ..modules import Features
from .lanczos import Perceptron, lanczos, starting_vectors, symmetric_product
from .lanczosnet import LanczosNet


@MODELS.register("adalanczosnet")
class AdaLanczosNet(LanczosNet):
    r"""LanczosNet with learnt edge weights (AdaLanczosNet).

    From `"LanczosNet: Multi-Scale Deep Graph Convolutional Networks" <https://arxiv.org/abs/1901.01484>`_.
    The weights of the edges are multiplied by a kernel of the features,

    .. math:: k(\mathbf{x}_i, \mathbf{x}_j) = \exp\bigl(-\lVert f_\theta(\mathbf{x}_i) -
        f_\theta(\mathbf{x}_j) \rVert^2 / \epsilon\bigr),

    with a perceptron :math:`f_\theta` and the mean ε of the squared distances over all edges. Lanczos'
    algorithm is part of the forward pass, :math:`\mathbf{S} \approx \mathbf{Q} \mathbf{T}
    \mathbf{Q}^\top`, and the gradient goes through it. As in the paper, T is not diagonalised, because that
    has no stable gradient where eigenvalues are close: long scales are
    :math:`\mathbf{Q} f_i(\mathbf{T}^{l_i}) \mathbf{Q}^\top \mathbf{X}` with a perceptron for each scale
    from the entries of a matrix to those of the upper half of a symmetric one, shared by all layers.

    Args:
        in_channels: Width of the features.
        out_channels: Number of classes.
        kernel_width: Hidden units and outputs of the perceptron of the kernel.
        how: Further arguments of :class:`LanczosNet`.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        kernel_width: Annotated[int, Bounds(1)] = 64,
        **how: Any,
    ) -> None:
        check_arguments(AdaLanczosNet, locals())
        super().__init__(in_channels, out_channels, **how)
        self.kernel = Perceptron(in_channels, kernel_width, kernel_width)

    def make_filters(self, width: int) -> nn.ModuleList:
        size = self.steps**2
        return nn.ModuleList(Perceptron(size, width, size) for _ in self.long)

    def prepare(self, graph: Graph) -> Any:
        return starting_vectors(graph, self.steps, self.scaled[0].bias.dtype)

    def spectrum(self, x: Features, graph: Graph, prepared: Any) -> tuple[Tensor, Tensor, list[Tensor]]:
        values = self.affinity(x, graph)
        basis, matrix = lanczos(symmetric_product(graph, values), prepared)
        missing = self.steps - matrix.shape[-1]  # on a graph with fewer nodes than steps
        basis, matrix = pad(basis, (0, missing)), pad(matrix, (0, missing, 0, missing))
        found = []
        for own, scale in zip(self.filters, self.long, strict=True):
            power = torch.linalg.matrix_power(matrix, scale)
            entries = own(power.flatten(-2).unsqueeze(-2)).squeeze(-2)
            upper = entries.unflatten(-1, matrix.shape[-2:]).triu()
            found.append(upper + upper.triu(1).mT)
        return values, basis, [torch.stack(found, -3)] * len(self.layers)

    def affinity(self, x: Features, graph: Graph) -> Tensor:
        """S as an edge field ``(..., E)``."""
        raw = self.kernel(x)
        f = raw - raw.detach().mean(-2, keepdim=True)  # changes no distance, and less is lost to rounding
        size = f.square().sum(-1)
        ends = spread(graph, size, "rows") + spread(graph, size, "columns")
        distance = (ends - 2 * score(graph, f, f)).clamp_min(0)
        # distances that are nothing but rounding, of f or of the sums, count as 0
        blur = 100 * torch.finfo(f.dtype).eps
        floor = blur * (size + blur * raw.square().sum(-1)).detach().mean(-1, keepdim=True)
        unit = torch.maximum(distance.mean(-1, keepdim=True), floor.clamp_min(torch.finfo(f.dtype).tiny))
        return normalise(graph, -distance / unit, graph.weight, over="symmetric")

    def work(self, nodes: int, edges: int, entries: int) -> float:
        steps, (wide, _) = min(self.steps, nodes), self.kernel.first.weight.shape
        kernel = entries * wide + nodes * wide * wide + edges * (wide + 64)
        # each step: a product with S, and two projections
        return super().work(nodes, edges, entries) + kernel + steps * (edges + 2 * steps * nodes)

    def memory(self, nodes: int, edges: int, entries: int) -> int:
        steps, wide = min(self.steps, nodes), self.kernel.first.weight.shape[0]
        short = sum(own.short[-1] * own.bias.shape[0] for own in self.scaled)
        kept = nodes * (4 * wide + steps**2 // 2 + 8 * steps + short) + 12 * edges
        return super().memory(nodes, edges, entries) + 4 * kept
