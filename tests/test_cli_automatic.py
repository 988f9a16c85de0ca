"""`grand train` on a graph of one's own: the automatic choice and its options."""

from __future__ import annotations

import csv
import json
import re
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from test_cli_bad_input import refused
from test_ensemble import SIZE, TINY, blocks, small_plans, stored, told  # noqa: F401

from graphdiffusion.cli import main
from graphdiffusion.ensemble import Candidate, load_ensemble
from graphdiffusion.training import Config, Population, load_run
from graphdiffusion.training.summary import describe, spread
from graphdiffusion.training.tasks import Regression

FEW = ["--hidden", "8", "--epochs", "4"]
CPU = ["--device", "cpu", "--quiet", "--splits", "2"]


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """A graph in a file, in the folder in which the commands run, and a portfolio of two."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("graphdiffusion.ensemble.choice.portfolio", lambda: TINY)
    np.savez("mine.npz", **blocks())


@pytest.fixture
def unpainted(monkeypatch):
    """No pictures, which take longer than these trainings."""
    monkeypatch.setattr("graphdiffusion.cli.messages.find_spec", lambda name: None, raising=False)


def test_a_graph_from_strangers(mine, capsys):
    assert main(["train", "mine.npz", "--device", "cpu"]) == 0
    shown = capsys.readouterr()
    assert "150 nodes" in shown.err
    assert "split folds: 90 train, 30 validate, 30 test (5 splits take turns).\n" in shown.err
    counts = "'0' 30/10/10, '1' 30/10/10, '2' 30/10/10"
    assert f"labels that train/validate/test in the first split: {counts}.\n" in shown.err
    assert all(f"training {name}" in shown.err for name in ("linear-1", "gcn-2"))
    assert "plan: 2 configurations trained once, the best 2 of them 5 times;" in shown.err
    (folder,) = Path("runs").iterdir()
    assert re.fullmatch(r"mine-auto-\d{8}-\d{6}", folder.name)
    found = stored(str(folder))
    assert [entry["name"] for entry in found["race"]] in (["linear", "gcn"], ["gcn", "linear"])
    assert f"{100 * found['figures']['accuracy']:.2f}%" in shown.out and "majority" in shown.out
    assert f"predict {folder} --out predictions.csv" in shown.out

    assert main(["predict", str(folder)]) == 0
    assert f"150 nodes with the mean of {found['members']} members" in capsys.readouterr().err
    with open("predictions.csv", newline="") as file:
        chances = [[float(row[f"p_{k}"]) for k in range(3)] for row in csv.DictReader(file)]
    np.testing.assert_allclose(chances, load_ensemble(folder).predict(), rtol=1e-4, atol=1e-6)
    np.savez("other.npz", **blocks(40, 1))
    assert main(["predict", str(folder), "--data", "other.npz", "--member", "1", "--out", "o.csv"]) == 0
    assert "40 nodes with member 1" in capsys.readouterr().err

    # finished: it says so, and starts nothing
    assert main(["train", "--resume", "--out", str(folder)]) == 0
    again = capsys.readouterr()
    assert again.err == "grand: this run is finished.\n" and again.out == shown.out
    refused(capsys, ["train", "mine.npz", "--out", str(folder)], "add --resume to go on with it")
    says = "was started without --seed 3: leave the option out"
    refused(capsys, ["train", "--resume", "--out", str(folder), "--seed", "3"], says)


def test_interrupted_and_resumed(mine, unpainted, capsys, monkeypatch):
    train = ["train", "mine.npz", "--no-baselines", *CPU, "--out"]
    assert main([*train, "whole"]) == 0
    step, calls = Population.step, []

    def interrupted(self):
        calls.append(self)
        if len(calls) == 15:
            raise KeyboardInterrupt
        return step(self)

    monkeypatch.setattr(Population, "step", interrupted)
    capsys.readouterr()
    assert main([*train, "broken"]) == 130
    assert "interrupted; go on with: grand train --resume --out broken" in capsys.readouterr().err
    refused(capsys, ["predict", "broken"], "go on with grand train --resume --out broken")
    for more in (["--no-baselines"], ["--budget", "9"], ["--quick"], ["--preset", "none"], ["--no-refit"]):
        says = f"goes on as it was planned: leave out {more[0]}"
        refused(capsys, ["train", "--resume", "--out", "broken", *more], says)
    assert main(["train", "--resume", "--out", "broken", "--quiet", "--split", "auto"]) == 0
    assert told(stored("broken")) == told(stored("whole")) and stored("whole")["baselines"] == {}


def test_time_of_a_resumed_choice(mine, unpainted, monkeypatch):
    """Is that of all its processes: of trainings that were finished, and of the one that was stopped."""
    step, calls = Population.step, []

    def slow(self):
        calls.append(self)
        if len(calls) == 8:  # five epochs of the first training, and some of the second one
            raise KeyboardInterrupt
        if len(calls) < 8:
            time.sleep(0.1)
        return step(self)

    monkeypatch.setenv("GRAND_CHECKPOINT_SECONDS", "0")
    monkeypatch.setattr(Population, "step", slow)
    assert main(["train", "mine.npz", "--no-baselines", "--no-refit", *CPU, "--out", "run"]) == 130
    # the second process takes no time by its own clock
    monkeypatch.setattr("graphdiffusion.ensemble.choice.time", SimpleNamespace(monotonic=lambda: 0.0))
    assert main(["train", "--resume", "--out", "run", "--quiet"]) == 0
    first, second = (load_run(Path("run/fits", name)).summary["seconds"] for name in ("linear-1", "gcn-1"))
    assert first >= 0.5 and first + 0.2 <= stored("run")["seconds"] <= first + second


def accuracy(folder: str) -> float:
    return stored(folder)["figures"]["accuracy"]


def test_a_mistyped_label_costs_little(mine, unpainted, capsys, monkeypatch):
    """It is named, trains in every split, and does not spoil the rest."""
    longer = Candidate("linear", {**TINY[0].options, "epochs": 25, "patience": 0})
    monkeypatch.setattr("graphdiffusion.ensemble.choice.portfolio", lambda: [longer])
    graph, y = blocks(), blocks()["y"].astype(str)
    Path("toy").mkdir()
    np.savetxt("toy/edges.csv", graph["edge_index"].T, fmt="%d", delimiter=",")
    x = graph["x"] + 2 * np.eye(3, 6)[graph["y"]]
    np.savetxt("toy/features.csv", np.column_stack([np.arange(150), x]), fmt="%g", delimiter=",")
    for folder, word in (("right", y[77]), ("wrong", "typo")):
        y[77] = word
        Path("toy/labels.csv").write_text("".join(f"{i},class {k}\n" for i, k in enumerate(y)))
        capsys.readouterr()
        assert main(["train", "toy", "--no-baselines", "--no-refit", *CPU, "--out", folder]) == 0
        said = "class 'class typo' has 1 label, fewer than 3" in capsys.readouterr().err
        assert said == (folder == "wrong")
    assert stored("wrong")["split"]["classes"]["class typo"] == {"train": 1, "val": 0, "test": 0}
    assert accuracy("wrong") > accuracy("right") - 0.01


def test_given_splits_of_several_sizes(mine, unpainted, capsys):
    """All of them are told, not the first one alone."""
    node = np.arange(150)
    masks = {"train_mask": node[:, None] < [60, 90], "val_mask": (node >= 120)[:, None] & [True, True]}
    np.savez("mine.npz", **blocks(), **masks)
    assert main(["train", "mine.npz", "--no-baselines", "--device", "cpu", "--out", "run"]) == 0
    shown = capsys.readouterr()
    sizes = "given: 60 to 90 train, 30 validate, 0 test (2 splits)"
    assert f"grand: split {sizes}.\n" in shown.err and sizes in shown.out
    assert stored("run")["split"]["sizes"] == {"train": [60, 90], "val": [30, 30], "test": [0, 0]}
    assert "without validation nodes" not in shown.err
    np.savez("mine.npz", **blocks(), train_mask=masks["train_mask"])
    assert main(["train", "mine.npz", "--quick", "--epochs", "2", "--device", "cpu", "--out", "one"]) == 0
    said = capsys.readouterr().err
    assert "grand: split given: 48 train, 12 validate, 0 test.\n" in said
    assert "of a split without validation nodes, a fifth of the training nodes validates" in said


def test_many_classes_are_counted_in_one_line(mine, unpainted, capsys):
    y = np.minimum(np.arange(150) // 3, 19)  # the last class is the largest
    np.savez("mine.npz", **blocks() | {"y": y})
    assert main(["train", "mine.npz", "--no-baselines", "--no-refit", *CPU, "--out", "run"]) == 0
    (line,) = [text for text in capsys.readouterr().err.splitlines() if "labels that train" in text]
    assert "in the first split: '19' 57/18/18, '0' 1/1/1, " in line
    assert line.endswith(", and 8 more classes.")


OPTIONS: dict[str, tuple[list[str], Any]] = {
    "--no-refit": (
        ["--no-refit"],
        lambda f: not f["refit"] and all(r[-2:] in ("-1", "-2") for r in f["runs"]),
    ),
    "--no-baselines": (["--no-baselines"], lambda f: f["baselines"] == {}),
    "--refit --model": (
        ["--refit", "--model", "gcn", *FEW],
        lambda f: list(f["runs"]) == ["gcn-1", "gcn-2", "gcn-final"],
    ),
    "--refit --preset": (["--refit", "--preset", "own-mlp", *FEW], lambda f: f["chosen"] == ["mlp"]),
    "--refit --config": (["--refit", "--config", "mine.toml"], lambda f: f["chosen"] == ["mlp"]),
    "--refit --quick": (["--refit", "--quick", *FEW], lambda f: f["chosen"] == ["linear"]),
    "--budget": (["--budget", "5"], lambda f: f["members"] >= 1),
    "--class-weights": (["--class-weights", "balanced"], lambda f: len(f["race"]) == 2),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_options_of_the_choice(mine, unpainted, name):
    Path("mine.toml").write_text('model = "mlp"\nhidden = 8\nepochs = 4\n')
    more, expected = OPTIONS[name]
    fast = [] if name == "--no-baselines" else ["--no-baselines"]
    assert main(["train", "mine.npz", *more, *fast, *CPU, "--out", "run"]) == 0
    found = stored("run")
    assert expected(found) and "own-" not in str(found["runs"])
    for run in found["runs"]:
        config = load_run(Path("run/fits", run)).config
        assert config.class_weights == ("balanced" if name == "--class-weights" else "none")
        assert config.model == ("mlp" if found["chosen"] == ["mlp"] else config.model)


UNUSED: dict[str, tuple[list[str], str]] = {
    "--budget": (["--model", "gcn", "--budget", "9"], "--budget is for a choice of configurations"),
    "--no-baselines": (["--quick", "--no-baselines"], "--no-baselines is for a choice of configurations"),
    "--per-class": (["--per-class", "3"], "--per-class is for --split random, and"),
}


@pytest.mark.parametrize("name", UNUSED)
def test_options_without_effect_are_refused(mine, capsys, name):
    more, says = UNUSED[name]
    refused(capsys, ["train", "mine.npz", *more, "--out", "run"], says)
    assert not Path("run").exists()


def test_moved_data_of_an_unfinished_choice(mine, unpainted, capsys, monkeypatch):
    def interrupted(self):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Population, "step", interrupted)
        assert main(["train", "mine.npz", *CPU, "--out", "run"]) == 130
    Path("mine.npz").rename("other.npz")
    capsys.readouterr()
    refused(capsys, ["train", "--resume", "--out", "run"], "the graph of the run is no longer at")


def test_one_model_quickly(mine, capsys, monkeypatch):
    first = Candidate("first", {"model": "gcn", "hidden": 4, "epochs": 3})
    monkeypatch.setattr("graphdiffusion.ensemble.portfolio", lambda: [first])
    assert main(["train", "mine.npz", "--quick", "--device", "cpu", "--out", "plain"]) == 0
    said = capsys.readouterr().err
    assert "one configuration, first: without --quick, several are compared." in said
    plain = Config.from_toml("plain/config.toml")
    assert (plain.model, plain.hidden, plain.splits) == ("gcn", 4, 1) and "preset" not in said
    assert main(["train", "mine.npz", "--quick", *FEW, "--device", "cpu", "--out", "quick"]) == 0
    said = capsys.readouterr().err
    assert "one configuration, GRAND-l: without options of a model" in said
    assert "using the preset own-linear" in said
    quick = ["train", "mine.npz", "--quick", "--device", "cpu"]
    assert main([*quick, "--refit", "--no-baselines", "--quiet", "--out", "again"]) == 0
    assert stored("again")["chosen"] == ["first"]
    capsys.readouterr()
    refused(capsys, [*quick, "--budget", "9", "--out", "run"], "and this trains first alone")
    summary = json.loads(Path("quick/summary.json").read_text())
    assert summary["members"] == 1 and not Path("quick/plan.json").exists()
    assert Config.from_toml("quick/config.toml").hidden == 8


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--budget", "0"], "--budget must be a positive number of seconds, got 0"),
        (["--budget", "nan"], "--budget must be a positive number of seconds"),
        (["--split", "all"], "take another split than all"),
        (["--split", "given"], "carries no fixed split"),
        (["--class-weights", "equal"], "class_weights must be one of none, balanced"),
        (["--out", "mine.npz"], "mine.npz is a file"),
    ],
)
def test_refused(mine, capsys, arguments, says):
    out = [] if "--out" in arguments else ["--out", "run"]
    refused(capsys, ["train", "mine.npz", "--device", "cpu", *out, *arguments], says)


def test_a_score_that_rounds_to_zero_has_no_sign(mine, unpainted, capsys, monkeypatch):
    np.savez("mine.npz", **blocks() | {"y": blocks()["x"][:, 0]})
    monkeypatch.setattr("graphdiffusion.ensemble.choice.baselines", lambda *how: {"mean": -1e-6})
    assert main(["train", "mine.npz", "--no-refit", *CPU, "--out", "run"]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"mean +│ 0\.0000", shown) and "-0.0000" not in shown
    said = describe(spread([-1e-6], [0], 9, "test nodes", Regression))
    assert said == "0.0000 (9 test nodes)"


def test_warnings_are_said(mine, unpainted, capsys):
    """As the command says everything: a line that begins with its name."""
    assert main(["train", "mine.npz", "--budget", "0.001", "--quiet", *CPU, "--out", "run"]) == 0
    assert "grand: the time is spent: simple methods are not compared.\n" in capsys.readouterr().err


def test_edges_of_a_directed_graph_are_counted_once(mine, unpainted, capsys):
    """Before the training and after it alike."""
    quick = ["train", "mine.npz", "--quick", "--epochs", "2", "--device", "cpu", "--directed"]
    assert main([*quick, "--out", "run"]) == 0
    shown = capsys.readouterr()
    count = blocks()["edge_index"].shape[1]
    assert f" {count} edges" in shown.err and re.search(rf"edges +│ {count} ", shown.out)


def test_class_weights_need_classes(mine, capsys):
    np.savez("mine.npz", **blocks() | {"y": blocks()["x"][:, :2]})
    assert main(["train", "mine.npz", "--class-weights", "balanced", *CPU, "--out", "run"]) == 2
    assert "class weights need classes, and the task is regression" in capsys.readouterr().err
