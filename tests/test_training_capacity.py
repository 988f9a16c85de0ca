"""A solver with a capacity, as a captured step has it: the same states and gradients as without."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from conftest import D, make_equation, make_graph, normal
from test_training_population import SMALL, data  # noqa: F401
from torch_geometric.data import Data

from graphdiffusion.errors import ArgumentError, TooManyEvaluations
from graphdiffusion.solvers import (
    RK4,
    AdamsBashforth4,
    AdamsMoulton4,
    Euler,
    Exponential,
    Heun,
    Midpoint,
    RK4ThreeEighths,
    SemiImplicitEuler,
    integrate,
)
from graphdiffusion.training import Member, Population, load_problem
from graphdiffusion.training.capture import needed_room, with_capacity

SCHEMES = (
    Euler, Midpoint, Heun, RK4, RK4ThreeEighths, AdamsBashforth4, AdamsMoulton4, SemiImplicitEuler,
)  # fmt: skip
TIMES = {"one": [2.7], "several": [2.7, 1.0, 0.3], "one of many states": 2.7}


@pytest.mark.parametrize("at", [None, (0.2, 0.25)])
@pytest.mark.parametrize("who", TIMES)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_more_room_than_steps(scheme: Any, who: str, at: tuple[float, ...] | None) -> None:
    graph = make_graph("random")
    time = torch.tensor(TIMES[who], dtype=D, requires_grad=True)
    x = normal(*(time.shape if time.dim() else (2,)), graph.num_nodes, 3).requires_grad_()
    equation = make_equation()
    found = []
    for capacity in (None, 9, 20):
        solver = scheme(0.3, max_steps=capacity)
        solution = integrate(equation.bind(graph, x), x, time, solver, at=at)
        outputs = [solution.state, *(solution.states if at else [])]
        total = sum(output.square().sum() for output in outputs)
        gradients = torch.autograd.grad(total, [x, time, *equation.parameters()])
        found.append((outputs, gradients))
    for outputs, gradients in found[1:]:
        for a, b in zip(outputs, found[0][0], strict=True):
            assert torch.equal(a, b)
        for a, b in zip(gradients, found[0][1], strict=True):
            torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_too_little_room(scheme: Any) -> None:
    graph = make_graph("random")
    x, time = normal(2, graph.num_nodes, 3), torch.tensor([2.7, 0.6], dtype=D)
    flow = make_equation().requires_grad_(False).bind(graph, x)
    with pytest.raises(ArgumentError, match=r"9 steps of τ = 0\.3 are needed, but max_steps is 8"):
        integrate(flow, x, time, scheme(0.3, max_steps=8))
    state = integrate(flow, x, time, scheme(0.3, max_steps=8), check=False).state
    assert bool(torch.isnan(state[0]).all())  # rather than x(2.4)
    assert torch.equal(state[1], integrate(flow, x, time, scheme(0.3)).state[1])


def test_too_few_terms() -> None:
    graph = make_graph("random")
    x, time = normal(2, graph.num_nodes, 3), torch.tensor([20.0, 0.5], dtype=D)
    flow = make_equation(linear=True, alpha=1.0).requires_grad_(False).bind(graph, x)
    state = integrate(flow, x, time, Exponential(terms=30), check=False).state
    assert bool(torch.isnan(state[0]).all())  # rather than a series cut short and scaled up
    exact = integrate(flow, x, time, Exponential()).state
    torch.testing.assert_close(state[1], exact[1], rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("end", [math.nan, math.inf, 1e9])
@pytest.mark.parametrize("solver", [RK4(0.5), Exponential()])
def test_a_time_that_has_diverged_is_that_of_its_member(solver: Any, end: float) -> None:
    """A learnt T without bounds: one member has no result, and the others have theirs."""
    graph = make_graph("random")
    x, time = normal(2, graph.num_nodes, 3), torch.tensor([end, 1.0], dtype=D)
    flow = make_equation(linear=True).requires_grad_(False).bind(graph, x)
    solution = integrate(flow, x, time, solver, check=False)
    assert bool(torch.isnan(solution.state[0]).all())
    assert torch.equal(solution.state[1], integrate(flow, x, 1.0, solver).state[1])
    assert solution.failed.tolist() == [not math.isnan(end), False]
    if not math.isnan(end):  # an error for all, where it is asked for
        with pytest.raises(TooManyEvaluations) as found:
            integrate(flow, x, torch.tensor([1e9, 1.0], dtype=D), solver)
        assert found.value.members.tolist() == [True, False]


PLANS = {
    "plain": {},
    "learnt T": {"learn_time": True},
    "sweep": {"sweep": 2.0, "sweep_points": 3},
    "penalties": {"kinetic": 0.1, "jacobian": 0.1},
    "all": {
        "learn_time": True, "sweep": 2.0, "sweep_points": 3, "kinetic": 0.1, "jacobian": 0.1, "readout": 3,
    },
}  # fmt: skip
EACH_PLAN = ("exponential", "rk4", "adams-bashforth")
SOLVERS = ("exponential", "euler", "midpoint", "heun", "rk4", "adams-bashforth", "exponential-midpoint")
OPTIONS = (
    {"time": 0.9, "alpha": 0.3, "rate": 0.05, "dropout": 0.1},
    {"time": 2.7, "alpha": 0.8, "decay": 0.1},
    {"time": 1.1, "input_dropout": 0.6},
)


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize(
    ("solver", "plan"),
    # the other schemes have the steps of rk4: the plans with least and most suffice
    [(s, p) for s in SOLVERS for p in PLANS if s in EACH_PLAN or p in ("plain", "all")],
)
def test_training_with_a_capacity(data: Data, solver: str, plan: str, count: int) -> None:  # noqa: F811
    """What a captured step computes, without the capture: after two epochs all tensors are equal."""
    variant = "linear" if solver == "exponential" else "nonlinear"
    how = {"solver": solver, "variant": variant}
    if variant == "nonlinear":
        how["step_size"] = 0.1 if solver == "adams-bashforth" else 0.45
    config = SMALL.replace(**how, **PLANS[plan], alpha=0.5)
    members = [Member(k, k, 100 + k, OPTIONS[k]) for k in range(count)]
    plain, padded = (Population(load_problem(config, data), config, members) for _ in range(2))
    for _ in range(2):
        plain.compute()
        with with_capacity(padded, tuple(part + 3 for part in needed_room(padded))):
            padded.compute()
    for name, value in plain.state().items():
        assert bool(torch.isfinite(value).all()), name
        torch.testing.assert_close(padded.state()[name], value, rtol=1e-5, atol=1e-6, msg=name)
