"""The terms of GRAND's successors: each against a dense formula, its gradients, members and a training."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import D, make_diffusivity, make_graph, normal, scatter_parameters
from test_cli_basics import SMALL, write_graph
from torch import Tensor
from torch.autograd import gradcheck
from torch.func import functional_call, stack_module_state

from graphdiffusion.cli import main
from graphdiffusion.equation import TERMS, AllenCahn, Diffusion, Fisher, Zeldovich
from graphdiffusion.nn import GraphDiffusion
from graphdiffusion.options import create
from graphdiffusion.solvers import DormandPrince, integrate

NAMES = ["fisher", "allen-cahn", "zeldovich", "blurring-sharpening"]
LAWS: dict[str, Callable[[Tensor], Tensor]] = {
    "fisher": lambda x: x * (1 - x),
    "allen-cahn": lambda x: x * (1 - x**2),
    "zeldovich": lambda x: x * (x - x**2),
}


def observed(*members: int) -> Tensor:
    """Labels of three of nine nodes, others in every member."""
    found = torch.zeros(*members, 9, 2, dtype=D)
    flat = found.view(-1, 9, 2)
    for k in range(len(flat)):
        flat[k, [k % 3, 4, 5 + k % 4], [0, 1, 0]] = 1.0
    return found


def made(
    name: str, seed: int = 0, linear: bool = False, wide: int | None = None, **options: Any
) -> Diffusion:
    term = create(TERMS[name], options, channels=3, wide=wide)
    scatter_parameters(term, seed, 0.3)
    return Diffusion(make_diffusivity("dot/sqrt", seed=seed), linear=linear, alpha=0.75, terms=[term]).to(D)


def dense(name: str, model: Diffusion, graph: Any, x: Tensor, x0: Tensor, seen: Tensor) -> Tensor:
    """The coefficient times the direction of the term, from its formula in the paper."""
    term: Any = model.terms[0]
    a = graph.dense(model.diffusivity(graph, x0 if model.linear else x))
    if name in LAWS:
        change = LAWS[name](x)
        return term.beta() * (torch.tanh(change) if term.saturate else change)
    if name == "blurring-sharpening":
        return term.beta() * (a - a @ a) @ x
    raise AssertionError(name)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("linear", [True, False])
@pytest.mark.parametrize("graph", ["random", "directed"])
def test_terms_against_their_formula(name: str, linear: bool, graph: str) -> None:
    g = make_graph(graph)
    model = made(name, linear=linear)
    x0, x, seen = normal(9, 3), normal(9, 3, seed=1), observed()
    flow = model.bind(g, x0, observed=seen)
    a = g.dense(model.diffusivity(g, x0 if linear else x))
    want = 0.75 * (a @ x - x) + dense(name, model, g, x, x0, seen)
    torch.testing.assert_close(flow(None, x), want, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("name", NAMES)
def test_gradients_of_terms(name: str) -> None:
    g, model = make_graph("loops"), made(name)
    values = list(model.parameters())

    def run(x0: Tensor, x: Tensor, *parameters: Tensor) -> Tensor:
        flow = model.bind(g, x0, observed=observed()[:5])
        own = flow.rebound([*parameters, *flow.tensors[len([p for p in values if p.requires_grad]) :]])
        return own(None, x)

    learnt = [p.detach().clone().requires_grad_() for p in values if p.requires_grad]
    starts = [normal(5, 3, seed=k).requires_grad_() for k in (2, 3)]
    assert gradcheck(run, (*starts, *learnt), fast_mode=True)


@pytest.mark.parametrize("members", [2, 3, 9])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("wide", [None, 3])
def test_members_of_terms(name: str, members: int, wide: int | None) -> None:
    """As many as channels, or nodes: each as it is alone, with labels of its own."""
    g = make_graph("random")

    class Held(torch.nn.Module):
        def __init__(self, seed: int) -> None:
            super().__init__()
            self.equation = made(name, seed, wide=wide)

        def forward(self, x: Tensor, seen: Tensor) -> Tensor:
            return self.equation.bind(g, x, observed=seen)(None, x)

    models = [Held(k) for k in range(members)]
    stacked, _ = stack_module_state(models)  # type: ignore[arg-type]
    x, seen = normal(members, 9, 3), observed(members)
    together = functional_call(models[0], stacked, (x, seen))
    for k, model in enumerate(models):
        torch.testing.assert_close(together[k], model(x[k], seen[k]), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_terms_train_from_the_command_line(name: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    write_graph(Path("toy"))
    for k, variant in enumerate(("linear", "nonlinear")):
        more = ["--terms", f"source,{name}", "--variant", variant, "--coefficients", "channel"]
        assert main(["train", "toy", *SMALL, *more, "--out", f"run{k}"]) == 0
    assert "terms" in Path("run0/config.toml").read_text()


@pytest.mark.parametrize(("cls", "most"), [(Fisher, 1.5), (AllenCahn, 2.7), (Zeldovich, 2.1)])
def test_reactions_are_lipschitz(cls: Any, most: float) -> None:
    x = torch.linspace(-30, 30, 200_001, dtype=D, requires_grad=True)
    (slope,) = torch.autograd.grad(torch.tanh(cls().law(x)).sum(), x)
    assert float(slope.abs().max()) < most


@pytest.mark.parametrize("saturate", [True, False])
@pytest.mark.parametrize(("name", "low"), [("allen-cahn", -1.0), ("zeldovich", 0.0)])
def test_reactions_keep_their_range(name: str, low: float, saturate: bool) -> None:
    """A row-stochastic: the larger of the wells and the range of the features."""
    g, x = make_graph("directed"), 2 * normal(9, 3)
    model = made(name, saturate=saturate, reaction=0.9)
    states = integrate(model.bind(g, x), x, 20.0, DormandPrince(1e-8, 1e-9), at=[1.0, 5.0, 20.0]).states
    assert states is not None
    assert float(states.detach().min()) >= min(low, float(x.min())) - 1e-6
    assert float(states.detach().max()) <= max(1.0, float(x.max())) + 1e-6


def test_a_reaction_has_no_closed_form() -> None:
    layer = GraphDiffusion(3, terms="source,allen-cahn", reaction=0.2)
    assert isinstance(layer.solver, DormandPrince)
    assert math.isclose(float(layer.equation.terms[1].beta()), 0.2, rel_tol=1e-6)  # type: ignore[index,union-attr,operator]
    wide = GraphDiffusion(3, terms="fisher", coefficients="channel")
    assert wide.equation.terms[0].beta().shape == (1, 3)  # type: ignore[index,union-attr,operator]
