"""The right-hand side: linear and nonlinear, α, sources, terms, and what a flow depends on."""

from __future__ import annotations

import pytest
import torch
from conftest import D, make_diffusivity, make_equation, make_graph, normal, scatter_parameters
from torch import Tensor
from torch.func import functional_call, stack_module_state

from graphdiffusion.diffusivity import ConstantLaplacian, TimeVarying
from graphdiffusion.equation import Coefficient, Context, Diffusion, Source, Term
from graphdiffusion.errors import ArgumentError
from graphdiffusion.graph import Graph
from graphdiffusion.solvers import Exponential, integrate


@pytest.mark.parametrize("linear", [True, False])
def test_right_hand_side(small: Graph, linear: bool) -> None:
    x0, x = normal(small.num_nodes, 3), normal(small.num_nodes, 3, seed=1)
    equation = make_equation(linear=linear)
    a = small.dense(equation.diffusivity(small, x0 if linear else x))
    want = 0.7 * (a @ x - x) + 0.3 * x0
    flow = equation.bind(small, x0)
    torch.testing.assert_close(flow(torch.tensor(0.0), x), want)
    torch.testing.assert_close(small.dense(flow.attention(None, x)), a)
    parts = flow.stiff(None, x)
    assert parts is not None
    torch.testing.assert_close(small.dense(parts.values), a)
    torch.testing.assert_close(parts.rest, 0.3 * x0)
    torch.testing.assert_close(parts.coefficient.squeeze(), torch.tensor(0.7, dtype=D))


def test_mask_leaves_edges_out(small: Graph) -> None:
    x = normal(small.num_nodes, 3)
    mask = (small.row == small.col).to(D)
    for linear in (True, False):
        flow = make_equation(linear=linear, source=False).bind(small, x, mask)
        assert float(flow(torch.tensor(0.0), x).detach().abs().max()) < 1e-15  # only loops: stands still


def test_coefficient_fixed_learnt_bounded() -> None:
    fixed, learnt = Coefficient(2.0, learn=False), Coefficient(2.0)
    assert not fixed.raw.requires_grad and learnt.raw.requires_grad
    assert float(fixed()) == float(learnt().detach()) == 2.0
    bounded = Coefficient(0.25, bounded=True)
    torch.testing.assert_close(bounded().detach().squeeze(), torch.tensor(0.25))
    with torch.no_grad():
        bounded.raw.fill_(50.0)
    assert 0 < float(bounded().detach()) <= 1
    bounded.reset_parameters()
    torch.testing.assert_close(bounded().detach().squeeze(), torch.tensor(0.25))
    assert not Diffusion(ConstantLaplacian(over="rows"), alpha=0.5).alpha.raw.requires_grad
    assert "learn=True" in repr(learnt)


def test_coefficient_follows_time() -> None:
    c = scatter_parameters(Coefficient(0.5, terms=3, horizon=2.0))
    raw, t = c.raw.detach().flatten(), 1.7
    s = t - 1
    want = raw[0] + raw[1] * s + raw[2] * (3 * s * s - 1) / 2
    torch.testing.assert_close(c(torch.tensor(t, dtype=D)).squeeze(), want)
    fresh = Coefficient(0.5, terms=3, horizon=2.0)
    assert float(fresh(torch.tensor(1.3)).detach()) == 0.5
    members, _ = stack_module_state(
        [scatter_parameters(Coefficient(0.5, terms=3, horizon=2.0), k) for k in (0, 1)]
    )
    times = torch.tensor([t, 0.4], dtype=D)[:, None, None]
    together = functional_call(c, members, (times,))
    assert together.shape == (2, 1, 1)
    torch.testing.assert_close(together[0].squeeze(), want)


@pytest.mark.parametrize("detach", [True, False])
def test_source_gradient(small: Graph, detach: bool) -> None:
    equation = Diffusion(make_diffusivity("dot/sqrt"), terms=[Source(0.3, detach_source=detach)]).to(D)
    x0 = normal(small.num_nodes, 3).requires_grad_()
    x = normal(small.num_nodes, 3, seed=1)
    out = equation.bind(small, x0)(torch.tensor(0.0), x).sum()
    (grad,) = torch.autograd.grad(out, x0, allow_unused=True)
    if detach:
        assert grad is None or float(grad.abs().max()) == 0
    else:
        torch.testing.assert_close(grad, torch.full_like(x0, 0.3))


def test_terms_add_up(small: Graph) -> None:
    class Decay(Term):
        def forward(self, context: Context) -> tuple[Tensor, Tensor]:
            return torch.tensor([[-2.0]], dtype=D), context.x

    x = normal(small.num_nodes, 3)
    plain = make_equation(linear=True, source=False)
    both = Diffusion(
        plain.diffusivity, linear=True, alpha=plain.alpha, terms=[Source(0.3), Decay(), Source(0.1)]
    ).to(D)
    t = torch.tensor(0.0)
    difference = both.bind(small, x)(t, x) - plain.bind(small, x)(t, x)
    torch.testing.assert_close(difference, 0.4 * x - 2 * x)
    assert plain.bind(small, x).stiff(t, x).rest is None
    assert Exponential.accepts(plain.bind(small, x)) and not Exponential.accepts(both.bind(small, x))


def test_closed_form(small: Graph) -> None:
    x = normal(small.num_nodes, 3)
    varying = Coefficient(0.5, terms=2, horizon=1.0)
    assert Exponential.accepts(make_equation(linear=True).bind(small, x))
    assert not Exponential.accepts(make_equation(linear=False).bind(small, x))
    assert not Exponential.accepts(make_equation(linear=True, alpha=varying).bind(small, x))
    late = Diffusion(ConstantLaplacian(over="rows"), linear=True, terms=[Source(varying)])
    assert not Exponential.accepts(late.bind(small, x))


@pytest.mark.parametrize("linear", [True, False])
def test_tensors_and_rebound(small: Graph, linear: bool) -> None:
    x0 = normal(small.num_nodes, 3).requires_grad_()
    equation = make_equation(linear=linear)
    equation.alpha.raw.requires_grad_(False)
    flow = equation.bind(small, x0)
    learnt = [p for p in equation.parameters() if p.requires_grad]
    assert len(flow.tensors) == len(learnt) + (2 if linear else 1)
    assert any(v is x0 for v in flow.tensors) and (
        not linear or any(v is flow.context.attention for v in flow.tensors)
    )
    t, x = torch.tensor(0.0, dtype=D), normal(small.num_nodes, 3, seed=1)
    torch.testing.assert_close(flow.rebound(flow.tensors)(t, x), flow(t, x))
    moved = [v.detach() + 0.1 for v in flow.tensors]
    other = flow.rebound(moved)
    # every part of the rebound flow, not only its sum, works on the new tensors
    parts = other.stiff(t, x)
    change = small.dense(other.attention(t, x)) @ x - x
    torch.testing.assert_close(other(t, x), parts.coefficient * change + parts.rest)
    assert float((other(t, x) - flow(t, x)).detach().abs().max()) > 1e-3
    torch.testing.assert_close(parts.rest, (0.3 + 0.1) * (x0.detach() + 0.1))


def test_rebound_of_time_varying_attention(small: Graph) -> None:
    x = normal(small.num_nodes, 3)
    attention = scatter_parameters(TimeVarying(make_diffusivity("cosine"), horizon=2.0))
    flow = Diffusion(attention).to(D).bind(small, x)
    other = flow.rebound([v.detach() + 0.5 for v in flow.tensors])
    t = torch.tensor(1.2, dtype=D)
    torch.testing.assert_close(other(t, x), small.dense(other.attention(t, x)) @ x - x)
    assert not torch.allclose(other(t, x), flow(t, x))


def test_population_of_equations() -> None:
    graph = make_graph("random")
    members = [make_equation(seed=s) for s in range(3)]
    stacked, _ = stack_module_state(members)  # type: ignore[arg-type]
    x = normal(3, graph.num_nodes, 3)
    t = torch.tensor(0.0, dtype=D)
    together = functional_call(members[0], stacked, (Context(graph, x, x, t),))
    for k, equation in enumerate(members):
        torch.testing.assert_close(together[k], equation.bind(graph, x[k])(t, x[k]), rtol=1e-12, atol=1e-14)


def test_refusals() -> None:
    for build, says in (
        (lambda: Coefficient(1.5, bounded=True), "1.5"),
        (lambda: Coefficient(float("nan")), "nan"),
        (lambda: Coefficient(1.0, terms=0), "terms=0"),
        (lambda: Coefficient(1.0, terms=2), "horizon=None"),
    ):
        with pytest.raises(ArgumentError, match=says):
            build()


def test_linear_model_with_attention_that_varies_in_time(small: Graph) -> None:
    """A(x(0), θ(t)): linear in x, but with no closed form."""
    x0, x = normal(small.num_nodes, 3), normal(small.num_nodes, 3, seed=1)
    attention = scatter_parameters(TimeVarying(make_diffusivity("cosine"), horizon=2.0))
    flow = Diffusion(attention, linear=True).to(D).bind(small, x0)
    assert not Exponential.accepts(flow)
    states = []
    for time in (0.0, 1.2, 2.0):
        t = torch.tensor(time, dtype=D)
        a = attention(small, x0, t=t)
        torch.testing.assert_close(flow.attention(t, x), a)
        torch.testing.assert_close(flow(t, x), small.dense(a) @ x - x)
        states.append(flow(t, x))
    assert float((states[0] - states[1]).detach().abs().max()) > 1e-3
    with pytest.raises(ArgumentError, match="constant in time"):
        integrate(flow, x0, 1.0, Exponential())
