"""`grand train`, `evaluate` and `predict`: precedence of options, presets, folders, resuming."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import pytest
from rich.console import Console
from test_cli_basics import CLASSES, SMALL, toy, write_graph  # noqa: F401

import graphdiffusion.configs as configs
from graphdiffusion.cli import main
from graphdiffusion.errors import ConfigError
from graphdiffusion.training import Config, Population

ABOUT = (
    "grand: toy: 60 nodes, 120 edges, 5 features; 60 nodes with a label, 3 classes.\n"
    "grand: split random: 12 train, 33 validate, 15 test (2 splits).\n"
    "grand: one configuration, GRAND-l: without options of a model, several are compared.\n"
)


def without_classes(said: str) -> str:
    """What is said, less the line that counts classes: it depends on the seed."""
    return re.sub(r"grand: labels that train/validate/test in the first split: .*\n", "", said)


def stored(folder: str) -> Config:
    return Config.from_toml(Path(folder, "config.toml"))


def test_a_run_and_its_folder(toy, capsys):  # noqa: F811
    assert main(["train", "toy", *SMALL, "--inits", "2", "--seed", "3"]) == 0
    shown = capsys.readouterr()
    assert without_classes(shown.err) == ABOUT
    (folder,) = Path("runs").iterdir()
    assert re.fullmatch(r"toy-linear-\d{8}-\d{6}", folder.name)
    assert str(folder) in shown.out and "4 (splits: 2, initialisations of each: 2)" in shown.out
    assert "95% interval" in shown.out and "parameters" in shown.out and "120" in shown.out
    files = {
        "config.toml", "fingerprint.json", "log.txt", "metrics.jsonl", "model.safetensors", "summary.json",
    }  # fmt: skip
    assert {p.name for p in folder.iterdir()} == files
    assert stored(str(folder)).data == str(toy.resolve())
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert sum(line["kind"] == "epoch" for line in lines) == 4 * 3
    assert [line["number"] for line in lines if line["kind"] == "member"] == [0, 1, 2, 3]
    assert (folder / "log.txt").read_text().count(" member ") == 4
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["members"] == 4 and summary["nodes"] == 60


def test_one_model_is_no_mean(toy, capsys):  # noqa: F811
    assert main(["train", "toy", *SMALL, "--splits", "1", "--out", "run"]) == 0
    out = capsys.readouterr().out
    assert (
        "figures" in out and "balanced accuracy" in out and "1 models" not in out and "1 threads" not in out
    )


def test_precedence(toy, tmp_path, monkeypatch, capsys):  # noqa: F811
    presets = tmp_path / "presets"
    presets.mkdir()
    (presets / "cora-linear.toml").write_text("rate = 0.1\nhidden = 16\n")
    (presets / "cora-linear-paper.toml").write_text("time = 4.0\n")
    monkeypatch.setattr(configs, "FOLDER", presets)
    seen: list[Config] = []
    monkeypatch.setattr(
        "graphdiffusion.cli.train._train", lambda settled, *_: (settled.tell(), seen.append(settled.config))
    )
    Path("mine.toml").write_text("hidden = 24\ndecay = 0.5\n")

    assert main(["train", "--config", "mine.toml", "--decay", "0.25", "--terms", ""]) == 0
    assert "using the preset cora-linear" in capsys.readouterr().err
    config = seen[-1]
    assert (config.rate, config.hidden, config.decay, config.terms) == (0.1, 24, 0.25, "")
    assert (config.epochs, config.data) == (Config().epochs, "cora-embedded")

    assert main(["train", "cora", "--preset", "paper"]) == 0
    assert (seen[-1].time, seen[-1].rate) == (4.0, Config().rate)
    assert main(["train", "cora", "--preset", "none"]) == 0
    assert seen[-1] == Config(data="cora")
    assert main(["train", "toy", "--preset", "cora-linear"]) == 0
    assert (seen[-1].rate, seen[-1].data) == (0.1, str(toy.resolve()))
    capsys.readouterr()
    assert main(["train", "cora", "--variant", "nonlinear"]) == 0
    assert capsys.readouterr().err == "" and seen[-1].hidden == Config().hidden
    assert main(["train", "cora", "--hidden", str(Config().hidden)]) == 0
    assert seen[-1].hidden == Config().hidden  # given, though equal to the default

    (presets / "photo-linear.toml").write_text("seed = 1\n")
    with pytest.raises(ConfigError, match="photo-linear must not set seed"):
        configs.read_preset("photo-linear")
    with pytest.raises(ConfigError, match="did you mean 'cora-linear'"):
        configs.find_preset("photo", "linear", "cora-liner")


def test_presets_in_the_package():
    for name in configs.presets():
        assert Config.from_dict(configs.read_preset(name))


def test_given_split_is_the_default_of_an_own_graph(toy, capsys):  # noqa: F811
    path = toy / "labels.csv"
    parts = ("train", "val", "test", "")
    lines = path.read_text().splitlines()
    path.write_text("".join(f"{line},{parts[i % 4]}\n" for i, line in enumerate(lines)))
    at = SMALL.index("--per-class")
    auto = [*SMALL[:at], *SMALL[at + 2 :], "--split", "auto", "--splits", "0"]
    assert main(["train", "toy", *auto, "--out", "given"]) == 0
    given = json.loads(Path("given/summary.json").read_text())
    assert given["split"]["kind"] == "given" and given["members"] == 1
    assert [given["split"][part] for part in ("train", "val", "test")] == [15, 15, 15]
    assert main(["train", "toy", *SMALL, "--out", "random", "--split", "random"]) == 0
    random = json.loads(Path("random/summary.json").read_text())
    assert random["split"]["kind"] == "random" and random["members"] == 2
    write_graph(Path("cora"), 40)  # the name of a data set says nothing of a folder
    assert main(["train", "./cora", *auto, "--out", "folder"]) == 0
    folder = json.loads(Path("folder/summary.json").read_text())
    assert folder["nodes"] == 40 and folder["split"]["kind"] == "folds" and folder["members"] == 5
    assert folder["test"]["nodes"] == folder["val"]["nodes"] == 8


def test_all_variants_and_rewiring(toy, capsys, monkeypatch):  # noqa: F811
    monkeypatch.setenv("GRAND_CACHE", "cache")
    for more in (
        ["--variant", "nonlinear", "--solver", "rk4"],
        ["--variant", "nonlinear-rewired", "--rewire", "heat", "--rewire-k", "4"],
        ["--rewire", "ppr", "--label-rate", "0.5", "--sweep", "1.5", "--batch-norm", "--learn-time"],
    ):
        assert main(["train", "toy", *SMALL, "--splits", "1", "--out", "".join(more), *more]) == 0
    assert "after rewiring" in capsys.readouterr().out


def test_resume(toy, capsys, monkeypatch):  # noqa: F811
    monkeypatch.setenv("GRAND_CHECKPOINT_SECONDS", "0")
    arguments = ["train", "toy", *SMALL, "--epochs", "6"]
    assert main([*arguments, "--out", "whole"]) == 0
    step = Population.step

    def interrupted(self):
        if self.members[0].number == 1 and int(self.epoch) == 4:
            raise KeyboardInterrupt
        step(self)

    monkeypatch.setattr(Population, "step", interrupted)
    capsys.readouterr()
    assert main([*arguments, "--out", "broken"]) == 130
    again = "grand: interrupted; go on with: grand train --resume --out broken\n"
    assert without_classes(capsys.readouterr().err) == ABOUT + again
    assert not Path("broken/summary.json").exists()
    monkeypatch.setattr(Population, "step", step)
    assert main(["train", "--resume", "--out", "broken"]) == 0
    for file in ("model.safetensors", "metrics.jsonl", "config.toml"):
        assert Path("broken", file).read_bytes() == Path("whole", file).read_bytes(), file
    first = capsys.readouterr()

    # a finished run: nothing is computed, and the flags of its start are welcome
    Path("broken/chunks").mkdir()
    before = Path("broken/summary.json").read_bytes()
    welcome = [word for word in arguments if word not in ("--preset", "none")]
    assert main([*welcome, "--resume", "--out", "broken"]) == 0
    again = capsys.readouterr()
    assert again.err == "grand: this run is finished.\n"
    assert again.out == first.out
    assert Path("broken/summary.json").read_bytes() == before
    assert not Path("broken/chunks").exists()


def test_interrupted_before_anything(toy, capsys, monkeypatch):  # noqa: F811
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("graphdiffusion.cli.train.rehearse", interrupted)
    assert main(["train", "toy", *SMALL, "--out", "run"]) == 130
    assert capsys.readouterr().err.endswith("grand: interrupted.\n")
    assert not Path("run").exists()


def test_evaluate_and_predict(toy, capsys):  # noqa: F811
    assert main(["train", "toy", *SMALL, "--epochs", "8", "--out", "run"]) == 0
    results = json.loads(Path("run/summary.json").read_text())["results"]
    capsys.readouterr()
    assert main(["evaluate", "run"]) == 0
    out = capsys.readouterr().out
    for result in results:
        assert f"{100 * result['val']:.2f}" in out and f"{100 * result['test']:.2f}" in out
    assert "% %" not in " ".join(out.split())
    assert main(["evaluate", "run", "--member", "1"]) == 0
    assert "binomial error of 15 test nodes" in capsys.readouterr().out

    assert main(["predict", "run", "--out", "deep/own.csv"]) == 0
    assert "60 nodes with the mean of 2 members" in capsys.readouterr().err
    with open("deep/own.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["id", "class", *(f"p_{name}" for name in CLASSES)]
    assert [row["id"] for row in rows] == [f'node "{i}", {i % 7}' for i in range(60)]
    for row in rows:
        p = {name: float(row[f"p_{name}"]) for name in CLASSES}
        assert abs(sum(p.values()) - 1) < 1e-4 and row["class"] == max(p, key=p.get)

    write_graph(Path("unseen"), 30, seed=1, labels=False)
    chances = {}
    for member in ("all", "0", "1", "best"):
        assert main(["predict", "run", "--out", "one.csv", "--member", member]) == 0
        with open("one.csv", newline="") as file:
            chances[member] = [float(row["p_pear"]) for row in csv.DictReader(file)]
    best = max(results, key=lambda r: r["val"])["number"]
    assert f"60 nodes with member {best}" in capsys.readouterr().err
    assert chances["best"] == chances[str(best)] and chances["0"] != chances["1"]
    means = [(a + b) / 2 for a, b in zip(chances["0"], chances["1"], strict=True)]
    assert chances["all"] == pytest.approx(means, rel=2e-5)
    assert main(["predict", "run", "--data", "unseen", "--out", "unseen.csv", "--member", "0"]) == 0
    assert len(Path("unseen.csv").read_text().splitlines()) == 31
    assert main(["predict", "run", "--data", "toy", "--out", "same.csv"]) == 0
    assert Path("same.csv").read_bytes() == Path("deep/own.csv").read_bytes()


def test_progress_on_a_terminal(toy, monkeypatch, capsys):  # noqa: F811
    def terminal():
        return Console(force_terminal=True, width=120, stderr=True)

    monkeypatch.setattr("graphdiffusion.cli.tables.error_console", terminal)
    assert main(["train", "toy", *SMALL, "--out", "loud"]) == 0
    shown = capsys.readouterr().err
    for word in ("trained", "epoch", "loss", "val", "evaluations"):
        assert word in shown
    assert main(["train", "toy", *SMALL, "--out", "quiet", "--quiet"]) == 0
    assert without_classes(capsys.readouterr().err) == ABOUT


def test_folders_of_one_second(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("graphdiffusion.cli.train.time.strftime", lambda form: "now")
    from graphdiffusion.cli.train import _new_folder
    from graphdiffusion.training import Config

    for name in ("cora-embedded-linear-now", "cora-embedded-linear-now-2", "cora-embedded-linear-now-3"):
        folder = _new_folder(Config(), automatic=False)
        assert folder == Path("runs", name)
        folder.mkdir(parents=True)
