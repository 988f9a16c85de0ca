"""An equation of second order, with ordinary schemes and with one that needs positions and velocities."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from conftest import D, make_diffusivity, make_equation, make_graph, normal
from torch import Tensor
from torch.func import functional_call, stack_module_state

from graphdiffusion.diffusivity import Diffusivity
from graphdiffusion.equation import Coefficient, Context, Equation
from graphdiffusion.errors import ArgumentError
from graphdiffusion.graph import Graph
from graphdiffusion.nn import GraphDiffusion
from graphdiffusion.ops import propagate
from graphdiffusion.solvers import (
    RK4,
    AdamsMoulton4,
    DormandPrince,
    Euler,
    Exponential,
    FixedStep,
    State,
    Stats,
    Step,
    default_solver,
    integrate,
)


class Wave(Equation):
    """u'' = c (A − I) u − γ u', as a state (u, u') of twice the channels; A from the start."""

    members = True

    def __init__(self, diffusivity: Diffusivity, speed: float = 0.75, friction: float = 0.0) -> None:
        super().__init__()
        self.diffusivity = diffusivity
        self.speed, self.friction = Coefficient(speed), Coefficient(friction)

    def prepare(self, context: Context) -> Context:
        return context.at(attention=self.diffusivity(context.graph, context.x0, context.mask))

    def attention(self, context: Context) -> Tensor | None:
        return context.attention

    def derivative(self, context: Context) -> Tensor:
        position, velocity = context.x.chunk(2, -1)
        assert context.attention is not None
        force = self.speed() * (propagate(context.graph, context.attention, position) - position)
        return torch.cat([velocity, force - self.friction() * velocity], -1)

    def lift(self, x0: Tensor) -> Tensor:
        return torch.cat([x0, torch.zeros_like(x0)], -1)

    def read(self, state: Tensor) -> Tensor:
        return state.chunk(2, -1)[0]

    def parts(self, channels: int) -> tuple[slice, slice] | None:
        return slice(0, channels // 2), slice(channels // 2, channels)


class SymplecticEuler(FixedStep):
    """Velocity first, then the position with the new velocity: order 1, and the energy stays bounded."""

    order = 1

    def step(self, field: Any, t: Tensor, h: Tensor, state: State, index: int, stats: Stats) -> Step:
        (x,) = state
        parts = getattr(field, "parts", lambda channels: None)(x.shape[-1])
        if parts is None:
            raise ArgumentError(
                "SymplecticEuler needs an equation of second order, with positions and velocities."
            )
        position, velocity = parts
        pushed = x[..., velocity] + h * field(t, x)[..., velocity]
        halfway = torch.cat([x[..., position], pushed], -1)
        moved = x[..., position] + h * field(t + h, halfway)[..., position]
        new = torch.cat([moved, pushed], -1)
        return Step((new,), (x,), None, lambda theta: torch.lerp(x, new, theta.to(x.dtype)))


def wave(friction: float = 0.0, seed: int = 0) -> Wave:
    return Wave(make_diffusivity("dot/sqrt", seed=seed), friction=friction).to(D)


def exact(model: Wave, graph: Graph, x: Tensor, time: float) -> Tensor:
    """The state (u, u') by the exponential of the dense matrix of the system."""
    n, eye = graph.num_nodes, torch.eye(graph.num_nodes, dtype=D)
    a = graph.dense(model.diffusivity(graph, x))
    system = torch.zeros(2 * n, 2 * n, dtype=D)
    system[:n, n:], system[n:, :n] = eye, model.speed() * (a - eye)
    system[n:, n:] = -model.friction() * eye
    start = torch.cat([x, torch.zeros_like(x)])
    position, velocity = (torch.linalg.matrix_exp(time * system) @ start).split(n)
    return torch.cat([position, velocity], -1)


@pytest.mark.parametrize("friction", [0.0, 0.25])
def test_ordinary_schemes_see_one_tensor(small: Graph, friction: float) -> None:
    model, x = wave(friction), normal(9, 3)
    flow = model.bind(small, x)
    want = exact(model, small, x, 3.0)
    assert isinstance(default_solver(flow), DormandPrince)
    for solver in (RK4(0.02), AdamsMoulton4(0.02, rtol=1e-12, atol=1e-13), DormandPrince(1e-9, 1e-10)):
        state = integrate(flow, model.lift(x), 3.0, solver).state
        torch.testing.assert_close(state, want, rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(model.read(state), want[:, :3], rtol=1e-6, atol=1e-6)
    leaves = list(model.parameters())
    expected = torch.autograd.grad(want.square().sum(), leaves)
    for mode in ("backprop", "checkpoint", "adjoint"):
        state = integrate(
            model.bind(small, x), model.lift(x), 3.0, DormandPrince(1e-9, 1e-10), gradient=mode
        ).state
        for ours, theirs in zip(torch.autograd.grad(state.square().sum(), leaves), expected, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_a_layer_with_an_equation_of_ones_own(small: Graph) -> None:
    torch.manual_seed(0)
    model = wave(0.25)
    layer = GraphDiffusion(3, 3.0, equation=model, solver=RK4(0.02), self_loops=None)
    x = normal(9, 3)
    out, (index, attention), trajectory = layer(
        x, small.edge_index, return_attention_weights=True, return_trajectory=True, at=[1.0]
    )
    torch.testing.assert_close(out, exact(model, small, x, 3.0)[:, :3], rtol=1e-6, atol=1e-6)
    assert out.shape == x.shape and torch.equal(index, small.edge_index)
    torch.testing.assert_close(attention, model.diffusivity(small, x))
    assert trajectory.solution.states.shape == (1, 9, 6)
    assert isinstance(GraphDiffusion(3, equation=wave()).solver, DormandPrince)
    with pytest.raises(ArgumentError, match="got Wave"):
        integrate(model.bind(small, x), model.lift(x), 1.0, Exponential())


def test_a_partitioned_scheme_asks_for_the_parts(small: Graph) -> None:
    model, x = wave(), normal(9, 3)
    flow, want = model.bind(small, x), exact(model, small, x, 2.0)
    errors = [
        float((integrate(flow, model.lift(x), 2.0, SymplecticEuler(2.0 / n)).state - want).detach().norm())
        for n in (64, 128)
    ]
    assert abs(math.log2(errors[0] / errors[1]) - 1) < 0.1
    by_hand = model.lift(x)  # one step: velocity first
    force = flow(None, by_hand)[:, 3:]
    one = integrate(flow, by_hand, 0.5, SymplecticEuler(0.5)).state
    torch.testing.assert_close(one, torch.cat([x + 0.25 * force, 0.5 * force], -1))
    plain = make_equation(linear=True).bind(small, x)
    for field in (plain, lambda t, y: -y):
        with pytest.raises(ArgumentError, match="second order"):
            integrate(field, x, 1.0, SymplecticEuler(0.5))


def test_the_partitioned_scheme_keeps_the_energy() -> None:
    """On a symmetric matrix: ½‖v‖² + ½ c ⟨u, (I − A) u⟩ neither grows nor falls over long times."""
    graph = make_graph("loops")
    a = torch.tensor(
        [[0.0, 0.5, 0.0, 0.5], [0.5, 0.0, 0.5, 0.0], [0.0, 0.5, 0.0, 0.5], [0.5, 0.0, 0.5, 0.0]], dtype=D
    )
    laplacian = torch.zeros(5, 5, dtype=D)
    laplacian[:4, :4] = torch.eye(4, dtype=D) - a

    class Dense(Wave):
        def derivative(self, context: Context) -> Tensor:
            position, velocity = context.x.chunk(2, -1)
            return torch.cat([velocity, -self.speed() * laplacian @ position], -1)

    model = Dense(make_diffusivity("constant")).to(D).requires_grad_(False)
    x = normal(5, 2)

    def energy(state: Tensor) -> float:
        u, v = state.chunk(2, -1)
        return float(v.square().sum() / 2 + 0.375 * (u * (laplacian @ u)).sum())

    flow, start = model.bind(graph, x), model.lift(x)
    kept, grown = (
        integrate(flow, start, 200.0, scheme(0.1), check=False).state for scheme in (SymplecticEuler, Euler)
    )
    assert abs(energy(kept) / energy(start) - 1) < 0.15
    assert energy(grown) > 10 * energy(start)


@pytest.mark.parametrize("members", [3, 6, 9])
def test_members_of_second_order(small: Graph, members: int) -> None:
    """As many members as features, channels of the state, or nodes."""

    class Model(torch.nn.Module):
        def __init__(self, seed: int) -> None:
            super().__init__()
            self.equation = wave(0.25 * seed, seed)

        def forward(self, x: Tensor, time: Tensor, solver: Any) -> Tensor:
            flow = self.equation.bind(small, x)
            return integrate(flow, self.equation.lift(x), time, solver).state

    models = [Model(k) for k in range(members)]
    stacked, _ = stack_module_state(models)  # type: ignore[arg-type]
    x, times = normal(members, 9, 3), torch.linspace(0.5, 2.0, members, dtype=D)
    for solver in (RK4(0.25), DormandPrince(), SymplecticEuler(0.25)):
        together = functional_call(models[0], stacked, (x, times, solver))
        for k, model in enumerate(models):
            torch.testing.assert_close(together[k], model(x[k], times[k], solver), rtol=1e-12, atol=1e-12)
