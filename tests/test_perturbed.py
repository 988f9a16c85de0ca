"""False edges: at random, and by PRBCD on trained models."""

from __future__ import annotations

import pytest
import torch
from test_cli_basics import write_graph
from torch_geometric.data import Data

from graphdiffusion.data import load_data, open_data
from graphdiffusion.experiments.perturbed import Victim, attacked, with_random_edges
from graphdiffusion.experiments.successor_models import MODELS, start_of
from graphdiffusion.experiments.successors import on_graph
from graphdiffusion.experiments.trained import trained
from graphdiffusion.graph import Graph


def edges_of(data):
    return {(i, j) for i, j in data.edge_index.T.tolist()}


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    return open_data(str(write_graph(tmp_path_factory.mktemp("attack") / "toy", n=120)))


def run_of(model, graph, folder):
    config = start_of(model, "toy", "random", epochs=12, hidden=8).replace(splits=2, per_class=5)
    return trained(config, folder / model, graph)


def test_random_edges():
    data = load_data("cora-embedded")
    more = with_random_edges(data, 0.5)
    before, after = edges_of(data), edges_of(more)
    assert before < after and len(after) == len(before) + 2 * round(0.25 * len(before))
    assert all((j, i) in after and i != j for i, j in after)
    assert torch.equal(with_random_edges(data, 0.5).edge_index, more.edge_index)
    assert with_random_edges(data, 0.0) is data
    pair = Data(edge_index=torch.tensor([[0, 1], [1, 0]]), num_nodes=3)
    assert with_random_edges(pair, 50.0).edge_index.shape[1] == 6  # no more than there is room for


@pytest.mark.parametrize("model", list(MODELS))
def test_victim_is_the_model_on_the_edges_of_weight_one(model, graph, tmp_path):
    run = run_of(model, graph, tmp_path)
    own, more = run.model(0), run.shown_labels(0)
    n, loops = graph.num_nodes, run.config.self_loops
    victim, x = Victim(own, run.problem.x, loops, **more), torch.empty(n, 0)
    weight = torch.ones(graph.edge_index.shape[1])
    kept = torch.ones_like(weight, dtype=torch.bool)
    kept[[0, 5, 17]] = False
    weight[~kept] = 0.0
    weight.requires_grad_()
    found = victim(x, graph.edge_index, weight)
    wanted = own(run.problem.x, Graph.from_edge_index(graph.edge_index[:, kept], n, None, loops), **more)
    torch.testing.assert_close(found, wanted)
    (slope,) = torch.autograd.grad(found.square().sum(), weight)
    assert bool(slope.isfinite().all()) and bool(slope.abs().sum() > 0) == (model != "mlp")


@pytest.mark.parametrize("model", ["gcn", "linear", "labelled-source"])
def test_attack_is_worse_than_chance_and_keeps_its_budget(model, graph, tmp_path):
    run = run_of(model, graph, tmp_path)
    assert attacked(run, 0, 0.0) is graph
    before = [(result.val, result.test) for result in run.results]
    for k in range(2):
        assert on_graph(run, k, graph) == pytest.approx(before[k])
    share = 0.2
    found = attacked(run, 0, share, block=2000, steps=30)
    changed = edges_of(graph) ^ edges_of(found)
    assert 0 < len(changed) <= 2 * round(share * len(edges_of(graph)) / 2)
    assert all((j, i) in changed and i != j for i, j in changed)
    state = torch.random.get_rng_state()
    again = attacked(run, 0, share, block=2000, steps=30)
    assert torch.equal(again.edge_index, found.edge_index)
    assert torch.equal(torch.random.get_rng_state(), state)
    by_chance = on_graph(run, 0, with_random_edges(graph, share))[1]
    assert on_graph(run, 0, found)[1] < by_chance - 0.1
    assert run.data is graph  # the run keeps its own


def test_attack_does_not_touch_a_model_without_edges(graph, tmp_path):
    run = run_of("mlp", graph, tmp_path)
    found = attacked(run, 1, 0.2, block=2000, steps=4)
    assert on_graph(run, 1, found)[1] == pytest.approx(run.results[1].test)
