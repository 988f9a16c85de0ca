"""T = 0: every scheme gives x(0), with finite gradients; the model is then a perceptron."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from conftest import D, make_equation, make_graph, normal
from torch import Tensor

from graphdiffusion.errors import ArgumentError
from graphdiffusion.nn import GRAND, GraphDiffusion
from graphdiffusion.solvers import SOLVERS, Exponential, integrate

GRAPH = make_graph("random")


@pytest.mark.parametrize("mode", ["backprop", "checkpoint", "adjoint"])
@pytest.mark.parametrize(
    "name", [name for name, cls in SOLVERS.classes().items() if cls.needs in (None, "stiff")]
)
def test_the_state_stands_still(name: str, mode: Any) -> None:
    """Alone, and beside a member that moves; output times may lie at the start."""
    equation, solver = make_equation(linear=name == "exponential"), SOLVERS[name]()
    if mode == "adjoint" and not solver.adjoint:
        return  # refused
    for time, at in (
        (torch.zeros((), dtype=D), [0.0, 0.0]),
        (torch.tensor([0.0, 0.8], dtype=D), torch.tensor([[0.0, 0.0], [0.0, 0.3]], dtype=D)),
    ):
        x = normal(*time.shape, GRAPH.num_nodes, 3).requires_grad_()
        solution = integrate(equation.bind(GRAPH, x), x, time, solver, at=at, gradient=mode)
        assert solution.states is not None and torch.equal(solution.states[0], x)
        still = (solution.state, solution.states[1], x)
        if time.dim():
            assert not torch.equal(solution.state[1], x[1])
            still = (solution.state[0], solution.states[1, 0], x[0])
        assert torch.equal(still[0], still[2]) and torch.equal(still[1], still[2])
        leaves = [x, *equation.parameters()]
        found = torch.autograd.grad(still[0].square().sum(), leaves, allow_unused=True)
        assert found[0] is not None
        torch.testing.assert_close(
            found[0], 2 * x if not time.dim() else 2 * x * torch.eye(2)[0][:, None, None]
        )
        assert all(g is None or not bool(g.any()) for g in found[1:])


def test_the_closed_form_takes_no_product() -> None:
    x = normal(GRAPH.num_nodes, 3)
    flow = make_equation(linear=True).requires_grad_(False).bind(GRAPH, x)
    assert integrate(flow, x, 0.0).stats.evaluations == 0
    # the gradient of T needs one
    time = torch.zeros((), dtype=D, requires_grad=True)
    for solver in (Exponential(), SOLVERS["rk4"]()):
        (slope,) = torch.autograd.grad(integrate(flow, x, time, solver).state.sum(), time)
        torch.testing.assert_close(slope, flow(None, x).sum())


def test_with_a_capacity() -> None:
    x = normal(GRAPH.num_nodes, 3)
    flow = make_equation(linear=True).requires_grad_(False).bind(GRAPH, x)
    zero = torch.zeros(1, dtype=D)
    for solver in (Exponential(), SOLVERS["rk4"]()):
        room = solver.capacity(zero, zero + 1, D)
        found = integrate(flow, x, 0.0, solver.with_capacity(room), at=[0.0], check=False)
        assert torch.equal(found.state, x) and torch.equal(found.states[0], x)


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"variant": "nonlinear"},
        {"variant": "nonlinear-rewired", "solver": "rk4"},
        {"theta_terms": 3, "readout": 2, "kinetic": 0.1, "jacobian": 0.1},
    ],
)
def test_the_model_is_a_perceptron(how: dict[str, Any]) -> None:
    torch.manual_seed(0)
    model = GRAND(5, 3, hidden=8, time=0.0, heads=2, attention_dim=8, mlp=True, dropout=0.0, **how)
    x = normal(GRAPH.num_nodes, 5, dtype=torch.float32)

    def perceptron(x: Tensor) -> Tensor:
        state = model.encoder(x)
        for layer in model.mlp:
            state = state + layer(state.relu())
        return model.decoder(torch.cat([state] * (how.get("readout", 0) + 1), -1).relu())

    model.eval()
    assert torch.equal(model(x, GRAPH), perceptron(x))
    output = model.train().run(x, GRAPH)
    (output.logits.square().sum() + (0 if output.penalty is None else output.penalty)).backward()
    for name, p in model.named_parameters():
        assert p.grad is None or bool(p.grad.isfinite().all()), name
        assert name.startswith("diffusion") or bool(p.grad.any()), name


def test_a_learnt_time_must_start_where_it_has_a_gradient() -> None:
    with pytest.raises(ArgumentError, match=r"a time that is learnt must start at 0\.001 or more, got 0"):
        GraphDiffusion(4, 0.0, learn_time=True)
    layer = GraphDiffusion(4, 0.001, learn_time=True)
    x = normal(GRAPH.num_nodes, 4, dtype=torch.float32)
    layer(x, GRAPH).square().sum().backward()
    assert bool(layer.time.grad)
