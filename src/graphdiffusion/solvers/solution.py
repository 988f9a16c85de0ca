"""What an integration gives back, and the problem that a solver is handed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.func import functional_call

from ..errors import TooManyEvaluations

MAX_EVALUATIONS = 1_000_000  # of the right-hand side, where their number is known beforehand

Field = Callable[[Tensor, Tensor], Tensor]


@runtime_checkable
class BoundField(Protocol):
    """f(t, x) that names the tensors it depends on; :class:`graphdiffusion.dynamics.Flow` is one."""

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


@dataclass
class Stats:
    """What an integration cost.

    Attributes:
        evaluations: Calls of the right-hand side; for the exponential solver, sparse products.
        accepted: Steps taken (the largest count of all members).
        rejected: Steps tried and thrown away (likewise).
        inner_iterations: Iterations of linear solves or of the corrector, over all steps.
        last_step: Size of the last step, one for each member.
        spent: Evaluations that an adaptive scheme would have needed for each member alone.
        lost: Time at which an adaptive scheme first met a state that is NaN or infinite; ∞ where none was.
    """

    evaluations: int = 0
    accepted: int = 0
    rejected: int = 0
    inner_iterations: int = 0
    last_step: Tensor = field(default_factory=lambda: torch.zeros(()))
    spent: Tensor = field(default_factory=lambda: torch.zeros(()), repr=False)
    lost: float = field(default=math.inf, repr=False)


@dataclass(frozen=True)
class Solution:
    """The state at the end and, if asked for, on the way.

    Attributes:
        state: x(T), ``(..., n, d)``.
        states: x at the output times, ``(m, ..., n, d)``; ``None`` if no times were asked for.
        stats: What it cost.
    """

    state: Tensor
    stats: Stats
    states: Tensor | None = None


class Counted:
    """A field that counts its evaluations and stops at a limit."""

    def __init__(self, field: Field, stats: Stats, limit: int | None) -> None:
        self.field, self.stats, self.limit = field, stats, limit

    def __call__(self, t: Tensor, x: Tensor) -> Tensor:
        self.stats.evaluations += 1
        if self.limit is not None and self.stats.evaluations > self.limit:
            raise too_many_evaluations(self.limit)
        return self.field(t, x)


def too_many_evaluations(limit: int, members: Tensor | None = None) -> TooManyEvaluations:
    return TooManyEvaluations(
        f"the integration takes more than max_evaluations={limit} evaluations of the right-hand side: the "
        "dynamics may have turned stiff or hold randomness (dropout), or a learnt T has grown. Loosen rtol "
        "and atol, take larger steps, use SemiImplicitEuler or (linear model) Exponential, or raise "
        "max_evaluations.",
        members,
    )
