"""What is said of a result: curves, facts, what happened; and all of it packed for the page."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...calculus import dirichlet_energy
from ...graph import Graph
from ..page.html import numbers
from .experiment import EDGES, SCHEMES
from .formula import formulas
from .simulate import Array, Result
from .theory import conserved, eigenvalues, general_limit, judge, step_factor, step_limit

LITTLE = 0.01  # of the range: values that leave it by less are said to stay
BLOWN = 10.0  # a difference to the exact solution, in sizes of it, that is called a blow-up


def packed(result: Result) -> dict[str, Any]:
    """A result for the script of the page: arrays as base64, the rest as JSON."""
    own, states = result.experiment, result.states
    charts: dict[str, Any] = {
        "energy": _listed(_energy(result.flow.graph, states)),
        "low": _listed(states.min(1)),
        "high": _listed(states.max(1)),
    }
    if result.exact is not None:
        charts["exact_energy"] = _listed(_energy(result.flow.graph, result.exact))
        charts["error"] = _listed(np.abs(states - result.exact).max(1))
    kept = conserved(own, result.flow)
    name, weights = kept or ("mean of xᵢ (not conserved)", np.full(own.nodes, 1 / own.nodes))
    charts["mass"] = _listed(states @ weights)
    if kept:  # d/dt of it is β times its first value
        charts["exact_mass"] = _listed((states[0] @ weights) * (1 + own.beta * result.times))
    kind, happened = happening(result)
    spectra = [eigenvalues(result.flow, own.state())]
    if not own.linear:
        spectra.append(eigenvalues(result.flow, torch.from_numpy(states[-1])[:, None]))
    limits = [step_limit(own.scheme, spectrum) for spectrum in spectra]
    theory = judge(own, result.step, limits)
    if theory.kind == "unstable" and kind == "stayed":
        happened += " The mode that grows is still small: take a longer T."
    return {
        "times": [round(t, 9) for t in result.times.tolist()],
        "states": numbers(states, "f4"),
        "exact": None if result.exact is None else numbers(result.exact, "f4"),
        "attention": numbers(np.clip(255 * result.attention, 0, 255).round(), "u1"),
        "pairs": result.pairs.tolist(),
        "charts": charts,
        "mass": name,
        "formulas": formulas(own, result.step),
        "theory": {"kind": theory.kind, "sentence": theory.sentence},
        "happened": {"kind": kind, "sentence": happened},
        "facts": _facts(result, spectra[0], limits[0]),
    }


def happening(result: Result) -> tuple[str, str]:
    """What happened: ``failed``, ``blown``, ``left`` or ``stayed``, and a sentence."""
    own, error = result.experiment, result.error
    if result.failure:
        return "failed", f"The scheme gave up: {result.failure}"
    first, largest = np.abs(result.states[0]).max(), np.abs(result.states).max()
    size = f"max |x| went from {first:.4g} to {largest:.4g}"
    scale = first if result.exact is None else np.abs(result.exact).max()
    far = largest if error is None else error.max()
    if math.isfinite(result.lost) or far > BLOWN * max(scale, 1e-12):
        beyond = f", and beyond 10³⁰ at t = {result.lost:.4g}" if math.isfinite(result.lost) else ""
        return "blown", f"It blew up: {size}{beyond}."
    missed = f" The error at the end is {signed(error[-1], 2)}." if error is not None else ""
    if own.scheme == "exponential":
        missed = " It is the exact solution."
    if own.beta:
        return "stayed", f"It stayed bounded: |x| is {signed(largest)} at most, with a source.{missed}"
    excess = float(result.bound.excess.max())
    held = {"rows": "All values stayed in their range", "columns": "Σ|xᵢ| did not grow"}
    name = held.get(own.over, "‖x‖ did not grow")
    if excess <= LITTLE:
        but = f", but for {_percent(excess)}" if excess > 1e-6 else ""
        return "stayed", f"{name}{but}.{missed}"
    if own.over == "rows":
        ends = [signed(end) for end in (result.states[0].min(), result.states[0].max())]
        now = [signed(end) for end in (result.states.min(), result.states.max())]
        left = f"The values left their range, {ends[0]} to {ends[1]}: they reached {now[0]} to {now[1]}"
        return "left", f"{left}.{missed}"
    grew = "Σ|xᵢ| grew" if own.over == "columns" else "‖x‖ grew"
    return "left", f"{grew} by {_percent(excess)}.{missed}"


def _percent(share: float) -> str:
    if share >= 10:
        return f"{share:.3g} times its size"
    return f"{100 * share:.2g}%" if share < 1 else f"{100 * share:.0f}%"


def signed(number: float, digits: int = 4) -> str:
    """With a minus sign at which no line is broken."""
    return f"{number:.{digits}g}".replace("-", "−")


def _facts(result: Result, spectrum: Any, limit: float | None) -> list[list[str]]:
    """Rows of label and value."""
    own = result.experiment
    at = "" if own.linear else " at t = 0"
    fastest, last = (0.0 if abs(end) < 1e-9 else end for end in spectrum.real[[0, -1]])
    slow = -spectrum.real[spectrum.real < -1e-9]
    facts = [
        ["graph", f"{own.nodes:,} nodes, {len(result.pairs):,} edges"],
        [f"eigenvalues of A − I{at}", f"from {signed(fastest)} to {signed(last)}" + _complex(spectrum)],
    ]
    if len(slow):
        half = math.log(2) / (float(slow.min()) * own.alpha)
        long = f"{half:,.0f}" if half > 100 else f"{half:.3g}"
        facts.append([f"slowest mode{at}", f"halves in t = {long}"])
    facts.append([SCHEMES[own.scheme], result.cost])
    if result.step is not None:
        general = general_limit(own.scheme)
        facts.append(["limit, every graph", "none" if general is None else f"τα < {general:.4g}"])
        here = "none" if limit is None else f"τ < {limit / own.alpha:.4g}"
        facts.append([f"limit, this graph{at}", here])
        factor = step_factor(own.scheme, result.step * own.alpha * spectrum)
        facts.append([f"a step multiplies a mode{at}", f"by at most {factor:.4g} in size"])
    found = result.bound
    if not own.beta:
        excess = float(found.excess.max())
        facts.append([found.name, "kept" if excess <= 1e-9 else f"exceeded by {_percent(excess)}"])
    kept = conserved(own, result.flow)
    if kept:
        total = result.states @ kept[1]
        want = total[0] * (1 + own.beta * result.times)
        drift = float(np.abs(total - want).max()) / max(float(np.abs(want).max()), 1e-12)
        change = "conserved" if not own.beta else "grows with the source"
        told = f"{change}, to {signed(drift, 1)}" if drift < 1e-6 else f"drifts by {_percent(drift)}"
        facts.append([kept[0], told])
    if own.scheme == "exponential":
        facts.append(["error", "none: this is the exact solution"])
    elif result.error is not None:
        facts.append(["error at the end", signed(result.error[-1], 3)])
    else:
        facts.append(["error at the end", "not known: the exact solution takes too long"])
    return facts


def _complex(spectrum: Any) -> str:
    high = float(np.abs(spectrum.imag).max())
    return f", imaginary parts up to {high:.3g}" if high > 0 else ""


def _energy(graph: Graph, states: Array) -> Array:
    """½ Σ (xᵢ − xⱼ)² over the edges, each counted once; of a directed graph as if it went both ways."""
    if not graph.is_symmetric:
        pairs = graph.edge_index
        graph = Graph.from_edge_index(torch.cat([pairs, pairs.flip(0)], 1), graph.num_nodes)
    x: Tensor = torch.from_numpy(states)[..., None]
    parts = x.split(max(1, 40 * EDGES // max(graph.num_edges, 1)))
    return torch.cat([dirichlet_energy(graph, part) for part in parts]).numpy()


def _listed(values: Array) -> list[float]:
    """With seven digits, which a chart does not show."""
    return [float(f"{v:.7g}") for v in values]
