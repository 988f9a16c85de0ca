"""Penalties on the dynamics: against the exact Jacobian, plain formulas and known integrals."""

from __future__ import annotations

import pytest
import torch
from conftest import make_equation, make_graph, normal

from graphdiffusion.equation.penalty import Quadrature, jacobian_norm, kinetic_energy, path_penalty
from graphdiffusion.ops.noise import derive
from graphdiffusion.solvers import DormandPrince, integrate


@pytest.mark.parametrize("linear", [True, False])
def test_jacobian_norm_is_right_on_average(linear):
    graph, x = make_graph("loops"), normal(5, 3)
    flow = make_equation(linear=linear).bind(graph, x)
    t = torch.zeros(1, 1, dtype=torch.float64)
    jacobian = torch.autograd.functional.jacobian(lambda y: flow(t, y), x).reshape(15, 15)
    exact = float(jacobian.square().sum() / 15)
    keys = derive(torch.arange(3000), 1)
    many = flow.equation.bind(graph, x.expand(1, 5, 3)) if linear else flow
    estimates = jacobian_norm(many, t, x.expand(3000, 5, 3), keys).detach()
    assert estimates.shape == (3000,)
    error = float(estimates.std()) / 3000**0.5
    assert abs(float(estimates.mean()) - exact) < 4 * error
    assert error < 0.02 * exact  # the comparison means something
    # one key, by hand
    one = jacobian_norm(flow, t, x, keys[0])
    torch.testing.assert_close(one.detach(), estimates[0])


def test_kinetic_energy():
    graph, x = make_graph("random"), normal(4, 9, 3)
    flow = make_equation().bind(graph, x)
    t = torch.zeros(1, 1, dtype=torch.float64)
    found = kinetic_energy(flow, t, x)
    for k in range(4):
        torch.testing.assert_close(found[k], (flow(t, x)[k] ** 2).sum() / 27)


@pytest.mark.parametrize("points", [2, 4, 6])
def test_quadrature_is_exact_for_polynomials(points):
    rule = Quadrature(points)
    assert sum(rule.weights) == pytest.approx(1)
    for degree in range(2 * points):
        found = sum(w * t**degree for w, t in zip(rule.weights, rule.nodes, strict=True))
        assert found == pytest.approx(1 / (degree + 1), abs=1e-12)
    assert rule.nodes == sorted(rule.nodes) and rule.nodes[0] > 0 and rule.nodes[-1] < 1


def penalties(equation, graph, x, span, **wanted):
    flow = equation.bind(graph, x)
    rule = Quadrature(8)
    times = torch.stack([f * span for f in rule.nodes])
    states = integrate(flow, x, span, DormandPrince(1e-10, 1e-12), at=times).states
    key = torch.arange(len(x)) if x.dim() == 3 else torch.tensor(0)
    return path_penalty(flow, states, times, span, rule, key, **wanted)


def test_path_integral_against_fine_trapezium():
    equation, graph, x = make_equation(), make_graph("random"), normal(9, 3)
    span = torch.tensor(2.0, dtype=torch.float64)
    energy, norm = penalties(equation, graph, x, span, kinetic=True, jacobian=False)
    flow = equation.bind(graph, x)
    fine = torch.linspace(0, 2, 401, dtype=torch.float64)
    states = integrate(flow, x, 2.0, DormandPrince(1e-10, 1e-12), at=fine[1:]).states
    rates = torch.stack(
        [kinetic_energy(flow, t[None, None], y) for t, y in zip(fine, [x, *states], strict=True)]
    )
    torch.testing.assert_close(energy, torch.trapezoid(rates, fine), rtol=1e-4, atol=0)
    assert float(norm) == 0


def test_members_have_their_own_times():
    equation, graph = make_equation(), make_graph("random")
    x, span = normal(2, 9, 3), torch.tensor([1.0, 2.0], dtype=torch.float64)
    together = penalties(equation, graph, x, span, kinetic=True, jacobian=False)[0]
    assert together.shape == (2,)
    for k in range(2):
        alone = penalties(equation, graph, x[k], span[k], kinetic=True, jacobian=False)[0]
        torch.testing.assert_close(together[k], alone, rtol=1e-6, atol=0)


def test_gradients_flow_to_every_parameter():
    equation, graph, x = make_equation(), make_graph("random"), normal(9, 3).requires_grad_()
    span = torch.tensor(1.5, dtype=torch.float64, requires_grad=True)
    energy, norm = penalties(equation, graph, x, span, kinetic=True, jacobian=True)
    for value in (energy, norm):
        wanted = [p for name, p in equation.named_parameters() if value is energy or "beta" not in name]
        found = torch.autograd.grad(value, [*wanted, x, span], retain_graph=True)
        assert all(bool(g.isfinite().all()) and bool(g.any()) for g in found)
