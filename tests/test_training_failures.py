"""An integration that fails ends its own member; the others train as if it had never been there."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from test_cli_basics import write_graph
from test_training_population import SMALL, members, same
from torch import Tensor
from torch_geometric.data import Data

from graphdiffusion.data import open_data
from graphdiffusion.errors import NotConverged, TooManyEvaluations
from graphdiffusion.training import Config, Population, Trainer, load_problem, load_run, open_folder
from graphdiffusion.training.journal import read_lines
from graphdiffusion.training.problem import Problem
from graphdiffusion.training.storage import read_tensors

# member 1 learns so fast that its equation turns stiff after some epochs, or is so from the start
LATE = {
    "dopri5": ({"solver": "dopri5", "max_evaluations": 40}, {"rate": [0.01, 0.5, 0.02, 0.01]}),
    "adams-moulton": (
        {"solver": "adams-moulton", "step_size": 2.0, "time": 12.0},
        {"alpha": [0.3, 0.5, 0.4, 0.2], "rate": [0.01, 0.3, 0.01, 0.02]},
    ),
    "adjoint": (
        {"solver": "dopri5", "max_evaluations": 70, "gradient": "adjoint"},
        {"rate": [0.01, 0.5, 0.02, 0.01]},
    ),
}
EARLY = {
    "dopri5": (
        {"solver": "dopri5", "max_evaluations": 60, "rtol": 1e-3},
        {"rtol": [1e-3, 1e-7, 1e-3, 1e-3], "atol": [1e-5, 1e-9, 1e-6, 1e-5]},
    ),
    "adams-moulton": (
        {"solver": "adams-moulton", "step_size": 4.0, "time": 20.0}, {"alpha": [0.2, 0.99, 0.25, 0.2]},
    ),
}  # fmt: skip
EPOCHS = 12


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return write_graph(tmp_path_factory.mktemp("data") / "toy")


@pytest.fixture(scope="module")
def data(folder: Path) -> Data:
    return open_data(folder)


def settings(case: tuple[dict, dict], **more: object) -> tuple[Config, list]:
    shared, each = case
    config = SMALL.replace(**{"variant": "nonlinear", "epochs": EPOCHS, **shared, **more})
    return config, members(4, **each)


def snapshot(population: Population) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in population.state().items()}


@pytest.mark.parametrize("case", LATE)
def test_a_failing_member_ends_alone(data, case, caplog):
    config, group = settings(LATE[case])
    problem = load_problem(config, data)
    with caplog.at_level(logging.WARNING, "graphdiffusion"):
        found = Trainer(problem, config, group, chunk=4).run()
    end = found[1].epochs
    assert 0 < end < EPOCHS and f"members [1] end at epoch {end}: " in caplog.text
    others = Trainer(problem, config, [group[k] for k in (0, 2, 3)], chunk=3).run()
    assert [found[k] for k in (0, 2, 3)] == others and {r.epochs for r in others} == {EPOCHS}
    # what it keeps is what it had found before
    assert found[1] == Trainer(problem, config.replace(epochs=end), group, chunk=4).run()[1]
    assert 0 <= found[1].best_epoch < end and found[1].val > 0


@pytest.mark.parametrize("case", EARLY)
def test_a_member_that_fails_at_once_keeps_its_initial_state(data, case, caplog):
    config, group = settings(EARLY[case], epochs=3)
    problem = load_problem(config, data)
    with caplog.at_level(logging.WARNING, "graphdiffusion"):
        found = Trainer(problem, config, group, chunk=4).run()
    failed = found[1]
    assert (failed.best_epoch, failed.epochs, failed.val, failed.test) == (-1, 0, 0.0, 0.0)
    assert "members [1] end at epoch 0: " in caplog.text
    assert "members [1] cannot be integrated and give no right answer: " in caplog.text
    others = Trainer(problem, config, [group[k] for k in (0, 2, 3)], chunk=3).run()
    assert [found[k] for k in (0, 2, 3)] == others and min(r.val for r in others) > 0


def test_if_the_first_members_all_fail_at_once_it_is_an_error(data):
    config, group = settings(EARLY["dopri5"], epochs=2)
    problem = load_problem(config, data)
    with pytest.raises(TooManyEvaluations, match="max_evaluations=60"):
        Trainer(problem, config, [group[1]]).run()
    with pytest.raises(TooManyEvaluations):
        Trainer(problem, config.replace(max_evaluations=9), group, chunk=4).run()
    with pytest.raises(TooManyEvaluations):  # before anybody has been trained
        Trainer(problem, config, [group[1], group[0]], chunk=1).run()
    # later ones do not end what has been trained
    found = Trainer(problem, config, group, chunk=1).run()
    assert [r.epochs for r in found] == [2, 0, 2, 2]


@pytest.mark.parametrize(
    "more",
    [
        {
            "rtol": 1e-7,
            "atol": 1e-9,
        },  # in training, when batch normalisation has moved its statistics
        {"max_evaluations": 30, "sweep": 6.0, "sweep_points": 3},  # in validation
    ],
)
def test_a_step_that_fails_changes_nothing(data, more):
    config = SMALL.replace(variant="nonlinear", solver="dopri5", max_evaluations=60, batch_norm=True)
    problem = load_problem(config, data)
    population = Population(problem, config.replace(**more), members(2))
    before = snapshot(population)
    failure = population.step()
    assert isinstance(failure, TooManyEvaluations) and failure.members.tolist() == [True, True]
    after = population.state()
    shared = {"self/epoch", "optimiser/step"}
    assert all(torch.equal(value, after[name]) for name, value in before.items() if name not in shared)
    assert population.epochs_done == 1
    trained = Population(problem, config, members(2))
    trained.step()
    assert not all(torch.equal(value, trained.state()[name]) for name, value in before.items())


def test_members_that_leave_change_nothing_bit_for_bit(data):
    config, group = settings(LATE["adams-moulton"])
    problem = load_problem(config, data)
    population = Population(problem, config, group)
    other = Population(problem, config, [group[k] for k in (0, 2, 3)])
    while population.epochs_done < EPOCHS:
        failure = population.step()
        if failure is not None:
            assert isinstance(failure, NotConverged) and population.numbers(failure.members) == [1]
            population.select((~failure.members).nonzero().flatten())
    for _ in range(EPOCHS):
        other.step()
    assert len(population) == 3
    for k in range(3):
        same(population, k, other, place=k)


def test_everybody_may_leave(data):
    config, group = settings(LATE["dopri5"])
    population = Population(load_problem(config, data), config, group[:2])
    population.select(torch.tensor([], dtype=torch.long))
    assert len(population) == 0 and population.best_score.tolist() == []


def interrupted(monkeypatch: pytest.MonkeyPatch, problem: Problem, config: Config, group: list, out: Path):
    """A run that is broken off two epochs before its end."""
    step = Population.step

    def broken(self: Population) -> Any:
        if self.epochs_done == EPOCHS - 2:
            raise KeyboardInterrupt
        return step(self)

    with monkeypatch.context() as patch:
        patch.setattr(Population, "step", broken)
        with pytest.raises(KeyboardInterrupt), open_folder(out, config, problem.data) as run:
            Trainer(problem, config, group, run, chunk=4).run()


@pytest.mark.parametrize("case", [LATE["dopri5"], EARLY["dopri5"]], ids=["late", "early"])
def test_a_run_resumes_after_a_failure(folder, tmp_path, monkeypatch, case):
    monkeypatch.setenv("GRAND_CHECKPOINT_SECONDS", "0")
    config, group = settings(case, data=str(folder))
    problem, whole, part = load_problem(config), tmp_path / "whole", tmp_path / "part"
    with open_folder(whole, config, problem.data) as run:
        results = Trainer(problem, config, group, run, chunk=4).run()
    assert [r.epochs == EPOCHS for r in results] == [True, False, True, True]
    interrupted(monkeypatch, problem, config, group, part)
    _, note = read_tensors(part / "checkpoint.safetensors", "checkpoint")
    assert note["left"] == [0, 2, 3] and [r["number"] for r in note["done"]] == [1]
    with open_folder(part, config, problem.data, resume=True) as run:
        assert Trainer(problem, config, group, run).run() == results
    states = [read_tensors(out / "model.safetensors", "model")[0] for out in (whole, part)]
    assert all(torch.equal(value, states[1][name]) for name, value in states[0].items())
    assert read_lines(part / "metrics.jsonl") == read_lines(whole / "metrics.jsonl")
    run = load_run(whole)
    for k in range(4):
        assert run.evaluate(k) == (results[k].val, results[k].test)
