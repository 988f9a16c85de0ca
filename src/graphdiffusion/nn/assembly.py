"""From names and options to the parts of the diffusion layer."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch

from ..diffusivity import DIFFUSIVITIES, Diffusivity, TimeVarying
from ..equation import EQUATIONS, TERMS, Affine, Coefficient, Context, Equation, Term
from ..errors import ArgumentError
from ..graph import Graph
from ..options import arguments_of, components, create, options_of, refuse_unknown, split_names
from ..solvers import SOLVERS, Solver
from ..solvers.base import lacking
from ..solvers.exponential import Exponential, is_rounded, refuse_polynomial

ALPHA = 0.5  # the scale of diffusion that a training starts from

# Arguments of the layer from which an equation is built.
OF_EQUATION = (
    "variant", "diffusivity", "terms", "alpha", "coefficients", "theta_terms", "keep", "threshold", "mass",
    "channel_rates",
)  # fmt: skip


def check_options(cls: type, given: dict[str, Any], options: dict[str, Any]) -> None:
    """Check the values of options, and refuse an option that none of the named classes has.

    Args:
        given: The arguments that the layer names itself.
        options: All others.
    """
    own = options_of(cls)
    named = {name: given[name] for name in own if type(given[name]) in (bool, int, float, str)}
    for name, value in named.items():
        own[name].check(value)
    if isinstance(given["equation"], Equation):
        for name in OF_EQUATION:
            if given[name] != own[name].default:
                raise ArgumentError(f"an equation that is an object has its own {name}: leave {name} out.")
            del named[name]
    # an object has its options already: they count only where a class is named
    parts = [(o.named, named[name]) for name, o in own.items() if o.named is not None and name in named]
    tops = [top for registry, value in parts for top in registry.classes(value)]
    known = {name for top in tops for part in components(top, named) for name in options_of(part)}
    refuse_unknown(options, known | set(own), f"{cls.__name__} with these classes")


def idle_options(equation: str, alpha: float, channel_rates: bool) -> list[str]:
    """Sentences about options that are set, and that an equation does not have."""
    taken = arguments_of(EQUATIONS[equation])
    given = {"alpha": ("alpha", alpha != ALPHA), "rates": ("channel_rates", channel_rates)}
    return [
        f"{name} has no effect in the equation {equation}."
        for argument, (name, is_set) in given.items()
        if is_set and argument not in taken
    ]


def make_diffusivity(
    given: str | Diffusivity, channels: int, time: float, theta_terms: int, options: dict[str, Any]
) -> Diffusivity:
    """By name or as it is; with more than one term its parameters follow time."""
    if isinstance(given, str):
        given = create(DIFFUSIVITIES[given], options, channels=channels)
    # at T = 0 parameters have no interval to vary on: any will do
    return given if theta_terms == 1 else TimeVarying(given, time or 1.0, theta_terms)


def make_terms(
    given: str | Sequence[Term], channels: int, wide: int | None, options: dict[str, Any]
) -> list[Term]:
    """By name or as they are; ``wide`` is the number of coefficients, ``None`` for one."""
    if not isinstance(given, str):
        return list(given)
    return [
        create(TERMS[name], options, channels=channels, beta=Coefficient(0.0, channels=wide), wide=wide)
        for name in split_names(given)
    ]


def make_solver(
    given: str | Solver | None, equation: Equation, channels: int, options: dict[str, Any]
) -> Solver:
    """By name or as it is; auto: the closed form where the equation has one, else dopri5."""
    if isinstance(given, Solver):
        if given.needs and not equation.offers(given.needs):
            raise lacking(given, equation)
        return given
    affine = _closed_form(equation, channels)
    closed = affine is not None
    if given is None or given == "auto":
        given = "exponential" if closed else "dopri5"
    solver = create(SOLVERS[given], options)
    if solver.needs and not equation.offers(solver.needs):
        raise lacking(solver, equation, given)
    if isinstance(solver, Exponential) and not closed:
        raise ArgumentError(
            "solver exponential needs an equation with a closed form: variant linear, a normaliser, "
            "attention, α and sources that are constant in time, and no other term in x; take dopri5 or "
            "rk4."
        )
    if is_rounded(options.get("precision", "full")) and not solver.rounded:  # auto has taken another
        raise ArgumentError(
            "precision bfloat16 is for the closed form and the exponential schemes with steps of one size: "
            f"take solver exponential-two-step, or leave it out; got {given}."
        )
    if solver.rounded and isinstance(solver, Exponential) and affine is not None:
        refuse_polynomial(affine)
    return solver


def _closed_form(equation: Equation, channels: int) -> Affine | None:
    """Of the equation on a graph of one node, with a matrix that stands for any other; ``None``: none."""
    with torch.no_grad():
        like = next(equation.parameters(), torch.zeros(()))
        x = torch.zeros(1, channels, dtype=like.dtype, device=like.device)
        context = Context(_one_node(), x, x, attention=x[:, 0], observed=x)
        affine = equation.affine(context)
        return affine if Exponential.fits(affine, equation.stable()) else None


@cache
def _one_node() -> Graph:
    return Graph.from_edge_index(torch.zeros(2, 1, dtype=torch.long, device="cpu"))


def rewiring_rule(variant: str, keep: float, threshold: float, mass: float) -> dict[str, float]:
    """The rule of equation (12) with its value; empty where all edges are kept."""
    rules = {"keep": keep, "threshold": threshold, "mass": mass}
    chosen = {name: value for name, value in rules.items() if value}
    if len(chosen) > 1:
        raise ArgumentError(f"give at most one of keep, threshold and mass, got {chosen}.")
    return chosen or ({"keep": 0.9} if variant == "nonlinear-rewired" else {})
