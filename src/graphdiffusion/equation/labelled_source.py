"""A source at the nodes that have a label, for few labels."""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import ArgumentError
from ..partition.whole import sum_nodes
from .coefficient import Coefficient
from .context import Context
from .term import TERMS, Affine, Forcing, Term


@TERMS.register("labelled-source")
class LabelledSource(Term):
    r"""Source at labelled nodes, of `"GRAND++" <https://openreview.net/forum?id=EMxu-dzvJk>`_. The term is
    :math:`\beta\,\bigl(x_i(0) - \bar x(0)\bigr)` at a training node i, with their mean, and 0 elsewhere.

    Long diffusion alone makes all features alike; this source keeps labelled nodes apart, and the others
    between them, which helps where labels are few. The sources add up to 0: where A is column-stochastic
    the mass of a channel stays what it is, and on a connected undirected graph the state has a limit, which
    is not constant. The labels say which nodes, not what: the classes are not used. On a graph without
    labels the term is 0.

    The term is a constant source: the linear model keeps its closed form, with one series more.

    Args:
        wide: Number of coefficients, one for each channel; ``None``: one for all (``coefficients``).
        labelled: Start of β, which is learnt.
    """

    needs_observed = members = capturable = takes_parts = True
    given = ("wide",)
    per_member = ("labelled",)

    def __init__(self, wide: int | None = None, *, labelled: float = 0.5) -> None:
        super().__init__()
        self.beta = Coefficient(labelled, channels=wide)

    def forward(self, context: Context) -> tuple[Tensor, Tensor]:
        return self.beta(context.t), self.field(context)

    def field(self, context: Context) -> Tensor:
        """The source for β = 1, ``(..., n, d)``."""
        if context.observed is None:
            raise ArgumentError(
                "labelled-source needs to know which nodes have labels: bind the equation with observed, "
                "or train with grand train or a Trainer, which give them."
            )
        seen = (context.observed != 0).any(-1, keepdim=True).to(context.x0.dtype)
        mean = sum_nodes(seen * context.x0) / sum_nodes(seen).clamp_min(1)
        return seen * (context.x0 - mean)

    def bound(self, reach: Tensor | float = 0.0) -> Tensor:
        return torch.zeros(1, 1, dtype=torch.float64)

    def affine(self, context: Context) -> Affine | None:
        return Affine(sources=(Forcing(self.beta(), self.field(context)),))
