"""Training on random groups of parts: the groups, their gradients, and runs that go on."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from test_cli_basics import SMALL as OPTIONS
from test_cli_basics import write_graph
from test_training_population import members, same
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch_geometric.data import Data
from torch_geometric.utils import subgraph

from graphdiffusion.cli import main
from graphdiffusion.data import load_data
from graphdiffusion.errors import ConfigError
from graphdiffusion.graph import Graph
from graphdiffusion.partition.induced import induced
from graphdiffusion.training import Config, Population, load_problem

NODES = 300
SMALL = {
    "hidden": 8, "heads": 2, "attention_dim": 8, "time": 3.0, "epochs": 6, "split": "random",
    "development": 150, "per_class": 5, "device": "cpu", "batch_cut": "ldg",
}  # fmt: skip


@pytest.fixture(scope="module")
def data() -> Data:
    """A piece of Cora, with sparse features."""
    cora = load_data("cora-embedded")
    edges, _ = subgraph(torch.arange(NODES), cora.edge_index)
    return Data(x=cora.x.to_dense()[:NODES, :50].to_sparse_csr(), edge_index=edges, y=cora.y[:NODES])


def population(data: Data, count: int = 1, first: int = 0, **options) -> Population:
    config = Config(**{**SMALL, **options})
    return Population(load_problem(config, data), config, members(first + count)[first:])


def stepped(own: Population, epochs: int = 3) -> Population:
    for _ in range(epochs):
        assert own.step() is None
    return own


GRAND = ("heads", "attention_dim", "time")  # what other models do not have
CASES = {
    "linear": {},
    "labels": {"label_rate": 0.5, "class_weights": "balanced"},
    "nonlinear": {"variant": "nonlinear", "solver": "rk4", "step_size": 1.0, "batch_norm": True},
    "observed": {"terms": "source,labelled-source", "sweep": 2.0},
    "gcn": {"model": "gcn"},
}


@pytest.mark.parametrize("name", CASES)
def test_one_group_is_the_whole_graph(data, name):
    own = CASES[name]
    kept = SMALL if "model" not in own else {k: SMALL[k] for k in SMALL if k not in GRAND}
    results = []
    for batches in (0, 1):
        config = Config(**{**kept, **own, "batches": batches})
        whole = Population(load_problem(config, data), config, members(2))
        results.append(stepped(whole).state())
    for key, value in results[0].items():
        assert torch.equal(value, results[1][key]), key


def test_the_deal_covers_every_node_once(data):
    own = population(data, batches=3, batch_parts=10).batches
    assert own is not None
    deals = [own.deal(epoch) for epoch in range(20)]
    for epoch, deal in enumerate(deals):
        assert sorted(deal.bincount(minlength=3).tolist()) == [3, 3, 4]
        nodes = torch.cat(list(own.groups(epoch)))
        assert torch.equal(nodes.sort().values, torch.arange(NODES))
        for number, group in enumerate(own.groups(epoch)):
            assert torch.equal(deal[own.part[group]], torch.full_like(group, number))
            assert bool((group.diff() > 0).all())
    assert len({tuple(deal.tolist()) for deal in deals}) == 20
    again = population(data, batches=3, batch_parts=10).batches
    other = population(data, batches=3, batch_parts=10, seed=1).batches
    assert again is not None and other is not None
    assert torch.equal(again.deal(5), deals[5]) and not torch.equal(other.deal(5), deals[5])


@pytest.mark.parametrize("loops", [1.0, 0.0])
def test_induced_subgraph(data, loops):
    """The rows and columns of the dense matrix; a node without edges has a self-loop."""
    weight = torch.rand(data.edge_index.shape[1]) + 0.1
    graph = Graph.from_edge_index(data.edge_index, NODES, weight, loops, weight[:, None] * 2)
    nodes = torch.arange(0, NODES, 3)
    own = induced(graph, nodes)
    wanted = graph.dense(graph.weight)[nodes][:, nodes]
    found = own.dense(own.weight)
    alone = (wanted.sum(0) == 0) | (wanted.sum(1) == 0)
    assert bool(alone.any()) == (loops == 0)
    torch.testing.assert_close(found, wanted + torch.diag(alone.float()))
    attributes = own.dense(own.edge_attr[:, 0])
    torch.testing.assert_close(attributes, graph.dense(graph.edge_attr[:, 0])[nodes][:, nodes])


def dense_gradient(own: Population, nodes: Tensor, count: int) -> dict[str, Tensor]:
    """The gradient by the formula x(T) = exp(αT(A − I)) x(0) with dense matrices, in float64."""
    names = {k.split(".")[0]: k for k in own.parameters if "coder" in k and "weight" in k}
    tensors = {k: v.detach()[0].double().requires_grad_() for k, v in own.stack.tensors.items()}
    problem = own.problem
    matrix = torch.zeros(NODES, NODES, dtype=torch.float64)
    matrix[problem.graph.row.long(), problem.graph.col.long()] = 1
    matrix = matrix[nodes][:, nodes]
    matrix = matrix / matrix.sum(1, keepdim=True)
    x = problem.x.dense().double()[nodes]
    state = x @ tensors[names["encoder"]].T + tensors["encoder.bias"]
    state = torch.matrix_exp(3.0 * (matrix - torch.eye(len(nodes)))) @ state
    logits = state.relu() @ tensors[names["decoder"]].T + tensors["decoder.bias"]
    train = own.train[0, nodes]
    loss = cross_entropy(logits[train], problem.y[nodes][train], reduction="sum")
    loss = loss * count / own.train[0].sum()
    learnt = list(own.parameters)
    found = torch.autograd.grad(loss, [tensors[k] for k in learnt], allow_unused=True)
    return {k: torch.zeros_like(tensors[k]) if g is None else g for k, g in zip(learnt, found, strict=True)}


def test_gradient_of_a_group_is_that_of_the_dense_formula(data):
    options = {
        "hidden": 8, "time": 3.0, "split": "random", "development": 150, "per_class": 5, "device": "cpu",
        "diffusivity": "laplacian", "over": "rows", "alpha": 1.0, "terms": "", "input_dropout": 0.0,
        "dropout": 0.0, "optimiser": "sgd", "rate": 0.1, "decay": 0.0, "batches": 2, "batch_cut": "random",
    }  # fmt: skip
    config = Config(**options)
    own = Population(load_problem(config, data), config, members(1))
    assert own.batches is not None
    inside = 0
    update = own._update

    def checked(batch):
        nonlocal inside
        nodes = list(own.batches.groups(0))[inside]
        inside += 1
        before = {k: v.detach().clone() for k, v in own.parameters.items()}
        for moments in own.optimiser.moments.values():  # the step is then the rate times the gradient
            moments["velocity"].zero_()
        wanted = dense_gradient(own, nodes, 2)
        result = update(batch)
        for name, value in own.parameters.items():
            moved = (before[name] - value.detach())[0] / 0.1
            torch.testing.assert_close(moved.double(), wanted[name], rtol=1e-4, atol=2e-6)
        return result

    own._update = checked  # type: ignore[method-assign]
    own.step()
    assert inside == 2


def test_members_alone_and_together(data):
    together = stepped(population(data, 3, batches=3))
    for k in range(3):
        same(together, k, stepped(population(data, 1, k, batches=3)))


def test_a_group_without_training_nodes(data):
    """Ten groups and a training node for each class: some groups have none."""
    own = population(data, batches=10, batch_parts=150, batch_cut="random", development=100, per_class=1)
    stepped(own)
    assert all(bool(v.isfinite().all()) for v in own.parameters.values())


def test_state_goes_on(data):
    """From a checkpoint the same groups follow, with the same random numbers."""
    whole = stepped(population(data, 2, batches=4), 5)
    first = stepped(population(data, 2, batches=4), 2)
    second = population(data, 2, batches=4)
    second.load({k: v.clone() for k, v in first.state().items()})
    for key, value in stepped(second, 3).state().items():
        assert torch.equal(value, whole.state()[key]), key


def files(folder: Path) -> dict[str, bytes]:
    kept = ("model.safetensors", "config.toml", "metrics.jsonl")
    return {name: (folder / name).read_bytes() for name in kept}


def test_a_stopped_run_ends_with_the_same_bytes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GRAND_CHECKPOINT_SECONDS", "0")
    write_graph(Path("toy"))
    command = ["train", "toy", *OPTIONS, "--batches", "3", "--batch-cut", "ldg"]
    assert main([*command, "--out", "whole"]) == 0
    step, taken = Population.step, 0

    def stopped(self):
        nonlocal taken
        taken += 1
        if taken == 5:  # in the second epoch of the second member
            raise KeyboardInterrupt
        return step(self)

    monkeypatch.setattr(Population, "step", stopped)
    assert main([*command, "--out", "broken"]) == 130
    assert main(["train", "--resume", "--out", "broken"]) == 0
    assert files(Path("broken")) == files(Path("whole"))


def test_refusals(data, tmp_path, monkeypatch, capsys):
    with pytest.raises(ConfigError, match="3 batches need as many parts of the graph, got 2"):
        population(data, batches=3, batch_parts=2)
    with pytest.raises(ConfigError, match="301 batches need as many parts of the graph, got 300"):
        population(data, batches=301)
    own = {"split": "random", "development": 150, "per_class": 5, "device": "cpu"}
    config = Config(**own, model="cgnn", batches=2)
    with pytest.raises(ConfigError, match="cgnn has parameters of each node"):
        Population(load_problem(config, data), config, members(1))
    monkeypatch.chdir(tmp_path)
    write_graph(Path("toy"))
    assert main(["train", "toy", *OPTIONS, "--batches", "2", "--parts", "2", "--out", "run"]) == 2
    assert "batches is 2, an approximation in one process, and --parts" in capsys.readouterr().err
    assert not Path("run").exists()
