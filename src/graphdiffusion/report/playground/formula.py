"""The formulas beside the picture: the equation with its numbers, the matrix, and one step written out."""

from __future__ import annotations

from typing import Any

from ...solvers import SOLVERS, Tableau
from ..step_diagrams import weight_label
from .experiment import Experiment

LOW = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")


def formulas(experiment: Experiment, step: float | None) -> dict[str, Any]:
    """``equation``, ``numbers``, ``matrix`` and ``scheme``, each a list of lines.

    Args:
        step: The τ that is taken, of a scheme that has one.
    """
    now = "x(0)" if experiment.linear else "x"
    matrix = "A" if experiment.diffusivity == "laplacian" else f"A({now})"
    source = " + β x(0)" if experiment.beta else ""
    number = f"{_term(experiment.beta)} x(0)"
    alpha = "" if experiment.alpha == 1 else f"{experiment.alpha:g} "
    numbers = f"dx/dt = {alpha}({matrix} − I) x" + (f" {number}" if experiment.beta else "")
    return {
        "equation": [f"dx/dt = α ({matrix} − I) x{source}"],
        "numbers": [numbers],
        "matrix": _matrix(experiment),
        "scheme": _step(experiment, matrix, step),
    }


def _matrix(experiment: Experiment) -> list[str]:
    x = "x(0)" if experiment.linear else "x"
    scores = {
        "laplacian": "wᵢⱼ = 1 on every edge",
        "exponential": (
            f"wᵢⱼ = exp( s · exp(−(xᵢ − xⱼ)² / 2ℓ²) ), s = {experiment.strength:g}, "
            f"ℓ = {experiment.width:g}, from {x}"
        ),
        "scaled-dot": f"wᵢⱼ = exp( s · xᵢ xⱼ ), s = {experiment.strength:g}, from {x}",
    }
    sums = {
        "rows": "aᵢⱼ = wᵢⱼ / Σₖ wᵢₖ: rows sum to one",
        "columns": "aᵢⱼ = wᵢⱼ / Σₖ wₖⱼ: columns sum to one",
        "symmetric": "aᵢⱼ = wᵢⱼ / √(Σₖ wᵢₖ Σₖ wₖⱼ)",
    }
    return [sums[experiment.over], scores[experiment.diffusivity]]


def _step(experiment: Experiment, matrix: str, step: float | None) -> list[str]:
    scheme = experiment.scheme
    solver: Any = SOLVERS[scheme]
    lines: list[str] = []
    if scheme in SPECIAL:
        lines = list(SPECIAL[scheme])
    elif isinstance(getattr(solver, "tableau", None), Tableau):
        lines = _runge_kutta(solver.tableau)
    elif hasattr(solver, "weights"):
        lines = _multistep(solver.weights, solver.explicit)
    if scheme == "euler" and step is not None and not experiment.beta:
        size = step * experiment.alpha
        rest = f"{1 - size:.4g}".replace("-", "−")
        lines.append(f"   = {rest} x + {size:.4g} {matrix} x, with τα = {size:.4g}")
    if scheme == "semi-implicit":
        lines = [f"x⁺ = x + τα ({matrix} − I) x⁺" + (" + τβ x(0)" if experiment.beta else "")]
        if step is not None:
            rest = f" {_term(step * experiment.beta)} x(0)" if experiment.beta else ""
            lines.append(
                f"a linear system: (I − {step * experiment.alpha:.4g} ({matrix} − I)) x⁺ = x{rest}"
            )
    return lines


def _term(number: float) -> str:
    """A number with its sign before it."""
    return f"{'+' if number > 0 else '−'} {abs(number):.4g}"


SPECIAL: dict[str, tuple[str, ...]] = {
    "euler": ("x⁺ = x + τ f(x)",),
    "trapezoid": ("x⁺ = x + τ/2 (f(x) + f(x⁺))",),
    "bdf2": ("x⁺ = (4x − x₋₁)/3 + 2τ/3 f(x⁺)", "the first step: x⁺ = x + τ f(x⁺)"),
    "exponential": (
        "x(t) = Σₖ cₖ Aᵏ x(0)",
        "cₖ = pₖ + βt Σᵢ≥ₖ pᵢ/(i+1), pₖ = e^(−αt) (αt)ᵏ/k!",
    ),
    "exponential-euler": (
        "x⁺ = x + τ φ₁(τM) f(x), M = α (A(x) − I)",
        "φ₁(z) = (eᶻ − 1)/z: exact for A held fixed",
    ),
    "exponential-midpoint": (
        "y = x(t + τ/2) with A(x) held fixed",
        "x⁺ = x(t + τ) with A(y) held fixed, both in closed form",
    ),
    "dopri5": ("x⁺ = x + τ Σ bᵢ kᵢ with 7 stages, order 5", "τ follows the difference to order 4"),
    "esdirk": ("6 stages, of which 5 are implicit, order 4", "τ follows the difference to order 3"),
}


def _runge_kutta(tableau: Tableau) -> list[str]:
    """The stages and the sum, from the coefficients of the scheme."""
    lines = ["k₁ = f(x)"]
    for number, row in enumerate(tableau.a, 2):
        inner = _sum([(weight, f"k{str(k).translate(LOW)}") for k, weight in enumerate(row, 1)])
        lines.append(f"k{str(number).translate(LOW)} = f(x{inner})")
    total = _sum([(weight, f"k{str(k).translate(LOW)}") for k, weight in enumerate(tableau.b, 1)])
    return [*lines, f"x⁺ = x{total}"]


def _multistep(weights: tuple[float, ...], explicit: bool) -> list[str]:
    names = ["f", "f₋₁", "f₋₂", "f₋₃"] if explicit else ["f⁺", "f", "f₋₁", "f₋₂"]
    last = ["the first three steps are Runge-Kutta 4"]
    return [f"x⁺ = x{_sum(list(zip(weights, names, strict=True)))}", *last]


def _sum(pairs: list[tuple[float, str]]) -> str:
    """Weights times names, each with its sign before it; zeros are left out."""
    found = ""
    for weight, name in pairs:
        if weight:
            label = weight_label(abs(weight))
            found += f" {'+' if weight > 0 else '−'} {label} {name}"
    return found
