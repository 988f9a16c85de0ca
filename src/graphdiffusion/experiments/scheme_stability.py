r"""The longest stable step of each scheme for diffusion: measured by integrating, beside theory.

The eigenvalues of A − I lie in the disc of radius 1 around −1, and in [−2, 0] where A is similar to a
symmetric matrix. Two graphs have the extreme ones: on a cycle in both directions they fill the interval,
:math:`\cos\theta - 1`, on a cycle in one direction the edge of the disc, :math:`e^{i\theta} - 1`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from ..diffusivity import ConstantLaplacian
from ..equation import Diffusion, Flow
from ..graph import Graph
from ..solvers import SOLVERS, Exponential, FixedStep, Solver, integrate
from ..solvers.adams import AdamsBashforth4, AdamsMoulton4
from ..solvers.bdf2 import BDF2
from ..solvers.exponential_steps import ExponentialSteps
from ..solvers.semi_implicit import SemiImplicitEuler
from ..solvers.tableau import Tableau
from .scheme_list import SCHEMES, make_solver

Spectrum = Literal["interval", "disc"]
SPECTRA: tuple[Spectrum, ...] = ("interval", "disc")
NODES = 24  # even: −2 is an eigenvalue
SHORTEST, LONGEST = 1e-4, 1e2  # steps between which a limit is looked for
TIGHT = 0.1  # tolerance scale of implicit steps: rtol 1e-10, atol 1e-8
PATIENCE = 1000  # corrections in a step: close to its limit the fixed-point iteration is slow
# modes below that share of the first state have decayed: tolerance or rounding is left
FLOOR = {"implicit": 1e-6, "stiff": 1e-6, "explicit": 1e-13}
# so many times the steps for these: what grows starts from rounding, and torchdiffeq's order has to climb
LONGER, LONG = 10, ("adams-bashforth", "explicit_adams", "implicit_adams")
ANGLES = math.pi * np.arange(1, 91) / 90  # the other half is its mirror image
SLOPES = 11  # of torchdiffeq's predictor in the long run; its corrector has one more


def cycle(spectrum: Spectrum) -> tuple[Flow, torch.Tensor]:
    """Diffusion with α = 1 on a cycle, and a random state of mean 0, which decays to 0."""
    nodes = torch.arange(NODES)
    edges = torch.stack([nodes, (nodes + 1) % NODES])
    if spectrum == "interval":
        edges = torch.cat([edges, edges.flip(0)], 1)
    x = torch.randn(NODES, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x = x - x.mean()
    equation = Diffusion(ConstantLaplacian(over="rows"), linear=True, alpha=1.0).double()
    return equation.bind(Graph.from_edge_index(edges, NODES), x), x


@torch.no_grad()
def stays_bounded(name: str, spectrum: Spectrum, step: float, steps: int) -> tuple[bool, str]:
    """Whether a scheme is stable at a step, and the name of the error where it does not get to the end.

    The eigenvectors of a cycle are the Fourier modes. Stable: none of them is larger after all of the
    steps than after half of them, but for rounding and the tolerance of the implicit steps.
    """
    flow, x = cycle(spectrum)
    kind = SCHEMES[name].kind
    steps *= LONGER if SCHEMES[name].solver in LONG else 1
    half = step * (steps // 2)
    solver = make_solver(name, step, TIGHT)
    if isinstance(solver, AdamsMoulton4):
        solver.max_iterations = PATIENCE
    solution = integrate(flow, x, step * steps, solver, at=[half], check=False)
    if solution.stats.failures:
        return False, type(solution.stats.failures[0]).__name__
    assert solution.states is not None
    before, after = (torch.fft.fft(state[:, 0]).abs() for state in (solution.states[0], solution.state))
    floor = FLOOR[kind] * float(torch.fft.fft(x[:, 0]).abs().max())
    return bool((after <= before.clamp_min(floor)).all()), ""


def measured_limit(name: str, spectrum: Spectrum, steps: int, digits: float) -> dict[str, Any]:
    """The longest stable τα between ``SHORTEST`` and ``LONGEST``, by bisection in the logarithm.

    Args:
        steps: Of each integration.
        digits: Relative width at which the bisection ends.

    Returns:
        ``limit``, ``None`` where even the longest is stable, 0 where even the shortest is not; ``beyond``,
        how it fails beyond: ``"grows"`` or the name of an error.
    """
    stable, beyond = stays_bounded(name, spectrum, LONGEST, steps)
    if stable:
        return {"limit": None, "beyond": ""}
    low, high = 1.0, LONGEST
    while not stays_bounded(name, spectrum, low, steps)[0]:
        low, high = low / 4, low
        if low < SHORTEST:
            return {"limit": 0.0, "beyond": beyond or "grows"}
    while high > low * (1 + digits):
        middle = min(math.sqrt(low * high), 4 * low)
        stable, why = stays_bounded(name, spectrum, middle, steps)
        low, high, beyond = (middle, high, beyond) if stable else (low, middle, why)
    return {"limit": low, "beyond": beyond or "grows"}


def theory_limit(name: str, spectrum: Spectrum) -> float | None:
    """The longest τα for which no solution of x' = λx grows; ``None``: no limit, NaN: not known."""
    grows = amplification(name)
    if grows is None:
        return math.nan
    places = np.exp(1j * ANGLES) - 1 if spectrum == "disc" else np.cos(ANGLES) - 1 + 0j

    def stable(step: float) -> bool:
        return all(grows(step * z) <= 1 + 1e-9 for z in places)

    if stable(LONGEST):
        return None
    low, high = 1e-6, LONGEST
    if not stable(low):
        return 0.0
    while high > low * (1 + 1e-6):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if stable(middle) else (low, middle)
    return low


def amplification(name: str) -> Callable[[complex], float] | None:
    """How much a step multiplies a solution of x' = λx by at most in the long run, as a function of τλ."""
    own = SCHEMES[name]
    if own.foreign:
        if own.solver == "explicit_adams":
            return partial(multistep, adams_weights(SLOPES, implicit=False), None)
        # as if it converged: where it does not, order and number of corrections change from step to step
        weights = adams_weights(SLOPES + 1, implicit=True)
        return partial(multistep, weights[1:], weights[0])
    return growth(SOLVERS[own.solver], own.options)


def growth(
    solver: type[Solver], options: Mapping[str, Any] | None = None
) -> Callable[[complex], float] | None:
    """How much a step of a class of solvers multiplies a solution of x' = λx by, as :func:`amplification`.

    ``None`` where it is not known. The step of an adaptive scheme is one that it might choose.
    """
    if issubclass(solver, AdamsBashforth4):
        return partial(multistep, np.array(solver.weights), None)
    if issubclass(solver, AdamsMoulton4):
        own = solver(1.0, **(options or {}))
        weights = np.array(own.weights)
        if own.corrector == "newton":
            return partial(multistep, weights[1:], weights[0])
        # the fixed-point iteration multiplies its error by |w τλ|
        return lambda z: max(multistep(weights[1:], weights[0], z), abs(weights[0] * z))
    if issubclass(solver, BDF2):
        return lambda z: float(np.abs(np.roots([1 - 2 / 3 * z, -4 / 3, 1 / 3])).max())
    if issubclass(solver, SemiImplicitEuler):
        return lambda z: abs(1 / (1 - z))
    if issubclass(solver, Exponential | ExponentialSteps):
        return lambda z: abs(np.exp(z))
    tableau = getattr(solver, "tableau", None)
    return None if tableau is None else partial(runge_kutta, tableau)


def runge_kutta(tableau: Tableau, z: complex) -> float:
    """|R(z)|, R(z) = 1 + z bᵀ(I − zA)⁻¹1, the stability function of a tableau."""
    stages = len(tableau.b)
    a = np.zeros((stages, stages))
    for i, row in enumerate(tableau.a, 1):
        a[i, :i], a[i, i] = row, tableau.diagonal
    inner = np.linalg.solve(np.eye(stages) - z * a, np.ones(stages))
    return float(abs(1 + z * np.array(tableau.b) @ inner))


def multistep(slopes: NDArray[np.float64], ahead: float | None, z: complex) -> float:
    """Largest root of ζᵏ(1 − z w₊) = ζᵏ⁻¹ + z Σ wⱼ ζᵏ⁻¹⁻ʲ, an Adams scheme with the weights w."""
    polynomial = np.zeros(len(slopes) + 1, dtype=complex)
    polynomial[0] = 1 - z * (ahead or 0.0)
    polynomial[1] = -1
    polynomial[1:] -= z * slopes
    return float(np.abs(np.roots(polynomial)).max())


def adams_weights(count: int, implicit: bool) -> NDArray[np.float64]:
    """Weights of an Adams scheme: integrals over [0, 1] of the interpolation of so many slopes.

    They belong to the times 0, −1, ...; of an implicit scheme to 1, 0, −1, .... From backward differences
    (Hairer, Nørsett and Wanner, Solving ODEs I, section III.1), in fractions: they alternate and are large.
    """
    gamma: list[Fraction] = []
    for j in range(count):
        known = sum((gamma[j - k] / (k + 1) for k in range(1, j + 1)), Fraction(0))
        gamma.append((0 if implicit and j else 1) - known)
    weights = [
        (-1) ** i * sum((gamma[j] * math.comb(j, i) for j in range(i, count)), Fraction(0))
        for i in range(count)
    ]
    return np.array([float(weight) for weight in weights])


def stability_point(
    name: str, steps: int, digits: float, spectra: Sequence[Spectrum] = SPECTRA
) -> dict[str, Any]:
    """Limits of a scheme for the spectra, measured (fixed steps alone) and by theory."""
    found: dict[str, Any] = {}
    fixed = SCHEMES[name].foreign or issubclass(SOLVERS[SCHEMES[name].solver], FixedStep)
    for spectrum in spectra:
        theory = theory_limit(name, spectrum)
        known = theory is None or not math.isnan(theory)
        measured = measured_limit(name, spectrum, steps, digits) if fixed else {}
        found[spectrum] = {**measured, "theory": theory if known else None, "known": known}
    return found
