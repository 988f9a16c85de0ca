"""Coefficients and rates for each channel, and their bounds."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from conftest import D, make_diffusivity, make_equation, normal, scatter_parameters

from graphdiffusion.equation import Coefficient, Diffusion, Source
from graphdiffusion.graph import Graph
from graphdiffusion.solvers import DormandPrince, Exponential, SemiImplicitEuler, integrate

SHARP = DormandPrince(1e-10, 1e-12)
EYE = torch.eye(9, dtype=D)


@pytest.mark.parametrize("bounded", [False, True])
def test_a_coefficient_for_each_channel(small: Graph, bounded: bool) -> None:
    alpha = scatter_parameters(Coefficient(0.4, channels=3, bounded=bounded), scale=0.1)
    beta = scatter_parameters(Coefficient(0.2, channels=3), seed=1)
    model = Diffusion(make_diffusivity("dot/sqrt"), linear=True, alpha=alpha, terms=[Source(beta)]).to(D)
    x = normal(9, 3)
    flow = model.bind(small, x)
    a = small.dense(flow.context.attention)
    scale = alpha.raw[0, 0].sigmoid() if bounded else alpha.raw[0, 0]
    torch.testing.assert_close(flow(None, x), scale * (a @ x - x) + beta.raw[0, 0] * x)
    want = []
    for c in range(3):  # each channel an equation of its own
        wide = torch.zeros(18, 18, dtype=D)
        wide[:9, :9], wide[:9, 9:] = scale[c] * (a - EYE), beta.raw[0, 0, c] * EYE
        want.append((torch.linalg.matrix_exp(2.0 * wide) @ torch.cat([x, x])[:, c])[:9])
    expected = torch.stack(want, 1)
    leaves = list(model.parameters())
    exact = torch.autograd.grad(expected.square().sum(), leaves, retain_graph=True)
    for solver in (Exponential(), SHARP):
        state = integrate(flow, x, 2.0, solver).state
        torch.testing.assert_close(state, expected, rtol=1e-8, atol=1e-9)
        for ours, theirs in zip(
            torch.autograd.grad(state.square().sum(), leaves, retain_graph=True), exact, strict=True
        ):
            torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-7)
    implicit = integrate(flow, x, 0.5, SemiImplicitEuler(0.5)).state
    for c in range(3):
        system = EYE - 0.5 * scale[c] * (a - EYE)
        right = x[:, c] + 0.5 * beta.raw[0, 0, c] * x[:, c]
        torch.testing.assert_close(implicit[:, c], torch.linalg.solve(system, right), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("nonlinear", [False, True])
def test_a_rate_for_each_channel_is_a_time_for_each(small: Graph, nonlinear: bool) -> None:
    rates = torch.tensor([0.5, 1.0, 2.5], dtype=D)
    x = normal(9, 3)
    model = make_equation(linear=not nonlinear)
    model.rates = Coefficient(1.0, channels=3).to(D)
    with torch.no_grad():
        model.rates.raw.copy_(rates)
    flow = model.bind(small, x)
    if nonlinear:  # A follows the channels of now, each at a time of its own
        plain = make_equation(linear=False)
        torch.testing.assert_close(flow(None, x), rates * plain.bind(small, x)(None, x))
        return
    plain = make_equation(linear=True)
    alone = [
        integrate(plain.bind(small, x), x, float(r) * 1.3, Exponential()).state[:, c]
        for c, r in enumerate(rates)
    ]
    for solver in (Exponential(), SHARP):
        state = integrate(flow, x, 1.3, solver).state
        torch.testing.assert_close(state, torch.stack(alone, 1), rtol=1e-8, atol=1e-9)
    assert float(flow.rate) == pytest.approx(0.7 * 2.5)


def test_a_negative_rate_has_no_closed_form(small: Graph) -> None:
    x = normal(9, 3)
    model = make_equation(linear=True)
    model.rates = Coefficient(1.0, channels=3).to(D)
    with torch.no_grad():
        model.rates.raw[..., 1] = -0.5
    solution = integrate(model.bind(small, x), x, 1.0, Exponential(), check=False)
    assert bool(solution.failed) and "got -0.35" in str(solution.stats.failures[0])


def test_bounds_of_a_coefficient_hold_at_all_times() -> None:
    for bounded in (False, True):
        c = scatter_parameters(
            Coefficient(0.5, bounded=bounded, channels=2, terms=4, horizon=3.0), scale=0.7
        )
        at = torch.stack([c(torch.tensor([[t]], dtype=D)) for t in np.linspace(-1, 5, 101)])
        bound = float(c.largest())
        assert float(at.detach().abs().max()) <= bound
        moved = scatter_parameters(c, seed=3, scale=0.0)
        with torch.no_grad():
            moved.raw.add_(0.1)
        assert float(moved.largest()) <= float(c.largest(0.1)) + 1e-12 and bound < float(c.largest(0.1))
        if bounded:
            assert bool(((at > 0) & (at < 1)).all())
    fixed = Coefficient(0.5, learn=False)
    assert float(fixed.largest(0.1)) == float(fixed.largest())
