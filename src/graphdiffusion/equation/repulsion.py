"""Repulsion between neighbours, and with it Allen-Cahn message passing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import torch
from torch import Tensor

from ..diffusivity import Diffusivity
from ..ops import group_sum, propagate, spread
from ..options import Bounds
from .coefficient import Coefficient
from .context import Context
from .diffusion import Diffusion
from .equation import EQUATIONS
from .reaction import AllenCahn
from .term import TERMS, Term


@TERMS.register("repulsion")
class Repulsion(Term):
    r"""Repulsion of neighbours, whatever their attention. The term is
    :math:`\beta\sum_j w_{ij}(x_i - x_j)`.

    Beside diffusion the weight of an edge is :math:`\alpha a_{ij} - \beta w_{ij}`: neighbours attract where
    attention is high and repel where it is low. Alone it grows, at most like :math:`e^{2\beta t}` where
    :math:`w_{ij}` is one over the number of edges of row i (``repel`` mean), so that it needs a well that
    holds it, as :class:`ACMP` has one, or a short time. An edge of weight 2 counts as two. The term is
    linear, but no power of A.

    Args:
        wide: Number of coefficients, one for each channel; ``None``: one for all (``coefficients``).
        repulsion: Start of β, which is learnt in (0, 1).
        repel: w. mean: one over the number of edges of the node; sum: 1, as in the paper.
    """

    members = capturable = takes_parts = True
    given = ("wide",)
    per_member = ("repulsion",)

    def __init__(
        self,
        wide: int | None = None,
        *,
        repulsion: Annotated[float, Bounds(1e-6, 0.999)] = 0.1,
        repel: Literal["mean", "sum"] = "mean",
    ) -> None:
        super().__init__()
        self.beta = Coefficient(repulsion, bounded=True, channels=wide)
        self.repel = repel

    def forward(self, context: Context) -> tuple[Tensor, Tensor]:
        graph, x, each = context.graph, context.x, context.counts()
        count = group_sum(graph, each, "rows")
        if self.repel == "mean":
            each = each / spread(graph, torch.where(count > 0, count, 1), "rows")
            count = group_sum(graph, each, "rows")
        return self.beta(context.t), count.unsqueeze(-1) * x - propagate(graph, each, x)


@EQUATIONS.register("acmp")
class ACMP(Diffusion):
    r"""Allen-Cahn message passing, of `"ACMP" <https://arxiv.org/abs/2206.05437>`_.

    .. math:: \dot x_i = \sum_j (\alpha a_{ij} - \beta w_{ij})(x_j - x_i) + \delta\,x_i(1 - x_i^2)
        + \sum_m f_m

    Neighbours attract or repel, and a double well holds every feature, so that groups of opposite signs
    form instead of one mean. Without further terms, with rows that sum to one and ``repel`` mean, features
    beyond :math:`\sqrt{1 + 2\beta/\delta}` in absolute value return: no state becomes infinite. The well is
    stiff for large features: a fixed explicit step must be below :math:`1/(\delta x^2)`.

    Args:
        diffusivity: Gives the matrix A.
        terms: What is added besides.
        wide: Number of coefficients, one for each channel; ``None``: one for all (``coefficients``).
        repulsion: Start of β, which is learnt in (0, 1).
        repel: w. mean: one over the number of edges of the node; sum: 1, as in the paper.
        reaction: Start of δ, which is learnt in (0, 1).
        more: As in :class:`Diffusion`: ``linear``, ``alpha``, ``rates``, ``rule``.
    """

    given = ("linear", "alpha", "wide")
    per_member = ("repulsion", "reaction")

    def __init__(
        self,
        diffusivity: Diffusivity,
        *,
        terms: Sequence[Term] = (),
        wide: int | None = None,
        repulsion: Annotated[float, Bounds(1e-6, 0.999)] = 0.1,
        repel: Literal["mean", "sum"] = "mean",
        reaction: Annotated[float, Bounds(1e-6, 0.999)] = 0.1,
        **more: Any,
    ) -> None:
        own = (
            Repulsion(wide, repulsion=repulsion, repel=repel),
            AllenCahn(wide, reaction=reaction, saturate=False),
        )
        super().__init__(diffusivity, terms=[*own, *terms], **more)
