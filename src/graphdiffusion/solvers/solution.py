"""What an integration gives back, and what it cost."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ..errors import SolverError, TooManyEvaluations

MAX_EVALUATIONS = 10_000  # in one integral, of every scheme: each keeps a state for the backward pass


@dataclass
class Stats:
    """What an integration cost, and the members for which it failed.

    Attributes:
        evaluations: Calls of the right-hand side, and its Jacobian-vector products; for the exponential
            solver, sparse products.
        accepted: Steps taken (the largest count of all members).
        rejected: Steps tried and thrown away (likewise).
        inner_iterations: Over all steps, iterations of linear solves or of the corrector; for the
            exponential schemes, sparse products.
        newton_iterations: Iterations of Newton's method, over all steps.
        products: Jacobian-vector products, over all steps.
        last_step: Size of the last step, one for each member.
        steps: Accepted steps of an adaptive scheme, one for each member; 0 after a member's last.
        spent: Evaluations that an adaptive scheme would have needed for each member alone.
        lost: Time at which an adaptive scheme first met a state that is NaN or infinite; ∞ where none was.
        failures: What went wrong, each with the mask of the failed members; their state is NaN.
        strict: Raise a failure at once.
    """

    evaluations: int = 0
    accepted: int = 0
    rejected: int = 0
    inner_iterations: int = 0
    newton_iterations: int = 0
    products: int = 0
    last_step: Tensor = field(default_factory=lambda: torch.zeros(()))
    steps: list[Tensor] = field(default_factory=list, repr=False)
    spent: Tensor = field(default_factory=lambda: torch.zeros(()), repr=False)
    lost: float = field(default=math.inf, repr=False)
    failures: list[SolverError] = field(default_factory=list, repr=False)
    strict: bool = field(default=True, repr=False)

    def fail(self, error: SolverError) -> None:
        """Note that some members could not be integrated, ``error.members``; raised if ``strict``."""
        if self.strict:
            raise error
        self.failures.append(error)


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

    @property
    def failed(self) -> Tensor:
        """Boolean mask of the members that could not be integrated, in the leading dimensions."""
        failed = torch.zeros(self.state.shape[:-2], dtype=torch.bool, device=self.state.device)
        for error in self.stats.failures:
            if error.members is not None:
                failed = failed | error.members
        return failed


def too_many_evaluations(limit: int, members: Tensor | None = None) -> TooManyEvaluations:
    return TooManyEvaluations(
        f"the integration takes more than max_evaluations={limit} evaluations of the right-hand side: the "
        "dynamics may have become stiff or hold randomness (dropout), or a learnt T has grown. Loosen rtol "
        "and atol, take larger steps, use ExponentialMidpoint, ESDIRK4, SemiImplicitEuler or (linear "
        "model) Exponential, or raise max_evaluations.",
        members,
    )
