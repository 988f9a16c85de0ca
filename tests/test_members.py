"""As many members as nodes, channels or heads: each equals itself alone, for every diffusivity and term."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from conftest import DIFFUSIVITIES, D, make_diffusivity, make_graph, normal, scatter_parameters
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state

from graphdiffusion.diffusivity import GATv2, TimeVarying
from graphdiffusion.equation import TERMS, Coefficient, Context, Diffusion, Source, Term
from graphdiffusion.graph import Graph
from graphdiffusion.nn import GraphDiffusion
from graphdiffusion.ops import propagate
from graphdiffusion.solvers import (
    RK4,
    AdamsMoulton4,
    DormandPrince,
    Exponential,
    SemiImplicitEuler,
    integrate,
)

GRAPH = make_graph("random")
NODES, CHANNELS, HEADS = GRAPH.num_nodes, 3, 2
COUNTS = (HEADS, CHANNELS, NODES)


class Everything(Term):
    """A term that uses A, the start, the labels and a vector of its own."""

    needs_attention = True
    members = True

    def __init__(self) -> None:
        super().__init__()
        self.vector = nn.Parameter(torch.ones(CHANNELS))

    def forward(self, context: Context) -> tuple[Tensor, Tensor]:
        assert context.observed is not None and context.attention is not None
        spread = propagate(context.graph, context.attention, context.x)
        known = context.observed.sum(-1, keepdim=True)
        # stacked to (P, d): one vector for each member, never one for each node
        return self.vector.unsqueeze(-2), torch.tanh(spread) + known * context.x0


class Model(nn.Module):
    def __init__(self, equation: Diffusion) -> None:
        super().__init__()
        self.equation = equation

    def forward(self, x: Tensor, time: Tensor, solver: Any, observed: Tensor | None = None) -> Tensor:
        flow = self.equation.bind(GRAPH, x, observed=observed)
        return integrate(flow, x, time, solver).state


def check(models: list[Model], solver: Any, observed: Tensor | None = None) -> None:
    """States and gradients of all members at once, against each alone."""
    count = len(models)
    stacked, buffers = stack_module_state(models)  # type: ignore[arg-type]
    stacked = {k: v.detach().requires_grad_() for k, v in stacked.items()}
    x = normal(count, NODES, CHANNELS).requires_grad_()
    times = torch.linspace(0.4, 1.2, count, dtype=D)
    together = functional_call(models[0], {**stacked, **buffers}, (x, times, solver, observed))
    found = torch.autograd.grad(together.square().sum(), [x, *stacked.values()], allow_unused=True)
    for k, model in enumerate(models):
        own = x[k].detach().requires_grad_()
        alone = model(own, times[k], solver, None if observed is None else observed[k])
        torch.testing.assert_close(together[k], alone, rtol=1e-11, atol=1e-12)
        grads = torch.autograd.grad(alone.square().sum(), [own, *model.parameters()], allow_unused=True)
        for both, one in zip(found, grads, strict=True):
            assert (both is None) == (one is None)
            if one is not None:
                torch.testing.assert_close(both[k], one, rtol=1e-8, atol=1e-10)


def build(name: str, seed: int, **how: Any) -> Any:
    if name == "gatv2":
        return scatter_parameters(GATv2(CHANNELS, HEADS, 6, **how), seed)
    if name == "time-varying":
        return scatter_parameters(TimeVarying(make_diffusivity("cosine", seed=seed, **how), 1.0), seed, 0.2)
    return make_diffusivity(name, seed=seed, **how)


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("name", [*DIFFUSIVITIES, "gatv2", "time-varying"])
def test_every_diffusivity(name: str, count: int) -> None:
    for kind in ("squareplus", "signed") if name not in ("constant", "time-varying") else ("squareplus",):
        models = []
        for k in range(count):
            attention = build(name, k, normaliser=kind, over="columns")
            models.append(
                Model(
                    Diffusion(attention, alpha=Coefficient(0.3 + 0.05 * k), terms=[Source(0.1 * k)]).to(D)
                )
            )
        check(models, RK4(0.3))


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize(
    "solver", [DormandPrince(1e-2, 1e-3), SemiImplicitEuler(0.5), AdamsMoulton4(0.2)], ids=repr
)
def test_every_term_and_coefficient(solver: Any, count: int) -> None:
    observed = (normal(count, NODES, 2, seed=4) > 0.5).to(D)
    models = []
    for k in range(count):
        wide = scatter_parameters(Coefficient(0.5, channels=CHANNELS, bounded=True), k, 0.3)
        late = scatter_parameters(Coefficient(0.2, channels=CHANNELS, terms=3, horizon=1.2), k, 0.2)
        rates = scatter_parameters(Coefficient(1.0, channels=CHANNELS), k, 0.1)
        terms = [scatter_parameters(Everything(), k, 0.3), Source(late)]
        models.append(Model(Diffusion(build("cosine", k), alpha=wide, terms=terms, rates=rates).to(D)))
    check(models, solver, observed)


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("wide", [None, CHANNELS])
def test_the_closed_form(wide: int | None, count: int) -> None:
    models = []
    for k in range(count):
        alpha, beta, rates = (
            scatter_parameters(Coefficient(v, channels=wide, bounded=b), k, 0.2)
            for v, b in ((0.5, True), (0.2, False), (1.0, False))
        )
        terms = [Source(beta)]
        models.append(
            Model(Diffusion(build("dot/sqrt", k), linear=True, alpha=alpha, terms=terms, rates=rates).to(D))
        )
    check(models, Exponential())


def test_every_registered_term_says_whether_it_takes_members() -> None:
    assert all(cls.members for cls in TERMS.classes().values())
    assert Diffusion(make_diffusivity("cosine"), terms=[Source(0.1), Everything()]).members is True

    class Silent(Term):
        pass

    class Single(Term):
        members = False

    assert Diffusion(make_diffusivity("cosine"), terms=[Silent()]).members is None
    assert Diffusion(make_diffusivity("cosine"), terms=[Silent(), Single()]).members is False


@pytest.mark.parametrize("variant", ["linear", "nonlinear", "nonlinear-rewired"])
def test_layers_stacked_over_as_many_members_as_nodes(variant: Any) -> None:
    layers = []
    for k in range(NODES):
        torch.manual_seed(k)
        how: dict[str, Any] = {"coefficients": "channel", "channel_rates": True, "learn_time": True}
        layer = GraphDiffusion(
            CHANNELS, 1.0 + 0.1 * k, variant=variant, heads=HEADS, attention_dim=6, **how
        )
        layers.append(scatter_parameters(layer, k, 0.1))
    stacked, buffers = stack_module_state(layers)  # type: ignore[arg-type]
    x = normal(NODES, NODES, CHANNELS)
    graph = Graph.from_edge_index(GRAPH.edge_index, NODES, self_loops=1.0)
    together = functional_call(layers[0], {**stacked, **buffers}, (x, graph))
    for k, layer in enumerate(layers):
        torch.testing.assert_close(together[k], layer(x[k], graph), rtol=1e-9, atol=1e-10)
