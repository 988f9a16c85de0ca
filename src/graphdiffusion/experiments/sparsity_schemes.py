"""The schemes of the sparsity experiment, each with its step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .sparsity_claims import MODELS


@dataclass(frozen=True)
class Scheme:
    """A scheme with its step.

    Attributes:
        title: What it is called.
        options: Of the configuration.
        models: Those that it integrates.
        implicit: Whether its steps solve an equation, in iterations.
        costly: Measured after all others, with less of everything.
    """

    title: str
    options: Mapping[str, Any]
    models: tuple[str, ...] = tuple(MODELS)
    implicit: bool = False
    costly: bool = False


def _adams_bashforth(step: float, gradient: str, costly: bool) -> Scheme:
    options = {"solver": "adams-bashforth", "step_size": step, "gradient": gradient}
    return Scheme(f"Adams-Bashforth, τ = {step:g}", options, costly=costly)


def _implicit(solver: str, title: str, step: float) -> Scheme:
    return Scheme(f"{title}, τ = {step:g}", {"solver": solver, "step_size": step}, implicit=True)


SCHEMES: dict[str, Scheme] = {
    "closed-form": Scheme("closed form", {"solver": "exponential"}, ("linear",)),
    "exponential-midpoint": Scheme(
        "exponential midpoint, τ = 1", {"solver": "exponential-midpoint", "step_size": 1.0}, ("nonlinear",)
    ),
    "dopri5": Scheme("Dormand-Prince", {"solver": "dopri5"}),
    "adams-moulton-1": _implicit("adams-moulton", "Adams-Moulton", 1.0),
    "adams-moulton-0.5": _implicit("adams-moulton", "Adams-Moulton", 0.5),
    "adams-moulton-0.25": _implicit("adams-moulton", "Adams-Moulton", 0.25),
    "semi-implicit-1": _implicit("semi-implicit", "semi-implicit", 1.0),
    "semi-implicit-4": _implicit("semi-implicit", "semi-implicit", 4.0),
    # about the largest step that is stable for every α < 1, and the paper's, 2420 steps: too many to hold
    "adams-bashforth-0.125": _adams_bashforth(0.125, "backprop", False),
    "adams-bashforth-0.005": _adams_bashforth(0.005, "checkpoint", True),
}
# the scheme whose trained weights all schemes are timed with: they solve the same equation
REFERENCE = {"linear": "closed-form", "nonlinear": "adams-moulton-1"}
