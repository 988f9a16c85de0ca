"""Diagrams of a step: they carry the coefficients of the code, and say truly what networks steps are."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from conftest import PAPER, make_graph, normal
from scipy import sparse
from torch_geometric.nn import GATConv

from graphdiffusion.cli import main
from graphdiffusion.diffusivity import Bahdanau, ConstantLaplacian, ScaledDotProduct
from graphdiffusion.equation import Diffusion
from graphdiffusion.errors import ArgumentError
from graphdiffusion.graph import Graph
from graphdiffusion.ops import propagate
from graphdiffusion.report import FIGURE_1, plot_steps, step_diagram
from graphdiffusion.report.step_diagrams import drawable, weight_label
from graphdiffusion.report.steps import Drawing, top
from graphdiffusion.report.style import new_figure
from graphdiffusion.rewiring.exact import pagerank
from graphdiffusion.solvers import SOLVERS, AdamsBashforth4, AdamsMoulton4, integrate

D = torch.float64
EXPLICIT = ("bosh3", "dopri5", "euler", "heun", "heun21", "midpoint", "rk4", "rk4-38")


def bound(graph, x, *, linear=False, seed=0):
    """dx/dt = (A(x) − I) x with random attention, rows that sum to one."""
    torch.manual_seed(seed)
    attention = ScaledDotProduct(x.shape[1], heads=2, attention_dim=6, start=0.0, **PAPER).double()
    with torch.no_grad():
        for p in attention.parameters():
            p.copy_(torch.randn_like(p))
    return Diffusion(attention, linear=linear).bind(graph, x)


def one_step(flow, x, scheme, tau):
    return integrate(flow, x, tau, SOLVERS[scheme](tau)).state


# what is drawn


@pytest.mark.parametrize("name", EXPLICIT)
def test_wires_are_the_tableau(name):
    tableau, stages = SOLVERS[name].tableau, step_diagram(name).stages
    assert tuple(stage.inputs for stage in stages[1:]) == tableau.a and stages[0].inputs == ()
    assert tuple(stage.output for stage in stages) == tableau.b
    assert not any(stage.itself or stage.at_end or stage.kept for stage in stages)


@pytest.mark.parametrize("name", EXPLICIT)
def test_the_diagram_computes_the_step(name, small):
    """Following the wires gives the state after a step of the solver."""
    x, tau = normal(9, 3), 0.5
    flow = bound(small, x)
    t, slopes = torch.zeros(1, 1, dtype=D), []
    for stage in step_diagram(name).stages:
        state = x + sum(
            (tau * w * k for w, k in zip(stage.inputs, slopes, strict=True)), torch.zeros_like(x)
        )
        slopes.append(flow(t, state))
    new = x + sum(tau * s.output * k for s, k in zip(step_diagram(name).stages, slopes, strict=True))
    if name in ("bosh3", "dopri5", "heun21"):  # of a pair, one step with nothing refused
        solved = integrate(flow, x, tau, SOLVERS[name](1e3, 1e3))
        assert solved.stats.accepted == 1
        expected = solved.state
    else:
        expected = one_step(flow, x, name, tau)
    torch.testing.assert_close(new, expected, rtol=1e-12, atol=1e-12)


def test_implicit_and_multistep_weights():
    bashforth, moulton = step_diagram("adams-bashforth").stages, step_diagram("adams-moulton").stages
    assert tuple(s.output for s in bashforth) == AdamsBashforth4.weights
    assert [s.kept for s in bashforth] == [False, True, True, True]
    assert tuple(s.output for s in (moulton[-1], *moulton[:-1])) == AdamsMoulton4.weights
    assert [s.at_end for s in moulton] == [False, False, False, True]
    for name in ("trapezoid", "esdirk"):
        tableau, stages = SOLVERS[name].tableau, step_diagram(name).stages
        assert [s.itself for s in stages] == [0.0, *[tableau.diagonal] * len(tableau.a)]
        assert tuple(s.inputs for s in stages[1:]) == tableau.a
    (stage,) = step_diagram("semi-implicit").stages
    assert stage.at_end and stage.matrix and stage.output == 1


def test_every_tableau_is_drawable():
    known = {name for name, scheme in SOLVERS.classes().items() if hasattr(scheme, "tableau")}
    assert set(drawable()) == known | {"adams-bashforth", "adams-moulton", "semi-implicit"}
    with pytest.raises(ArgumentError, match=r"no diagram of bdf2.*rk4"):
        step_diagram("bdf2")


@pytest.mark.parametrize("name", [*EXPLICIT, "adams-bashforth", "adams-moulton", "esdirk", "semi-implicit"])
def test_labels_in_the_picture(name):
    """Each weight that is not zero stands beside its wire, and nothing else does."""
    diagram = step_diagram(name)
    _, axis = new_figure(figsize=(8, 4))
    drawing = Drawing(axis, diagram, 0.0, 0.0, top(diagram) + 2)
    drawing.draw()
    wanted = [w for s in diagram.stages for w in (s.output, *s.inputs, s.itself) if w]
    assert sorted(drawing.labels) == sorted(map(weight_label, wanted))
    shown = [text.get_text() for text in axis.texts if "τ" in text.get_text() and len(text.get_text()) < 12]
    assert sorted(shown) == sorted(drawing.labels)


def test_labels():
    written = {1.0: "τ", 0.5: "τ/2", 1 / 6: "τ/6", -59 / 24: "−59τ/24", 2.0: "2τ", -1.0: "−τ"}
    assert {weight: weight_label(weight) for weight in written} == written
    assert weight_label(19372 / 6561) == "2.95τ"


def test_command(tmp_path, capsys):
    assert main(["reproduce", "steps", "--out", str(tmp_path)]) == 0
    made = tmp_path / "steps" / "picture.png"
    assert f"Picture: {made}" in capsys.readouterr().out.replace("\n", "")
    assert made.read_bytes() == plot_steps(tmp_path / "again.png", FIGURE_1).read_bytes()
    assert main(["reproduce", "steps", "--scheme", "nosuch", "--out", str(tmp_path)]) == 2
    assert "no solver 'nosuch'" in capsys.readouterr().err


# what steps are like


@pytest.mark.filterwarnings("ignore:step size τ = 1")  # at the limit of theorem 1
@pytest.mark.parametrize("heads", [1, 3])
def test_euler_step_is_a_gat_layer(heads):
    """τ = 1: GAT's aggregation with W = I, heads averaged, no bias, no nonlinearity."""
    graph, channels = make_graph("random"), 4
    conv = GATConv(channels, channels, heads=heads, concat=False, bias=False, add_self_loops=False).double()
    attention = Bahdanau(channels, heads=heads, attention_dim=heads * channels, **PAPER).double()
    torch.manual_seed(1)
    with torch.no_grad():
        conv.lin.weight.copy_(torch.eye(channels).repeat(heads, 1))
        # source j, target i: GAT scores a_src·x_j + a_dst·x_i
        attention.project.weight.copy_(torch.eye(channels).repeat(heads, 1))
        both = torch.randn(2, heads, channels, dtype=D)
        conv.att_dst.copy_(both[0][None])
        conv.att_src.copy_(both[1][None])
        attention.vector.copy_(both.permute(1, 2, 0))
        x = normal(9, channels)
        flow = Diffusion(attention, linear=False).bind(graph, x)
        layer = conv(x, graph.edge_index)
        torch.testing.assert_close(one_step(flow, x, "euler", 1.0), layer, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(
            propagate(graph, flow.attention(None, x), x), layer, rtol=1e-12, atol=1e-12
        )
        # with GAT's residual connection it is a step of 1/2, twice as large
        torch.testing.assert_close(2 * one_step(flow, x, "euler", 0.5), x + layer, rtol=1e-12, atol=1e-12)


def test_euler_step_is_a_residual_block(small):
    x = normal(9, 3)
    flow = bound(small, x)
    for tau in (0.1, 0.7):
        block = x + tau * flow(torch.zeros(1, 1, dtype=D), x)
        torch.testing.assert_close(one_step(flow, x, "euler", tau), block, rtol=1e-13, atol=1e-13)


def path_response(scheme, tau, nodes=12):
    """Response to a unit at the first node of a path: its column of the matrix of a step."""
    ends = torch.stack([torch.arange(nodes - 1), torch.arange(1, nodes)])
    graph = Graph.from_edge_index(torch.cat([ends, ends.flip(0)], 1), nodes)
    x = torch.eye(nodes, dtype=D)
    flow = Diffusion(ConstantLaplacian(over="rows"), linear=True).bind(graph, x)
    dense = torch.zeros(nodes, nodes, dtype=D)
    dense[graph.row.long(), graph.col.long()] = flow.attention(None, x)
    return one_step(flow, x, scheme, tau), dense


def test_reach_of_a_step():
    """Euler reaches 1 hop, RK4 4: it is the Taylor polynomial of order 4; the implicit step all."""
    for scheme, hops in (("euler", 1), ("rk4", 4)):
        step, _ = path_response(scheme, 0.8)
        assert [bool(v) for v in step[:, 0] != 0] == [k <= hops for k in range(12)]
    step, a = path_response("rk4", 0.8)
    power, taylor = torch.eye(12, dtype=D), torch.eye(12, dtype=D)
    for k in range(1, 5):
        power = 0.8 * (a - torch.eye(12, dtype=D)) @ power / k
        taylor = taylor + power
    torch.testing.assert_close(step, taylor, rtol=1e-12, atol=1e-13)
    step, _ = path_response("semi-implicit", 0.8)
    assert bool((step > 0).all())


@pytest.mark.parametrize("tau", [0.3, 1.0, 20.0])
def test_implicit_step_is_personalised_pagerank(tau):
    """(I − τ(A − I))⁻¹ is PageRank with return probability 1/(1 + τ): a mean over walks of every length."""
    step, a = path_response("semi-implicit", tau)
    exact = pagerank(sparse.csr_array(a.numpy()), 1 / (1 + tau))
    np.testing.assert_allclose(step.numpy(), exact, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(step.sum(1).numpy(), 1, rtol=1e-10)
    walk, series = torch.eye(12, dtype=D), torch.zeros(12, 12, dtype=D)
    for k in range(1500):
        series += (tau / (1 + tau)) ** k / (1 + tau) * walk
        walk = a @ walk
    torch.testing.assert_close(step, series, rtol=1e-9, atol=1e-11)
