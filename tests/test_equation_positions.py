"""ADC, a time for each channel, and BLEND, positions that diffuse with the features."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import D, make_diffusivity, make_graph, normal, scatter_parameters
from test_cli_basics import SMALL, write_graph
from torch import Tensor
from torch.func import functional_call, stack_module_state

from graphdiffusion.cli import main
from graphdiffusion.diffusivity import ConstantLaplacian
from graphdiffusion.equation import ADC, Blend, Diffusion, Source
from graphdiffusion.equation import blend as blend_module
from graphdiffusion.equation.blend import walk_encodings
from graphdiffusion.errors import ArgumentError
from graphdiffusion.graph import Graph
from graphdiffusion.nn import GRAND, GraphDiffusion
from graphdiffusion.solvers import DormandPrince, Exponential, integrate

EYE = torch.eye(9, dtype=D)


@pytest.mark.parametrize("source", [False, True])
def test_adc_is_an_exponential_for_each_channel(small: Graph, source: bool) -> None:
    x = normal(9, 3)
    terms = [Source(0.25)] if source else []
    model = scatter_parameters(
        ADC(ConstantLaplacian(over="rows"), 3, linear=True, terms=terms, pace=0.5), 1
    )
    model.alpha.raw.fill_(1.0)
    flow = model.bind(small, x)
    rates = model.rates()[0]
    assert bool((rates > 0).all()) and float(rates.detach().std()) > 0.01
    a = small.dense(flow.context.attention)
    want = []
    for c in range(3):
        wide = torch.zeros(18, 18, dtype=D)
        wide[:9, :9] = a - EYE
        if source:
            wide[:9, 9:] = terms[0].beta()[0, 0] * EYE
        want.append((torch.linalg.matrix_exp(4.0 * rates[c] * wide) @ torch.cat([x, x])[:, c])[:9])
    expected = torch.stack(want, 1)
    state = integrate(flow, x, 4.0).state
    torch.testing.assert_close(state, expected)
    leaves = [p for p in model.parameters() if p.requires_grad]
    for ours, theirs in zip(
        torch.autograd.grad(state.square().sum(), leaves),
        torch.autograd.grad(expected.square().sum(), leaves),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-9)
    assert float(flow.rate.detach()) == pytest.approx(float(rates.max()))
    moved = ADC(ConstantLaplacian(), 3).rates
    assert moved is not None and float(moved.largest(0.1)) > float(moved().detach().max())


def test_adc_by_name() -> None:
    layer = GraphDiffusion(4, equation="adc", pace=2.0, terms="", diffusivity="laplacian")
    assert isinstance(layer.solver, Exponential) and layer.equation.learns_rate()  # type: ignore[union-attr]
    assert layer.equation.rates().flatten().tolist() == pytest.approx([2.0] * 4)  # type: ignore[union-attr,operator]
    assert GRAND(4, 2, equation="adc").capturable


def test_encodings_are_return_probabilities(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blend_module, "_COLUMNS", 4)  # several blocks
    p = graph.dense(torch.ones(graph.num_edges, dtype=D))
    p = p / p.sum(1, keepdim=True)
    want = torch.stack([torch.linalg.matrix_power(p, k).diag() for k in (1, 2, 3)], 1)
    deviation = want.std(0, correction=0)
    want = (want - want.mean(0)) / torch.where(deviation < 1e-12, 1.0, deviation)
    torch.testing.assert_close(walk_encodings(graph, 3), want)
    assert walk_encodings(graph, 3) is walk_encodings(graph, 3)  # once


def test_encodings_of_large_graphs_are_estimated(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = walk_encodings(make_graph("star"), 4)
    monkeypatch.setattr(blend_module, "EXACT", 3)
    monkeypatch.setattr(blend_module, "_COLUMNS", 20_000)
    torch.testing.assert_close(walk_encodings(make_graph("star"), 4), exact, rtol=0.1, atol=0.1)


@pytest.mark.parametrize("linear", [True, False])
def test_blend_against_its_formula(small: Graph, linear: bool) -> None:
    x = normal(9, 3)
    model = Blend(make_diffusivity("dot/sqrt"), 3, positions=2, walks=3, linear=linear, alpha=0.75).to(D)
    flow = model.bind(small, x)
    u = x[:, 1:] + walk_encodings(small, 3) @ model.embed
    z = torch.cat([x[:, :1], u], -1)
    start = model.initial(x, flow.context)
    torch.testing.assert_close(start, z)
    a = small.dense(model.diffusivity(small, z))
    torch.testing.assert_close(flow(None, start), 0.75 * (a @ z - z))
    layer = GraphDiffusion(3, 2.0, equation=model, self_loops=None, solver=DormandPrince(1e-9, 1e-10))
    plain = Diffusion(model.diffusivity, linear=linear, alpha=0.75).to(D)
    want = integrate(plain.bind(small, z), z, 2.0, DormandPrince(1e-9, 1e-10)).state
    out, (_, attention) = layer(x, small, return_attention_weights=True)
    torch.testing.assert_close(out, want)
    torch.testing.assert_close(small.dense(attention), a)  # of features and positions
    out.square().sum().backward()
    assert model.embed.grad is not None and float(model.embed.grad.abs().min()) > 1e-6
    if linear:
        assert isinstance(GraphDiffusion(9, equation="blend").solver, Exponential)
        torch.testing.assert_close(integrate(flow, start, 2.0).state, want, rtol=1e-7, atol=1e-7)


def test_rewiring_by_distance(small: Graph) -> None:
    x = normal(2, 9, 3)
    model = Blend(make_diffusivity("dot/sqrt"), 3, positions=3, near=0.4).to(D)
    mask = model.bind(small, x).context.mask
    assert mask is not None and mask.shape == (2, small.num_edges)
    for k in range(2):
        u = x[k] + walk_encodings(small, 8) @ model.embed
        far = (u[small.row.long()] - u[small.col.long()]).norm(dim=1)
        near = far.detach().sort(stable=True).indices[: round(0.4 * small.num_edges)]
        assert bool((mask[k][near] == 1).all()) and float(mask[k].sum()) < small.num_edges
        kept = set(small.row[mask[k] > 0].tolist())
        assert kept == set(range(9))
    given = torch.ones(small.num_edges, dtype=D)
    given[near[0]] = 0.0
    both = model.bind(small, x[1], given).context.mask
    assert both is not None and float(both[near[0]]) == 0


@pytest.mark.parametrize("name", ["adc", "blend"])
@pytest.mark.parametrize("members", [3, 9])
def test_members(small: Graph, name: str, members: int) -> None:
    class Held(torch.nn.Module):
        def __init__(self, seed: int) -> None:
            super().__init__()
            attention = make_diffusivity("dot/sqrt", seed=seed)
            own: Any = ADC(attention, 3) if name == "adc" else Blend(attention, 3, positions=2, near=0.7)
            self.equation = scatter_parameters(own, seed, 0.2)

        def forward(self, x: Tensor) -> Tensor:
            flow = self.equation.bind(small, x)
            return flow(None, self.equation.initial(x, flow.context))

    models = [Held(k) for k in range(members)]
    stacked, _ = stack_module_state(models)  # type: ignore[arg-type]
    x = normal(members, 9, 3)
    together = functional_call(models[0], stacked, (x,))
    for k, alone in enumerate(models):
        torch.testing.assert_close(together[k], alone(x[k]), rtol=1e-12, atol=1e-12)


def test_training(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    write_graph(Path("toy"))
    both = {
        "adc": ["--terms", "", "--diffusivity", "laplacian"],
        "blend": ["--augment", "6", "--positions", "6", "--near", "0.8", "--variant", "nonlinear"],
    }
    at = [SMALL.index("--heads"), SMALL.index("--heads") + 4]
    for name, more in both.items():
        small = [*SMALL[: at[0]], *SMALL[at[1] :]] if name == "adc" else SMALL
        assert main(["train", "toy", *small, "--equation", name, *more, "--out", name]) == 0
        assert main(["evaluate", name]) == 0


def test_positions_must_fit() -> None:
    with pytest.raises(ArgumentError, match="8 positions do not fit into a state of 4 channels"):
        GraphDiffusion(4, equation="blend")
