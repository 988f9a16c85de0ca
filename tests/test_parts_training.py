"""Trainings on parts against a training in one process."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch
from processes import group
from torch.testing import assert_close
from torch_geometric.data import Data
from torch_geometric.utils import subgraph

from graphdiffusion import GraphDiffusion
from graphdiffusion.data import load_data
from graphdiffusion.equation import Source
from graphdiffusion.nn import SparseFeatures
from graphdiffusion.partition import split, use_part
from graphdiffusion.training import Config, Trainer, load_problem, load_run, open_folder, protocol
from graphdiffusion.training.parts import SharedFolder, on_part
from graphdiffusion.training.population import Population

SMALL = {"hidden": 8, "splits": 1, "epochs": 5}
ATTENTION = {"heads": 2, "attention_dim": 8}
CASES = {
    "linear": {**ATTENTION, "batch_norm": True, "label_rate": 0.5, "sweep": 2.0},
    "nonlinear": {**ATTENTION, "variant": "nonlinear", "solver": "dopri5", "time": 3.0},
    "rewired": {
        **ATTENTION, "variant": "nonlinear-rewired", "solver": "rk4", "step_size": 1.0, "time": 3.0,
        "keep": 0.7,
    },
    "rows": {
        **ATTENTION, "over": "rows", "normaliser": "softmax", "mlp": True, "class_weights": "balanced"
    },
    "penalties": {
        **ATTENTION, "variant": "nonlinear", "solver": "rk4", "step_size": 1.0, "time": 3.0, "kinetic": 0.1,
        "jacobian": 0.1,
    },
    "adjoint": {
        **ATTENTION, "variant": "nonlinear", "solver": "dopri5", "gradient": "adjoint", "time": 2.0
    },
    "semi-implicit": {**ATTENTION, "variant": "nonlinear", "solver": "semi-implicit", "time": 2.0},
    "two members": {**ATTENTION, "variant": "nonlinear", "solver": "dopri5", "time": 2.0, "splits": 2},
    "labelled": {**ATTENTION, "terms": "source,labelled-source"},
    "gcn": {"model": "gcn"},
    "gat": {"model": "gat"},
    "sage": {"model": "sage"},
    "monet": {"model": "monet"},
    "gde": {"model": "gde"},
    "gode": {"model": "gode"},
    "mlp": {"model": "mlp"},
}  # fmt: skip


def small_graph(task="classification"):
    """A piece of Cora: a graph of 400 nodes with sparse features."""
    cora = load_data("cora-embedded")
    edges, _ = subgraph(torch.arange(400), cora.edge_index)
    y = cora.y[:400]
    if task != "classification":
        y = y + torch.arange(400) / 100
    if task == "multilabel":
        y = torch.stack([y % 2 < 1, y > 3], 1).float()
    x = cora.x.to_dense()[:400, :60]
    return Data(x=x.to_sparse_csr(), edge_index=edges, y=y, task=task)


def problem_of(options, task="classification"):
    config = Config(**{**SMALL, **options}, split="shares")
    return config, load_problem(config, small_graph(task))


def part_of(problem, rank, size):
    share = torch.rand(problem.num_nodes, generator=torch.Generator().manual_seed(0))
    assignment = (share.square() * size).long()
    return split(problem.graph, assignment)[rank]


def epochs(problem, config, count):
    torch.set_default_dtype(torch.float64)
    try:
        population = Population(problem, config, protocol(config, problem.data))
        states = []
        for _ in range(count):
            population.step()
            states.append({k: v.clone() for k, v in population.state().items()})
        return states, population.final()
    finally:
        torch.set_default_dtype(torch.float32)


def trained(rank, size, name, task, part_of=part_of):
    options = CASES[name]
    config, problem = problem_of(options, task)
    x = SparseFeatures(problem.x.pattern, problem.x.values.double())
    problem = replace(problem, x=x)
    wanted, ended = epochs(problem, config, 5)
    part = part_of(problem, rank, size)
    with use_part(part):
        found, own_end = epochs(on_part(problem, part), config, 5)
    for a, b in zip(found, wanted, strict=True):
        assert a.keys() == b.keys()
        for key in a:
            assert_close(a[key], b[key], rtol=1e-7, atol=1e-8, msg=lambda text, key=key: f"{key}: {text}")
    assert_close(own_end[1:], ended[1:])


@pytest.mark.parametrize("name", CASES)
def test_five_epochs_are_those_of_one_process(name):
    group(2).run(trained, name, "classification")


def one_empty_node(problem, rank, size):
    """The first part is one node, which has no feature."""
    assignment = torch.ones(problem.num_nodes, dtype=torch.int64)
    assignment[(problem.x.pattern.rowptr.diff() == 0).nonzero()[0]] = 0
    return split(problem.graph, assignment)[rank]


def test_a_part_without_features():
    group(2).run(trained, "linear", "classification", one_empty_node)


def test_five_epochs_on_three_parts():
    group(3).run(trained, "linear", "classification")


@pytest.mark.parametrize("task", ["regression", "multilabel"])
def test_other_tasks(task):
    group(2).run(trained, "labelled", task)


def test_a_class_of_ones_own_declares_it_itself():
    class Mean(Source):
        """What it adds may take a mean over nodes."""

    class Declared(Source):
        takes_parts = True

    assert [cls().takes_parts for cls in (Source, Mean, Declared)] == [True, False, True]
    layer = GraphDiffusion(4, terms=[Mean()], heads=2, attention_dim=4)
    assert not layer.equation.takes_parts


def whole_run(rank, size, task, folder):
    """A run with its folder, from its beginning to its summary."""
    config, problem = problem_of({**CASES["labelled"], "splits": 2}, task)
    part = part_of(problem, rank, size)
    own = on_part(problem, part)
    members = protocol(config, problem.data)
    kept = open_folder(Path(folder), config, problem.data) if rank == 0 else nullcontext()
    with use_part(part), kept as run:
        return [asdict(result) for result in Trainer(own, config, members, SharedFolder(run)).run()]


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_a_run_and_its_summary(task, tmp_path):
    first, second = group(2).run(whole_run, task, str(tmp_path / "parts"))
    config, problem = problem_of({**CASES["labelled"], "splits": 2}, task)
    with open_folder(tmp_path / "whole", config, problem.data) as folder:
        results = Trainer(problem, config, protocol(config, problem.data), folder).run()
    assert first == second
    for found, wanted in zip(first, results, strict=True):
        assert found["best_epoch"] == wanted.best_epoch
        assert [found["val"], found["test"]] == pytest.approx([wanted.val, wanted.test], abs=2e-2)
    own, whole = (load_run(tmp_path / name) for name in ("parts", "whole"))
    assert own.summary["figures"].keys() == whole.summary["figures"].keys()
    score = "accuracy" if task == "classification" else "r2"
    assert own.summary["figures"][score] == pytest.approx(whole.summary["figures"][score], abs=2e-2)
    assert own.summary["split"] == whole.summary["split"]
