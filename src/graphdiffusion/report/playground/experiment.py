"""What is integrated in the playground: read from a request, checked, and made of the library's classes."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...diffusivity import ConstantLaplacian, Diffusivity, ExponentialKernel, ScaledDotProduct
from ...equation import Coefficient, Diffusion, Flow, Source
from ...errors import ArgumentError, DataError
from ...graph import Graph
from ...options import create
from ...solvers import SOLVERS, FixedStep, Solver

NODES, EDGES, STEPS = 400, 4000, 2000  # the most of each

SCHEMES = {
    "euler": "explicit Euler (7)",
    "midpoint": "explicit midpoint",
    "heun": "Heun",
    "rk4": "Runge-Kutta 4",
    "adams-bashforth": "Adams-Bashforth 4",
    "adams-moulton": "Adams-Moulton 4",
    "semi-implicit": "semi-implicit Euler (8)",
    "trapezoid": "trapezoid",
    "bdf2": "BDF2",
    "exponential": "closed form",
    "exponential-euler": "exponential Euler",
    "exponential-midpoint": "exponential midpoint",
    "dopri5": "Dormand-Prince",
    "esdirk": "ESDIRK 4(3)",
}
DIFFUSIVITIES = {
    "laplacian": "constant Laplacian",
    "exponential": "Gaussian kernel",
    "scaled-dot": "scaled dot product",
}
SUMS = {"rows": "rows", "columns": "columns", "symmetric": "symmetric"}

# number: least, most
NUMBERS = {
    "alpha": (0.01, 10.0),
    "beta": (-5.0, 5.0),
    "time": (0.01, 200.0),
    "step": (0.001, 200.0),
    "tolerance": (1e-10, 0.1),
    "strength": (0.0, 30.0),
    "width": (0.01, 100.0),
}
NAMES = {"diffusivity": DIFFUSIVITIES, "over": SUMS, "scheme": SCHEMES}
FLAGS = ("linear", "directed", "loops")
LARGEST = 1000.0  # value of a node; beyond it the kernel would lose digits


@dataclass(frozen=True)
class Experiment:
    """A graph, an initial state, an equation and a scheme.

    Attributes:
        nodes: Their number.
        edges: Pairs of nodes: both ways unless ``directed``, then from the first to the second.
        values: x(0).
        loops: Give every node a self-loop.
        diffusivity: Name of what makes A.
        strength: Of the attention: a kernel's amplitude, or the factor of a product; 0 is no attention.
        width: ℓ, the difference of two values that counts as large in the kernel.
        over: What sums to one.
        linear: A from x(0), not from x(t).
        scheme: Name of the solver.
        step: τ.
        tolerance: Of schemes that choose their steps.
    """

    nodes: int
    edges: tuple[tuple[int, int], ...]
    values: tuple[float, ...]
    directed: bool = False
    loops: bool = False
    diffusivity: str = "laplacian"
    strength: float = 6.0
    width: float = 0.5
    over: str = "rows"
    linear: bool = True
    alpha: float = 1.0
    beta: float = 0.0
    time: float = 10.0
    scheme: str = "euler"
    step: float = 0.5
    tolerance: float = 1e-3

    @classmethod
    def read(cls, content: Any) -> Experiment:
        """From the content of a request; whatever is not as it should be is refused with a sentence."""
        if not isinstance(content, dict):
            raise DataError("a request must be an object with nodes, edges and values.")
        known = {"nodes", "edges", "values", *NUMBERS, *NAMES, *FLAGS}
        if unknown := sorted(set(content) - known):
            raise DataError(f"there is no setting {unknown[0][:40]!r}.")
        if missing := sorted({"nodes", "edges", "values"} - set(content)):
            raise DataError(f"a request must have {', '.join(missing)}.")
        nodes = content["nodes"]
        if isinstance(nodes, bool) or not isinstance(nodes, int) or not 1 <= nodes <= NODES:
            raise DataError(f"a graph must have 1 to {NODES} nodes, got {_shown(nodes)}.")
        own: dict[str, Any] = {"nodes": nodes, "edges": _edges(content["edges"], nodes)}
        own["values"] = _values(content["values"], nodes)
        for name, (least, most) in NUMBERS.items():
            if name in content:
                own[name] = _number(name, content[name], least, most)
        for name, choices in NAMES.items():
            if name in content:
                value = content[name]
                if not isinstance(value, str) or value not in choices:
                    raise DataError(f"{name} must be one of {', '.join(choices)}, got {_shown(value)}.")
                own[name] = value
        for name in FLAGS:
            if name in content:
                if not isinstance(content[name], bool):
                    raise DataError(f"{name} must be true or false, got {_shown(content[name])}.")
                own[name] = content[name]
        made = cls(**own)
        made.check()
        return made

    def check(self) -> None:
        """Refuse settings that do not go together."""
        if self.scheme == "exponential" and not self.linear:
            raise ArgumentError(
                "the closed form is that of the linear equation: choose linear, or another scheme, such "
                "as exponential midpoint."
            )
        solver = self.solver()
        if isinstance(solver, FixedStep) and (steps := self.steps(solver)) > STEPS:
            raise ArgumentError(
                f"T = {self.time:g} takes {steps:,} steps of τ = {self.step:g}, and {STEPS:,} are the most "
                f"here: take τ ≥ {self.time / STEPS:g}, or a smaller T."
            )

    def steps(self, solver: FixedStep) -> int:
        return int(solver.steps(torch.tensor(self.time, dtype=torch.float64)))

    def graph(self) -> Graph:
        pairs = torch.tensor(self.edges, dtype=torch.long).reshape(-1, 2).t()
        if not self.directed:
            pairs = torch.cat([pairs, pairs.flip(0)], 1)
        return Graph.from_edge_index(pairs, self.nodes, self_loops=1.0 if self.loops else 0.0)

    def state(self) -> Tensor:
        """x(0), ``(n, 1)`` in float64."""
        return torch.tensor(self.values, dtype=torch.float64)[:, None]

    def solver(self) -> Solver:
        """The scheme; equations inside a step are solved much more exactly than a step is."""
        scheme = SOLVERS[self.scheme]
        options: dict[str, Any] = {}
        if self.scheme in ("adams-moulton", "trapezoid", "bdf2"):
            options = {"rtol": 1e-10, "atol": 1e-12, "max_iterations": 1000}
        if issubclass(scheme, FixedStep):
            options |= {"step_size": self.step, "max_evaluations": 10 * STEPS}
        elif self.scheme != "exponential":
            options |= {"rtol": self.tolerance, "atol": self.tolerance / 10}
        return create(scheme, options)

    def flow(self, patience: float = math.inf) -> Flow:
        """The equation bound to the graph and to x(0).

        Args:
            patience: Seconds after which every evaluation is refused with a sentence.
        """
        terms = [Source(Coefficient(1.0, learn=False))] if self.beta else []
        equation = Diffusion(self._diffusivity(), linear=self.linear, alpha=1.0, terms=terms).double()
        equation.requires_grad_(False)
        with torch.no_grad():  # in double precision: as numbers of the constructor they were rounded
            equation.alpha.raw.fill_(self.alpha)
            for term in terms:
                term.beta.raw.fill_(self.beta)
        end = time.monotonic() + patience

        def hurry(*given: Any) -> None:
            if time.monotonic() > end:
                raise ArgumentError(
                    f"this takes longer than {patience:g} s: take longer steps, a shorter T or fewer nodes."
                )

        equation.register_forward_pre_hook(hurry)
        return equation.bind(self.graph(), self.state())

    def _diffusivity(self) -> Diffusivity:
        over: Any = self.over
        if self.diffusivity == "laplacian":
            return ConstantLaplacian(over=over)
        family = {"exponential": ExponentialKernel, "scaled-dot": ScaledDotProduct}[self.diffusivity]
        own = family(1, heads=1, attention_dim=1, start=1.0, normaliser="softmax", over=over).double()
        with torch.no_grad():
            for side in (own.query, own.key):
                if side.bias is not None:
                    side.bias.zero_()
            if isinstance(own, ExponentialKernel):
                own.log_amplitude.fill_(math.log(max(self.strength, 1e-300)) / 2)
                own.log_length.fill_(math.log(self.width))
            else:
                own.query.weight.fill_(self.strength)
        return own


def _shown(value: Any) -> str:
    """A value of a request in a sentence, cut short."""
    if value is None:
        return "nothing"
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def _number(name: str, value: Any, least: float, most: float) -> float:
    fine = isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= most
    if not fine:
        raise DataError(f"{name} must be a number from {least:g} to {most:g}, got {_shown(value)}.")
    return float(value)


def _edges(given: Any, nodes: int) -> tuple[tuple[int, int], ...]:
    if not isinstance(given, list) or len(given) > EDGES:
        count = f"{len(given):,}" if isinstance(given, list) else _shown(given)
        raise DataError(f"edges must be a list of at most {EDGES:,} pairs, got {count}.")
    for pair in given:
        fine = isinstance(pair, list) and len(pair) == 2
        if not (fine and all(type(end) is int and 0 <= end < nodes for end in pair)):
            raise DataError(f"an edge must be a pair of nodes from 0 to {nodes - 1}, got {_shown(pair)}.")
    return tuple((a, b) for a, b in given)


def _values(given: Any, nodes: int) -> tuple[float, ...]:
    if not isinstance(given, list) or len(given) != nodes:
        count = f"{len(given):,}" if isinstance(given, list) else _shown(given)
        raise DataError(f"values must be a list of {nodes} numbers, one for each node, got {count}.")
    return tuple(_number("a value", value, -LARGEST, LARGEST) for value in given)


def settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """All settings of an experiment but the graph, by default those of the class."""
    fields = Experiment.__dataclass_fields__
    names = (*NUMBERS, *NAMES, "linear", "loops")
    return {name: given.get(name, fields[name].default) for name in names}
