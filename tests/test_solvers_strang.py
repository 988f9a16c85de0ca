"""Strang's splitting with wells solved exactly: order, large features, gradients, members, refusals."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import D, make_diffusivity, make_equation, make_graph, normal, scatter_parameters
from scipy.integrate import solve_ivp
from test_cli_basics import SMALL, write_graph
from test_gradients import saved_bytes
from torch import Tensor
from torch.autograd import gradcheck
from torch.func import functional_call, stack_module_state

from graphdiffusion.cli import main
from graphdiffusion.equation import ACMP, AllenCahn, Coefficient, Diffusion, Source
from graphdiffusion.errors import ArgumentError
from graphdiffusion.graph import Graph
from graphdiffusion.nn import GRAND, GraphDiffusion
from graphdiffusion.solvers import SOLVERS, DormandPrince, Strang, integrate

SHARP = DormandPrince(1e-10, 1e-12)


def model(seed: int = 0, linear: bool = False, wide: int | None = None, **how: Any) -> ACMP:
    own = ACMP(
        make_diffusivity("dot/sqrt", seed=seed), alpha=0.5, linear=linear, wide=wide, repulsion=0.3,
        reaction=0.4, terms=[Source(0.25)], **how,
    )  # fmt: skip
    return scatter_parameters(own, seed, 0.2)


def context(x: Tensor) -> Any:
    return model().bind(make_graph("random"), x).context


@pytest.mark.parametrize("size", [1e-3, 1.0, 30.0, 1e4])
def test_the_solution_of_a_well(size: float) -> None:
    """Against scipy, and of the largest numbers: the limit that all features above it have."""
    term = scatter_parameters(AllenCahn(3, reaction=0.4, saturate=False), scale=0.3)
    x = size * normal(9, 3)
    time = torch.full((1, 1), 0.7, dtype=D)
    found = term.after(context(x), time)
    for c in range(3):
        beta = float(term.beta().detach()[0, c])

        def law(t: float, y: Any, beta: float = beta) -> Any:
            return beta * (y - y**3)

        want = solve_ivp(law, (0, 0.7), x[:, c].numpy(), method="Radau", rtol=1e-10, atol=1e-12).y[:, -1]
        torch.testing.assert_close(found[:, c], torch.from_numpy(want), rtol=1e-7, atol=1e-9)
    halves = term.after(context(term.after(context(x), time / 2)), time / 2)
    torch.testing.assert_close(halves, found, rtol=1e-12, atol=1e-13)
    single = term.float()
    for large in (1e19, 1e30, 3e38):
        own = single.after(context(torch.full((9, 3), large)), time.float())
        limit = (1 - torch.exp(-1.4 * single.beta())).rsqrt()
        torch.testing.assert_close(own, limit.expand(9, 3), rtol=1e-5, atol=0)
    assert torch.equal(term.to(D).after(context(x), 0 * time), x)


@pytest.mark.parametrize("time", [20.0, 90.0, 1e6])
def test_a_well_in_a_long_time(time: float) -> None:
    """In float32: features that are 0 stay, all others come to -1 or 1, and gradients are finite."""
    term = AllenCahn(reaction=0.9, saturate=False)
    x = torch.tensor([0.0, 1e-3, -2.0, 1e30]).repeat(9, 1).requires_grad_()
    found = term.after(context(x), torch.full((1, 1), time))
    torch.testing.assert_close(found, torch.tensor([0.0, 1.0, -1.0, 1.0]).expand(9, 4))
    slopes = torch.autograd.grad(found.sum(), [x, *term.parameters()])
    assert all(bool(torch.isfinite(slope).all()) for slope in slopes) and float(slopes[0][0, 0]) > 1e6


@pytest.mark.parametrize("linear", [True, False])
def test_order(small: Graph, linear: bool) -> None:
    own = model(linear=linear)
    own.rates = scatter_parameters(Coefficient(1.0, channels=3), scale=0.2)
    x = 2 * normal(9, 3)
    flow = own.bind(small, x)
    at = [0.33, 1.9]
    want = integrate(flow, x, 2.0, SHARP, at=at)
    assert want.states is not None
    errors, between = [], []
    for n in (16, 32, 64):
        found = integrate(flow, x, 2.0, Strang(2.0 / n), at=at)
        assert found.states is not None
        errors.append(float((found.state - want.state).detach().norm()))
        between.append(float((found.states - want.states).detach().norm()))
    assert all(1.8 < math.log2(a / b) < 2.3 for a, b in pairwise(errors)), errors
    assert between[-1] < 2e-3
    assert integrate(flow, x, 2.0, Strang(0.25)).stats.evaluations == 16


def test_two_wells_and_other_terms(small: Graph) -> None:
    """The second half of a step takes them in reverse: still of order 2, also where they do not commute."""

    class Decay(AllenCahn):
        solved = True

        def after(self, context: Any, time: Tensor) -> Tensor:
            return context.x * torch.exp(-self.beta(context.t) * time)

        def law(self, x: Tensor) -> Tensor:
            return -x

    terms = [AllenCahn(reaction=0.6, saturate=False), Decay(reaction=0.9, saturate=False), AllenCahn()]
    own = Diffusion(make_diffusivity("dot/sqrt"), alpha=0.5, terms=terms).to(D)
    x = 2 * normal(9, 3)
    flow = own.bind(small, x)
    want = integrate(flow, x, 2.0, SHARP).state
    steps = [2.0 / n for n in (64, 128, 256)]
    errors = [float((integrate(flow, x, 2.0, Strang(h)).state - want).detach().norm()) for h in steps]
    assert all(1.8 < math.log2(a / b) < 2.3 for a, b in pairwise(errors)), errors


@pytest.mark.parametrize("size", [1e2, 1e6, 1e30])
def test_large_features(size: float) -> None:
    """No step is too long for a well: features are at most (1 − e^{−δτ})^{−1/2}, in float32 too."""
    graph, x = make_graph("random"), size * normal(9, 3, dtype=torch.float32)
    own = ACMP(make_diffusivity("constant"), linear=True, alpha=0.5, repulsion=0.3, reaction=0.4).float()
    flow = own.bind(graph, x)
    for step in (0.1, 0.5, 1.9):
        state = integrate(flow, x, 40 * step, Strang(step), at=[step, 2 * step, 2.5 * step])
        assert state.states is not None
        for one in (*state.states.detach(), state.state.detach()):
            assert float(one.abs().max()) <= (1 - math.exp(-0.4 * step)) ** -0.5 * 1.0001
    half = integrate(flow, x, 4.0, Strang(0.05)).state
    torch.testing.assert_close(integrate(flow, x, 4.0, Strang(0.025)).state, half, rtol=5e-3, atol=5e-3)
    wild = integrate(flow, x, 4.0, SOLVERS["rk4"](0.5), check=False).state
    assert size < 100 or not bool(torch.isfinite(wild).all())


def test_gradients(small: Graph) -> None:
    own = model()
    x, time = normal(9, 3).requires_grad_(), torch.tensor(1.2, dtype=D, requires_grad=True)
    learnt = [p for p in own.parameters() if p.requires_grad]

    def run(x: Tensor, time: Tensor, *parameters: Tensor) -> Tensor:
        flow = own.bind(small, x)
        flow = flow.rebound([*parameters, *flow.tensors[len(learnt) :]])
        solution = integrate(flow, x, time, Strang(0.5), at=[0.2, 0.7], check=False)
        return torch.cat([*solution.states, solution.state])  # type: ignore[misc]

    assert gradcheck(run, (x, time, *(p.detach().clone().requires_grad_() for p in learnt)), fast_mode=True)

    def gradients(solver: Any, mode: Any) -> Any:
        state = integrate(own.bind(small, x), x, time, solver, gradient=mode).state
        return torch.autograd.grad(state.square().sum(), [x, time, *learnt])

    plain = gradients(Strang(0.05), "backprop")
    for mode, near in (("checkpoint", 1e-12), ("adjoint", 1e-2)):
        for one, other in zip(gradients(Strang(0.05), mode), plain, strict=True):
            torch.testing.assert_close(one, other, rtol=near, atol=near)


@pytest.mark.parametrize("variant", ["linear", "nonlinear"])
def test_estimate_of_memory(variant: Any) -> None:
    """What a training step keeps is not more than the estimate, by which trainings are put together."""
    random = torch.Generator().manual_seed(0)
    edges = torch.randint(0, 2000, (2, 6000), generator=random)
    graph, x = Graph.from_edge_index(edges, 2000, self_loops=1.0), torch.randn(2000, 32, generator=random)
    how: Any = {"equation": "acmp", "solver": "strang", "step_size": 0.5, "heads": 2, "attention_dim": 16}
    layer = GraphDiffusion(32, 16.0, variant=variant, **how)

    def run(x: Tensor, *others: Any) -> Tensor:
        return integrate(layer.equation.bind(graph, x), x, 16.0, layer.solver).state

    kept = saved_bytes(run, (0.3 * x).requires_grad_(), 16.0, layer.solver, None)  # type: ignore[arg-type]
    assert 1 < layer.memory(2000, graph.num_edges) / kept < 1.5


@pytest.mark.parametrize("members", [3, 9])
@pytest.mark.parametrize("wide", [None, 3])
def test_members(small: Graph, members: int, wide: int | None) -> None:
    """As many as channels, or nodes: coefficients and T of their own; one at rest; output times."""

    class Held(torch.nn.Module):
        def __init__(self, seed: int) -> None:
            super().__init__()
            self.equation = model(seed, wide=wide)

        def forward(self, x: Tensor, time: Tensor) -> Tensor:
            solution = integrate(self.equation.bind(small, x), x, time, Strang(0.3), at=time[None] * 0.6)
            return torch.stack([*solution.states, solution.state])  # type: ignore[misc]

    models = [Held(k) for k in range(members)]
    stacked, _ = stack_module_state(models)  # type: ignore[arg-type]
    x, times = 5 * normal(members, 9, 3), torch.linspace(0.0, 2.0, members, dtype=D)
    x.requires_grad_()
    together = functional_call(models[0], stacked, (x, times))
    (slopes,) = torch.autograd.grad(together.square().sum(), x)
    for k, alone in enumerate(models):
        one = x[k].detach().requires_grad_()
        own = alone(one, times[k])
        torch.testing.assert_close(together[:, k], own, rtol=1e-12, atol=1e-12)
        (slope,) = torch.autograd.grad(own.square().sum(), one)
        torch.testing.assert_close(slopes[k], slope, rtol=1e-11, atol=1e-12)


def test_a_scheme_is_refused_where_the_equation_has_not_what_it_needs(small: Graph) -> None:
    """Before any data are read, by name and as an object; and by what integrates alone."""
    well = r"needs a term that is solved exactly by itself: equation acmp.*; got Diffusion\."
    split = r"needs diffusion with a stochastic matrix.*; got (GraphCON|Diffusion)\."
    refused: list[tuple[str, dict[str, Any], str]] = [
        ("strang", {}, well),
        ("strang", {"terms": "source,allen-cahn"}, well),
        ("strang", {"equation": "graphcon", "terms": "allen-cahn", "saturate": False}, "got GraphCON"),
        *((name, {"equation": "graphcon"}, split) for name, cls in SOLVERS.classes().items()
          if cls.needs == "stiff"),
        ("semi-implicit", {"normaliser": "signed"}, split),
        ("exponential-two-step", {"equation": "acmp", "normaliser": "signed"}, "got ACMP"),
        ("symplectic-euler", {"equation": "acmp"}, "needs an equation of second order.*; got ACMP"),
    ]  # fmt: skip
    for name, options, sentence in refused:
        for solver in (name, SOLVERS[name]()):
            with pytest.raises(ArgumentError, match=sentence):
                GraphDiffusion(3, solver=solver, **options)
    for field in (make_equation().bind(small, normal(9, 3)), lambda t, y: -y):
        with pytest.raises(ArgumentError, match="Strang needs a term that is solved"):
            integrate(field, normal(9, 3), 1.0, Strang(0.5))
    for options in ({"equation": "acmp"}, {"terms": "source,allen-cahn", "saturate": False}):
        assert isinstance(GraphDiffusion(3, solver="strang", **options).solver, Strang)
    assert GRAND(4, 2, equation="acmp", solver="strang").capturable


def test_training(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    write_graph(Path("toy"))
    more = ["--equation", "acmp", "--solver", "strang", "--step-size", "0.5", "--readout", "2"]
    assert main(["train", "toy", *SMALL, *more, "--out", "run"]) == 0
    assert main(["evaluate", "run"]) == 0
    capsys.readouterr()
    more = ["--equation", "graphcon", "--solver", "exponential-euler", "--step-size", "0.5"]
    assert main(["train", "nothing-here", *SMALL, *more, "--out", "other"]) == 2
    assert "solver exponential-euler needs diffusion" in capsys.readouterr().err
