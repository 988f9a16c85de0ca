"""Equations, solvers and gradients on parts against the whole graph."""

from __future__ import annotations

import pytest
import torch
from processes import group
from test_parts_ops import SIZES, fields, own, part_of, whole_graph
from torch.testing import assert_close

from graphdiffusion import GraphDiffusion
from graphdiffusion.equation.penalty import jacobian_norm, kinetic_energy
from graphdiffusion.partition import use_part

LAYERS = {
    "closed form": {},
    "closed form, rows, learnt time": {"over": "rows", "learn_time": True, "normaliser": "softmax"},
    "checkpoint": {"gradient": "checkpoint"},
    "rates": {"channel_rates": True},
    "dopri5": {"variant": "nonlinear", "solver": "dopri5", "over": "rows"},
    "dopri5 columns": {"variant": "nonlinear", "solver": "dopri5"},
    "rk4": {"variant": "nonlinear", "solver": "rk4", "step_size": 0.4},
    "rk4 checkpoint": {"variant": "nonlinear", "solver": "rk4", "step_size": 0.4, "gradient": "checkpoint"},
    "adjoint": {"variant": "nonlinear", "solver": "dopri5", "gradient": "adjoint"},
    "semi-implicit": {"variant": "nonlinear", "solver": "semi-implicit", "step_size": 0.5},
    "semi-implicit linear": {"solver": "semi-implicit", "step_size": 2.0, "over": "rows"},
    "trapezoid": {
        "variant": "nonlinear", "solver": "trapezoid", "step_size": 0.5, "rtol": 1e-10, "atol": 1e-10
    },
    "esdirk": {"variant": "nonlinear", "solver": "esdirk"},
    "adams-moulton": {"variant": "nonlinear", "solver": "adams-moulton", "step_size": 0.2},
    "exponential-two-step": {"variant": "nonlinear", "solver": "exponential-two-step", "step_size": 0.5},
    "exponential42": {"variant": "nonlinear", "solver": "exponential42"},
    "fractional": {"solver": "fractional", "step_size": 0.3, "derivative": 0.8},
    "rewired": {"variant": "nonlinear-rewired", "solver": "rk4", "step_size": 0.4, "keep": 0.6},
    "rewired threshold": {
        "variant": "nonlinear-rewired", "solver": "rk4", "step_size": 0.4, "threshold": 0.2
    },
    "rewired mass": {
        "variant": "nonlinear-rewired", "solver": "rk4", "step_size": 0.4, "mass": 0.7, "over": "rows"
    },
    "exponential kernel": {"diffusivity": "exponential"},
    "gatv2": {"diffusivity": "gatv2", "over": "rows"},
    "symmetric": {"over": "symmetric"},
    "reactions": {"terms": "source,allen-cahn,convection,repulsion", "solver": "rk4", "step_size": 0.4},
    "sharpening": {"terms": "source,blurring-sharpening"},
    "graphcon": {"equation": "graphcon", "solver": "symplectic-euler", "step_size": 0.4},
}  # fmt: skip


def layer_on_parts(rank, size, name):
    graph = whole_graph(weighted=name == "dopri5")
    part = part_of(graph, rank, size)
    torch.manual_seed(3)
    layer = GraphDiffusion(6, time=2.0, heads=2, attention_dim=4, **LAYERS[name]).double()
    learnt = {name: p for name, p in layer.named_parameters() if p.requires_grad}
    with torch.no_grad():
        for p in learnt.values():
            p.add_(0.3 * torch.randn_like(p))
    shapes = [("n", 6), ("n", 6)]
    x, weight = fields(graph, *shapes)

    def result(on, x, weight):
        x = x.clone().requires_grad_()
        out, seen = layer(x, on, return_trajectory=True)
        loss = (out * weight).sum()  # what each part adds to it
        found = torch.autograd.grad(loss, [x, *learnt.values()], allow_unused=True, materialize_grads=True)
        return out, found, seen.solution.stats

    wanted, gradients, stats = result(graph, x, weight)
    with use_part(part):
        out, found, own_stats = result(
            part, *(own(part, v, s) for v, s in zip((x, weight), shapes, strict=True))
        )
        from graphdiffusion.partition.whole import total

        summed = [found[0], *(total(g) for g in found[1:])]
    close = {"rtol": 1e-9, "atol": 1e-10}
    assert_close(out, own(part, wanted, ("n", 6)), **close)
    assert own_stats.evaluations == stats.evaluations
    assert (own_stats.accepted, own_stats.rejected) == (stats.accepted, stats.rejected)
    if stats.steps:
        assert_close(torch.stack(own_stats.steps), torch.stack(stats.steps), **close)
    assert_close(summed[0], own(part, gradients[0], ("n", 6)), **close)
    for key, a, b in zip(learnt, summed[1:], gradients[1:], strict=True):
        assert_close(a, b, **close, msg=lambda text, key=key: f"{key}: {text}")


@pytest.mark.parametrize("name", LAYERS)
def test_layers(name):
    group(2).run(layer_on_parts, name)


@pytest.mark.parametrize("name", ["closed form", "dopri5", "rewired"])
def test_layers_on_three_parts(name):
    group(3).run(layer_on_parts, name)


def penalties(rank, size):
    graph = whole_graph()
    part = part_of(graph, rank, size)
    torch.manual_seed(0)
    layer = GraphDiffusion(
        6, variant="nonlinear", solver="rk4", step_size=0.4, heads=2, attention_dim=4
    ).double()
    (x,) = fields(graph, ("n", 6))
    key = torch.tensor(5)

    def result(on, x):
        flow = layer.bind(x, on)
        return torch.stack([kinetic_energy(flow, None, x), jacobian_norm(flow, None, x, key)])

    wanted = result(graph, x)
    with use_part(part):
        found = result(part, own(part, x, ("n", 6)))
    assert_close(found, wanted, rtol=1e-11, atol=0)


@pytest.mark.parametrize("size", SIZES)
def test_penalties(size):
    group(size).run(penalties)


def chosen_edges(rank, size):
    """Of many equal values the first edges of the whole graph are kept."""
    from graphdiffusion.equation import attention_mask

    graph = whole_graph(edges=200)
    part = part_of(graph, rank, size)
    generator = torch.Generator().manual_seed(0)
    for values in (
        torch.randint(0, 4, (3, graph.num_edges), generator=generator).float() / 4,
        torch.rand(3, graph.num_edges, generator=generator).double() - 0.5,
        torch.zeros(1, graph.num_edges),
    ):
        for how in ({"keep": 0.31}, {"keep": 1.0}, {"threshold": 0.3}, {"mass": 0.5}):
            wanted = attention_mask(graph, values, **how)
            with use_part(part):
                found = attention_mask(part, values[:, part.places], **how)
            assert torch.equal(found, wanted[:, part.places]), how


@pytest.mark.parametrize("size", SIZES)
def test_rewiring_of_equal_values(size):
    group(size).run(chosen_edges)
