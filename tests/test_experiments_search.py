"""The search: spaces, trials, successive halving, blindness to the test nodes, resuming."""

from __future__ import annotations

import csv
import json
import math
import random
from itertools import count

import pytest
import torch
from test_cli_basics import write_graph

from graphdiffusion.cli import main
from graphdiffusion.data import open_data
from graphdiffusion.errors import ConfigError, DataError, SolverError
from graphdiffusion.experiments import Plan, Range, Trial, read_space
from graphdiffusion.experiments.paper import ROWS
from graphdiffusion.experiments.presets import preset_config, preset_text
from graphdiffusion.experiments.race import Workshop, race, rungs, scores, survivors
from graphdiffusion.experiments.record import SEARCH_SEEDS
from graphdiffusion.experiments.search import search
from graphdiffusion.experiments.space import draw, draw_trials, parse_space
from graphdiffusion.training import Config, Population, protocol
from graphdiffusion.training.choices import default

SMALL = {
    "hidden": 8, "heads": 2, "attention_dim": 8, "time": 2.0, "epochs": 4, "per_class": 4, "device": "cpu",
    "split": "random",
}  # fmt: skip
SPACE = {"rate": Range(1e-3, 5e-2, log=True), "hidden": [4, 8], "dropout": Range(0.0, 0.5)}
PLAN = Plan(trials=6, families=2, grace=2, finalists=2, final_seeds=2)


@pytest.fixture
def graph(tmp_path):
    return write_graph(tmp_path / "toy")


@pytest.fixture
def config(graph):
    return Config(data=str(graph), **SMALL)


@pytest.mark.parametrize("row", ROWS)
def test_spaces_of_the_models(row):
    space, start = read_space(row), preset_config("cora", row, "start")
    trials = draw_trials(start, space, 40, 8, 0)
    assert trials[0].config == start
    # where alpha is 1 at the start, no trial drawn from it has the same parameters
    assert 2 <= len({t.family for t in trials}) <= 8 + (getattr(start, "alpha", 0) == 1)
    assert any(name in start.per_member for name in space)
    for name, allowed in space.items():
        values = {getattr(t.config, name) for t in trials[1:] if hasattr(t.config, name)}
        if isinstance(allowed, Range):
            low, high = allowed.bounds(getattr(start, name))
            assert all(low * 0.999 <= v <= high * 1.001 for v in values) and len(values) > 1
        else:
            assert values <= {*allowed, default(name), getattr(start, name, None)}


def test_trials_can_be_added(config):
    few, many = (draw_trials(config, SPACE, n, 3, 5) for n in (4, 9))
    assert many[:4] == few
    assert draw_trials(config, SPACE, 9, 3, 6)[1:] != many[1:]


def test_integers_and_relative_ranges(config):
    space = parse_space(
        {
            "hidden": {"low": 4, "high": 6, "integer": True},
            "time": {"low": 0.5, "high": 2, "log": True, "relative": True},
        }
    )
    trials = draw_trials(config.replace(time=10.0), space, 30, 9, 0)
    assert {t.config.hidden for t in trials} <= {4, 5, 6, 8}
    assert all(5 <= t.config.time <= 20 for t in trials)


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"hiden": [8]}, "did you mean 'hidden'"),
        ({"splits": [8]}, "a search does not choose splits"),
        ({"hidden": []}, "a list of choices"),
        ({"hidden": 8}, "a list of choices"),
        ({"hidden": [8, "many"]}, "hidden must be a whole number"),
        ({"rate": {"low": 0.1}}, "a range has low and high"),
        ({"rate": {"low": 0.1, "high": 0.01}}, "low must be at most high"),
        ({"rate": {"low": 0, "high": 0.01, "log": True}}, "greater than 0"),
        ({"dropout": {"low": 0, "high": 2}}, "dropout must be between"),
        ({"optimiser": {"low": 0, "high": 2}}, "optimiser is no number"),
    ],
)
def test_refused_spaces(values, says):
    with pytest.raises(ConfigError, match=says):
        parse_space(values)


def test_combinations_that_cannot_be(config, monkeypatch):
    monkeypatch.setattr("graphdiffusion.experiments.space._DRAWS", 20)
    with pytest.raises(ConfigError, match="no admissible combination: attention_dim must be a positive"):
        draw(config, parse_space({"heads": [3]}), random.Random(0), 0.0)


def test_rungs_and_survivors():
    assert rungs(10, 2, 100) == [10, 20, 40, 80, 100]
    assert rungs(10, 3, 90) == [10, 30, 90]
    assert rungs(10, 2, 5) == [5]
    now = {0: 0.5, 1: 0.9, 2: 0.7, 3: 0.1}
    assert survivors(now, [], 2) == {1, 2}
    assert survivors(now, [0.95, 0.94, 0.93, 0.92], 2) == set()
    assert survivors(now, [0.0] * 4, 2) == {0, 1, 2, 3}
    assert survivors({0: -math.inf}, [], 2) == set()


def test_halving_keeps_the_best(config):
    """A trial that cannot learn is dropped at the first rung; those that go on were better there."""
    space = {"rate": [1e-7, 1e-7, 1e-7, 0.03], "dropout": Range(0.0, 0.5)}
    board = search(config, space, Plan(trials=12, families=1, grace=2, finalists=2, final_seeds=2))
    at = {e.trial: e for e in board.entries}
    assert len(at) == 12
    finished = [e for e in board.entries if e.state == "finished"]
    dropped = [e for e in board.entries if e.state == "dropped"]
    assert finished and all(e.epochs == 4 for e in finished)
    assert dropped and all(e.epochs < 4 for e in dropped)
    assert min(e.score for e in finished) >= max(e.score for e in dropped if e.epochs == 2)
    assert board.best.rate > 1e-3
    means = [e.mean for e in board.entries if e.mean is not None]
    assert means == sorted(means, reverse=True) and len(means) in (2, 3)
    assert at[0].mean is not None  # where the search began is measured too


def test_the_test_nodes_are_never_seen(config, monkeypatch, graph):
    def forbidden(*_):
        raise AssertionError("the test nodes were looked at")

    monkeypatch.setattr(Population, "final", forbidden)
    monkeypatch.setattr(Population, "accuracies", forbidden)
    seen: list[Population] = []
    init = Population.__init__

    def watched(self, *args, **kwargs):
        init(self, *args, **kwargs)
        seen.append(self)

    monkeypatch.setattr(Population, "__init__", watched)
    search(config, SPACE, PLAN)
    assert seen and not any(bool(p.test.any()) for p in seen)


def test_seeds_are_disjoint_from_reported_ones(config):
    reported = protocol(config.replace(splits=100, inits=20), open_data(config.data))
    for plan in (PLAN, Plan(seed=7, seeds=5, final_seeds=50)):
        race_seeds, fresh = set(plan.race_seeds), set(plan.fresh_seeds)
        assert min(race_seeds | fresh) >= SEARCH_SEEDS > max(m.split for m in reported)
        assert not race_seeds & fresh
        assert min(s * 1000 for s in race_seeds) > max(m.init for m in reported)
    assert not set(Plan(seed=1).race_seeds) & set(Plan(seed=0).fresh_seeds)


def test_members_are_trained_as_their_own_configuration(config):
    """A trial within a family reaches what it reaches alone."""
    trials = draw_trials(config, SPACE, 5, 2, 0)
    data = open_data(config.data)
    together = Workshop(data, torch.device("cpu"))
    found = scores(together.advance(together.lanes(trials, [SEARCH_SEEDS, 7]), 4), 2)
    alone = Workshop(data, torch.device("cpu"))
    for trial in trials:
        lanes = alone.advance(alone.lanes([trial], [SEARCH_SEEDS, 7]), 4)
        assert scores(lanes, 2)[trial.number][0] == pytest.approx(found[trial.number][0], abs=2e-5)
    fixed = Trial(0, config.replace(alpha=1.0)), Trial(1, config.replace(label_rate=0.5))
    assert len({t.family for t in (*fixed, Trial(2, config))}) == 3


def test_resume_skips_what_is_done(config, tmp_path, monkeypatch):
    whole = search(config, SPACE, PLAN, tmp_path / "whole")
    steps = 0
    step = Population.step

    def counted(self):
        nonlocal steps
        steps += 1
        if steps == limit:
            raise KeyboardInterrupt
        step(self)

    monkeypatch.setattr(Population, "step", counted)
    monkeypatch.setattr("graphdiffusion.training.timing.TIMED", 1)
    limit = 16
    with pytest.raises(KeyboardInterrupt):
        search(config, SPACE, PLAN, tmp_path / "part")
    path = tmp_path / "part" / "trials.jsonl"
    stored = len(path.read_text().splitlines())
    assert stored > 0
    path.write_text(path.read_text() + '{"kind": "tri')  # cut off by a kill
    limit = 0
    assert search(config, SPACE, PLAN, tmp_path / "part").entries == whole.entries
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert len([line for line in lines if line["kind"] == "trial"]) == PLAN.trials
    steps = 0
    again = search(config, SPACE, PLAN, tmp_path / "part")
    assert again.entries == whole.entries and steps == 0
    clock = [line["seconds"] for line in lines]
    assert clock == sorted(clock) and clock[0] > 0, "an attempt goes on counting where the last one ended"
    assert again.seconds == clock[-1], "what is there already takes no time"
    more = Plan(trials=8, families=2, grace=2, finalists=2, final_seeds=2)
    assert len(search(config, SPACE, more, tmp_path / "part").entries) == 8
    with pytest.raises(ConfigError, match="other options"):
        search(config.replace(hidden=4), SPACE, PLAN, tmp_path / "part")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    with pytest.raises(ConfigError, match="holds other files"):
        search(config, SPACE, PLAN, tmp_path / "other")


def test_a_search_keeps_to_its_data(config, graph, tmp_path):
    search(config, SPACE, PLAN, tmp_path / "found")
    labels = graph / "labels.csv"
    labels.write_text(labels.read_text().replace("plum", "pear", 1))
    with pytest.raises(DataError, match=r"the labels of .* have changed since the search in .* began"):
        search(config, SPACE, PLAN, tmp_path / "found")


def test_best_is_a_preset(config, tmp_path):
    board = search(config, SPACE, PLAN, tmp_path / "found")
    text = (tmp_path / "found" / "best.toml").read_text()
    assert text.startswith(f"# Search {board.name}: 6 trials on ") and "Validation" in text
    assert "device" not in text and "per_class" not in text
    best = Config.from_toml(tmp_path / "found" / "best.toml")
    assert best.replace(data=config.data, split="random", per_class=4, device="cpu") == board.best
    assert preset_text(config, (), "one\ntwo").startswith('# one\n# two\nmodel = "grand"\n')


def test_a_budget_ends_the_race(config, monkeypatch):
    with pytest.raises(ConfigError, match="the budget is too small"):
        search(config, SPACE, Plan(trials=4, families=1, budget=1e-9))
    seconds = count()
    monkeypatch.setattr("graphdiffusion.experiments.race.time.monotonic", lambda: next(seconds))
    board = search(config, SPACE, Plan(trials=4, families=1, grace=2, final_seeds=2, budget=4))
    assert {e.state for e in board.entries} == {"stopped"}
    assert {e.epochs for e in board.entries} == {0, 2}


def test_failed_integrations_are_outcomes(config, monkeypatch):
    step = Population.step

    def failing(self):
        if self.config.hidden == 4:
            self.epochs_done += 1
            return SolverError("stiff", torch.ones(len(self), dtype=torch.bool))
        return step(self)

    monkeypatch.setattr(Population, "step", failing)
    board = search(config, {"hidden": [4]}, Plan(trials=6, families=6, grace=2, final_seeds=2))
    assert board.best.hidden == 8
    assert {e.score for e in board.entries if e.options["hidden"] == 4} == {None}
    with pytest.raises(ConfigError, match="no trial could be trained"):
        search(config.replace(hidden=4), SPACE, Plan(trials=1, families=1))


def race_of(config, trials, monkeypatch, seeds=(SEARCH_SEEDS, 7), **more):
    """All trials of a family in one lane."""
    monkeypatch.setattr("graphdiffusion.experiments.race.chunk_size", lambda *_: 100)
    workshop = Workshop(open_data(config.data), torch.device("cpu"))
    how = {"grace": 4, "reduction": 1.5, "earlier": {}, "budget": math.inf, "note": lambda line: None}
    how |= {"reached": lambda rung, outcomes: None, **more}
    return {o.trial.number: o for o in race(workshop, trials, seeds, **how)}


def test_a_failing_trial_leaves_the_others_alone(config, monkeypatch):
    """One fails at once, one after some epochs: they keep what they truly have."""
    stiff = config.replace(variant="nonlinear", solver="dopri5", max_evaluations=40, epochs=9)
    well = [Trial(0, stiff.replace(rate=0.01)), Trial(1, stiff.replace(rate=0.02))]
    late, early = Trial(2, stiff.replace(rate=0.5)), Trial(3, stiff.replace(rtol=1e-7, atol=1e-9))
    reached = []
    found = race_of(
        config, [*well, late, early], monkeypatch, reached=lambda rung, o: reached.append((rung, len(o)))
    )
    assert {o.trial.family for o in found.values()} == {late.family}
    alone = race_of(config, well, monkeypatch)
    for k in (0, 1):
        assert found[k] == alone[k] and found[k].state == "finished" and found[k].epochs == 9
    assert (found[3].state, found[3].epochs, found[3].score) == ("failed", 0, -math.inf)
    assert found[2].state == "finished" and 0 < found[2].epochs < 4 and found[2].score > 0.3
    assert found[2].rungs == found[3].rungs == {}
    assert reached == [(4, 4), (6, 2), (9, 2)]  # written down once


def test_a_failing_trial_does_not_mean_that_time_is_over(config, monkeypatch):
    seconds = count()
    monkeypatch.setattr("graphdiffusion.experiments.race.time.monotonic", lambda: next(seconds))
    stiff = config.replace(variant="nonlinear", solver="dopri5", max_evaluations=40)
    trials = [Trial(0, stiff), Trial(1, stiff.replace(rtol=1e-7, atol=1e-9))]
    found = race_of(config, trials, monkeypatch, budget=3)
    assert {k: (o.state, o.epochs) for k, o in found.items()} == {0: ("finished", 4), 1: ("failed", 0)}


def test_failures_are_measured_among_the_finalists(config, monkeypatch):
    monkeypatch.setattr("graphdiffusion.experiments.race.chunk_size", lambda *_: 100)
    start = config.replace(
        variant="nonlinear", solver="dopri5", max_evaluations=40, rtol=1e-7, atol=1e-9, label_rate=0.2
    )
    space = {"rtol": [1e-3], "atol": [1e-5], "label_rate": [0.1, 0.3]}
    board = search(start, space, Plan(trials=4, families=1, grace=2, finalists=2, final_seeds=2))
    last = next(e for e in board.entries if e.trial == 0)
    assert (last.state, last.epochs, last.score, last.mean, last.std) == ("failed", 0, None, 0.0, 0.0)
    assert board.best.rtol == 1e-3 and board.entries[0].mean > 0.2


def test_a_lane_cut_in_two_keeps_who_has_failed(config, monkeypatch):
    step = Population.step

    def small_only(self):
        if self.epochs_done == 1 and len(self) > 2:
            raise torch.OutOfMemoryError
        return step(self)

    monkeypatch.setattr(Population, "step", small_only)
    monkeypatch.setattr("graphdiffusion.experiments.race.chunk_size", lambda *_: 100)
    stiff = config.replace(variant="nonlinear", solver="dopri5", max_evaluations=40)
    trials = [Trial(k, stiff.replace(rate=0.01 * (k + 1))) for k in range(3)]
    trials.append(Trial(3, stiff.replace(rtol=1e-7, atol=1e-9)))
    workshop = Workshop(open_data(config.data), torch.device("cpu"))
    lanes = workshop.advance(workshop.lanes(trials, [SEARCH_SEEDS]), 3)
    assert len(lanes) == 2
    assert {k: epochs for k, (_, epochs) in scores(lanes, 1).items()} == {0: 3, 1: 3, 2: 3, 3: 0}


def test_a_lane_too_large_for_memory_is_cut_in_two(config, monkeypatch):
    step = Population.step

    def small_only(self):
        if len(self) > 2:
            raise torch.OutOfMemoryError
        return step(self)

    monkeypatch.setattr(Population, "step", small_only)
    workshop = Workshop(open_data(config.data), torch.device("cpu"))
    monkeypatch.setattr("graphdiffusion.experiments.race.chunk_size", lambda *_: 5)
    lanes = workshop.advance(workshop.lanes(draw_trials(config, SPACE, 5, 1, 0), [SEARCH_SEEDS]), 3)
    assert sorted(m.number for lane in lanes for m in lane.population.members) == [0, 1, 2, 3, 4]
    assert all(lane.population.epochs_done == 3 for lane in lanes)


def test_rewired_families_have_their_own_graphs(config, monkeypatch, tmp_path):
    monkeypatch.setenv("GRAND_CACHE", str(tmp_path / "cache"))
    start = config.replace(variant="nonlinear-rewired", rewire="ppr", rewire_k=4, solver="rk4", epochs=2)
    workshop = Workshop(open_data(config.data), torch.device("cpu"))
    edges = {workshop.problem(start.replace(rewire_k=k)).graph.num_edges for k in (2, 4)}
    assert len(edges) == 2
    board = search(
        start, {"rewire_k": [2, 4], "keep": [0.5, 1.0]}, Plan(trials=3, families=3, final_seeds=1)
    )
    assert len(board.entries) == 3


def test_command(graph, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "space.toml").write_text(
        "rate = { low = 0.001, high = 0.1, log = true }\nhidden = [4, 8]\n"
    )
    arguments = [
        "tune", "toy", "--space", "space.toml", "--trials", "3", "--families", "2", "--grace", "2",
        "--epochs", "4", "--final-seeds", "2", "--per-class", "4", "--device", "cpu", "--time", "2",
        "--preset", "none", "--split", "random", "--hidden", "8", "--heads", "2", "--attention-dim", "8",
    ]  # fmt: skip
    assert main(arguments) == 0
    shown = capsys.readouterr()
    folder = tmp_path / "results" / "search" / "toy-linear-random"
    assert (folder / "best.toml").exists() and "best.toml" in shown.out and "validation %" in shown.out
    entries = json.loads((folder / "leaderboard.json").read_text())["entries"]
    assert len(entries) == 3 and "hidden" not in entries[0]["options"]  # fixed on the command line
    assert main(["tune", "--help"]) == 0
    assert "--trials" in capsys.readouterr().out


def test_a_search_of_a_regression_has_no_percent(graph, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rows = [("id", "price"), *((node, k / 7) for k, node in enumerate(open_data("toy").node_ids))]
    with open("toy/labels.csv", "w", newline="") as file:
        csv.writer(file).writerows(rows)
    (tmp_path / "space.toml").write_text("rate = { low = 0.001, high = 0.1, log = true }\n")
    arguments = [
        "tune", "toy", "--model", "mlp", "--space", "space.toml", "--trials", "2", "--grace", "2",
        "--epochs", "4", "--finalists", "1", "--final-seeds", "2", "--device", "cpu", "--out", "search",
    ]  # fmt: skip
    assert main(arguments) == 0
    told = capsys.readouterr()
    assert "validation R²" in told.out and "in the race R²" in told.out
    header = (tmp_path / "search" / "best.toml").read_text().split("over 2 trainings")[0]
    assert "%" not in told.err + told.out + header and "Validation " in header


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--engine", "slurm"], "population or ray"),
        (["--sampler", "grid"], "random or optuna"),
        (["--sampler", "optuna"], "needs --engine ray"),
        (["--splits", "3"], "has no --splits"),
        (["--trials", "0"], "trials must be at least 1"),
        (["--trials", "many"], "--trials"),
        (["--reduction", "1"], "reduction must be greater than 1"),
        (["--budget", "0"], "budget must be greater than 0"),
        (["--space", "nowhere.toml"], "cannot read"),
        (["--space", "bad.toml"], "did you mean 'hidden'"),
        (["--space", "one.toml", "--hidden", "8"], "nothing to search"),
        (["--split", "random", "--per-class", "50"], "per_class of at most"),
    ],
)
def test_bad_input(graph, tmp_path, monkeypatch, capsys, arguments, says):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.toml").write_text("hiden = [4]\n")
    (tmp_path / "one.toml").write_text("hidden = [4]\n")
    before = sorted(tmp_path.rglob("*"))
    assert main(["tune", "toy", "--device", "cpu", *arguments]) == 2
    shown = capsys.readouterr()
    assert says in shown.err and "Traceback" not in shown.err and shown.out == ""
    assert sorted(tmp_path.rglob("*")) == before


def test_ray_is_asked_for_by_name(graph, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    assert main(["tune", "toy", "--engine", "ray", "--per-class", "4", "--device", "cpu"]) == 2
    assert "pip install " in capsys.readouterr().err
    assert not (tmp_path / "results").exists()


def test_ray(config, tmp_path):
    pytest.importorskip("ray.tune")
    from graphdiffusion.experiments.cluster import search_on_cluster

    data = open_data(config.data)
    board = search_on_cluster(config, SPACE, PLAN, tmp_path / "ray search", data=data)
    assert len(board.entries) == PLAN.trials
    told = {p: p.read_bytes() for p in (tmp_path / "ray search" / "ray").glob("*/result.json")}
    assert told
    assert search_on_cluster(config, SPACE, PLAN, tmp_path / "ray search", data=data).best == board.best
    assert {p: p.read_bytes() for p in told} == told, "a finished family has raced again"
