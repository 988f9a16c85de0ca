"""Terms: the summands of dx/dt, and what they declare."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from ..registry import Registry
from ..subclasses import Declares
from .context import Context


@dataclass(frozen=True, eq=False)
class Forcing:
    """A source that does not depend on t and x: a coefficient times a node field.

    Attributes:
        coefficient: ``(..., 1, 1)`` or ``(..., 1, d)``.
        field: ``(..., n, d)``.
        detached: Whether the gradient through the field is cut.
    """

    coefficient: Tensor
    field: Tensor
    detached: bool = False


@dataclass(frozen=True, eq=False)
class Affine:
    r"""A right-hand side :math:`\sum_k c_k (A - I)^k x + f` with constant coefficients.

    Attributes:
        powers: :math:`c_k` by k, each ``(..., 1, 1)`` or ``(..., 1, d)``.
        sources: The parts of f.
        values: A as an edge field ``(..., E)``; given by the equation.
    """

    powers: dict[int, Tensor] = field(default_factory=dict)
    sources: tuple[Forcing, ...] = ()
    values: Tensor | None = None

    def __add__(self, other: Affine) -> Affine:
        powers = dict(self.powers)
        for k, c in other.powers.items():
            powers[k] = powers[k] + c if k in powers else c
        return Affine(powers, self.sources + other.sources, self.values)

    def scaled(self, factor: Tensor) -> Affine:
        """All coefficients times a factor."""
        sources = tuple(replace(s, coefficient=factor * s.coefficient) for s in self.sources)
        return Affine({k: factor * c for k, c in self.powers.items()}, sources, self.values)


OF_THE_FORMULA = ("affine", "bound", "solved", "after")  # what a class says of the formula of its term


class Term(Declares, nn.Module, follows={"forward": OF_THE_FORMULA}):
    """Base of all summands: a coefficient times a direction, so that all are added up in one pass.

    Attributes:
        needs_attention: Whether ``context.attention`` is used. A is built only for terms that declare it.
        needs_observed: Whether ``context.observed`` is used.
        members: Whether leading member dimensions are taken; ``None``: found out on first use.
        capturable: Whether it never reads from the device, so that a training step may be captured.
        takes_parts: Whether it works on one part of a graph: all that it reads of other nodes, it reads by
            the verbs of :mod:`graphdiffusion.ops` and by sums of :mod:`graphdiffusion.partition.whole`.
        solved: Whether :meth:`after` gives the solution of this term alone.
    """

    group = "equation"
    needs_attention = needs_observed = capturable = takes_parts = False
    members: bool | None = None
    solved: bool = False

    def forward(self, context: Context) -> tuple[Tensor, Tensor]:
        """Coefficient ``(..., 1, 1)`` or ``(..., 1, d)``, and direction ``(..., n, d)``."""
        raise NotImplementedError

    def bound(self, reach: Tensor | float = 0.0) -> Tensor:
        """A bound of the coefficient of A − I that :meth:`affine` gives, ``(..., 1, 1)``.

        Without one, ∞, the closed form works, but not in a program that is traced or captured.
        """
        none = type(self).affine is Term.affine
        return torch.full((1, 1), 0.0 if none else math.inf, dtype=torch.float64)

    def memory(self, nodes: int, edges: int, channels: int) -> int:
        """Estimate of what one evaluation keeps for the backward pass, in bytes."""
        return 4 * nodes * channels

    def affine(self, context: Context) -> Affine | None:
        """The term with constant coefficients, if it is affine in x: then a closed form may exist."""
        return None

    def after(self, context: Context, time: Tensor) -> Tensor:
        """The state that ``context.x`` becomes when this term alone acts for a time ``(..., 1, 1 or d)``.

        Only of a term that is ``solved``.
        """
        raise NotImplementedError


TERMS: Registry[Term] = Registry("term", "graphdiffusion.equation")
