"""What works on the layer: autocast, compile, export, torch.func, checkpoint and adjoint."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import make_graph, normal
from torch import Tensor, func, nn

from graphdiffusion import GraphDiffusion
from graphdiffusion.errors import ArgumentError
from graphdiffusion.graph import Graph

SCHEMES: dict[str, dict[str, Any]] = {
    "closed form": {},
    "rk4": {"variant": "nonlinear", "solver": "rk4", "step_size": 0.5},
    "dopri5": {"variant": "nonlinear", "solver": "dopri5", "rtol": 1e-6, "atol": 1e-8},
    "semi-implicit": {"variant": "nonlinear", "solver": "semi-implicit", "step_size": 0.5},
}
# yes: the same numbers; breaks: the same, in several pieces; no: refused with a sentence
TABLE = {
    "autocast": {"closed form": "yes", "rk4": "yes", "dopri5": "yes", "semi-implicit": "yes"},
    "compile": {"closed form": "yes", "rk4": "yes", "dopri5": "breaks", "semi-implicit": "breaks"},
    "export": {"closed form": "yes", "rk4": "yes", "dopri5": "no", "semi-implicit": "no"},
    "vmap": {"closed form": "yes", "rk4": "yes", "dopri5": "no", "semi-implicit": "no"},
    "vmap of grad": {"closed form": "yes", "rk4": "yes", "dopri5": "no", "semi-implicit": "no"},
    "grad": {"closed form": "yes", "rk4": "yes", "dopri5": "yes", "semi-implicit": "no"},
    "jvp": {"closed form": "yes", "rk4": "yes", "dopri5": "yes", "semi-implicit": "no"},
    "checkpoint": {"closed form": "yes", "rk4": "yes", "dopri5": "yes", "semi-implicit": "yes"},
    "adjoint": {"closed form": "yes", "rk4": "yes", "dopri5": "yes", "semi-implicit": "yes"},
}
CELLS = [(what, scheme, kind) for what, row in TABLE.items() for scheme, kind in row.items()]


def made(scheme: str, **more: Any) -> GraphDiffusion:
    torch.manual_seed(0)
    return GraphDiffusion(6, 2.0, heads=2, attention_dim=8, start=0.3, **SCHEMES[scheme], **more)


class Alone(nn.Module):
    """A layer on a graph of its own."""

    def __init__(self, layer: GraphDiffusion, graph: Graph) -> None:
        super().__init__()
        self.layer, self.graph = layer, graph

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x, self.graph)


def slopes(layer: GraphDiffusion, x: Tensor, graph: Graph, run: Any = None) -> list[Tensor]:
    """Gradients of x and of every parameter."""
    x = x.clone().requires_grad_()
    out = (layer if run is None else run)(x, graph)
    return list(torch.autograd.grad(out.square().sum(), [x, *layer.parameters()]))


def autocast(scheme: str, x: Tensor, graph: Graph) -> None:
    layer = made(scheme)
    half = x.bfloat16()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = layer(half, graph)
    assert found.dtype == torch.float32 and torch.equal(found, layer(half.float(), graph))


def compiled(scheme: str, x: Tensor, graph: Graph, whole: bool) -> None:
    torch._dynamo.reset()
    layer = made(scheme)
    run = torch.compile(layer, backend="aot_eager", fullgraph=whole)
    torch.testing.assert_close(run(x, graph), layer(x, graph), rtol=1e-5, atol=1e-6)
    for a, b in zip(slopes(layer, x, graph, run), slopes(layer, x, graph), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def exported(scheme: str, x: Tensor, graph: Graph) -> None:
    module = Alone(made(scheme), graph)
    program = torch.export.export(module, (x,))
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    again = torch.export.load(file).module()
    other = x.flip(0)
    torch.testing.assert_close(again(other), module(other), rtol=1e-5, atol=1e-6)


def mapped(scheme: str, x: Tensor, graph: Graph) -> None:
    layer = made(scheme)
    both = torch.stack([x, x.flip(0)])
    found = func.vmap(lambda v: layer(v, graph))(both)
    torch.testing.assert_close(found, torch.stack([layer(v, graph) for v in both]), rtol=1e-5, atol=1e-6)


def gradient(scheme: str, x: Tensor, graph: Graph, members: int = 0) -> None:
    layer = made(scheme)
    parameters = {name: p.detach() for name, p in layer.named_parameters()}

    def loss(own: dict[str, Tensor]) -> Tensor:
        return func.functional_call(layer, own, (x, graph)).square().sum()

    exact = dict(zip(parameters, slopes(layer, x, graph)[1:], strict=True))
    if members:
        stacked = {name: torch.stack([p, 1.1 * p]) for name, p in parameters.items()}
        found = {name: g[0] for name, g in func.vmap(func.grad(loss))(stacked).items()}
    else:
        found = func.grad(loss)(parameters)
    for name, value in exact.items():
        torch.testing.assert_close(found[name], value, rtol=1e-4, atol=1e-5, msg=name)


def forward_mode(scheme: str, x: Tensor, graph: Graph) -> None:
    layer, along = made(scheme).double(), normal(*x.shape, seed=5)
    _, found = func.jvp(lambda v: layer(v, graph), (x.double(),), (along,))
    small = 1e-5
    ends = [layer(x.double() + sign * small * along, graph) for sign in (1, -1)]
    torch.testing.assert_close(found, (ends[0] - ends[1]) / (2 * small), rtol=1e-4, atol=1e-5)


def gradient_mode(scheme: str, x: Tensor, graph: Graph, mode: str) -> None:
    plain, other = made(scheme).double(), made(scheme, gradient=mode).double()
    if mode == "adjoint":  # of the equation, not of the steps: these must be short
        tight = {"adjoint_rtol": 1e-8, "adjoint_atol": 1e-10}
        plain, other = (made(scheme, gradient=m, **tight).double() for m in ("backprop", mode))
        for layer in (plain, other):
            layer.solver.step_size = 0.01
    loose = 1e-2 if mode == "adjoint" and scheme == "semi-implicit" else 1e-4
    for a, b in zip(slopes(other, x.double(), graph), slopes(plain, x.double(), graph), strict=True):
        assert float((a - b).norm()) <= loose * float(b.norm()) + 1e-9


RUN: dict[str, Any] = {
    "autocast": autocast,
    "compile": lambda *case: compiled(*case, whole=TABLE["compile"][case[0]] == "yes"),
    "export": exported,
    "vmap": mapped,
    "vmap of grad": lambda *case: gradient(*case, members=2),
    "grad": gradient,
    "jvp": forward_mode,
    "checkpoint": lambda *case: gradient_mode(*case, mode="checkpoint"),
    "adjoint": lambda *case: gradient_mode(*case, mode="adjoint"),
}


@pytest.mark.parametrize("equation", ["acmp", "adc", "blend", "graphcon"])
def test_equations(equation: str) -> None:
    """Gradients and tangents of torch.func; a program of one with steps, on a graph that is new to it."""
    own = {"attention_dim": 8, "heads": 2, "equation": equation}
    own |= {"positions": 2} if equation == "blend" else {}
    torch.manual_seed(0)
    steps = Alone(GraphDiffusion(6, 2.0, solver="rk4", step_size=0.5, **own), make_graph("random"))
    x = normal(9, 6, dtype=torch.float32)
    program = torch.export.export(steps, (x,)).module()
    torch.testing.assert_close(program(2 * x), steps(2 * x), rtol=1e-5, atol=1e-6)
    if equation in ("adc", "blend"):
        closed = Alone(GraphDiffusion(6, 2.0, **own), make_graph("random"))
        (want,) = torch.autograd.grad(closed(y := x.clone().requires_grad_()).square().sum(), y)
        torch.testing.assert_close(func.grad(lambda v: closed(v).square().sum())(x), want)
        state, along = func.jvp(closed, (x,), (x,))
        torch.testing.assert_close(2 * (along * state).sum(), (want * x).sum(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("what", "scheme", "kind"), CELLS, ids=[f"{w}-{s}" for w, s, _ in CELLS])
def test_cell(what: str, scheme: str, kind: str) -> None:
    graph = make_graph("random")
    x = normal(graph.num_nodes, 6, dtype=torch.float32)
    if kind == "no":
        with pytest.raises(ArgumentError, match=r"cannot follow|does not work inside"):
            RUN[what](scheme, x, graph)
        return
    RUN[what](scheme, x, graph)


def test_a_learnt_time_is_followed_by_compile_and_refused_by_export() -> None:
    graph = make_graph("random")
    x = normal(graph.num_nodes, 6, dtype=torch.float32)
    torch._dynamo.reset()
    layer = made("rk4", learn_time=True)
    torch.testing.assert_close(torch.compile(layer, backend="aot_eager")(x, graph), layer(x, graph))
    with pytest.raises(ArgumentError, match="a time that is not learnt"):
        torch.export.export(Alone(layer, graph), (x,))


def test_a_time_that_is_loaded_counts() -> None:
    graph = make_graph("random")
    x = normal(graph.num_nodes, 6, dtype=torch.float32)
    layer = made("rk4")
    layer.load_state_dict(layer.state_dict() | {"time": torch.tensor(7.0)})
    torch.testing.assert_close(func.vmap(lambda v: layer(v, graph))(x[None])[0], layer(x, graph))


def test_the_table_of_the_documents() -> None:
    text = (Path(__file__).parents[1] / "docs" / "extending.md").read_text(encoding="utf-8")
    (table,) = re.findall(r"<!-- transforms -->\n(.*?)<!-- end -->", text, re.S)
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.strip().splitlines()]
    assert rows[0] == ["", *SCHEMES]
    assert {row[0]: dict(zip(SCHEMES, row[1:], strict=True)) for row in rows[2:]} == TABLE
