"""The rivals: equal to PyG and torch, alone and over members; a model that knows nothing of members."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import torch
from conftest import make_graph, normal
from test_cli_basics import write_graph
from torch import Tensor, nn
from torch.nn.functional import dropout
from torch_geometric.nn import GATConv, GCNConv

from graphdiffusion import GCN, MLP, Graph
from graphdiffusion.data import open_data
from graphdiffusion.nn import GAT, MODELS, Model, Output, SparseFeatures
from graphdiffusion.ops.noise import derive
from graphdiffusion.training import Config, Member, Population, Trainer, load_problem, protocol
from graphdiffusion.training import stack as stacking


@pytest.fixture
def toy(tmp_path) -> Path:
    return write_graph(tmp_path / "toy")


def directed() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    edges = torch.unique(torch.randint(12, (2, 40), generator=generator), dim=1)
    edges = edges[:, edges[0] != edges[1]]
    return edges, torch.rand(edges.shape[1], generator=generator) + 0.1


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
def test_gcn_is_that_of_pyg(weighted: bool, sparse: bool) -> None:
    edges, weight = directed()
    model = GCN(5, 3, hidden=7, layers=3).eval()
    theirs = [GCNConv(5, 7), GCNConv(7, 7), GCNConv(7, 3)]
    x = normal(12, 5, dtype=torch.float32)
    x = x * (x > 0)
    given = weight if weighted else None
    state = x
    for place, (ours, layer) in enumerate(zip(model.layers, theirs, strict=True)):
        with torch.no_grad():
            ours.bias.normal_()
        layer.load_state_dict({"lin.weight": ours.linear.weight, "bias": ours.bias})
        state = layer(torch.relu(state) if place else state, edges, given)
    found = model(x.to_sparse_csr() if sparse else x, edges, given)
    torch.testing.assert_close(found, state)
    graph = Graph.from_edge_index(edges, 12, given, self_loops=1.0)
    assert torch.equal(model.run(x, graph, prepared=model.prepare(graph)).logits, model(x, graph))


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("layers", [1, 3])
def test_gat_is_that_of_pyg(layers: int, sparse: bool) -> None:
    """Results and gradients, on a directed graph."""
    edges, _ = directed()
    model = GAT(5, 3, hidden=4, heads=2, output_heads=3, layers=layers).eval()
    widths = [5, *[8] * (layers - 1)]
    theirs = [GATConv(width, 4, heads=2) for width in widths[:-1]]
    theirs.append(GATConv(widths[-1], 3, heads=3, concat=False))
    x = normal(12, 5, dtype=torch.float32)
    state = x = x * (x > 0)
    for place, (ours, layer) in enumerate(zip(model.layers, theirs, strict=True)):
        with torch.no_grad():
            ours.bias.normal_()
        ends = {f"att_{name}": ours.vector[..., k][None] for k, name in enumerate(("dst", "src"))}
        layer.load_state_dict({"lin.weight": ours.linear.weight, "bias": ours.bias, **ends})
        state = layer(nn.functional.elu(state) if place else state, edges)
    found = model(x.to_sparse_csr() if sparse else x, edges)
    torch.testing.assert_close(found, state, rtol=1e-5, atol=1e-5)
    found.sin().sum().backward()
    state.sin().sum().backward()
    for ours, layer in zip(model.layers, theirs, strict=True):
        slopes = torch.stack([layer.att_dst.grad[0], layer.att_src.grad[0]], -1)
        torch.testing.assert_close(ours.vector.grad, slopes, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(ours.linear.weight.grad, layer.lin.weight.grad, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(ours.bias.grad, layer.bias.grad, rtol=1e-5, atol=1e-5)


def test_gat_counts_an_edge_of_weight_two_like_two() -> None:
    """One head, dense: edge weights multiply the exponentials of the scores."""
    edges, weight = directed()
    graph = Graph.from_edge_index(edges, 12, weight.double(), self_loops=1.0)
    model = GAT(5, 3, layers=1).double().eval()
    (layer,), x = model.layers, normal(12, 5)
    wide = x @ layer.linear.weight.mT
    receives, sends = (wide @ layer.vector[0]).unbind(-1)
    scores = nn.functional.leaky_relu(receives[:, None] + sends, 0.2)
    attention = graph.dense(graph.weight) * scores.exp()
    exact = attention / attention.sum(1, keepdim=True) @ wide + layer.bias
    torch.testing.assert_close(model(x, graph), exact)


def test_gat_drops_inputs_and_attention() -> None:
    """Half of the inputs and half of the attention, by the key of each member."""
    model = GAT(5, 3, layers=1, dropout=0.5).double().train()
    (layer,), graph = model.layers, make_graph("random")
    x = normal(9, 5)
    keys = derive(torch.arange(4000), 3)
    seen: list[Tensor] = []
    layer.dropout.register_forward_hook(lambda module, inputs, output: seen.append(output))
    out = model.run(x, graph, key=keys).logits
    features, attention = seen
    assert features.shape == (4000, 9, 5) and attention.shape == (4000, 1, graph.num_edges)
    for dropped in (features != 0, attention != 0):
        assert float(dropped.double().mean()) == pytest.approx(0.5, abs=0.01)
    assert out.shape == (4000, 9, 3) and not torch.equal(out[0], out[1])


def test_mlp_is_that_of_torch() -> None:
    model = MLP(5, 3, hidden=7, layers=3).eval()
    linear = [nn.Linear(5, 7), nn.Linear(7, 7), nn.Linear(7, 3)]
    for ours, layer in zip(model.layers, linear, strict=True):
        layer.load_state_dict(ours.state_dict())
    theirs = nn.Sequential(linear[0], nn.ReLU(), linear[1], nn.ReLU(), linear[2])
    x = normal(9, 5, dtype=torch.float32)
    torch.testing.assert_close(model(x, make_graph("random").edge_index), theirs(x))


@pytest.mark.parametrize("name", ["gat", "gcn", "mlp"])
def test_members_alone_and_together(name: str, toy: Path) -> None:
    """Also as many members as nodes (60), each with its own dropout."""
    config = Config(data=str(toy), model=name, hidden=8, per_class=4, splits=60)
    problem = load_problem(config)
    members = protocol(config, problem.data)
    together = Population(problem, config, members)
    for _ in range(3):
        together.step()
    for k in (0, 59):
        alone = Population(problem, config, [members[k]])
        for _ in range(3):
            alone.step()
        for key, value in alone.parameters.items():
            torch.testing.assert_close(together.parameters[key][k], value[0], rtol=1e-5, atol=1e-6)


def test_members_of_gat_with_rates_of_their_own(toy: Path) -> None:
    config = Config(data=str(toy), model="gat", hidden=4, heads=2, per_class=4)
    assert "dropout" in config.per_member
    problem = load_problem(config)
    members = [Member(k, k, k, {"dropout": rate}) for k, rate in enumerate((0.0, 0.3, 0.8))]
    together = Population(problem, config, members)
    together.step()
    for k, member in enumerate(members):
        alone = Population(problem, config.replace(**member.options), [Member(k, k, k)])
        alone.step()
        torch.testing.assert_close(together.loss[k], alone.loss[0])


def test_only_the_first_convolution_decays(toy: Path) -> None:
    config = Config(data=str(toy), model="gcn", hidden=8, per_class=4, splits=2, decay=100.0, rate=1e-3)
    problem = load_problem(config)
    population = Population(problem, config, protocol(config, problem.data))
    assert population.optimiser.factors == {
        "layers.0.bias": 1.0, "layers.0.linear.weight": 1.0, "layers.1.bias": 0.0,
        "layers.1.linear.weight": 0.0,
    }  # fmt: skip


def test_prepared_once_for_all_chunks(toy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    prepare = GCN.prepare
    monkeypatch.setattr(GCN, "prepare", lambda self, graph: (calls.append(1), prepare(self, graph))[1])
    config = Config(data=str(toy), model="gcn", hidden=8, per_class=4, splits=3, epochs=2)
    problem = load_problem(config)
    Trainer(problem, config, protocol(config, problem.data), chunk=1).run()
    assert len(calls) == 1


class Foreign(Model):
    """Written by somebody who thinks of one model at a time, in several ways that members break."""

    def __init__(self, in_channels: int, out_channels: int, *, kind: str = "plain") -> None:
        super().__init__()
        self.kind = kind
        self.scale = nn.Parameter(torch.ones(in_channels))  # (P, d) stacked: wrong without a word if P = n
        self.layer = nn.Linear(in_channels, out_channels)
        self.norm = nn.BatchNorm1d(out_channels) if kind == "norm" else None
        self.steps = 0

    def run(self, x, graph, **more) -> Output:
        x = x * self.scale
        if self.kind == "dropout":
            x = dropout(x, 0.5, self.training)
        if self.kind == "reads" and float(self.scale.detach().sum()) < -1e30:
            x = -x  # a number is read from the device
        x = self.layer(x)
        return Output(x if self.norm is None else self.norm(x))

    def after_step(self, parameters) -> None:
        assert parameters["scale"].dim() == 1
        parameters["scale"].clamp_(0.5, 1.001)


@pytest.fixture
def foreign(monkeypatch):
    monkeypatch.setattr(stacking, "_found", {})
    MODELS.names()
    MODELS.register("foreign")(Foreign)
    yield
    MODELS.forget(Foreign.__module__)


@pytest.mark.parametrize("kind", ["plain", "dropout", "norm", "reads"])
@pytest.mark.parametrize("count", [1, 2, 5, 60])
def test_a_model_without_members_runs_one_by_one(foreign, toy, caplog, kind: str, count: int) -> None:
    """With as many members as features (5) and as nodes (60)."""
    config = Config(data=str(toy), model="foreign", kind=kind, per_class=4, splits=count, rate=0.05)
    problem = load_problem(config)
    members = protocol(config, problem.data)
    with caplog.at_level(logging.WARNING, "graphdiffusion"):
        together = Population(problem, config, members)
        for _ in range(3):
            together.step()
    assert ("does not take several members at once" in caplog.text) == (count > 1)
    state = torch.get_rng_state()
    for k in {0, count - 1}:
        alone = Population(problem, config, [members[k]])
        for _ in range(3):
            alone.step()
        for name, value in alone.stack.tensors.items():
            assert torch.equal(together.stack.tensors[name][k], value[0]), name
        assert torch.equal(together.best_score[k], alone.best_score[0])
    assert torch.equal(torch.get_rng_state(), state)
    assert float(together.parameters["scale"].detach().max()) <= 1.0011


class Broadcasting(Foreign):
    """Takes members, but does not say so."""

    def run(self, x, graph, *, key=None, **more) -> Output:
        return Output((x * self.scale.unsqueeze(-2)) @ self.layer.weight.mT + self.layer.bias.unsqueeze(-2))

    def after_step(self, parameters) -> None: ...


def test_a_model_that_takes_members_is_found_out(foreign, toy) -> None:
    MODELS.forget(Foreign.__module__)
    MODELS.register("foreign")(Broadcasting)
    config = Config(data=str(toy), model="foreign", per_class=4, splits=60)
    problem = load_problem(config)
    members = protocol(config, problem.data)
    together = Population(problem, config, members)
    calls = []
    run = Broadcasting.run
    together.stack.model.run = lambda *a, **k: (calls.append(1), run(together.stack.model, *a, **k))[1]
    together.step()
    # two together, each of them alone, then training and validation of all at once
    assert len(calls) == 5 and together.stack.takes_members() is True
    alone = Population(problem, config, members[3:4])
    alone.step()
    torch.testing.assert_close(together.loss[3], alone.loss[0])


def test_sparse_features_become_dense_for_models_that_do_not_take_them(foreign, toy) -> None:
    config = Config(data=str(toy), model="foreign", per_class=4, splits=2)
    data = open_data(toy)
    dense = Population(load_problem(config, data), config, protocol(config, data))
    data.x = data.x.to_sparse_csr()
    problem = load_problem(config, data)
    assert isinstance(problem.x, SparseFeatures)
    sparse = Population(problem, config, protocol(config, problem.data))
    assert torch.equal(sparse.view.x, dense.view.x)


def test_dropout_comes_from_the_key() -> None:
    model = GCN(5, 3).train()
    x, graph = normal(9, 5, dtype=torch.float32), make_graph("random")
    key = derive(torch.tensor(3), 1)
    assert torch.equal(model.run(x, graph, key=key).logits, model.run(x, graph, key=key).logits)
    assert not torch.equal(model.run(x, graph, key=key).logits, model.run(x, graph, key=key + 1).logits)
