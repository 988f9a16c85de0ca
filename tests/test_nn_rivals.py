"""LanczosNet, AdaLanczosNet, CGNN, GDE and GODE against dense formulas, scipy and each member alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import GRAPHS, D, make_graph, normal, scatter_parameters
from numpy.polynomial.chebyshev import chebval
from scipy.integrate import solve_ivp
from scipy.sparse.linalg import eigsh
from test_cli_basics import write_graph
from torch import Tensor
from torch.autograd import gradcheck
from torch.func import functional_call
from torch.nn.functional import elu, leaky_relu, relu, softplus

from graphdiffusion import Graph
from graphdiffusion.cli import main
from graphdiffusion.equation import Context
from graphdiffusion.errors import ArgumentError, ShapeError
from graphdiffusion.nn import CGNN, GDE, GODE, MODELS, AdaLanczosNet, LanczosNet, Model
from graphdiffusion.nn.baselines.gcn import symmetric_weights
from graphdiffusion.nn.baselines.lanczos import lanczos, starting_vectors, symmetric_product
from graphdiffusion.training import Config, Member, Population, load_problem, protocol

LANCZOS: dict[str, Any] = {"short_scales": "0,2,3", "long_scales": "1,4", "filter_width": 5}
EXACT: dict[str, Any] = {"solver": "dopri5", "rtol": 1e-9, "atol": 1e-10}
GODES = [(c, f) for c in ("gcn", "gat", "chebyshev") for f in ("additive", "linear-sigmoid")]
VARIANTS: dict[str, dict[str, Any]] = {
    "lanczosnet": {"lanczos_steps": 10},
    "adalanczosnet": {"lanczos_steps": 8, "kernel_width": 8, "filter_width": 16},
    "cgnn": {"time": 3.0, "solver": "rk4", "step_size": 0.5},
    "cgnn weights": {"weights": True, "time": 3.0, "solver": "rk4", "step_size": 0.5},
    "gde midpoint": {"solver": "midpoint", "field_dropout": 0.2},
    "gde rk4": {"field_dropout": 0.2},
    "gde dopri5": {"solver": "dopri5", "field_dropout": 0.2},
    **{
        f"gode {c} {f}": {
            "convolution": c, "coupling": f, "heads": 2, "dropout": 0.2, "solver": "rk4", "step_size": 0.5
        }
        for c, f in GODES
    },
}  # fmt: skip


@pytest.fixture
def toy(tmp_path) -> Path:
    return write_graph(tmp_path / "toy")


def scattered(cls: type[Model], *args: Any, **how: Any) -> Any:
    """Random parameters in float64, the same at all times, in evaluation mode."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return scatter_parameters(cls(*args, **how), 3, 0.2).eval()


def affinity(graph: Graph, kernel: Tensor | None = None) -> Tensor:
    """The dense matrix D^-½ A D^-½ with the sums of rows and of columns."""
    weight = torch.ones(graph.num_edges, dtype=D) if graph.weight is None else graph.weight.to(D)
    matrix = graph.dense(weight)
    matrix = matrix if kernel is None else matrix * kernel
    return matrix / (matrix.sum(1, keepdim=True) * matrix.sum(0)).sqrt()


def wide_graph() -> Graph:
    """Random edges, and a ring that connects all nodes."""
    edges = torch.randint(300, (2, 900), generator=torch.Generator().manual_seed(1))
    ring = torch.arange(300)
    edges = torch.cat([edges, torch.stack([ring, ring.roll(1)])], 1)
    return Graph.from_edge_index(torch.cat([edges, edges.flip(0)], 1), 300, self_loops=1.0)


# Lanczos' algorithm


@pytest.mark.parametrize("name", GRAPHS)
def test_as_many_ritz_pairs_as_nodes_are_the_eigenpairs(name: str) -> None:
    """Also where eigenvalues are repeated, on graphs in pieces, with isolated nodes and directed edges."""
    graph = make_graph(name)
    model = LanczosNet(3, 2, lanczos_steps=50, long_scales="1").double()
    values, vectors, ritz = model.prepare(graph)
    exact = affinity(graph)
    torch.testing.assert_close(graph.dense(values), exact)
    symmetric = (exact + exact.mT) / 2
    n = graph.num_nodes
    assert vectors.shape == (n, n)
    np.testing.assert_allclose(ritz[:, 0], np.linalg.eigh(symmetric.numpy())[0], atol=1e-12)
    torch.testing.assert_close(vectors.mT @ vectors, torch.eye(n, dtype=D), rtol=0, atol=1e-12)
    torch.testing.assert_close(vectors @ (ritz * vectors.mT), symmetric, rtol=0, atol=1e-12)


def test_extreme_ritz_values_are_those_of_scipy() -> None:
    graph = wide_graph()
    _, vectors, ritz = LanczosNet(3, 2, lanczos_steps=100, long_scales="1").double().prepare(graph)
    matrix = affinity(graph).numpy()
    for end, which in ((ritz[-3:, 0], "LA"), (ritz[:3, 0], "SA")):
        np.testing.assert_allclose(end, np.sort(eigsh(matrix, 3, which=which)[0]), atol=1e-8)
    assert float((torch.as_tensor(matrix) @ vectors[:, -1:] - ritz[-1] * vectors[:, -1:]).norm()) < 1e-8


@pytest.mark.parametrize("dtype", [torch.float32, D])
def test_lanczos_vectors_stay_orthogonal(dtype: torch.dtype) -> None:
    graph = wide_graph()
    values = symmetric_weights(graph, torch.empty(0, dtype=dtype))
    basis, matrix = lanczos(symmetric_product(graph, values), starting_vectors(graph, 80, dtype))
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(basis.mT @ basis, torch.eye(80, dtype=dtype), rtol=0, atol=30 * eps)
    torch.testing.assert_close(basis.mT @ graph.dense(values) @ basis, matrix, rtol=0, atol=30 * eps)


# LanczosNet


def perceptron(parameters: Any, name: str, x: Tensor) -> Tensor:
    (a, b), (c, d) = (
        (parameters[f"{name}.{part}.weight"], parameters[f"{name}.{part}.bias"])
        for part in ("first", "second")
    )
    return relu(x @ a.mT + b) @ c.mT + d


def multi_scale(p: Any, x: Tensor, s: Tensor, long: list[list[Tensor]]) -> Tensor:
    """The formula of the paper for two layers: all scales side by side, times one W."""
    for place in range(2):
        sides = [torch.linalg.matrix_power(s, k) for k in (0, 2, 3)] + long[place]
        weight, bias = p[f"layers.{place}.linear.weight"], p[f"layers.{place}.bias"]
        x = relu(x) if place else x
        stacked = torch.cat([side @ x for side in sides], -1)
        x = stacked @ torch.cat([own.mT for own in weight.chunk(5)]) + bias
    return x


def same_gradients(model: Model, found: Tensor, exact: Tensor, error: float = 1e-9) -> None:
    learnt = list(model.parameters())
    for a, b in zip(*(torch.autograd.grad(v.sin().sum(), learnt) for v in (found, exact)), strict=True):
        torch.testing.assert_close(a, b, rtol=error, atol=error)


@pytest.mark.parametrize("steps", [4, 30])
@pytest.mark.parametrize("name", ["random", "disconnected", "directed"])
def test_lanczosnet_is_the_formula(name: str, steps: int) -> None:
    """Results and gradients; also with fewer nodes than steps, and with sparse features."""
    graph = make_graph(name)
    model = scattered(LanczosNet, 5, 3, hidden=4, lanczos_steps=steps, **LANCZOS)
    x = normal(graph.num_nodes, 5).relu()
    _, vectors, _ = model.prepare(graph)
    s, p = affinity(graph), dict(model.named_parameters())
    ritz = (vectors.mT @ ((s + s.mT) / 2) @ vectors).diagonal()  # the approximation is V diag(r) Vᵀ
    long = []
    for place in range(2):
        filters = perceptron(p, f"filters.{place}", torch.stack([ritz, ritz**4], -1))
        long.append([vectors @ torch.diag(own) @ vectors.mT for own in filters.unbind(-1)])
    found, exact = model(x, graph), multi_scale(p, x, s, long)
    torch.testing.assert_close(found, exact)
    torch.testing.assert_close(model(x.to_sparse_csr(), graph), found)
    same_gradients(model, found, exact)


# AdaLanczosNet


def textbook(s: Tensor, start: Tensor, steps: int) -> tuple[Tensor, Tensor]:
    """Algorithm 1 of the paper, which keeps three vectors."""
    q, before, beta = start / start.norm(), torch.zeros_like(start), start.new_zeros(())
    vectors, diagonal, beside = [], [], []
    for _ in range(steps):
        z = s @ q
        diagonal.append(q @ z)
        z = z - diagonal[-1] * q - beta * before
        vectors.append(q)
        beta = z.norm()
        beside.append(beta)
        before, q = q, z / beta
    off = torch.stack(beside[:-1])
    matrix = torch.diag(torch.stack(diagonal)) + torch.diag(off, 1) + torch.diag(off, -1)
    return torch.stack(vectors, -1), matrix


@pytest.mark.parametrize("name", ["random", "path", "directed"])
def test_adalanczosnet_is_the_formula(name: str) -> None:
    graph = make_graph(name)
    model = scattered(AdaLanczosNet, 5, 3, hidden=4, lanczos_steps=4, kernel_width=3, **LANCZOS)
    x, p = normal(graph.num_nodes, 5).relu(), dict(model.named_parameters())
    f = perceptron(p, "kernel", x)
    distance = (f[:, None] - f).square().sum(-1)
    edges = distance[graph.row.long(), graph.col.long()]
    s = affinity(graph, torch.exp(-distance / edges.mean()))
    basis, matrix = textbook((s + s.mT) / 2, starting_vectors(graph, 4, D)[:, 0], 4)
    long = []
    for place, power in enumerate((1, 4)):
        entries = perceptron(p, f"filters.{place}", torch.linalg.matrix_power(matrix, power).flatten())
        upper = entries.reshape(4, 4).triu()
        long.append(basis @ (upper + upper.mT - upper.diag().diag()) @ basis.mT)
    found, exact = model(x, graph), multi_scale(p, x, s, [long, long])
    torch.testing.assert_close(found, exact)
    torch.testing.assert_close(model(x.to_sparse_csr(), graph), found)
    same_gradients(model, found, exact)


def check_gradient(model: Model, x: Tensor, graph: Graph) -> None:
    """By finite differences, in a random direction of all parameters."""
    names, values = zip(
        *((k, v.detach().requires_grad_()) for k, v in model.named_parameters()), strict=True
    )

    def run(*given: Tensor) -> Tensor:
        return functional_call(model, dict(zip(names, given, strict=True)), (x, graph))

    with torch.random.fork_rng():
        torch.manual_seed(0)
        assert gradcheck(run, values, fast_mode=True, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("steps", [3, 8, 12])
def test_gradient_of_adalanczosnet_through_a_breakdown(steps: int) -> None:
    """In pieces, of which two are single nodes: the space of the first start has 5 dimensions."""
    graph = make_graph("disconnected")
    model = scattered(AdaLanczosNet, 5, 3, hidden=4, lanczos_steps=steps, kernel_width=3, **LANCZOS)
    x = normal(8, 5)
    values = model.affinity(x, graph)
    _, matrix = lanczos(symmetric_product(graph, values), starting_vectors(graph, steps, D))
    assert bool((matrix.diagonal(1) == 0).any()) == (steps > 5)
    check_gradient(model, x, graph)


def test_adalanczosnet_where_all_features_are_equal() -> None:
    graph = make_graph("star")
    model = scattered(AdaLanczosNet, 5, 3, lanczos_steps=4)
    x = torch.ones(8, 5, dtype=D)
    # what is left of the rounding of f
    torch.testing.assert_close(graph.dense(model.affinity(x, graph)), affinity(graph), rtol=1e-3, atol=0)
    out = model(x, graph)
    found = torch.autograd.grad(out.sum(), list(model.parameters()), allow_unused=True)
    assert bool(torch.isfinite(out).all()) and all(bool(torch.isfinite(g).all()) for g in found)


# equations


@pytest.mark.parametrize("weights", [False, True])
def test_cgnn_is_the_exponential(weights: bool) -> None:
    """Dense, the matrix exponential of the whole system, with an α for each node; and its gradients."""
    graph, time = make_graph("loops"), 1.7
    model = scattered(CGNN, 4, 2, num_nodes=5, hidden=4, weights=weights, time=time, **EXACT)
    equation, x, one = model.equation, normal(5, 4).relu(), torch.eye(4, dtype=D)
    start = model.encoder(x).flatten()
    diffusion = torch.sigmoid(equation.alpha) / 2 * (affinity(graph) - torch.eye(5, dtype=D))
    system = torch.kron(diffusion, one)
    if weights:
        with torch.no_grad():  # two beyond the bounds
            equation.scales.copy_(torch.tensor([-0.2, 0.1, 0.7, 1.3]))
        m = equation.scales * torch.tensor([0, 1, 1, 0]) + torch.tensor([0, 0, 0, 1])
        mixing = equation.basis @ torch.diag(m) @ equation.basis.mT
        system = system + torch.kron(torch.eye(5, dtype=D), mixing - one)  # W is symmetric
    # the source has no gradient, and stands in the last column
    whole = torch.cat([torch.cat([system, start.detach()[:, None]], 1), torch.zeros(1, len(start) + 1)])
    end = torch.linalg.matrix_exp(time * whole) @ torch.cat([start, torch.ones(1)])
    found, exact = model(x, graph), model.decoder(relu(end[:-1].reshape(5, 4)))
    torch.testing.assert_close(found, exact, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(model(x.to_sparse_csr(), graph), found)
    same_gradients(model, found, exact, 1e-7)


def solved(field: Any, start: Tensor, time: float, error: float = 1e-7) -> Tensor:
    """x(T) by scipy."""

    def slope(t: float, y: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            return field(torch.as_tensor(y).reshape(start.shape)).numpy().ravel()

    found = solve_ivp(slope, (0, time), start.detach().numpy().ravel(), "DOP853", rtol=error, atol=error)
    return torch.as_tensor(found.y[:, -1]).reshape(start.shape)


def convolution(layer: Any, s: Tensor, x: Tensor) -> Tensor:
    return s @ x @ layer.linear.weight.mT + layer.bias


@pytest.mark.parametrize("name", ["random", "disconnected"])
def test_gde_is_the_solution_of_scipy(name: str) -> None:
    graph, time = make_graph(name), 1.3
    model = scattered(GDE, 5, 3, hidden=4, time=time, **EXACT)
    s, x = affinity(graph), normal(graph.num_nodes, 5).relu()
    first, second = model.diffusion.equation.layers
    start = relu(convolution(model.encoder, s, x))
    end = solved(lambda h: convolution(second, s, softplus(convolution(first, s, h))), start, time, 1e-10)
    found = model(x, graph)
    torch.testing.assert_close(found, convolution(model.decoder, s, end), rtol=1e-7, atol=1e-8)
    torch.testing.assert_close(model(x.to_sparse_csr(), graph), found)


def dense_layer(layer: Any, graph: Graph, s: Tensor, x: Tensor) -> Tensor:
    """A layer of GODE without its activation."""
    own = layer.map
    if layer.kind == "gcn":
        return convolution(own, s, x)
    if layer.kind == "chebyshev":  # by the eigenvalues of S
        values, vectors = np.linalg.eigh(s.numpy())
        terms = [
            vectors @ np.diag(chebval(-values, np.eye(4)[k])) @ vectors.T @ (x @ weight.mT).detach().numpy()
            for k, weight in enumerate(own.linear.weight.chunk(4))
        ]
        return torch.as_tensor(sum(terms)) + own.bias
    weight = torch.ones(graph.num_edges, dtype=D) if graph.weight is None else graph.weight
    heads = []
    for vector, state in zip(own.vector, (x @ own.linear.weight.mT).chunk(layer.heads, -1), strict=True):
        receives, sends = (state @ vector).unbind(-1)
        a = graph.dense(weight) * leaky_relu(receives[:, None] + sends, 0.2).exp()
        heads.append(a / a.sum(1, keepdim=True) @ state)
    return torch.cat(heads, -1) + own.bias


@pytest.mark.parametrize(("name", "time"), [("random", 0.2), ("disconnected", 0.0)])
@pytest.mark.parametrize(("kind", "coupling"), GODES)
def test_gode_is_the_solution_of_scipy(kind: Any, coupling: Any, name: str, time: float) -> None:
    """And its right-hand side is that of the paper."""
    graph = make_graph(name)
    how: dict[str, Any] = {"convolution": kind, "coupling": coupling, "heads": 2, "time": time}
    model = scattered(GODE, 5, 3, hidden=8, **how, solver="dopri5", rtol=1e-7, atol=1e-7)
    s, x = affinity(graph), normal(graph.num_nodes, 5).relu()
    field, act = model.diffusion.equation, elu if kind == "gat" else relu

    def slope(z: Tensor) -> Tensor:
        a, b = z.chunk(2, -1)
        change = dense_layer(field.first, graph, s, act(a))
        b = b + change if coupling == "additive" else b * torch.sigmoid(change)
        change = dense_layer(field.second, graph, s, act(b))
        a = a + change if coupling == "additive" else a * torch.sigmoid(change)
        return torch.cat([a, b], -1)

    start = dense_layer(model.encoder, graph, s, x)
    context = Context(graph, start, start, attention=symmetric_weights(graph, start), key=torch.tensor(0))
    torch.testing.assert_close(field.derivative(context), slope(start), rtol=1e-11, atol=1e-11)
    exact = dense_layer(model.decoder, graph, s, act(solved(slope, start, time)))
    found = model(x, graph)
    # a right-hand side with corners, which the errors of both schemes depend on
    torch.testing.assert_close(found, exact, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(model(x.to_sparse_csr(), graph), found)


def small(name: str, **more: Any) -> Any:
    """A variant with few parameters, in float64."""
    known = {"num_nodes": 9} if name.startswith("cgnn") else {}
    return scattered(MODELS[name.split()[0]], 5, 3, hidden=4, **VARIANTS[name], **known, **more)


@pytest.mark.parametrize("name", [name for name in VARIANTS if name.startswith(("gde", "gode"))])
def test_gradients_by_finite_differences(name: str) -> None:
    model = small(name) if "dopri5" not in name else small(name, rtol=1e-8, atol=1e-8)
    check_gradient(model, normal(9, 5), make_graph("random"))


@pytest.mark.parametrize("name", ["cgnn weights", "gde rk4", "gode gcn linear-sigmoid"])
def test_ways_to_differentiate_agree(name: str) -> None:
    """With dropout inside the integral: a mask is the same at all times, and in the backward pass."""
    exact = {"adjoint_rtol": 1e-7, "adjoint_atol": 1e-9}
    inside = {} if name.startswith("cgnn") else {"field_dropout": 0.4}
    how = {"solver": "rk4", "step_size": 0.05, "time": 0.5, **inside}
    found = []
    for mode in ("backprop", "checkpoint", "adjoint"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(VARIANTS, name, {**VARIANTS[name], **how})
            model = small(name, gradient=mode, **exact).train()
        out = model.run(normal(9, 5), make_graph("random"), key=torch.tensor(5)).logits
        found.append(torch.autograd.grad(out.sin().sum(), list(model.parameters())))
    for plain, checkpoint, adjoint in zip(*found, strict=True):
        torch.testing.assert_close(plain, checkpoint, rtol=1e-12, atol=1e-14)
        torch.testing.assert_close(plain, adjoint, rtol=1e-4, atol=1e-4)


def test_dropout_inside_an_integral_leaves_an_equation_to_solve() -> None:
    """Two schemes agree on it, and the adaptive one takes no more steps than without dropout."""
    graph, x, key = make_graph("random"), normal(9, 5), torch.tensor(5)
    outputs = []
    for how in ({"solver": "rk4", "step_size": 0.02}, EXACT):
        model = scattered(GDE, 5, 3, hidden=4, field_dropout=0.5, **how).train()
        outputs.append(model.run(x, graph, key=key).logits)
        other = model.run(x, graph, key=key + 1).logits
        assert not torch.allclose(outputs[-1], other)
    torch.testing.assert_close(*outputs, rtol=1e-6, atol=1e-6)


def test_cgnn_fits_one_graph(
    toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """A run keeps the α of each node; another graph is refused with a sentence."""
    monkeypatch.chdir(tmp_path)
    write_graph(Path("other"), n=63)
    short = ["--model", "cgnn", "--epochs", "2", "--splits", "2", "--hidden", "4", "--time", "2"]
    assert main(["train", "toy", *short, "--out", "run"]) == 0
    assert main(["evaluate", "run"]) == 0
    assert main(["predict", "run", "--out", "answers.csv"]) == 0
    capsys.readouterr()
    assert main(["predict", "run", "--data", "other", "--out", "others.csv"]) == 2
    shown = capsys.readouterr().err
    assert "has an α for each of 60 nodes, and the graph has 63" in shown and shown.count("\n") == 1
    shared = CGNN(5, 3)
    assert shared(torch.ones(9, 5), make_graph("random")).shape == (9, 3)
    with pytest.raises(ShapeError, match="each of 8 nodes"):
        CGNN(5, 3, num_nodes=8)(torch.ones(9, 5), make_graph("random"))


def test_cgnn_keeps_its_basis_orthogonal(toy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = Config(data=str(toy), model="cgnn", weights=True, hidden=4, splits=3, time=3.0)
    problem = load_problem(config)
    found = []
    for hook in (CGNN.after_step, Model.after_step):
        monkeypatch.setattr(CGNN, "after_step", hook)
        population = Population(problem, config, protocol(config, problem.data))
        population.step()
        found.append(population.parameters["diffusion.equation.basis"].detach())
    kept, loose = found
    assert kept.shape == (3, 4, 4) and not torch.allclose(loose, torch.eye(4).expand(3, 4, 4))
    for own, u in zip(kept, loose, strict=True):
        torch.testing.assert_close(own, 1.5 * u - 0.5 * u @ u.T @ u)
        error, before = ((v.T @ v - torch.eye(4)).norm() for v in (own, u))
        assert float(error) < 0.1 * float(before)


# the harness


def config_of(name: str, toy: Path, **more: Any) -> Config:
    return Config(data=str(toy), model=name.split()[0], hidden=8, per_class=4, **VARIANTS[name] | more)


@pytest.mark.parametrize("name", VARIANTS)
def test_a_training_lowers_the_loss(name: str, toy: Path) -> None:
    config = config_of(name, toy, splits=2, optimiser="adam", rate=0.01)
    problem = load_problem(config)
    population = Population(problem, config, protocol(config, problem.data))
    losses = []
    for _ in range(8):
        assert population.step() is None
        losses.append(population.loss.clone())
    assert bool((torch.stack(losses[-3:]).mean(0) < 0.9 * losses[0]).all())
    assert config.row == name.split()[0]


@pytest.mark.parametrize(
    "name", ["lanczosnet", "adalanczosnet", "cgnn weights", "gde rk4", "gode gat additive"]
)
def test_members_alone_and_together(name: str, toy: Path) -> None:
    """As many members as nodes (60)."""
    config = config_of(name, toy, splits=60)
    problem = load_problem(config)
    members = protocol(config, problem.data)
    together = Population(problem, config, members)
    assert together.stack.takes_members() is True
    for _ in range(2):
        together.step()
    for k in (0, 59):
        alone = Population(problem, config, [members[k]])
        for _ in range(2):
            alone.step()
        for key, value in alone.parameters.items():
            torch.testing.assert_close(together.parameters[key][k], value[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mode", ["checkpoint", "adjoint"])
def test_members_with_rates_of_their_own_in_the_backward_pass(mode: str, toy: Path) -> None:
    config = config_of("gde rk4", toy, gradient=mode, optimiser="sgd")
    assert {"dropout", "field_dropout", "time"} <= set(config.per_member)
    problem = load_problem(config)
    rates = ((0.0, 1.0), (0.3, 0.5), (0.8, 2.0))
    members = [Member(k, k, k, {"field_dropout": r, "time": t}) for k, (r, t) in enumerate(rates)]
    together = Population(problem, config, members)
    together.step()
    for k, member in enumerate(members):
        alone = Population(problem, config.replace(**member.options), [Member(k, k, k)])
        alone.step()
        for key, value in alone.parameters.items():
            torch.testing.assert_close(together.parameters[key][k], value[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["cgnn", "gde rk4", "gode gcn additive"])
def test_a_step_with_fixed_room_gives_the_same(name: str, toy: Path) -> None:
    """What a captured step runs: the number of steps is given, and T is not read."""
    config = config_of(name, toy, splits=2)
    problem = load_problem(config)
    population = Population(problem, config, protocol(config, problem.data))
    model = population.stack.model
    assert model.capturable and not model.learns_capacity()
    tensors = population.stack.tensors
    room = population.stack.call("capacity", tensors, torch.full((2,), 0.01, dtype=D))
    plain = population.run(population.seeds, tensors).logits
    population.stack.face.model = model.with_capacity((room[0] + 1,))
    torch.testing.assert_close(population.run(population.seeds, tensors).logits, plain)
    assert not config.model_class(5, 3, solver="dopri5").capturable  # how many steps it takes is read


@pytest.mark.parametrize("name", VARIANTS)
def test_memory_covers_what_the_backward_pass_keeps(name: str) -> None:
    """The tensors that autograd saves, each storage once, in a training step in float32."""
    graph = wide_graph()
    known = {"num_nodes": 300} if name.startswith("cgnn") else {}
    model = MODELS[name.split()[0]](40, 3, hidden=32, **VARIANTS[name], **known).train()
    held: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        held[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    kept: list[Tensor] = []  # so that no address is used twice
    with torch.autograd.graph.saved_tensors_hooks(lambda t: (kept.append(t), pack(t))[1], lambda t: t):
        out = model(torch.rand(300, 40), graph)
    assert out.requires_grad
    estimate = model.memory(300, graph.num_edges, 300 * 40)
    assert sum(held.values()) < estimate < 12 * sum(held.values())


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda: LanczosNet(5, 3, short_scales="1,x"), "short_scales must be different whole numbers"),
        (lambda: LanczosNet(5, 3, short_scales=""), "short_scales must be different whole numbers"),
        (lambda: AdaLanczosNet(5, 3, long_scales="3,3"), "long_scales must be .*got '3,3'"),
        (lambda: LanczosNet(5, 3, long_scales="-1"), "long_scales must be"),
        (lambda: AdaLanczosNet(5, 3, kernel_width=0), "kernel_width must be at least 1"),
        (lambda: GODE(5, 3, hidden=7), "hidden must be a multiple of 2, two halves, got 7"),
        (lambda: GODE(5, 3, hidden=24, convolution="gat"), "multiple of 16, two halves of all heads"),
        (lambda: GODE(5, 3, convolution="sage"), "convolution must be one of gcn, gat, chebyshev"),
        (lambda: GDE(5, 3, solver="exponential"), "solver exponential needs an equation with a closed"),
        (lambda: GDE(5, 3, stepsize=0.5), "has no option 'stepsize'. Did you mean 'step_size'"),
        (lambda: CGNN(5, 3, alpha=1.0), "alpha must be greater than 0 and at most 0.999, got 1.0"),
    ],
)  # fmt: skip
def test_options_that_are_refused(build: Any, says: str) -> None:
    with pytest.raises(ArgumentError, match=says):
        build()
