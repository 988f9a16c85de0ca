"""What theory says about an experiment: eigenvalues, limits of the step, what is bounded and conserved."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...equation import Flow
from ...experiments.scheme_stability import growth
from ...solvers import SOLVERS, FixedStep
from .experiment import Experiment

Complex = NDArray[np.complex128]
# a step is a convex combination below the limit, also where A follows x; of the others A − I is tested
BOUNDED = ("euler", "semi-implicit", "exponential-euler", "exponential-midpoint")
LONGEST = 1e4  # τα beyond which no limit is looked for


def eigenvalues(flow: Flow, x: Tensor) -> Complex:
    """Of A − I, with A at a state; rounding is removed from real ones."""
    values = flow.attention(None, x)
    assert values is not None
    dense = flow.graph.dense(values).numpy() - np.eye(flow.nodes)
    found = np.linalg.eigvals(dense).astype(complex)
    if (
        np.abs(found.imag).max() < 1e-6
    ):  # a real eigenvalue that occurs twice splits by the root of rounding
        found = found.real + 0j
    return found[np.argsort(found.real)]


def step_limit(scheme: str, spectrum: Complex) -> float | None:
    """The longest τα at which no mode grows; ``None``: every step, or a scheme that chooses its steps."""
    solver = SOLVERS[scheme]
    factor = growth(solver)
    if factor is None or not issubclass(solver, FixedStep):
        return None
    places = spectrum[spectrum.imag >= -1e-12]  # the others are their mirror images
    if np.all(places.imag == 0):  # every scheme here is stable on an interval up to 0
        places = places[np.argmin(places.real)][None]

    def stable(step: float) -> bool:
        return all(factor(step * z) <= 1 + 1e-9 for z in places)

    if stable(LONGEST):
        return None
    low, high = 1e-6, LONGEST
    while high > low * (1 + 1e-9):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if stable(middle) else (low, middle)
    return low


def step_factor(scheme: str, products: Complex) -> float:
    """By how much a step multiplies a mode at most in the long run, for the products τλ of all modes."""
    factor = growth(SOLVERS[scheme])
    assert factor is not None
    places = products[products.imag >= -1e-12]
    if np.all(places.imag == 0):  # the ends, and what lies at 0 does not change
        places = places[[np.argmin(places.real), np.argmax(places.real)]]
    return max(factor(z) for z in places)


def general_limit(scheme: str) -> float | None:
    """τα below which a scheme is stable on every graph: theorem 1 for Euler; ``None``: every step."""
    solver = SOLVERS[scheme]
    if not issubclass(solver, FixedStep):
        return None
    own: Any = solver(1.0)
    if scheme == "adams-moulton":  # its corrector converges for |w τλ| < 1, and |λ| ≤ 2α
        return min(own.limit, 1 / (2 * own.weights[0]))
    return own.limit if own.explicit else None


@dataclass(frozen=True)
class Verdict:
    """What theory says of a step.

    Attributes:
        kind: ``stable``, ``limit`` (neither grows nor decays), ``unstable`` or ``adaptive``.
        sentence: In words.
    """

    kind: str
    sentence: str


def judge(experiment: Experiment, step: float | None, limits: Sequence[float | None]) -> Verdict:
    """Whether a step is stable.

    Args:
        step: The τ that is taken; ``None``: a scheme without a step of its own.
        limits: Of τα on this graph, at x(0) and where A follows x(t) also at x(T).
    """
    if step is None:
        if experiment.scheme == "exponential":
            return Verdict("stable", "Yes: the closed form has no step.")
        return Verdict("adaptive", "The scheme chooses its steps by the error, and so stays stable.")
    size, general = step * experiment.alpha, general_limit(experiment.scheme)
    theorem = {"euler": "theorem 1", "semi-implicit": "theorem 2"}.get(experiment.scheme)
    by = f" ({theorem})" if theorem else ""
    fixed = "" if experiment.linear or experiment.scheme in BOUNDED else "With A held fixed: "
    if general is None:
        return Verdict("stable", _sentence(fixed, f"yes, for every step and graph{by}: τα = {size:.4g}."))
    if size < general * (1 - 1e-9):
        return Verdict(
            "stable", _sentence(fixed, f"yes, on every graph{by}: τα = {size:.4g} < {general:.4g}.")
        )
    safe = f" On every graph only τα < {general:.4g} is safe{by}."
    held = "" if experiment.linear else "With A held fixed as it is at the start and at the end: "
    own = min((limit for limit in limits if limit is not None), default=math.inf)
    if size < own * (1 - 1e-6):
        limit = f"τα = {size:.4g} < {own:.4g}, its own limit" if own < math.inf else "it has no limit"
        kind = "stable" if experiment.linear else "limit"  # A may be another one in between
        return Verdict(kind, _sentence(held, f"yes on this graph: {limit}.{safe}"))
    if size <= own * (1 + 1e-6):
        rest = f"at the limit of this graph, τα = {own:.4g}: one mode neither grows nor decays.{safe}"
        return Verdict("limit", _sentence(held, rest))
    return Verdict(
        "unstable", _sentence(held, f"no: τα = {size:.4g}, and the limit of this graph is {own:.4g}.{safe}")
    )


def _sentence(before: str, rest: str) -> str:
    return before + rest if before else rest[0].upper() + rest[1:]


@dataclass(frozen=True)
class Bound:
    """What diffusion without a source does not let grow.

    Attributes:
        name: In words.
        numbers: Of each state, ``(m,)``: it must not exceed the first.
        scale: Of the first.
    """

    name: str
    numbers: NDArray[np.float64]
    scale: float

    @property
    def excess(self) -> NDArray[np.float64]:
        """By how much it is exceeded at each time, over its scale."""
        return np.maximum(self.numbers - self.numbers[0], 0) / self.scale


def bound(over: str, states: NDArray[np.float64]) -> Bound:
    """Of states ``(m, n)``: equation (3) for rows, its counterparts for columns and symmetric."""
    if over == "rows":  # how far values lie outside the first range
        low, high = states[0].min(), states[0].max()
        outside = np.maximum(states.max(1) - high, low - states.min(1))
        scale = max(high - low, 1e-6 * np.abs(states[0]).max(), 1e-12)  # equal values have no range
        return Bound("range of the values, bound (3)", np.maximum(outside, 0.0), scale)
    if over == "columns":
        total = np.abs(states).sum(1)
        return Bound("Σ|xᵢ|", total, max(total[0], 1e-12))
    size = np.sqrt(np.square(states).sum(1))
    return Bound("‖x‖", size, max(size[0], 1e-12))


def conserved(experiment: Experiment, flow: Flow) -> tuple[str, NDArray[np.float64]] | None:
    """Name and weights ``(n,)`` of a sum that diffusion conserves; ``None`` where none is known here.

    The columns of A sum to one: the sum. Rows of the constant Laplacian on an undirected graph: weighted by
    degrees, the left eigenvector; symmetric: by their roots.
    """
    if experiment.over == "columns":
        return "Σ xᵢ", np.ones(experiment.nodes)
    if experiment.diffusivity != "laplacian" or not flow.graph.is_symmetric:
        return None
    ones = torch.ones(flow.graph.num_edges, dtype=torch.float64)
    degrees: Any = flow.graph.dense(ones).sum(1).numpy()
    if experiment.over == "rows":
        return "Σ dᵢxᵢ / Σ dᵢ", degrees / degrees.sum()
    return "Σ √dᵢ xᵢ / Σ √dᵢ", np.sqrt(degrees) / np.sqrt(degrees).sum()
