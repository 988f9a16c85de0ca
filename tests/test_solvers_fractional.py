"""Fractional time against the Mittag-Leffler function: order, stability, short memory, gradients."""

from __future__ import annotations

import math
import warnings
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import D, make_equation, make_graph, normal
from scipy.integrate import quad
from scipy.special import erfcx
from test_cli_basics import SMALL, write_graph
from torch import Tensor

from graphdiffusion.cli import main
from graphdiffusion.diffusivity import ConstantLaplacian
from graphdiffusion.equation import Diffusion
from graphdiffusion.errors import ArgumentError, StabilityWarning
from graphdiffusion.graph import Graph
from graphdiffusion.nn import GraphDiffusion
from graphdiffusion.solvers import Fractional, integrate
from graphdiffusion.solvers.fractional import weights


def mittag_leffler(beta: float, rate: float, time: float) -> float:
    """E_β(−λ t^β), by its integral along the cut."""
    if beta == 1:
        return math.exp(-rate * time)
    sine, cosine = math.sin(beta * math.pi), math.cos(beta * math.pi)

    def inner(u: float) -> float:
        return math.exp(-(u ** (1 / beta)) * time) / (u**2 + 2 * rate * u * cosine + rate**2)

    parts = [
        quad(inner, a, b, epsabs=1e-13, epsrel=1e-12, limit=200)[0] for a, b in ((0, 1), (1, 30), (30, 1e4))
    ]
    return rate * sine / (math.pi * beta) * sum(parts)


def exact(flow: Any, x: Tensor, beta: float, time: float) -> Tensor:
    """Mode by mode of the symmetric matrix."""
    rates, modes = torch.linalg.eigh(torch.eye(len(x), dtype=D) - flow.graph.dense(flow.context.attention))
    factors = [1.0 if abs(r) < 1e-12 else mittag_leffler(beta, float(r), time) for r in rates]
    return modes @ (torch.tensor(factors, dtype=D)[:, None] * (modes.mT @ x))


def diffusion(graph: Graph, x: Tensor) -> Any:
    return Diffusion(ConstantLaplacian(over="symmetric"), linear=True).to(D).bind(graph, x)


def test_the_oracle() -> None:
    for rate, time in ((0.5, 2.0), (1.7, 9.0)):
        assert mittag_leffler(0.5, rate, time) == pytest.approx(erfcx(rate * math.sqrt(time)), rel=1e-9)


@pytest.mark.parametrize("beta", [0.4, 0.7, 1.0])
def test_order_against_mittag_leffler(small: Graph, beta: float) -> None:
    """1 + β, at the end; at output times too, but for the interpolation."""
    x = normal(9, 3)
    flow = diffusion(small, x)
    want = exact(flow, x, beta, 2.0)
    errors = [
        float((integrate(flow, x, 2.0, Fractional(2.0 / n, derivative=beta)).state - want).abs().max())
        for n in (20, 40, 80)
    ]
    orders = [math.log2(a / b) for a, b in pairwise(errors)]
    assert all(1 + beta - 0.05 < order < 1 + beta + 0.35 for order in orders), orders
    assert errors[-1] < 1e-3
    fine = Fractional(0.025, derivative=beta)
    states = integrate(flow, x, 2.0, fine, at=[0.01, 1.003]).states
    assert states is not None
    for state, t in zip(states, (0.01, 1.003), strict=True):
        torch.testing.assert_close(state, exact(flow, x, beta, t), rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("beta", [0.4, 0.8, 1.0])
def test_limit_of_stability(beta: float) -> None:
    """τ^β λ < Γ(β + 2) for the fastest mode λ ≤ 2α."""
    limit = math.gamma(beta + 2)
    x = torch.ones(1, 1, dtype=D)
    for share, stable in ((0.98, True), (1.03, False)):
        solver = Fractional(1.0, derivative=beta)
        state = integrate(lambda t, y, z=share * limit: -z * y, x, 100.0, solver, check=False).state
        assert (abs(float(state)) < 1) is stable
    assert Fractional(derivative=beta).limit ** beta == pytest.approx(limit / 2)
    model = Diffusion(ConstantLaplacian()).bind(make_graph("path"), torch.ones(8, 1))
    with pytest.warns(StabilityWarning, match="the limit of Fractional"):
        integrate(model, torch.ones(8, 1), 1.0, Fractional(1.0, derivative=0.5))


@pytest.mark.parametrize("beta", [0.5, 0.8])
@pytest.mark.parametrize("alpha", [0.6, 4.0])
def test_limit_follows_the_scale(beta: float, alpha: float) -> None:
    """A warning comes where steps grow, and only there: the limit of τα depends on α."""
    edge = (math.gamma(beta + 2) / (2 * alpha)) ** (1 / beta)
    graph = Graph.from_edge_index(torch.tensor([[0, 1], [1, 0]]), 2)  # a mode of −2α
    x = torch.tensor([[1.0], [-1.0]], dtype=D)
    flow = Diffusion(ConstantLaplacian(), alpha=alpha).to(D).bind(graph, x)
    for share, stable in ((0.97, True), (1.03, False)):
        solver = Fractional(share * edge, derivative=beta)
        state = integrate(flow, x, 200 * share * edge, solver, check=False).state
        assert bool(state.abs().max() < 1) is stable
        if stable:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                integrate(flow, x, share * edge, solver)
        else:
            with pytest.warns(StabilityWarning):
                integrate(flow, x, share * edge, solver)


def test_weights_integrate_polynomials_exactly() -> None:
    """Of the kernel times 1, and times s for the corrector."""
    for beta in (0.3, 0.8, 1.0):
        for count in (1, 2, 7):
            explicit, implicit = map(np.array, weights(count, beta))
            assert explicit.sum() == pytest.approx(count**beta / math.gamma(beta + 1))
            assert implicit.sum() == pytest.approx(count**beta / math.gamma(beta + 1))
            at = np.arange(count + 1.0)
            assert implicit @ at == pytest.approx(count ** (beta + 1) / math.gamma(beta + 2))


def test_short_memory(small: Graph) -> None:
    """As long as the past: the same. Shorter: an error that grows as more is left out, not for β = 1."""
    x = normal(9, 3)
    flow = diffusion(small, x)

    full = {b: integrate(flow, x, 8.0, Fractional(0.2, derivative=b)).state for b in (0.8, 0.95, 1.0)}

    def error(beta: float, step: float, history: int) -> float:
        short = integrate(flow, x, 8.0, Fractional(step, derivative=beta, history=history)).state
        return float((short - full[beta]).abs().max())

    assert error(0.8, 0.2, 40) < 1e-13
    four, two, one = (error(0.8, 0.2, m) for m in (20, 10, 5))  # remembered times
    assert 0.03 < four < 0.08 < two < 0.13 < one < 0.2
    assert error(0.8, 0.1, 20) == pytest.approx(two, rel=0.05)
    assert error(0.95, 0.2, 10) < two / 3 and error(1.0, 0.2, 10) < 1e-12


def test_gradients_and_the_refused_adjoint(small: Graph) -> None:
    model = make_equation()
    x, time = normal(9, 3).requires_grad_(), torch.tensor(1.4, dtype=D, requires_grad=True)
    solver = Fractional(0.25, derivative=0.7)
    leaves = [x, time, *(p for p in model.parameters() if p.requires_grad)]

    def loss(gradient: Any = "backprop", end: Tensor = time) -> Tensor:
        return integrate(model.bind(small, x), x, end, solver, gradient=gradient).state.square().sum()

    plain = torch.autograd.grad(loss(), leaves)
    for one, other in zip(torch.autograd.grad(loss("checkpoint"), leaves), plain, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)
    step = 1e-6
    slope = (loss(end=time.detach() + step) - loss(end=time.detach() - step)) / (2 * step)
    torch.testing.assert_close(plain[1], slope.detach(), rtol=1e-6, atol=1e-8)
    with pytest.raises(ArgumentError, match="Fractional has no continuous adjoint"):
        loss("adjoint")
    with pytest.raises(ArgumentError, match="take the gradient backprop or checkpoint"):
        GraphDiffusion(3, solver="fractional", gradient="adjoint")
    with pytest.raises(ArgumentError, match="derivative must be greater than 0 and at most 1"):
        GraphDiffusion(3, solver="fractional", derivative=1.5)


@pytest.mark.parametrize("history", [0, 3])
def test_members(small: Graph, history: int) -> None:
    model = make_equation()
    x, times = normal(9, 9, 3), torch.linspace(0.0, 2.0, 9, dtype=D)
    solver = Fractional(0.25, derivative=0.7, history=history)
    at = torch.stack([times / 3, times])
    together = integrate(model.bind(small, x), x, times, solver, at=at)
    for k in range(9):
        alone = integrate(model.bind(small, x[k]), x[k], times[k], solver, at=at[:, k])
        torch.testing.assert_close(together.state[k], alone.state, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(together.states[:, k], alone.states, rtol=1e-12, atol=1e-12)  # type: ignore[index]


def test_training(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    write_graph(Path("toy"))
    more = ["--solver", "fractional", "--derivative", "0.7", "--step-size", "0.5", "--variant", "nonlinear"]
    assert main(["train", "toy", *SMALL, *more, "--out", "run"]) == 0
    assert main(["evaluate", "run"]) == 0
    capsys.readouterr()
    assert main(["train", "toy", *SMALL, *more, "--gradient", "adjoint", "--out", "other"]) == 2
    assert "has no continuous adjoint" in capsys.readouterr().err
