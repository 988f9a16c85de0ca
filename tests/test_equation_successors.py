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
from graphdiffusion.diffusivity import ConstantLaplacian
from graphdiffusion.equation import (
    ACMP,
    TERMS,
    AllenCahn,
    Diffusion,
    Fisher,
    LabelledSource,
    Zeldovich,
)
from graphdiffusion.errors import ArgumentError
from graphdiffusion.graph import Graph
from graphdiffusion.nn import GRAND, GraphDiffusion
from graphdiffusion.options import create
from graphdiffusion.solvers import DormandPrince, Exponential, integrate
from graphdiffusion.training import Config
from graphdiffusion.training.tasks import TASKS

NAMES = [
    "fisher", "allen-cahn", "zeldovich", "blurring-sharpening", "labelled-source", "convection",
    "repulsion",
]  # fmt: skip
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
    if name == "labelled-source":
        found = torch.zeros_like(x)
        marked = [i for i in range(9) if bool(seen[i].any())]
        for i in marked:
            found[i] = x0[i] - x0[marked].mean(0)
        return term.beta() * found
    weight = [1.0] * graph.num_edges if graph.weight is None else graph.weight.tolist()
    edges = list(zip(graph.row.tolist(), graph.col.tolist(), weight, strict=True))
    found = torch.zeros_like(x)
    for i, j, share in edges:
        if "mean" in (getattr(term, "flux", ""), getattr(term, "repel", "")):
            share = share / sum(w for k, _, w in edges if k == i)
        if name == "convection":
            found[i] = found[i] + share * torch.tanh(term.weight @ (x[j] - x[i])) * x[j]
        else:
            found[i] = found[i] + share * (x[i] - x[j])
    return term.beta() * found


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


@pytest.mark.parametrize("members", [3, 9])
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


@pytest.mark.parametrize("variant", ["linear", "nonlinear"])
def test_terms_train_from_the_command_line(variant: str, tmp_path: Path, monkeypatch: Any) -> None:
    """Those with a closed form, and all together."""
    monkeypatch.chdir(tmp_path)
    write_graph(Path("toy"))
    names = ["blurring-sharpening", "labelled-source"] if variant == "linear" else NAMES
    terms = ",".join(["source", *names])
    more = ["--terms", terms, "--variant", variant, "--coefficients", "channel"]
    assert main(["train", "toy", *SMALL, *more, "--out", "run"]) == 0
    assert f'terms = "{terms}"' in Path("run/config.toml").read_text()
    assert main(["predict", "run", "--out", "same.csv"]) == 0
    assert main(["predict", "run", "--data", "toy", "--out", "other.csv"]) == 0  # a graph without labels


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
    states = integrate(model.bind(g, x), x, 6.0, DormandPrince(1e-6, 1e-7), at=[1.0, 3.0, 6.0]).states
    assert states is not None
    assert float(states.detach().min()) >= min(low, float(x.min())) - 1e-5
    assert float(states.detach().max()) <= max(1.0, float(x.max())) + 1e-5


@pytest.mark.parametrize(("name", "option"), [("convection", "flux"), ("repulsion", "repel")])
def test_sums_over_edges_and_masks(name: str, option: str) -> None:
    g = make_graph("random")
    model = made(name, **{option: "sum"})
    x = normal(9, 3)
    term = model.terms[0]
    context = model.bind(g, x).context
    scale, change = term(context)
    torch.testing.assert_close(scale * change, dense(name, model, g, x, x, observed()))
    fewer = torch.ones(g.num_edges, dtype=D)
    fewer[(g.row != g.col).nonzero()[::3, 0]] = 0.0
    kept = Graph.from_edge_index(g.edge_index[:, fewer > 0], 9)
    assert kept.num_edges == int(fewer.sum()) < g.num_edges
    for own in (model, made(name)):
        masked, plain = (own.terms[0](c)[1] for c in (context.at(mask=fewer), context.at(graph=kept)))
        torch.testing.assert_close(masked, plain)


def test_labelled_source_in_closed_form() -> None:
    """The mass stays, the limit is not constant, and without labels nothing is added."""
    g, x = make_graph("random"), normal(9, 3)
    model = Diffusion(
        ConstantLaplacian(), linear=True, alpha=0.75, terms=[LabelledSource(labelled=0.5)]
    ).to(D)
    flow = model.bind(g, x, observed=observed())
    state = integrate(flow, x, 3.0).state
    torch.testing.assert_close(
        state, integrate(flow, x, 3.0, DormandPrince(1e-9, 1e-10)).state, rtol=1e-7, atol=1e-7
    )
    torch.testing.assert_close(state.sum(0), x.sum(0))
    late = [integrate(flow, x, t).state for t in (300.0, 600.0)]
    torch.testing.assert_close(*late, rtol=1e-6, atol=1e-6)
    forgets = Diffusion(ConstantLaplacian(), linear=True, alpha=0.75).to(D)
    degree = torch.bincount(g.row.long()).to(D)[:, None]
    flat = integrate(forgets.bind(g, x), x, 600.0).state / degree
    assert float(flat.std(0).max()) < 1e-6 < 0.05 < float((late[1].detach() / degree).std(0).max())
    none = model.bind(g, x, observed=torch.zeros(9, 2, dtype=D))
    torch.testing.assert_close(integrate(none, x, 3.0).state, integrate(forgets.bind(g, x), x, 3.0).state)
    with pytest.raises(ArgumentError, match="which nodes have labels"):
        integrate(model.bind(g, x), x, 1.0)
    layer = GraphDiffusion(3, terms="source,labelled-source")
    assert isinstance(layer.solver, Exponential) and layer.equation.needs_observed
    assert GRAND(4, 2, terms="labelled-source").capturable


def test_acmp() -> None:
    """The weights a − β with a double well; the well holds what is repelled."""
    g, x = make_graph("random"), 3 * normal(9, 3)
    attention = make_diffusivity("dot/sqrt")
    model = ACMP(attention, alpha=0.75, repulsion=0.5, reaction=0.25).to(D)
    flow = model.bind(g, x)
    a = g.dense(attention(g, x))
    p = g.dense(torch.ones(g.num_edges, dtype=D))
    signed = 0.75 * a - 0.5 * p / p.sum(1, keepdim=True)
    want = signed @ x - signed.sum(1, keepdim=True) * x + 0.25 * x * (1 - x**2)
    torch.testing.assert_close(flow(None, x), want, rtol=1e-6, atol=1e-6)  # coefficients start in float32
    state = integrate(flow, x, 30.0, DormandPrince(1e-6, 1e-7)).state.detach()
    assert float(state.abs().max()) <= math.sqrt(1 + 2 * 0.5 / 0.25) + 1e-3
    layer = GraphDiffusion(3, equation="acmp", coefficients="channel", repulsion=0.2)
    assert layer.equation.terms[0].beta().shape == (1, 3) and len(layer.equation.terms) == 3  # type: ignore[index,union-attr,operator,arg-type]


def test_equations_train_from_the_command_line(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    write_graph(Path("toy"))
    assert (
        main(["train", "toy", *SMALL, "--equation", "acmp", "--variant", "nonlinear", "--out", "run"]) == 0
    )
    assert main(["evaluate", "run"]) == 0


def test_a_reaction_has_no_closed_form() -> None:
    layer = GraphDiffusion(3, terms="source,allen-cahn", reaction=0.2)
    assert isinstance(layer.solver, DormandPrince)
    assert math.isclose(float(layer.equation.terms[1].beta()), 0.2, rel_tol=1e-6)  # type: ignore[index,union-attr,operator]
    wide = GraphDiffusion(3, terms="fisher", coefficients="channel")
    assert wide.equation.terms[0].beta().shape == (1, 3)  # type: ignore[index,union-attr,operator]


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("convection", {}),
        ("convection", {"flux": "sum"}),
        ("repulsion", {}),
        ("repulsion", {"repel": "sum"}),
    ],
)
def test_edges_count_with_their_weights(name: str, options: dict[str, str]) -> None:
    """Against a loop over the edges; an edge of weight 0 is none, and weights have a gradient."""
    n, edges = 5, torch.tensor([[0, 1, 1, 2, 3, 0], [1, 0, 2, 1, 0, 3]])
    weight = torch.tensor([2.0, 0.5, 1.0, 0.25, 0.0, 0.0], dtype=D)  # node 3 has none, node 4 no edge
    model = made(name, **options)
    term: Any = model.terms[0]
    x = normal(n, 3, seed=1)

    def change(edges: Tensor, weight: Tensor | None) -> Tensor:
        graph = Graph.from_edge_index(edges, n, weight, self_loops=0.0)
        scale, direction = term(model.bind(graph, x).context)
        return scale * direction

    found, total = torch.zeros_like(x), torch.zeros(n, dtype=D)
    for (j, i), w in zip(edges.T.tolist(), weight.tolist(), strict=True):
        moved = torch.tanh((x[j] - x[i]) @ term.weight.mT) * x[j] if name == "convection" else x[i] - x[j]
        found[i] += w * moved
        total[i] += w
    if not options:
        found /= total.where(total > 0, torch.ones(())).unsqueeze(-1)
    torch.testing.assert_close(change(edges, weight), term.beta() * found)
    torch.testing.assert_close(change(edges, weight), change(edges[:, :4], weight[:4]))
    torch.testing.assert_close(change(edges, torch.ones(6, dtype=D)), change(edges, None))
    assert gradcheck(lambda w: change(edges, w), (weight.clone().add_(0.1).requires_grad_(),))
    context = model.bind(Graph.from_edge_index(edges, n, weight, self_loops=0.0), x).context
    for kind in (torch.bool, torch.float32):  # a mask of another type changes nothing
        other = term(context.at(mask=torch.ones(context.graph.num_edges, dtype=kind)))[1]
        torch.testing.assert_close(other, term(context)[1])


def test_options_without_effect_are_named() -> None:
    for equation, options, wanted in (
        ("adc", {"channel_rates": True}, ["channel_rates has no effect in the equation adc."]),
        ("graphcon", {"alpha": 0.3}, ["alpha has no effect in the equation graphcon."]),
        ("acmp", {"alpha": 0.3, "channel_rates": True}, []),
    ):
        assert GraphDiffusion(4, 1.0, equation=equation, **options).warnings() == wanted


def test_titles_name_the_equation() -> None:
    for options, wanted in (
        ({}, "GRAND-l"),
        ({"equation": "graphcon", "terms": "source,convection"}, "GRAND-l with graphcon, convection"),
        ({"variant": "nonlinear", "terms": "fisher"}, "GRAND-nl with fisher"),
        ({"solver": "fractional"}, "GRAND-l with fractional"),
    ):
        assert Config(**options).title == wanted


def test_velocities_count_in_memory() -> None:
    """Convection keeps numbers for every edge and channel, which the other terms do not."""
    sizes = {name: made(name, linear=True).memory(100, 1000, 3) for name in ("convection", "repulsion")}
    assert sizes["convection"] - sizes["repulsion"] == 16 * 1000 * 3


def test_nodes_with_targets_of_zero_have_labels() -> None:
    """Of several labels a node may have none of them, and a number may be 0: both are targets."""
    mask = torch.tensor([[True, True, False]])
    for task, y in (("multilabel", [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), ("regression", [[2.0]] * 3)):
        own = TASKS[task](torch.tensor(y), ["a", "b"][: len(y[0])])
        statistics = own.statistics(mask)
        found = own.observed(mask, statistics)
        torch.testing.assert_close(found[..., :-1], own.shown(mask, statistics).to(found))
        assert (found != 0).any(-1).tolist() == mask.tolist()
    classes = TASKS["classification"](torch.tensor([0, 1, 1]), ["a", "b"])
    assert classes.observed(mask, {}).tolist() == [[[1, 0], [0, 1], [0, 0]]]
