"""One step of a scheme as blocks and weights, read from the scheme's own coefficients."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from ..errors import ArgumentError
from ..solvers import SOLVERS, Tableau
from ..solvers.semi_implicit import SemiImplicitEuler

RELATIONS = {
    "euler": ("explicit Euler, eq. (7)", "a residual block; with τ = 1 a GAT layer, x⁺ = A(x) x"),
    "rk4": ("Runge-Kutta 4", "a dense block: the input is added to every stage, every stage to the output"),
    "semi-implicit": ("semi-implicit Euler, eq. (8)", "an equation for x⁺: it reaches the whole graph"),
    "adams-bashforth": ("Adams-Bashforth", "a residual block with the slopes of three earlier ones"),
    "adams-moulton": ("Adams-Moulton", "a loop that runs until it converges, like a recurrent network"),
    "trapezoid": ("trapezoidal rule", "half a step explicit, half a step implicit"),
}


@dataclass(frozen=True)
class Stage:
    """A block of a step: an evaluation of the right-hand side f.

    Attributes:
        label: What stands in the block.
        output: Its weight in the new state, over τ.
        inputs: Weights of the earlier blocks in the state that it is evaluated at, over τ.
        itself: Its own weight there: not 0 where the stage solves an equation.
        kept: It was evaluated in an earlier step.
        at_end: It is evaluated at the new state, so that the step solves an equation.
        matrix: It is linear in its input, with a matrix that the old state gives.
    """

    label: str
    output: float
    inputs: tuple[float, ...] = ()
    itself: float = 0.0
    kept: bool = False
    at_end: bool = False
    matrix: bool = False


@dataclass(frozen=True)
class StepDiagram:
    """A step x → x⁺ = x + τ Σ output · block.

    Attributes:
        name: Of the scheme.
        title, relation: What it is called, and what network it is like.
        stages: The blocks.
    """

    name: str
    title: str
    relation: str
    stages: tuple[Stage, ...]


def step_diagram(name: str) -> StepDiagram:
    """The diagram of a registered scheme; every weight is one of the scheme's.

    Runge-Kutta schemes give their tableau, multistep schemes their ``weights``, newest first, those of
    implicit ones with the new state before the others. The semi-implicit scheme is equation (8).
    """
    scheme = SOLVERS[name]
    stages = tuple(_stages(scheme))
    if not stages:
        raise ArgumentError(
            f"there is no diagram of {name}, which has neither a tableau nor weights of a multistep "
            f"formula; take one of: {', '.join(drawable())}."
        )
    title = (scheme.__doc__ or name).partition(".")[0].partition(",")[0]
    relation = f"{len(stages)} blocks"
    if getattr(getattr(scheme, "tableau", None), "first_same_as_last", False):
        relation += ", of which the last is the first of the next step"
    return StepDiagram(name, *RELATIONS.get(name, (title, relation)), stages)


def drawable() -> list[str]:
    """Names of the schemes that have a diagram."""
    return sorted(name for name, scheme in SOLVERS.classes().items() if any(True for _ in _stages(scheme)))


def _stages(scheme: type[Any]) -> Iterable[Stage]:
    tableau, weights = getattr(scheme, "tableau", None), getattr(scheme, "weights", None)
    if isinstance(tableau, Tableau):
        rows = ((), *tableau.a)
        for number, (row, output) in enumerate(zip(rows, tableau.b, strict=True)):
            yield Stage("f", output, row, tableau.diagonal if number else 0.0)
    elif isinstance(weights, tuple):
        new, past = (weights[:1], weights[1:]) if not scheme.explicit else ((), weights)
        yield Stage("f", past[0])
        for back, weight in enumerate(past[1:], 1):
            yield Stage(f"f$_{{-{back}}}$", weight, kept=True)
        for weight in new:
            yield Stage("f", weight, at_end=True)
    elif issubclass(scheme, SemiImplicitEuler):
        yield Stage("A(x) − I", 1.0, at_end=True, matrix=True)


def weight_label(weight: float) -> str:
    """A weight times τ as it is written: τ, τ/6, −5τ/24; decimals where a fraction would be long."""
    near = Fraction(weight).limit_denominator(1000)
    sign, near = ("−" if near < 0 else ""), abs(near)
    if abs(float(near) - abs(weight)) > 1e-12:
        return f"{weight:.3g}τ".replace("-", "−")
    above = "τ" if near.numerator == 1 else f"{near.numerator}τ"
    return f"{sign}{above}" + (f"/{near.denominator}" if near.denominator > 1 else "")
