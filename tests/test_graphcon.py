"""GraphCON, and symplectic Euler: formula, order, stability, energy, gradients, members, training."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import D, make_diffusivity, make_equation, make_graph, normal, scatter_parameters
from test_cli_basics import SMALL, write_graph
from torch import Tensor
from torch.func import functional_call, stack_module_state

from graphdiffusion.cli import main
from graphdiffusion.equation import GraphCON, Source
from graphdiffusion.errors import ArgumentError, StabilityWarning
from graphdiffusion.graph import Graph
from graphdiffusion.nn import GraphDiffusion
from graphdiffusion.solvers import DormandPrince, Euler, SymplecticEuler, integrate

SHARP = DormandPrince(1e-9, 1e-10)


def model(seed: int = 0, over: str = "rows", diffusivity: str = "dot/sqrt", **how: Any) -> GraphCON:
    terms = [Source(0.25)] if how.pop("source", False) else []
    built = GraphCON(make_diffusivity(diffusivity, seed=seed, over=over), channels=3, terms=terms, **how)
    return built.to(D)


@pytest.mark.parametrize("linear", [True, False])
@pytest.mark.parametrize("activation", ["relu", "tanh", "identity"])
def test_against_the_formula(small: Graph, linear: bool, activation: str) -> None:
    own = model(linear=linear, activation=activation, mix=True, stiffness=0.75, damping=0.5, source=True)
    assert own.mix is not None
    scatter_parameters(own, scale=0.2)
    x0, x, v = (normal(9, 3, seed=k) for k in range(3))
    flow = own.bind(small, x0)
    a = small.dense(own.diffusivity(small, x0 if linear else x))
    sigma = {"relu": torch.relu, "tanh": torch.tanh, "identity": lambda y: y}[activation]
    force = sigma(a @ x @ own.mix) - 0.75 * x - 0.5 * v + own.terms[0].beta() * x0
    torch.testing.assert_close(flow(None, torch.cat([x, v], -1)), torch.cat([v, force], -1))
    torch.testing.assert_close(flow.attention(None, torch.cat([x, v], -1)), flow.attention(None, x))
    assert float(own.lift(x0)[:, 3:].abs().max()) == 0
    assert torch.equal(model(velocity="features").lift(x0), torch.cat([x0, x0], -1))


def system(own: GraphCON, graph: Graph, x: Tensor) -> Tensor:
    """The matrix of the linear system of position and velocity."""
    n, eye = graph.num_nodes, torch.eye(graph.num_nodes, dtype=D)
    found = torch.zeros(2 * n, 2 * n, dtype=D)
    found[:n, n:], found[n:, n:] = eye, -own.damping * eye
    found[n:, :n] = graph.dense(own.diffusivity(graph, x)) - own.stiffness * eye
    return found


def test_order_and_exact_solution(small: Graph) -> None:
    own = model(linear=True, activation="identity", stiffness=1.5, damping=0.25)
    x = normal(9, 3)
    flow, start = own.bind(small, x), own.lift(x)
    want = torch.cat(
        (torch.linalg.matrix_exp(3.0 * system(own, small, x)) @ torch.cat([x, 0 * x])).split(9), -1
    )
    torch.testing.assert_close(integrate(flow, start, 3.0, SHARP).state, want, rtol=1e-7, atol=1e-7)
    errors = [
        float((integrate(flow, start, 3.0, SymplecticEuler(3.0 / n)).state - want).detach().norm())
        for n in (64, 128, 256)
    ]
    assert [round(math.log2(a / b), 1) for a, b in pairwise(errors)] == [1.0, 1.0]
    solution = integrate(flow, start, 3.0, SymplecticEuler(0.01), at=[0.005, 1.5])
    assert solution.states is not None and solution.stats.evaluations == 300
    torch.testing.assert_close(
        solution.states[0], (start + integrate(flow, start, 0.01, SymplecticEuler(0.01)).state) / 2
    )


@pytest.mark.parametrize("damping", [0.0, 0.5])
def test_limit_of_stability(damping: float) -> None:
    """τ²ω² < 4 − 2τδ, with the fastest frequency ω² = γ − μ of the path, μ the smallest eigenvalue."""
    graph = make_graph("path")
    own = model(
        linear=True,
        activation="identity",
        stiffness=1.0,
        damping=damping,
        diffusivity="constant",
        over="symmetric",
    )
    x = normal(8, 3)
    a = graph.dense(own.diffusivity(graph, x))
    square = 1 - float(torch.linalg.eigvalsh(a).min())
    limit = (-damping + math.sqrt(damping**2 + 4 * square)) / square
    flow, start = own.bind(graph, x), own.lift(x)
    for share, stable in ((0.97, True), (1.03, False)):
        step = share * limit
        state = integrate(flow, start, 600 * step, SymplecticEuler(step), check=False).state
        assert bool(torch.isfinite(state).all() and state.abs().max() < 100) is stable
    with pytest.warns(StabilityWarning):
        integrate(flow, start, 4.0, SymplecticEuler(2.0), check=True)


def test_energy(small: Graph) -> None:
    """Without damping it stays bounded for all times with this scheme, and grows with forward Euler."""
    own = model(
        linear=True,
        activation="identity",
        stiffness=1.0,
        damping=0.0,
        diffusivity="constant",
        over="symmetric",
    )
    x = normal(9, 3)
    flow, start = own.bind(small, x), own.lift(x)
    a = small.dense(own.diffusivity(small, x))

    def energy(state: Tensor) -> float:
        u, v = state.chunk(2, -1)
        return float(v.square().sum() + (u * (u - a @ u)).sum()) / 2

    kept, grown = (
        integrate(flow, start, 60.0, s(0.1), check=False).state for s in (SymplecticEuler, Euler)
    )
    assert abs(energy(kept) / energy(start) - 1) < 0.15 and energy(grown) > 5 * energy(start)


def test_bound_of_the_energy(small: Graph) -> None:
    own = model(activation="relu", stiffness=0.5, damping=0.0, over="symmetric")
    x = normal(9, 3)
    at = [0.5, 1.0, 2.0, 4.0]
    states = integrate(own.bind(small, x), own.lift(x), 4.0, DormandPrince(1e-6, 1e-7), at=at).states
    assert states is not None
    start = 0.25 * float(x.square().sum())
    for t, state in zip(at, states.detach(), strict=True):
        u, v = state.chunk(2, -1)
        energy = float(v.square().sum() + 0.5 * u.square().sum()) / 2
        assert energy <= start * math.exp(t / math.sqrt(0.5))


@pytest.mark.parametrize("velocity", ["zero", "features"])
def test_growth_of_the_linear_equation(small: Graph, velocity: Any) -> None:
    """From rest nothing grows for γ = 1, δ = 0; with a velocity at most like 1 + t, which is reached."""
    own = model(
        linear=True, activation="identity", stiffness=1.0, damping=0.0, diffusivity="constant",
        over="symmetric", velocity=velocity,
    )  # fmt: skip
    degree = torch.bincount(small.row, minlength=9).to(D)
    still = degree.sqrt().unsqueeze(-1).expand(9, 3)  # A leaves it as it is
    factor = 1.0 if velocity == "zero" else 5.0
    for x, reached in ((normal(9, 3), False), (still, True)):
        state = integrate(own.bind(small, x), own.lift(x), 4.0, DormandPrince(1e-8, 1e-9)).state
        size = float(own.read(state).norm() / x.norm())
        assert size == pytest.approx(factor, rel=1e-6) if reached else size < factor


def test_gradients(small: Graph) -> None:
    own = model(mix=True, source=True, activation="tanh")
    x = normal(9, 3).requires_grad_()
    leaves = [x, *(p for p in own.parameters() if p.requires_grad)]

    def gradients(solver: Any, mode: Any) -> Any:
        state = integrate(own.bind(small, x), own.lift(x), 1.0, solver, gradient=mode).state
        return torch.autograd.grad(state.square().sum(), leaves)

    close = DormandPrince(1e-7, 1e-8)
    for ours, theirs, near in (
        (gradients(SymplecticEuler(0.1), "checkpoint"), gradients(SymplecticEuler(0.1), "backprop"), 1e-12),
        (gradients(close, "adjoint"), gradients(close, "backprop"), 1e-3),
    ):
        for one, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(one, other, rtol=near, atol=near)


@pytest.mark.parametrize("members", [3, 6, 9])
def test_members(small: Graph, members: int) -> None:
    """As many as features, channels of the state, or nodes."""

    class Held(torch.nn.Module):
        def __init__(self, seed: int) -> None:
            super().__init__()
            self.equation = scatter_parameters(model(seed, mix=True, source=True), seed, 0.2)

        def forward(self, x: Tensor, time: Tensor) -> Tensor:
            flow = self.equation.bind(small, x)
            return integrate(flow, self.equation.lift(x), time, SymplecticEuler(0.25)).state

    models = [Held(k) for k in range(members)]
    stacked, _ = stack_module_state(models)  # type: ignore[arg-type]
    x, times = normal(members, 9, 3), torch.linspace(0.5, 2.0, members, dtype=D)
    together = functional_call(models[0], stacked, (x, times))
    for k, alone in enumerate(models):
        torch.testing.assert_close(together[k], alone(x[k], times[k]), rtol=1e-12, atol=1e-12)


def test_refusals(small: Graph) -> None:
    x = normal(9, 3)
    diffusion = make_equation(linear=True).bind(small, x)
    fields = {"Diffusion": diffusion, "function": lambda t, y: -y, "Linear": torch.nn.Linear(3, 3)}
    for name, field in fields.items():
        with pytest.raises(ArgumentError, match=f"needs an equation of second order.* got {name}\\."):
            integrate(field, x, 1.0, SymplecticEuler(0.5))
    with pytest.raises(
        ArgumentError, match=r"symplectic-euler needs an equation of second order.* got Diffusion"
    ):
        GraphDiffusion(3, solver="symplectic-euler")
    with pytest.raises(ArgumentError, match="exponential needs an equation with a closed form"):
        GraphDiffusion(3, equation="graphcon", solver="exponential")
    assert isinstance(GraphDiffusion(3, equation="graphcon").solver, DormandPrince)


def test_training(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    write_graph(Path("toy"))
    more = ["--equation", "graphcon", "--solver", "symplectic-euler", "--step-size", "0.5", "--mix"]
    for variant in ("linear", "nonlinear"):
        assert main(["train", "toy", *SMALL, *more, "--variant", variant, "--out", variant]) == 0
    assert main(["evaluate", "linear"]) == 0
