"""The closed form of polynomials in A: blurring and sharpening, decay, and other powers, against expm."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from conftest import GRAPHS, D, make_diffusivity, make_graph, normal, scatter_parameters
from torch import Tensor
from torch.func import functional_call, stack_module_state

from graphdiffusion.equation import (
    Affine,
    BlurringSharpening,
    Coefficient,
    Context,
    Diffusion,
    Forcing,
    Source,
    Term,
)
from graphdiffusion.errors import ArgumentError, TooManyEvaluations
from graphdiffusion.graph import Graph
from graphdiffusion.nn import GRAND, GraphDiffusion
from graphdiffusion.ops import propagate
from graphdiffusion.solvers import DormandPrince, Exponential, integrate
from graphdiffusion.solvers.polynomial import (
    GROWTH,
    WEIGHT,
    growth,
    in_powers_of_a,
    series_coefficients,
)

SHARP = DormandPrince(1e-10, 1e-12)


class Cubic(Term):
    """γ (A − I)³ x − δ x."""

    members = needs_attention = True

    def __init__(self) -> None:
        super().__init__()
        self.gamma, self.delta = Coefficient(0.125), Coefficient(-0.25)

    def forward(self, context: Context) -> tuple[Tensor, Tensor]:
        y = context.x
        for _ in range(3):
            y = propagate(context.graph, context.attention, y) - y  # type: ignore[arg-type]
        return context.x.new_ones(1, 1), self.gamma() * y + self.delta() * context.x

    def affine(self, context: Context) -> Affine | None:
        return Affine({3: self.gamma(), 0: self.delta()})


def equation(
    *terms: Term, alpha: float = 0.5, channels: int | None = None, source: float = 0.25, **how: Any
) -> Diffusion:
    start = Coefficient(alpha, bounded=True, channels=channels)
    beta = scatter_parameters(Coefficient(source, channels=channels), scale=0.1)
    model = Diffusion(
        make_diffusivity("dot/sqrt", **how), linear=True, alpha=start, terms=[*terms, Source(beta)]
    )
    return model.to(D)


def by_expm(flow: Any, q: list[Tensor], beta: Tensor, x: Tensor, time: float) -> Tensor:
    """Each channel by the exponential of the system widened by its source; q are powers of A − I."""
    a = flow.graph.dense(flow.context.attention)
    n = len(a)
    eye = torch.eye(n, dtype=D)
    found = []
    for c in range(x.shape[-1]):
        own = [k.expand(1, x.shape[-1])[0, c] for k in q]
        wide = torch.zeros(2 * n, 2 * n, dtype=D)
        wide[:n, :n] = sum(k * torch.linalg.matrix_power(a - eye, j) for j, k in enumerate(own))
        wide[:n, n:] = beta.expand(1, x.shape[-1])[0, c] * eye
        found.append((torch.linalg.matrix_exp(time * wide) @ torch.cat([x, x])[:, c])[:n])
    return torch.stack(found, 1)


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("channels", [None, 3])
def test_sharpening_equals_expm(name: str, channels: int | None) -> None:
    graph = make_graph(name)
    x = normal(graph.num_nodes, 3)
    term = scatter_parameters(BlurringSharpening(channels, reaction=0.4), scale=0.3)
    model = equation(term, channels=channels)
    flow = model.bind(graph, x)
    assert Exponential.accepts(flow)
    alpha, beta = model.alpha(), term.beta()
    a = graph.dense(flow.context.attention)
    torch.testing.assert_close(
        flow(None, x), alpha * (a @ x - x) + beta * (a @ x - a @ a @ x) + model.terms[1].beta() * x
    )
    for time in (0.01, 1.0, 18.0):
        want = by_expm(flow, [0 * alpha, alpha - beta, -beta], model.terms[1].beta(), x, time)
        state = integrate(flow, x, time).state
        torch.testing.assert_close(state, want, rtol=1e-11, atol=1e-11)
        if time == 1.0:
            leaves = list(model.parameters())
            for ours, theirs in zip(
                torch.autograd.grad(state.square().sum(), leaves, retain_graph=True),
                torch.autograd.grad(want.square().sum(), leaves, retain_graph=True),
                strict=True,
            ):
                torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("kinds", ["detached", "both", "elsewhere"])
def test_sources_share_powers_with_the_start(small: Graph, kinds: str) -> None:
    """Detached or not, at the start or elsewhere: values and gradients of a scheme that takes steps."""
    x, other = normal(9, 3).requires_grad_(), normal(9, 3, seed=5)

    class Elsewhere(Term):
        def forward(self, context: Context) -> tuple[Tensor, Tensor]:
            return context.x.new_full((1, 1), 0.5), other

        def affine(self, context: Context) -> Affine | None:
            return Affine(sources=(Forcing(other.new_full((1, 1), 0.5), other),))

    model = equation(BlurringSharpening(reaction=0.4))
    model.terms.append(Source(0.125, detach_source=True))
    if kinds == "detached":
        del model.terms[1]
    if kinds == "elsewhere":
        model.terms.append(Elsewhere())
    flow = model.bind(small, x)
    leaves = [x, *(t for t in model.parameters() if t.requires_grad)]
    found = []
    for solver in (Exponential(), SHARP):
        solution = integrate(flow, x, 40.0, solver, at=[3.0])
        assert solution.states is not None
        loss = solution.state.square().sum() + solution.states.square().sum()
        found.append((solution.state, *torch.autograd.grad(loss, leaves, retain_graph=True)))
    for ours, theirs in zip(*found, strict=True):
        scale = float(theirs.detach().abs().max())
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6 * scale)


def test_any_power(small: Graph) -> None:
    x, term = normal(9, 3), Cubic()
    model = equation(term)
    flow = model.bind(small, x)
    q = [term.delta(), model.alpha(), 0 * term.gamma(), term.gamma()]
    want = by_expm(flow, q, model.terms[1].beta(), x, 5.0)
    torch.testing.assert_close(integrate(flow, x, 5.0).state, want, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(integrate(flow, x, 5.0, SHARP).state, want, rtol=1e-7, atol=1e-8)


def test_sharpening_may_grow_and_stays_exact(small: Graph) -> None:
    """β > α, a long time: rounding does not grow with the terms of the series, which cancel each other."""
    x = normal(9, 3)
    model = equation(BlurringSharpening(reaction=0.95), alpha=0.1, over="symmetric", source=0.0)
    with torch.no_grad():
        model.terms[1].beta.raw.zero_()
    flow = model.bind(small, x)
    alpha, beta = model.alpha(), model.terms[0].beta()
    want = by_expm(flow, [0 * alpha, alpha - beta, -beta], 0 * alpha, x, 30.0)
    assert float(want.detach().abs().max()) > 10 * float(x.abs().max())
    torch.testing.assert_close(integrate(flow, x, 30.0).state, want, rtol=1e-11, atol=1e-11)
    single = model.to(torch.float32).bind(small, x.float())
    got = integrate(single, x.float(), 30.0).state.double()
    assert float((got - want).detach().abs().max()) < 3e-5 * float(want.detach().abs().max())


@pytest.mark.parametrize(("beta", "grows"), [(0.3, False), (0.5, False), (0.9, True)])
def test_when_sharpening_grows(beta: float, grows: bool) -> None:
    """Real eigenvalues: not for β ≤ α, and beyond that at most like exp(t(β − α)²/4β)."""
    mu = torch.linspace(-1, 1, 2001, dtype=D)
    speed = (1 - mu) * (beta * mu - 0.5)
    assert bool((speed > 1e-12).any()) is grows
    if grows:
        assert float(speed.max()) == pytest.approx((beta - 0.5) ** 2 / (4 * beta), rel=1e-5)


def test_sharpening_of_a_directed_matrix() -> None:
    """On the unit disc: nothing grows for β ≤ α/3, something does beyond."""
    for beta, most in ((0.5 / 3, 1e-12), (0.2, None)):
        p = in_powers_of_a({k: torch.full((1, 1), c, dtype=D) for k, c in ((1, 0.5 - beta), (2, -beta))})
        found = float(growth(p))
        assert found <= most if most is not None else found > 1e-4


def test_output_times_and_gradient_of_time(small: Graph) -> None:
    x = normal(9, 3)
    model = equation(BlurringSharpening(reaction=0.4))
    flow = model.bind(small, x)
    time = torch.tensor(6.0, dtype=D, requires_grad=True)
    solution = integrate(flow, x, time, at=[0.0, 1.5, 6.0])
    assert solution.states is not None
    torch.testing.assert_close(solution.states[0], x)
    for k, t in ((1, 1.5), (2, 6.0)):
        torch.testing.assert_close(solution.states[k], integrate(flow, x, t).state, rtol=1e-12, atol=1e-12)
    (slope,) = torch.autograd.grad(solution.state.sum(), time)
    torch.testing.assert_close(slope, flow(None, solution.state).sum(), rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(integrate(flow, x, 0.0).state, x)


@pytest.mark.parametrize("members", [3, 9])
@pytest.mark.parametrize("channels", [None, 3])
def test_members(small: Graph, members: int, channels: int | None) -> None:
    """As many members as channels, or nodes."""

    class Model(torch.nn.Module):
        def __init__(self, seed: int) -> None:
            super().__init__()
            self.equation = scatter_parameters(
                equation(BlurringSharpening(channels, reaction=0.4), channels=channels), seed
            )

        def forward(self, x: Tensor, time: Tensor, at: Tensor) -> Tensor:
            solution = integrate(self.equation.bind(small, x), x, time, at=at)
            return torch.stack([*solution.states, solution.state])  # type: ignore[misc]

    models = [Model(k) for k in range(members)]
    stacked, _ = stack_module_state(models)  # type: ignore[arg-type]
    x, times = normal(members, 9, 3), torch.linspace(0.5, 20.0, members, dtype=D)
    together = functional_call(models[0], stacked, (x, times, torch.stack([times / 3, times / 2])))
    for k, model in enumerate(models):
        alone = model(x[k], times[k], torch.stack([times[k] / 3, times[k] / 2]))
        torch.testing.assert_close(together[:, k], alone, rtol=1e-11, atol=1e-11)


def test_too_many_products_end_a_member_alone(small: Graph) -> None:
    x = normal(2, 9, 3)
    model = equation(BlurringSharpening(reaction=0.4))
    time = torch.tensor([1.0, 1e6], dtype=D)
    with pytest.raises(TooManyEvaluations, match="max_evaluations=10000"):
        integrate(model.bind(small, x), x, time, Exponential())
    solution = integrate(model.bind(small, x), x, time, Exponential(), check=False)
    assert solution.failed.tolist() == [False, True] and bool(torch.isnan(solution.state[1]).all())
    torch.testing.assert_close(
        solution.state[0], integrate(model.bind(small, x[0]), x[0], 1.0).state, rtol=1e-12, atol=1e-12
    )
    with pytest.raises(ArgumentError, match="has no capacity"):
        integrate(model.bind(small, x), x, 1.0, Exponential(terms=9))


def test_products_beside_those_of_dopri5() -> None:
    graph, x = make_graph("random"), normal(9, 4, dtype=torch.float32)
    layer = GraphDiffusion(4, 18.3, terms="source,blurring-sharpening", reaction=0.3)
    assert isinstance(layer.solver, Exponential) and not GRAND(4, 2, terms="blurring-sharpening").capturable
    flow = layer.bind(x, graph)
    closed, marched = integrate(flow, x, 18.3), integrate(flow, x, 18.3, DormandPrince(1e-6, 1e-7))
    torch.testing.assert_close(closed.state, marched.state, rtol=1e-4, atol=1e-4)
    assert closed.stats.evaluations < 0.3 * 3 * marched.stats.evaluations  # of three products each


def test_a_step_is_short_enough() -> None:
    """Rounding is multiplied by the sum of the |f_k|: about 12 at most, whatever the coefficients are."""
    generator = torch.Generator().manual_seed(1)
    for degree in (2, 3, 4):
        c = 4 * torch.rand(degree, 150, 1, 1, generator=generator, dtype=D) - 2
        p = in_powers_of_a({k + 1: own for k, own in enumerate(c)})
        weight = sum(own.abs() for own in p[1:])
        h = 1 / torch.maximum(growth(p) / GROWTH, weight / WEIGHT)
        f, _ = series_coefficients(p, h, 1e-6, False)
        sums = f.abs().sum(-1)
        assert 6 < float(sums.max()) < 12.5
