"""Convection: features are carried along the edges, with a velocity for each edge."""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from torch import Tensor, nn

from ..ops import group_sum, spread
from ..options import Bounds
from .coefficient import Coefficient
from .context import Context
from .term import TERMS, Term


@TERMS.register("convection")
class Convection(Term):
    r"""Convection with a velocity for each edge and channel, of `"CDE" <https://arxiv.org/abs/2305.16780>`_.

    .. math:: \beta \sum_j V_{ij} \odot x_j, \quad V_{ij} = \tanh\bigl(W(x_j - x_i)\bigr)

    Velocities lie in (−1, 1) and follow what differs at the two ends, so that neighbours of other classes
    may push a node away. At the start W is 0, and nothing is carried. With ``flux`` mean the sum is divided
    by the number of edges of row i: the largest absolute feature then grows at most like
    :math:`e^{\beta t}` beside a row-stochastic diffusion. With sum, as in the paper, it grows at most like
    :math:`e^{\beta t d}`, with the largest number d of edges of a node, and explicit steps must be as much
    smaller. An edge of weight 2 counts as two. The term is not affine in x. Velocities lie in memory for
    every edge and channel.

    Args:
        channels: Width of the node features.
        wide: Number of coefficients, one for each channel; ``None``: one for all (``coefficients``).
        convection: Start of β, which is learnt in (0, 1).
        flux: What is taken over the edges of a node.
    """

    members = capturable = takes_parts = True
    given = ("wide",)
    per_member = ("convection",)

    def __init__(
        self,
        channels: int,
        wide: int | None = None,
        *,
        convection: Annotated[float, Bounds(1e-6, 0.999)] = 0.5,
        flux: Literal["mean", "sum"] = "mean",
    ) -> None:
        super().__init__()
        self.beta = Coefficient(convection, bounded=True, channels=wide)
        self.weight = nn.Parameter(torch.zeros(channels, channels))
        self.flux = flux

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.weight)

    def forward(self, context: Context) -> tuple[Tensor, Tensor]:
        graph, each = context.graph, context.counts()
        x = context.x.mT.contiguous()  # of every channel a row: of its values on edges, an edge field
        mapped = self.weight @ x
        velocity = torch.tanh(spread(graph, mapped, "columns") - spread(graph, mapped, "rows"))
        carried = velocity * spread(graph, x, "columns")
        if graph.weight is not None or context.mask is not None:
            carried = carried * each.unsqueeze(-2)
        total = group_sum(graph, carried, "rows")
        if self.flux == "mean":
            count = group_sum(graph, each, "rows").unsqueeze(-2)
            total = total / torch.where(count > 0, count, 1)
        return self.beta(context.t), total.mT

    def memory(self, nodes: int, edges: int, channels: int) -> int:
        return super().memory(nodes, edges, channels) + 16 * edges * channels
