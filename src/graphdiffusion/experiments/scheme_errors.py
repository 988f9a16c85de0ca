"""Error of x(T) against what it costs: every scheme on the same four equations."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..equation import Flow
from ..nn import GRAND
from ..solvers import Solver, integrate
from ..solvers.dormand_prince import DormandPrince
from ..solvers.exponential import Exponential
from ..training.config import Config
from ..training.population import Population
from ..training.problem import Problem, protocol
from ..training.template import build_model
from .clock import seconds
from .results import Tick
from .scheme_list import SCHEMES, amounts, available, make_solver

EQUATIONS = {"linear": "GRAND-l", "nonlinear": "GRAND-nl"}
REFERENCE = (1e-9, 1e-10)  # rtol and atol of Dormand-Prince in float64
MOST = 50_000  # evaluations of the reference: without it an error is not known


@dataclass(frozen=True)
class ErrorSettings:
    """Of the equations and schemes; the model and its training are the authors' published ones for Cora.

    Attributes:
        hidden, heads, attention_dim, time: Of the model.
        epochs: Of the equation that is trained.
        parts: Numbers of equal steps that [0, T] is cut into.
        scales: Tolerance scales of the adaptive schemes.
        inner: Tolerance scale of the implicit steps.
        repeats: Integrals of each scheme; the fastest counts.
        schemes: Names.
    """

    hidden: int = 80
    heads: int = 8
    attention_dim: int = 128
    time: float = 18.3
    epochs: int = 60
    parts: tuple[int, ...] = (1, 2, 4, 8, 12, 16, 32, 64)
    scales: tuple[float, ...] = (1e2, 1e3, 1e4, 1e5)
    inner: float = 100.0
    repeats: int = 2
    schemes: tuple[str, ...] = tuple(SCHEMES)


def published(equation: str, data: str, own: ErrorSettings) -> Config:
    """The authors' settings for Cora, in which training takes a scheme that is stable and cheap."""
    scheme: dict[str, Any] = (
        {"solver": "exponential"} if equation == "linear" else {"solver": "rk4", "step_size": 2.04}
    )
    return Config(
        data=data, variant=equation, time=own.time, hidden=own.hidden, heads=own.heads,
        attention_dim=own.attention_dim, normaliser="squareplus", over="columns", terms="source",
        optimiser="adamax", rate=0.0229, decay=0.00508, input_dropout=0.5, dropout=0.047, splits=1,
        epochs=max(own.epochs, 1), **scheme,
    )  # fmt: skip


def trained_model(problem: Problem, config: Config, epochs: int, tick: Tick) -> GRAND:
    """The model of the first member after some epochs, on the device of the data."""
    population = Population(problem, config, protocol(config, problem.data))
    for epoch in range(epochs):
        population.step()
        tick((epoch + 1) / epochs / 2)
    return model_of(problem, config, population.saved(population.stack.tensors, 0), population.members[0])


def model_of(problem: Problem, config: Config, state: Mapping[str, Tensor], member: Any) -> GRAND:
    """A member as a model of its own, in evaluation."""
    model = build_model(config, problem.in_channels, problem.out_channels, member.init, problem.num_nodes)
    model.load_state_dict(dict(state), strict=False)
    assert isinstance(model, GRAND)
    return model.to(problem.y.device).eval()


@torch.no_grad()
def start(model: GRAND, problem: Problem) -> Tensor:
    """x(0) of a model on the data of a problem."""
    return model.encode(problem.x)


@torch.no_grad()
def exact_end(model: GRAND, problem: Problem, x: Tensor) -> Tensor | None:
    """x(T) in float64 from x(0): the closed form, or Dormand-Prince at sharp tolerances.

    ``None`` where that takes too many evaluations, or T is too long for a finite state.
    """
    layer = copy.deepcopy(model.diffusion).double()
    flow = layer.bind(x.double(), problem.graph)
    sharp = Exponential() if Exponential.accepts(flow) else DormandPrince(*REFERENCE, max_evaluations=MOST)
    solution = integrate(flow, x.double(), float(layer.time), sharp, check=False)
    found = bool(torch.isfinite(solution.state).all()) and not solution.stats.failures
    return solution.state if found else None


def relative_error(state: Tensor, exact: Tensor | None) -> float | None:
    """In the 2-norm; ``None`` where it is not known or not finite."""
    if exact is None:
        return None
    error = float((state.detach().double() - exact).norm() / exact.norm())
    return error if math.isfinite(error) else None


def error_point(
    point: Mapping[str, Any],
    problem: Callable[[Config], Problem],
    own: ErrorSettings,
    data: str,
    tick: Tick,
) -> dict[str, Any]:
    """All schemes on one equation, trained or not."""
    config = published(point["equation"], data, own)
    ready = problem(config)
    model = trained_model(ready, config, own.epochs if point["trained"] else 0, tick)
    steps = [own.time / part for part in own.parts]
    cases = [
        (name, amount, make_solver(name, amount, own.inner))
        for name in available(own.schemes, linear=point["equation"] == "linear")
        for amount in amounts(name, steps, steps, steps, own.scales)
    ]
    return {
        "rows": error_rows(model, ready, cases, own.repeats, lambda share: tick(0.5 + share / 2)),
        "alpha": float(model.diffusion.equation.rate().detach().max()),
        "options": config.to_dict(),
    }


def error_rows(
    model: GRAND,
    problem: Problem,
    cases: Sequence[tuple[str, float | None, Solver]],
    repeats: int,
    tick: Tick,
) -> list[dict[str, Any]]:
    """Error and cost of x(T) for each solver, a row for each.

    The seconds are those of an integral in float32 and of its gradient, solvers in turns, the fastest of
    ``repeats``.

    Args:
        cases: Name of a scheme, its step or tolerance scale, and the solver.
    """
    x = start(model, problem)
    exact, span = exact_end(model, problem, x), float(model.diffusion.time)
    x.requires_grad_()
    rows: list[dict[str, Any]] = []
    for turn in range(repeats):
        for place, (name, amount, solver) in enumerate(cases):
            tick((turn + place / len(cases)) / repeats)
            found = integrated(model.diffusion.bind(x, problem.graph), x, span, solver, exact)
            if turn == 0:
                rows.append({"scheme": name, "amount": amount, **found})
            else:
                rows[place]["cost"] = min(rows[place]["cost"], found["cost"])
    return rows


def integrated(
    flow: Flow, x: Tensor, span: float, solver: Solver, exact: Tensor | None, gradient: bool = True
) -> dict[str, Any]:
    """Error, cost in seconds, and counts of one integral."""
    began = seconds(x.device)
    solution = integrate(flow, x, span, solver, check=False)
    if gradient:
        torch.autograd.grad(solution.state.sum(), x)
    cost = seconds(x.device) - began
    stats = solution.stats
    return {
        "error": relative_error(solution.state, exact),
        "cost": cost,
        "steps": stats.accepted,
        "evaluations": stats.evaluations,
        "inner_iterations": stats.inner_iterations,
        "newton_iterations": stats.newton_iterations,
        "products": stats.products,
        "failed": type(stats.failures[0]).__name__ if stats.failures else "",
    }


def error_points() -> list[dict[str, Any]]:
    """What identifies each equation."""
    return [
        {"part": "errors", "equation": equation, "trained": trained}
        for equation in EQUATIONS
        for trained in (False, True)
    ]
