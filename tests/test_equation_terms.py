"""Terms that use A, the start and labels; affine terms in closed form; when A is built."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from conftest import D, make_diffusivity, make_graph, normal, scatter_parameters
from scipy.integrate import solve_ivp
from torch import Tensor, nn

from graphdiffusion.diffusivity import TimeVarying
from graphdiffusion.diffusivity import base as diffusivity_base
from graphdiffusion.equation import Affine, Coefficient, Context, Diffusion, Forcing, Source, Term
from graphdiffusion.equation import diffusion as diffusion_module
from graphdiffusion.errors import ArgumentError
from graphdiffusion.graph import Graph
from graphdiffusion.nn import GraphDiffusion
from graphdiffusion.ops import propagate
from graphdiffusion.solvers import DormandPrince, Exponential, SemiImplicitEuler, integrate

SHARP = DormandPrince(1e-10, 1e-12)
# the numbers of the equations below are exact in float32, as parameters are made
EYE = torch.eye(9, dtype=D)


class Advection(Term):
    """γ A x₀: what flows in along the edges from the start."""

    needs_attention = True
    members = True

    def __init__(self, gamma: float = 0.5) -> None:
        super().__init__()
        self.gamma = Coefficient(gamma)

    def forward(self, context: Context) -> tuple[Tensor, Tensor]:
        assert context.attention is not None
        return self.gamma(context.t), propagate(context.graph, context.attention, context.x0)

    def affine(self, context: Context) -> Affine | None:
        if context.attention is None:
            return None
        return Affine(
            sources=(Forcing(self.gamma(), propagate(context.graph, context.attention, context.x0)),)
        )


class Reaction(Term):
    """Allen-Cahn: x − x³."""

    members = True

    def forward(self, context: Context) -> tuple[Tensor, Tensor]:
        return context.x.new_ones(1, 1), context.x - context.x**3


class Decay(Term):
    """−γ x, the power 0 of A − I."""

    members = True

    def __init__(self, gamma: float = 0.25) -> None:
        super().__init__()
        self.gamma = Coefficient(-gamma)

    def forward(self, context: Context) -> tuple[Tensor, Tensor]:
        return self.gamma(context.t), context.x

    def affine(self, context: Context) -> Affine | None:
        return Affine({0: self.gamma()})


class Labels(Term):
    """Labels pull the nodes that have one: W y − x where a label is known."""

    members = True

    def __init__(self, classes: int, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(classes, channels))

    def forward(self, context: Context) -> tuple[Tensor, Tensor]:
        assert context.observed is not None
        known = context.observed.sum(-1, keepdim=True)
        return context.x.new_ones(1, 1), context.observed @ self.weight - known * context.x


def equation(*terms: Term, linear: bool = False, **how: Any) -> Diffusion:
    attention = make_diffusivity("dot/sqrt")
    return Diffusion(attention, linear=linear, alpha=Coefficient(0.75), terms=terms, **how).to(D)


def by_scipy(rhs: Any, x: Tensor, time: float) -> Tensor:
    def f(t: float, y: np.ndarray) -> np.ndarray:
        return rhs(t, torch.from_numpy(y).reshape(x.shape)).detach().flatten().numpy()

    found = solve_ivp(f, (0, time), x.detach().flatten().numpy(), "DOP853", rtol=1e-12, atol=1e-12)
    return torch.from_numpy(found.y[:, -1]).reshape(x.shape)


@pytest.mark.parametrize("linear", [True, False])
def test_every_kind_of_term_against_scipy(small: Graph, linear: bool) -> None:
    model = equation(Advection(), Reaction(), Labels(2, 3), Source(0.25), linear=linear)
    scatter_parameters(model.terms[2])
    x0, observed = normal(9, 3), torch.zeros(9, 2, dtype=D)
    observed[[0, 4], [1, 0]] = 1.0
    weight = model.terms[2].weight.detach()

    def rhs(t: float, x: Tensor) -> Tensor:
        a = small.dense(model.diffusivity(small, x0 if linear else x))
        pull = observed @ weight - observed.sum(1, keepdim=True) * x
        return 0.75 * (a @ x - x) + 0.5 * a @ x0 + x - x**3 + pull + 0.25 * x0

    flow = model.bind(small, x0, observed=observed)
    torch.testing.assert_close(flow(None, x0), rhs(0.0, x0))
    torch.testing.assert_close(
        integrate(flow, x0, 1.5, SHARP).state, by_scipy(rhs, x0, 1.5), rtol=1e-7, atol=1e-8
    )
    parts = flow.stiff(None, x0)  # A once for both
    assert parts is not None and parts.rest is not None
    torch.testing.assert_close(parts.rest, rhs(0.0, x0) - 0.75 * (small.dense(parts.values) @ x0 - x0))


@pytest.mark.parametrize("mode", ["backprop", "checkpoint", "adjoint"])
def test_gradients_reach_labels_and_mask(small: Graph, mode: Any) -> None:
    """Whatever was computed before the integral, in every gradient mode."""
    model = equation(Labels(2, 3))
    scatter_parameters(model.terms[0])
    x = normal(9, 3)
    observed = torch.rand(9, 2, dtype=D, generator=torch.Generator().manual_seed(0)).requires_grad_()
    mask = (
        0.5 + torch.rand(small.num_edges, dtype=D, generator=torch.Generator().manual_seed(1))
    ).requires_grad_()
    found = []
    for gradient in ("backprop", mode):
        flow = model.bind(small, x, mask, observed)
        assert any(v is observed for v in flow.tensors) and any(v is mask for v in flow.tensors)
        state = integrate(flow, x, 1.0, DormandPrince(1e-9, 1e-10), gradient=gradient).state
        found.append(torch.autograd.grad(state.square().sum(), [observed, mask, *model.parameters()]))
    for plain, other in zip(*found, strict=True):
        assert float(plain.abs().max()) > 1e-4
        torch.testing.assert_close(other, plain, rtol=1e-3, atol=1e-5)


def test_affine_terms_in_closed_form(small: Graph) -> None:
    """Sources that start elsewhere than the state, among them A x₀."""
    model = equation(Advection(), Source(0.25), linear=True)
    x0 = normal(9, 3).requires_grad_()
    flow = model.bind(small, x0)
    assert Exponential.accepts(flow)
    state = integrate(flow, x0, 2.0).state
    a = small.dense(flow.context.attention).detach()
    wide = torch.zeros(18, 18, dtype=D)
    wide[:9, :9], wide[:9, 9:] = 0.75 * (a - EYE), 0.5 * a + 0.25 * EYE
    want = (torch.linalg.matrix_exp(2.0 * wide) @ torch.cat([x0, x0]).detach())[:9]
    torch.testing.assert_close(state.detach(), want)
    stepped = integrate(flow, x0, 2.0, SHARP).state
    leaves = [x0, *model.parameters()]
    for ours, theirs in zip(
        torch.autograd.grad(state.square().sum(), leaves, retain_graph=True),
        torch.autograd.grad(stepped.square().sum(), leaves),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-7)


def test_other_powers_have_a_closed_form(small: Graph) -> None:
    x = normal(9, 3)
    flow = equation(Decay(), linear=True).bind(small, x)
    found = flow.affine()
    assert found is not None and set(found.powers) == {0, 1}
    a = small.dense(flow.context.attention)
    want = torch.linalg.matrix_exp(2.0 * (0.75 * (a - EYE) - 0.25 * EYE)) @ x
    for solver, near in ((Exponential(), 1e-12), (SHARP, 1e-8), (SemiImplicitEuler(0.002), 1e-2)):
        torch.testing.assert_close(integrate(flow, x, 2.0, solver).state, want, rtol=near, atol=near)
    assert integrate(flow, x, 2.0).stats.accepted == 1  # the default is the closed form
    reacting = equation(Reaction(), linear=True).bind(small, x)
    with pytest.raises(ArgumentError, match=r"no other term in x, got Diffusion\. Take DormandPrince"):
        integrate(reacting, x, 1.0, Exponential())


def test_sums_and_multiples_of_affine_parts() -> None:
    one, two = torch.full((1, 1), 2.0), torch.tensor([[3.0, 4.0]])
    field = normal(5, 2)
    total = (
        Affine({1: one}, values=field) + Affine({0: two, 1: two}, (Forcing(one, field, True),))
    ).scaled(two)
    assert total.values is field and total.sources[0].detached
    torch.testing.assert_close(total.powers[1], two * (one + two))
    torch.testing.assert_close(total.powers[0], two * two)
    torch.testing.assert_close(total.sources[0].coefficient, two * one)


def counted(monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> list[int]:
    calls: list[int] = []
    inner = getattr(module, name)

    def count(*arguments: Any, **how: Any) -> Any:
        calls.append(1)
        return inner(*arguments, **how)

    monkeypatch.setattr(module, name, count)
    return calls


def test_a_is_built_only_where_it_is_needed(small: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    x = normal(9, 3)
    in_one_piece, matrices = (
        counted(monkeypatch, diffusivity_base, name) for name in ("diffuse", "attention")
    )
    products = counted(monkeypatch, diffusion_module, "propagate")
    for terms, linear, fused, built in (
        ([Source(0.3), Reaction()], False, 1, 0),
        ([Source(0.3), Advection()], False, 0, 1),
        ([Source(0.3), Reaction()], True, 0, 0),  # once, when bound
        ([Advection()], True, 0, 0),
    ):
        flow = equation(*terms, linear=linear).bind(small, x)
        for calls in (in_one_piece, matrices, products):
            calls.clear()
        flow(None, x)
        assert (len(in_one_piece), len(matrices), len(products)) == (fused, built, 1 - fused), terms
        matrices.clear()
        flow.stiff(None, x)
        assert len(matrices) == (0 if linear else 1)


def test_the_rule_of_equation_12_belongs_to_the_equation(small: Graph) -> None:
    x = normal(9, 3)
    attention = make_diffusivity("dot/sqrt")
    plain = attention(small, x).detach()
    model = Diffusion(attention, rule={"keep": 0.5}).to(D)
    kept = model.bind(small, x).context.mask
    assert kept is not None
    first = plain.sort(descending=True).indices[: round(0.5 * small.num_edges)]
    assert bool((kept[first] == 1).all()) and float(kept.sum()) < small.num_edges
    given = torch.ones(small.num_edges, dtype=D)
    given[first[0]] = 0.0
    both = model.bind(small, x, given).context.mask
    assert both is not None and float(both[first[0]]) == 0
    with pytest.raises(ArgumentError, match="at most one"):
        Diffusion(attention, rule={"keep": 0.5, "mass": 0.5})


def test_the_solver_follows_the_equation() -> None:
    for how, closed in (
        ({}, True),
        ({"coefficients": "channel", "channel_rates": True}, True),
        ({"terms": ""}, True),
        ({"normaliser": "signed"}, True),
        ({"keep": 0.5}, True),
        ({"diffusivity": "gatv2"}, True),
        ({"variant": "nonlinear"}, False),
        ({"theta_terms": 2}, False),
        ({"terms": [Reaction()]}, False),
        ({"terms": [Decay()]}, True),
        ({"terms": [Advection()]}, True),
        ({"normaliser": "none"}, False),
    ):
        layer = GraphDiffusion(4, **how)  # type: ignore[arg-type]
        assert isinstance(layer.solver, Exponential if closed else DormandPrince), how
        if not closed:
            with pytest.raises(ArgumentError, match="exponential needs an equation with a closed form"):
                GraphDiffusion(4, solver="exponential", **how)  # type: ignore[arg-type]


def test_rates_follow_rebound_parameters(small: Graph) -> None:
    model = equation()
    flow = model.bind(small, normal(9, 3))
    other = flow.rebound([v.detach() + 0.5 for v in flow.tensors])
    assert float(other.rate) == pytest.approx(1.25) and float(flow.rate) == pytest.approx(0.75)
    varying = Diffusion(scatter_parameters(TimeVarying(make_diffusivity("cosine"), 2.0)), linear=True).to(D)
    assert varying.bind(make_graph("random"), normal(9, 3)).affine() is None
