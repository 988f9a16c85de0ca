"""The source βx(0)."""

from __future__ import annotations

import torch
from torch import Tensor

from .coefficient import Coefficient
from .context import Context
from .term import TERMS, Affine, Forcing, Term


@TERMS.register("source")
class Source(Term):
    r"""Source of the initial state, which keeps it from being forgotten. The term is :math:`\beta x_0`.

    Args:
        beta: A number (learnt, starting there) or a :class:`Coefficient`.
        detach_source: Cut the gradient through this :math:`x_0` (not the one through the initial state).
    """

    members = capturable = takes_parts = True
    given = ("beta",)

    def __init__(self, beta: float | Coefficient = 0.0, *, detach_source: bool = False) -> None:
        super().__init__()
        self.beta = beta if isinstance(beta, Coefficient) else Coefficient(beta)
        self.detach_source = detach_source

    def forward(self, context: Context) -> tuple[Tensor, Tensor]:
        return self.beta(context.t), context.x0.detach() if self.detach_source else context.x0

    def bound(self, reach: Tensor | float = 0.0) -> Tensor:
        return torch.zeros(1, 1, dtype=torch.float64)

    def affine(self, context: Context) -> Affine | None:
        if self.beta.terms > 1:
            return None
        return Affine(sources=(Forcing(self.beta(), context.x0, self.detach_source),))
