"""The closed form of the linear model against scipy, its gradients and its exact bound."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from conftest import GRAPHS, D, graphs, make_diffusivity, make_equation, make_graph, normal, seeds
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse.linalg import expm_multiply
from scipy.stats import poisson
from torch import Tensor
from torch.autograd import gradcheck

from graphdiffusion.diffusivity import ConstantLaplacian
from graphdiffusion.equation import Coefficient, Diffusion, Source
from graphdiffusion.graph import Graph
from graphdiffusion.solvers import RK4, DormandPrince, Exponential, integrate
from graphdiffusion.solvers.exponential import coefficients, number_of_terms


def by_scipy(
    a: Tensor, x: Tensor, alpha: float, beta: float, time: float, x0: Tensor | None = None
) -> Tensor:
    """expm_multiply of the system widened by the source: d/dt (x, s) = (α(A − I)x + βs, 0)."""
    n = len(a)
    generator = alpha * (sp.csr_array(a.numpy()) - sp.eye_array(n))
    # expm_multiply estimates norms with numpy's global generator, now and then much too small
    np.random.seed(0)  # noqa: NPY002
    wide = sp.csr_array(sp.block_array([[generator, beta * sp.eye_array(n)], [None, sp.csr_array((n, n))]]))
    start = np.concatenate([x.numpy(), (x if x0 is None else x0).numpy()])
    return torch.from_numpy(expm_multiply(time * wide, start, traceA=time * wide.trace())[:n])


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("beta", [0.0, 0.5, -0.125])
@pytest.mark.parametrize("over", ["rows", "columns"])
def test_equals_expm_multiply(name: str, beta: float, over: str) -> None:
    graph = make_graph(name)
    x = normal(graph.num_nodes, 2)
    alpha = 0.75  # exact in float32, as parameters are made
    equation = Diffusion(
        ConstantLaplacian(over=over), linear=True, alpha=alpha, terms=[Source(beta)] if beta else []
    ).to(D)
    flow = equation.bind(graph, x)
    assert flow.context.attention is not None
    for rate in (0.01, 0.3, 1.0, 7.0, 40.0, 500.0):
        time = rate / alpha
        want = by_scipy(graph.dense(flow.context.attention), x, alpha, beta, time)
        got = integrate(flow, x, time, Exponential()).state.detach()
        # a source grows without bound: relative to its size
        assert float((got - want).abs().max()) < 1e-10 * max(1.0, float(want.abs().max()))


@pytest.mark.parametrize("tolerance", [1e-3, 1e-6, 1e-9])
def test_tolerance_bounds_the_error_and_saves_products(tolerance: float) -> None:
    graph = make_graph("random")
    x = normal(graph.num_nodes, 3)
    flow = make_equation(linear=True, source=False, alpha=1.0).bind(graph, x)
    exact, rough = (integrate(flow, x, 9.0, s) for s in (Exponential(), Exponential(tolerance=tolerance)))
    spread = float(x.max() - x.min())
    assert float((exact.state - rough.state).detach().abs().max()) <= 2 * tolerance * spread
    assert rough.stats.evaluations < exact.stats.evaluations


def test_number_of_terms_is_the_poisson_quantile() -> None:
    for rate in (0.0, 0.01, 1.0, 18.3, 500.0, 2e4):
        for tolerance in (1e-3, 1e-8, 1e-15):
            k = number_of_terms(torch.tensor([rate], dtype=D), tolerance)
            assert poisson.sf(k, rate) <= tolerance and poisson.pmf(k, rate) <= 10 * tolerance
            fewer = k - 1
            assert poisson.sf(fewer, rate) > tolerance or poisson.pmf(fewer, rate) > 10 * tolerance
            if rate >= 1:  # for the state alone
                assert poisson.sf(fewer, rate) > tolerance
    graph = make_graph("random")
    x = normal(graph.num_nodes, 2)
    stats = integrate(Diffusion(ConstantLaplacian(over="rows"), linear=True).bind(graph, x), x, 18.3).stats
    assert stats.evaluations == number_of_terms(torch.tensor([18.3], dtype=D), 1e-15)


def test_coefficients() -> None:
    rate, times = torch.tensor([[[6.0]]], dtype=D), torch.tensor([[[3.0]]], dtype=D)
    p, s = coefficients(rate, times, 60, 1e-15)
    assert float(p.sum()) == pytest.approx(1, abs=1e-15)
    # ∫ of the weights over time is T: a constant state grows by βT
    assert float(s.sum()) == pytest.approx(3.0, rel=1e-13)
    zero, source = coefficients(torch.zeros(1, 1, 1, dtype=D), times, 3, 1e-15)
    assert zero.flatten().tolist() == [1, 0, 0, 0] and source.flatten().tolist() == [3, 0, 0, 0]


def test_many_output_times_from_one_basis() -> None:
    graph = make_graph("random")
    x = normal(graph.num_nodes, 3)
    flow = make_equation(linear=True).requires_grad_(False).bind(graph, x)
    times = np.linspace(0.5, 20.0, 40)
    solution = integrate(flow, x, 20.0, Exponential(), at=times.tolist())
    assert solution.stats.evaluations == integrate(flow, x, 20.0, Exponential()).stats.evaluations
    assert solution.states is not None and solution.states.shape == (40, *x.shape)
    for k in (0, 7, 39):
        alone = integrate(flow, x, float(times[k]), Exponential()).state
        torch.testing.assert_close(solution.states[k], alone, rtol=1e-13, atol=1e-13)


@given(graphs(), seeds, st.floats(0.01, 200.0), st.sampled_from([1e-15, 1e-4]))
def test_bound_holds(graph: Graph, seed: int, time: float, tolerance: float) -> None:
    """Equation (3), also for a truncated series: the weights sum to one."""
    x = normal(graph.num_nodes, 3, seed=seed)
    equation = make_equation(linear=True, source=False, alpha=1.0, seed=seed)
    state = integrate(equation.bind(graph, x), x, time, Exponential(tolerance=tolerance)).state.detach()
    assert bool((state <= x.amax(0) + 1e-13).all()) and bool((state >= x.amin(0) - 1e-13).all())


@given(graphs(), seeds, st.floats(0.01, 200.0))
def test_columns_keep_the_mass(graph: Graph, seed: int, time: float) -> None:
    x = normal(graph.num_nodes, 3, seed=seed)
    equation = make_equation(linear=True, source=False, alpha=1.0, seed=seed, over="columns")
    state = integrate(equation.bind(graph, x), x, time, Exponential()).state.detach()
    torch.testing.assert_close(state.sum(0), x.sum(0), rtol=1e-11, atol=1e-11)
    assert float(state.abs().sum()) <= float(x.abs().sum()) * (1 + 1e-12)  # never grows in its own norm


def test_isolated_nodes_stand_still() -> None:
    graph = make_graph("disconnected")
    x = normal(graph.num_nodes, 2)
    state = integrate(Diffusion(ConstantLaplacian(over="rows"), linear=True).bind(graph, x), x, 30.0).state
    torch.testing.assert_close(state[6:], x[6:])
    torch.testing.assert_close(state[3:6], x[3:6].mean(0).expand(3, 2))


def test_gradients_of_everything() -> None:
    graph = make_graph("loops")
    x = normal(graph.num_nodes, 2)
    values = ConstantLaplacian(over="rows")(graph, x)

    def run(values: Tensor, x: Tensor, alpha: Tensor, beta: Tensor, time: Tensor) -> Tensor:
        equation = Diffusion(
            ConstantLaplacian(over="rows"), linear=True, terms=[Source(0.0, detach_source=False)]
        ).to(D)
        for part, number in ((equation.alpha, alpha), (equation.terms[0].beta, beta)):
            del part.raw
            part.raw = number.reshape(1, 1, 1)
        flow = equation.bind(graph, x)
        flow = replace(flow, context=flow.context.at(attention=values))
        solution = integrate(flow, x, time, Exponential(), at=[0.7, 1.9])
        assert solution.states is not None
        return torch.stack([*solution.states, solution.state])

    numbers = [torch.tensor(v, dtype=D) for v in (0.8, 0.3, 2.5)]
    inputs = [v.clone().requires_grad_() for v in (values, x, *numbers)]
    assert gradcheck(run, inputs)


def test_gradient_of_the_time_is_the_right_hand_side() -> None:
    graph = make_graph("random")
    x = normal(graph.num_nodes, 3)
    flow = make_equation(linear=True).bind(graph, x)
    time = torch.tensor(3.0, dtype=D, requires_grad=True)
    probe = normal(graph.num_nodes, 3, seed=4)
    state = integrate(flow, x, time, Exponential()).state
    (slope,) = torch.autograd.grad((probe * state).sum(), time)
    torch.testing.assert_close(slope, (probe * flow(time, state)).sum().detach())
    step = 1e-5
    ends = [
        float((probe * integrate(flow, x, 3.0 + s, Exponential()).state).detach().sum())
        for s in (step, -step)
    ]
    assert float(slope) == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=1e-8)


@pytest.mark.parametrize("detach", [True, False])
def test_start_that_is_not_the_source(detach: bool) -> None:
    graph = make_graph("random")
    bound, x = normal(graph.num_nodes, 3).requires_grad_(), normal(graph.num_nodes, 3, seed=1)
    equation = make_equation(linear=True)
    equation.terms[0].detach_source = detach
    flow = equation.bind(graph, bound)
    assert flow.context.attention is not None
    alpha, beta = float(equation.alpha().detach()), float(equation.terms[0].beta().detach())
    want = by_scipy(graph.dense(flow.context.attention.detach()), x, alpha, beta, 5.0, bound.detach())
    got = integrate(flow, x, 5.0, Exponential()).state
    torch.testing.assert_close(got.detach(), want, rtol=1e-10, atol=1e-10)
    # the same numbers as a scheme that does not know the structure
    stepped = integrate(flow, x, 5.0, DormandPrince(1e-11, 1e-12)).state
    for ours, theirs in zip(
        torch.autograd.grad(got.square().sum(), [bound, *equation.parameters()], retain_graph=True),
        torch.autograd.grad(stepped.square().sum(), [bound, *equation.parameters()], retain_graph=True),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("detach", [True, False])
def test_detached_source_shares_the_basis(detach: bool) -> None:
    graph = make_graph("random")
    x = normal(graph.num_nodes, 3).requires_grad_()
    equation = make_equation(linear=True)
    equation.terms[0].detach_source = detach
    found = []
    for solver in (Exponential(), DormandPrince(1e-11, 1e-12)):
        flow = equation.bind(graph, x)
        solution = integrate(flow, x, 3.0, solver)
        found.append(torch.autograd.grad(solution.state.square().sum(), [x, *equation.parameters()]))
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("time", [0.5, 18.3, 300.0])
def test_float32(time: float) -> None:
    graph = make_graph("random")
    x = normal(graph.num_nodes, 3)
    exact = integrate(make_equation(linear=True).bind(graph, x), x, time).state.detach()
    single = make_equation(linear=True).float()
    got = integrate(single.bind(graph, x.float()), x.float(), time).state.detach()
    assert got.dtype == torch.float32
    assert float((got - exact).abs().max()) < 3e-6 * max(1.0, float(exact.abs().max()))


def test_members_with_their_own_times_and_rates() -> None:
    graph = make_graph("random")
    x, times = normal(3, graph.num_nodes, 3), torch.tensor([0.3, 4.0, 60.0], dtype=D)
    flow = make_equation(linear=True).bind(graph, x)
    together = integrate(flow, x, times, Exponential()).state
    for k in range(3):
        alone = make_equation(linear=True).bind(graph, x[k])
        torch.testing.assert_close(
            together[k],
            integrate(alone, x[k], float(times[k]), Exponential()).state,
            rtol=1e-13,
            atol=1e-14,
        )


def test_given_number_of_terms() -> None:
    graph = make_graph("random")
    x = normal(graph.num_nodes, 2)
    flow = Diffusion(ConstantLaplacian(over="rows"), linear=True).bind(graph, x)
    known, found = (integrate(flow, x, 4.0, s) for s in (Exponential(terms=40), Exponential()))
    assert known.stats.evaluations == 40
    torch.testing.assert_close(known.state, found.state, rtol=1e-13, atol=1e-13)


def test_the_default_for_a_linear_flow() -> None:
    graph = make_graph("random")
    x = normal(graph.num_nodes, 2)
    linear = Diffusion(ConstantLaplacian(over="rows"), linear=True).bind(graph, x)
    assert torch.equal(integrate(linear, x, 2.0).state, integrate(linear, x, 2.0, Exponential()).state)
    varying = Diffusion(
        ConstantLaplacian(over="rows"), linear=True, alpha=Coefficient(0.5, terms=2, horizon=2.0)
    )
    assert integrate(varying.to(D).bind(graph, x), x, 2.0).stats.accepted > 1  # marches


@pytest.mark.parametrize("dtype", [torch.float32, D])
@pytest.mark.parametrize("rate", [0.0, 1e-12, 1e-7, 1e-3, 0.999999, 1.0, 1.5])
def test_gradients_of_small_rates(rate: float, dtype: torch.dtype) -> None:
    """However short the time, T, α and A have the gradients of the first power of A."""
    graph = make_graph("random")
    x = normal(graph.num_nodes, 3)
    alpha = Coefficient(rate).to(D)
    equation = Diffusion(make_diffusivity("dot/sqrt"), linear=True, alpha=alpha).to(D)
    target = normal(graph.num_nodes, 3, seed=2)

    def run(module: Diffusion, kind: torch.dtype, solver: Any) -> list[torch.Tensor]:
        module = module.to(kind)
        time = torch.tensor(1.0, dtype=D, requires_grad=True)
        state = integrate(module.bind(graph, x.to(kind)), x.to(kind), time, solver).state
        # no gradient is zero by chance
        loss = (state * target.to(kind)).sum()
        return list(torch.autograd.grad(loss, [time, module.alpha.raw, *module.diffusivity.parameters()]))

    exact = run(deepcopy(equation), D, RK4(1e-2))
    found = run(deepcopy(equation), dtype, Exponential())
    for a, b in zip(found, exact, strict=True):
        torch.testing.assert_close(a.double(), b, rtol=1e-4, atol=1e-6 * rate)
    assert abs(float(found[1])) > 0.1  # of α
