"""The schemes that are compared, and the models: titles, options, and steps or tolerances."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any, Literal

from ..options import create
from ..solvers import SOLVERS, Solver
from .torchdiffeq_adams import TorchdiffeqAdams

Kind = Literal["explicit", "implicit", "stiff", "adaptive", "closed"]

MOST = 10**6  # evaluations: a step that is too long is to show as an error, not as a refusal
FOREIGN = "torchdiffeq"

# title, and options of the equation
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "laplacian": ("constant Laplacian", {"variant": "linear", "diffusivity": "laplacian"}),
    "linear": ("GRAND-l", {"variant": "linear"}),
    "nonlinear": ("GRAND-nl", {"variant": "nonlinear"}),
}


@dataclass(frozen=True)
class Scheme:
    """A scheme of the comparison.

    Attributes:
        title: In tables and pictures.
        kind: What it is given: the steps of explicit, implicit or stiff schemes, which solve a system in
            every step or have no limit, tolerances, or nothing (closed).
        solver: Its name in the registry, or the method of torchdiffeq.
        options: Of the class.
        nonlinear, linear: The equations it is compared on.
        foreign: Whether it is torchdiffeq's.
    """

    title: str
    kind: Kind
    solver: str
    options: dict[str, Any] = field(default_factory=dict)
    linear: bool = True
    nonlinear: bool = True
    foreign: bool = False


SCHEMES: dict[str, Scheme] = {
    "ab4": Scheme("Adams-Bashforth, order 4", "explicit", "adams-bashforth"),
    "am3": Scheme("Adams-Moulton, 3 steps, fixed-point", "implicit", "adams-moulton"),
    "am3-newton": Scheme(
        "Adams-Moulton, 3 steps, Newton", "stiff", "adams-moulton", {"corrector": "newton"}
    ),
    "am4": Scheme("Adams-Moulton, 4 steps, fixed-point", "implicit", "adams-moulton", {"memory": 4}),
    "am4-newton": Scheme(
        "Adams-Moulton, 4 steps, Newton", "stiff", "adams-moulton", {"memory": 4, "corrector": "newton"}
    ),
    "torchdiffeq-explicit": Scheme(
        "torchdiffeq explicit_adams", "explicit", "explicit_adams", foreign=True
    ),
    "torchdiffeq-implicit": Scheme(
        "torchdiffeq implicit_adams", "implicit", "implicit_adams", foreign=True
    ),
    "rk4": Scheme("RK4", "explicit", "rk4"),
    "dopri5": Scheme("Dormand-Prince", "adaptive", "dopri5"),
    "trapezoid": Scheme("trapezoid", "stiff", "trapezoid"),
    "bdf2": Scheme("BDF2", "stiff", "bdf2"),
    "semi-implicit": Scheme("semi-implicit Euler", "stiff", "semi-implicit"),
    "esdirk": Scheme("ESDIRK 4(3)", "adaptive", "esdirk"),
    "closed": Scheme("closed form", "closed", "exponential", nonlinear=False),
    "exponential-euler": Scheme("exponential Euler", "stiff", "exponential-euler", linear=False),
    "exponential-midpoint": Scheme("exponential midpoint", "stiff", "exponential-midpoint", linear=False),
    "exponential-two-step": Scheme("exponential two-step", "stiff", "exponential-two-step", linear=False),
    "exponential-cf4": Scheme("exponential CF4", "stiff", "exponential-cf4", linear=False),
    "exponential21": Scheme("exponential 2(1)", "adaptive", "exponential21", linear=False),
    "exponential42": Scheme("exponential 4(2)", "adaptive", "exponential42", linear=False),
}


def tolerances(scale: float) -> dict[str, float]:
    """The authors' tolerances: multiples of rtol 1e-9 and atol 1e-7."""
    return {"rtol": scale * 1e-9, "atol": scale * 1e-7}


def solver_options(name: str, amount: float | None, scale: float) -> dict[str, Any]:
    """Options of a scheme.

    Args:
        amount: τ, or the tolerance scale of an adaptive scheme; ``None`` for the closed form.
        scale: Tolerance scale of the equations inside an implicit step.
    """
    own = SCHEMES[name]
    if own.kind == "closed":
        return {}
    if own.kind == "adaptive":
        return {**own.options, **tolerances(float(amount or scale))}
    inner = tolerances(scale) if _iterates(own) else {}
    return {**own.options, "step_size": amount, **inner}


def make_solver(name: str, amount: float | None, scale: float) -> Solver:
    """The solver of a scheme; arguments as of :func:`solver_options`."""
    own, options = SCHEMES[name], solver_options(name, amount, scale)
    if own.foreign:
        return TorchdiffeqAdams(own.solver, **options)
    return create(SOLVERS[own.solver], {**options, "max_evaluations": MOST})


def amounts(
    name: str,
    explicit: Sequence[float],
    implicit: Sequence[float],
    stiff: Sequence[float],
    scales: Sequence[float],
) -> list[float | None]:
    """The steps or tolerance scales that a scheme is measured with."""
    chosen: dict[str, Sequence[float | None]] = {
        "explicit": explicit, "implicit": implicit, "stiff": stiff, "adaptive": scales, "closed": [None],
    }  # fmt: skip
    return list(chosen[SCHEMES[name].kind])


def available(names: Sequence[str], linear: bool | None = None) -> list[str]:
    """Those of the schemes that are installed, and that fit the linear or the nonlinear equation."""
    fits = {None: lambda s: True, True: lambda s: s.linear, False: lambda s: s.nonlinear}[linear]
    found = find_spec(FOREIGN) is not None
    return [n for n in names if fits(SCHEMES[n]) and (found or not SCHEMES[n].foreign)]


def missing(names: Sequence[str]) -> list[str]:
    """Those of the schemes that are not installed."""
    return [n for n in names if n not in available(names)]


def _iterates(scheme: Scheme) -> bool:
    """Whether the equation of a step is solved to a tolerance of the solution."""
    return scheme.solver in ("adams-moulton", "implicit_adams", "explicit_adams", "trapezoid", "bdf2")
