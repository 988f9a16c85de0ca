"""A diffusivity that is no inner product: edges across which features jump conduct less.

    grand train cora-embedded --plugin examples/extending/diffusivity.py --diffusivity example

It is the function of Perona and Malik (1990), which keeps the edges of an image: the score of an edge falls
with the distance of the features at its two ends, in every head with its own metric.
"""

import torch
from torch import Tensor, nn

from graphdiffusion.diffusivity import DIFFUSIVITIES, Pairwise


@DIFFUSIVITIES.register("example")
class PeronaMalik(Pairwise):
    r"""Perona and Malik's diffusivity. The score in head h, with learnt weights w, is
    :math:`-\log(1 + \sum_c w_{hc} (x_{ic} - x_{jc})^2)`.

    Args:
        channels: Width of the node features.
        heads: Number of metrics; their matrices are averaged.
    """

    members = True  # every operation below broadcasts over leading member dimensions

    def __init__(self, channels: int, heads: int = 4, **how) -> None:
        super().__init__(**how)
        self.metric = nn.Parameter(torch.zeros(heads, channels))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.metric, std=0.1)

    def scores(self, x_i: Tensor, x_j: Tensor, edge_attr: Tensor | None) -> Tensor:
        weight = self.metric.exp() / self.metric.shape[-1]
        distance = (x_i - x_j).square() @ weight.mT  # (..., E, heads)
        return -torch.log1p(distance)
