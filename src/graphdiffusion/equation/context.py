"""What a right-hand side is evaluated on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ..graph import Graph


@dataclass(frozen=True, eq=False)
class Context:
    """Everything that a term may look at.

    Attributes:
        graph: The graph.
        x0: Features that the diffusion starts from, ``(..., n, d)``.
        x: The state of now, ``(..., n, d)``.
        t: Time, ``(..., 1, 1)`` or a number; ``None`` where nothing depends on it.
        mask: Edge field of zeros and ones; edges with 0 are left out (equation 12).
        observed: One-hot labels that the member may use, ``(..., n, classes)``, zero rows where a node has
            none; of other tasks the targets, with a last column of 1 where a node has them. ``None`` where
            no labels were given.
        attention: A as an edge field ``(..., E)``: where it is fixed, or where a term declares that it
            needs it.
        key: Source of random numbers, int64, one for each member; ``None`` where the model gives none. It
            is the same in the whole integral: what is drawn anew at each evaluation has no solution.
    """

    graph: Graph
    x0: Tensor
    x: Tensor
    t: Tensor | None = None
    mask: Tensor | None = None
    observed: Tensor | None = None
    attention: Tensor | None = None
    key: Tensor | None = None

    def counts(self) -> Tensor:
        """What edges count as where no attention weighs them, ``(..., E)``: their weights, else 1; 0 where
        they are left out.
        """
        weight, mask = (f if f is None else f.to(self.x.dtype) for f in (self.graph.weight, self.mask))
        if weight is None:
            return self.x.new_ones(self.graph.num_edges) if mask is None else mask
        return weight if mask is None else weight * mask

    def at(self, **changes: Any) -> Context:
        """The same with other values of some attributes."""
        return Context(**{**self.__dict__, **changes})
