"""The right-hand side as a solver sees it.

A field is any function f(t, x). Its further methods and attributes declare what else it can do:

==========================  =============================================================================
``tensors``, ``rebound``    the tensors f depends on, and f on other values of them (the adjoint)
``affine()``                coefficients of an equation that is affine in x (the closed form)
``stiff(t, x)``             diffusion and the rest apart (semi-implicit and exponential schemes)
``diagonal(t, x)``          an estimate of the diagonal of ∂f/∂x (preconditioner of the implicit schemes)
``parts(channels)``         position and velocity of an equation of second order (partitioned schemes)
``after(t, x, time)``       the state under the terms alone that are solved exactly (splitting)
``remainder(t, x)``         f without these terms
``offers(name)``            whether it has ``parts``, ``stiff`` or ``after``
``rate``, ``stable``        how fast diffusion is, and whether theorem 1 holds (warnings, segments)
``stacked``                 whether each member has parameters of its own (the adjoint)
``nodes``                   rows that a state must have
==========================  =============================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from torch import Tensor, nn
from torch.func import functional_call

from .solution import Stats

Field = Callable[[Tensor, Tensor], Tensor]

# what a scheme may need of a right-hand side beside f(t, x), by method, and what has it
NEEDS = {
    "parts": "an equation of second order, with positions and velocities, such as graphcon",
    "stiff": "diffusion with a stochastic matrix, apart from the other terms: an equation of first order, "
    "with normaliser softmax or squareplus",
    "after": "a term that is solved exactly by itself: equation acmp, or allen-cahn without saturation",
}


@runtime_checkable
class BoundField(Protocol):
    """f(t, x) that names the tensors it depends on."""

    def __call__(self, t: Tensor, x: Tensor) -> Tensor: ...

    @property
    def tensors(self) -> tuple[Tensor, ...]: ...

    def rebound(self, tensors: Sequence[Tensor]) -> BoundField: ...


@dataclass(frozen=True, eq=False)
class ModuleField:
    """A module called as ``module(t, x)``, as a :class:`BoundField`."""

    module: nn.Module
    parameters: dict[str, Tensor] | None = None

    def __call__(self, t: Tensor, x: Tensor) -> Tensor:
        if self.parameters is None:
            return self.module(t, x)
        return functional_call(self.module, self.parameters, (t, x))

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return tuple(p for p in self.module.parameters() if p.requires_grad)

    def rebound(self, tensors: Sequence[Tensor]) -> ModuleField:
        left = iter(tensors)
        own = self.module.named_parameters()
        return ModuleField(self.module, {k: next(left) if p.requires_grad else p for k, p in own})


def described(field: Any) -> str:
    """A right-hand side for a message."""
    field = getattr(field, "field", field)  # under a count of evaluations
    field = field.module if isinstance(field, ModuleField) else field
    return type(getattr(field, "equation", field)).__name__


class Counted:
    """A field that counts its evaluations; everything else is the field's own."""

    def __init__(self, field: Field, stats: Stats) -> None:
        self.field, self.stats = field, stats

    def __call__(self, t: Tensor, x: Tensor) -> Tensor:
        self.stats.evaluations += 1
        return self.field(t, x)

    def stiff(self, t: Tensor, x: Tensor) -> Any:
        """Diffusion and the rest apart, an evaluation too; ``None`` where the field has no such parts."""
        self.stats.evaluations += 1
        own = getattr(self.field, "stiff", None)
        return None if own is None else own(t, x)

    def remainder(self, t: Tensor, x: Tensor) -> Tensor:
        """f without the terms that are solved, an evaluation too."""
        self.stats.evaluations += 1
        return self.field.remainder(t, x)  # type: ignore[attr-defined]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.field, name)
