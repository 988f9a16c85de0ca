"""The files of a run: damage, edits and changed data are noticed, named, and answered with a way out."""

from __future__ import annotations

import csv
import json
import shutil
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from run_templates import Templates
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from test_cli_bad_input import refused
from test_cli_basics import SMALL, write_graph

from graphdiffusion.cli import main
from graphdiffusion.data import open_data
from graphdiffusion.training import Config, Population, load_problem, load_run

ALL = (["evaluate", "run"], ["predict", "run"], ["train", "--resume", "--out", "run"])


@pytest.fixture(scope="module")
def templates(tmp_path_factory) -> Templates:
    return Templates(tmp_path_factory.mktemp("runs"))


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_graph(Path("toy"))
    return tmp_path


@pytest.fixture
def run(templates, monkeypatch):
    """A finished run."""
    place = templates.restore("finished")
    monkeypatch.chdir(place)
    return place


@pytest.fixture
def broken(templates, monkeypatch):
    """A run that was interrupted in its second chunk, with a checkpoint."""
    place = templates.restore("stopped")
    monkeypatch.chdir(place)
    return place


@pytest.fixture
def whole(templates) -> Path:
    """The folder of the run that was not interrupted."""
    return templates.kept / "finished" / "run"


def resave(path: str, change) -> None:
    """Change tensors of a file, with the notes as they are."""
    with safe_open(path, "pt") as file:
        notes = file.metadata()
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path, notes)


# where raw files lie


def test_root_is_no_option(run, capsys):
    says = "root is no option of a configuration, which must not depend on one machine: give --root"
    Path("mine.toml").write_text('root = "/elsewhere"\n')
    refused(capsys, ["train", "toy", "--config", "mine.toml", "--out", "new"], says)
    refused(capsys, ["tune", "toy", "--config", "mine.toml"], says)
    path = Path("run/config.toml")
    path.write_text(path.read_text() + 'root = "/elsewhere"\n')
    for command in ALL:
        refused(capsys, command, says)
    assert "root" not in Config().to_dict()


def test_root_is_an_argument(here, capsys, monkeypatch):
    """Each command hands it to the reader of the data; nothing of it is kept in the folder."""
    seen: list[object] = []

    def opened(name, root=None, lcc=True, directed=False, task="auto"):
        seen.append(root)
        return open_data("toy")

    monkeypatch.setattr("graphdiffusion.training.problem.open_data", opened)
    assert main(["train", "cora", *SMALL, "--out", "run", "--root", "here"]) == 0
    assert main(["evaluate", "run", "--root", "there"]) == 0
    assert main(["predict", "run", "--root", "elsewhere"]) == 0
    assert main(["predict", "run", "--data", "cora", "--root", "other"]) == 0
    assert seen[:3] == ["here", "there", "elsewhere"] and set(seen[3:]) == {"other"}
    for path in Path("run").iterdir():
        assert b"here" not in path.read_bytes(), path
    load_problem(Config(), root="place")
    assert seen[-1] == "place" and load_run("run", root="last").root == "last"


def test_data_that_is_not_there(here, capsys, monkeypatch, tmp_path_factory):
    monkeypatch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
    monkeypatch.setattr("urllib.request.urlopen", _no_network)
    with monkeypatch.context() as patch:
        patch.setattr("graphdiffusion.training.problem.open_data", lambda *_, **__: open_data("toy"))
        assert main(["train", "citeseer", *SMALL, "--out", "named"]) == 0
        assert main(["train", "toy", *SMALL, "--out", "own"]) == 0
    capsys.readouterr()
    for command in (["evaluate", "named"], ["predict", "named"]):
        refused(capsys, command, "as root (--root) or in the environment variable GRAND_DATA")
    Path("toy").rename("moved")
    for command in (["evaluate", "own"], ["predict", "own"]):
        refused(capsys, command, "the graph of the run is no longer at")
    assert main(["predict", "own", "--data", "moved"]) == 0
    capsys.readouterr()
    Path("own/summary.json").unlink()
    refused(capsys, ["train", "--resume", "--out", "own"], "the graph of the run is no longer at")
    Path("named/summary.json").unlink()
    refused(capsys, ["train", "--resume", "--out", "named"], "--root")


def _no_network(*_, **__):
    raise OSError("no network")


# model files


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t.pop("decoder.weight"),
        lambda t: t.update(more=torch.zeros(2)),
        lambda t: t.update({"decoder.weight": t["decoder.weight"][:, :2].contiguous()}),
        lambda t: t.update({"decoder.weight": t["decoder.weight"].double()}),
        lambda t: t["decoder.weight"].mul_(torch.nan),
        lambda t: t["decoder.weight"].add_(1),
    ],
    ids=["missing", "extra", "shape", "dtype", "NaN", "changed"],
)
def test_models_are_complete_and_unchanged(run, capsys, change):
    resave("run/model.safetensors", change)
    for command in ALL:
        refused(capsys, command, "run/model.safetensors was changed or damaged after it was written")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda t: t.pop("decoder.weight"), "run/model.safetensors lacks the tensor decoder.weight"),
        (lambda t: t.update(more=torch.zeros(2)), "holds a tensor more, which the model does not have"),
        (
            lambda t: t.update({"decoder.weight": t["decoder.weight"][:, :2]}),
            "decoder.weight in run/model.safetensors is float32 of shape (2, 2, 8), where the model has "
            "float32 of shape (2, 3, 8)",
        ),
        (
            lambda t: t.update({"decoder.bias": t["decoder.bias"].double()}),
            "decoder.bias in run/model.safetensors is float64 of shape (2, 3)",
        ),
        (
            lambda t: t["decoder.weight"].mul_(torch.nan),
            "decoder.weight in run/model.safetensors holds NaN",
        ),
    ],
    ids=["missing", "extra", "shape", "dtype", "NaN"],
)
def test_models_fit_their_configuration(run, capsys, change, says):
    """Even where the checksum is right."""
    from graphdiffusion.training.storage import read_tensors, write_tensors

    path = Path("run/model.safetensors")
    tensors, note = read_tensors(path, "model")
    change(tensors)
    write_tensors(path, "model", tensors, note)
    for command in ALL:
        refused(capsys, command, says)


def test_a_finished_run_without_its_model(run, capsys):
    Path("run/model.safetensors").unlink()
    for command in ALL:
        refused(capsys, command, "run/model.safetensors is missing: put the original back, or train again")
    assert main(["train", "--config", "run/config.toml", "--out", "new"]) == 0  # the way out in the message


@pytest.mark.parametrize("content", [b"{}", b"[1, 2]", b'{"test": {}}', b"\xff"])
def test_foreign_summaries(run, capsys, content):
    Path("run/summary.json").write_bytes(content)
    for command in ALL:
        refused(capsys, command, "run/summary.json")


def test_files_of_another_run(run, capsys):
    assert main(["train", "toy", *SMALL, "--seed", "5", "--out", "other"]) == 0
    capsys.readouterr()
    for file in ("model.safetensors", "summary.json"):
        shutil.copytree("run", "mixed")
        shutil.copy(Path("other", file), Path("mixed", file))
        refused(capsys, ["evaluate", "mixed"], f"mixed/{file} belongs to another run")
        shutil.rmtree("mixed")


def test_runs_of_version_0_1(run, capsys):
    Path("run/fingerprint.json").unlink()
    for command in ALL:
        refused(capsys, command, "run has no fingerprint.json")


def test_weights_are_finite_though_the_training_diverged(here, capsys):
    for more in ([], ["--batch-norm"], ["--mlp", "--optimiser", "sgd"]):
        out = "run" + "".join(more)
        assert main(["train", "toy", *SMALL, "--rate", "1e30", *more, "--out", out]) == 0
        lines = Path(out, "metrics.jsonl").read_text().splitlines()
        epochs = [json.loads(line, parse_constant=pytest.fail) for line in lines]
        assert any(line.get("loss", 0) is None for line in epochs)  # it was not finite
        run = load_run(out)
        assert all(bool(torch.isfinite(value).all()) for value in run.states.values())
        for result in run.results:
            assert result.best_epoch == -1 and run.evaluate(result.number) == (result.val, result.test)


# what a run began with


def _labels() -> None:
    path = Path("toy/labels.csv")
    path.write_text(path.read_text().replace("plum", "pear", 1))


def _feature() -> None:
    path = Path("toy/features.csv")
    lines = path.read_text().splitlines()
    lines[3] = lines[3].rpartition(",")[0] + ",0.5"
    path.write_text("\n".join(lines) + "\n")


def _edge() -> None:
    path = Path("toy/edges.csv")
    lines = path.read_text().splitlines()
    path.write_text("\n".join(lines[1:]) + "\n")


def _weights() -> None:
    path = Path("toy/edges.csv")
    path.write_text("".join(f"{line},2\n" for line in path.read_text().splitlines()))


def _ids() -> None:
    for path in Path("toy").iterdir():
        path.write_text(path.read_text().replace('node ""3""', 'node ""three""'))


def _splits() -> None:
    path = Path("toy/labels.csv")
    parts = ("train", "val", "test")
    lines = path.read_text().splitlines()
    path.write_text("".join(f"{line},{parts[k % 3]}\n" for k, line in enumerate(lines)))


def _names() -> None:
    path = Path("toy/labels.csv")
    path.write_text(path.read_text().replace("plum", "prune"))


CHANGES = {
    "the labels of toy have changed since the run began": _labels,
    "the features of toy have changed": _feature,
    "the edges (240 then, 238 now) of toy have changed": _edge,
    "the edge weights (none then, 240 now) of toy have changed": _weights,
    "the node ids of toy have changed": _ids,
    "the split masks (none then, 60 now) of toy have changed": _splits,
    "the class names of toy have changed": _names,
}


@pytest.mark.parametrize("says", CHANGES)
def test_changed_data_of_a_finished_run(run, capsys, says):
    CHANGES[says]()
    refused(capsys, ["evaluate", "run"], says)
    refused(capsys, ["predict", "run"], says)
    assert main(["predict", "run", "--data", "toy", "--out", "p.csv"]) == 0  # named, it is another graph


@pytest.mark.parametrize("says", CHANGES)
def test_changed_data_of_an_unfinished_run(broken, capsys, says):
    CHANGES[says]()
    refused(capsys, ["train", "--resume", "--out", "run"], says)


@pytest.mark.parametrize(("option", "edit"), [("hidden", "hidden = 9"), ("seed", "seed = 3"), ("relu", "")])
def test_edited_options(run, capsys, option, edit):
    path = Path("run/config.toml")
    lines = path.read_text().splitlines()
    (before,) = (line for line in lines if line.startswith(f"{option} ="))
    path.write_text("\n".join(edit if line == before else line for line in lines) + "\n")
    if option == "relu":  # left out, it has its default, which is what it was
        assert main(["evaluate", "run"]) == 0
        return
    old = before.partition(" = ")[2]
    for command in ALL:
        refused(capsys, command, f"run/config.toml says {edit}, but the run began with {old}")


def test_edited_options_before_resuming(broken, capsys):
    path = Path("run/config.toml")
    path.write_text(path.read_text().replace("dropout = 0.05", "dropout = 0.25"))
    refused(
        capsys, ["train", "--resume", "--out", "run"], "says dropout = 0.25, but the run began with 0.05"
    )


# checkpoints and metrics


def test_a_damaged_checkpoint(broken, whole, capsys):
    path = Path("run/checkpoint.safetensors")
    good = path.read_bytes()
    way_out = "delete it, and the run goes on from its last finished chunk"
    save_file(load_file(path), path)  # without a note
    refused(capsys, ["train", "--resume", "--out", "run"], way_out)
    path.write_bytes(good)
    resave(str(path), lambda t: t.update({"now/decoder.bias": torch.zeros(1, 9)}))
    refused(capsys, ["train", "--resume", "--out", "run"], way_out)
    path.write_bytes(good[:-9])
    refused(capsys, ["train", "--resume", "--out", "run"], way_out)
    path.unlink()
    assert main(["train", "--resume", "--out", "run"]) == 0
    for file in ("model.safetensors", "metrics.jsonl"):
        assert Path("run", file).read_bytes() == (whole / file).read_bytes(), file


def test_a_checkpoint_of_other_shapes(broken, capsys):
    """Even where the checksum is right."""
    from graphdiffusion.training.storage import read_tensors, write_tensors

    path = Path("run/checkpoint.safetensors")
    tensors, note = read_tensors(path, "checkpoint")
    for name, value, says in (
        ("now/decoder.bias", torch.zeros(1, 9), "is float32 of shape (1, 9), where the model has"),
        ("more", torch.zeros(1), "holds a tensor more"),
        ("best/decoder.bias", torch.full((1, 3), torch.nan), "holds NaN or infinity"),
    ):
        write_tensors(path, "checkpoint", tensors | {name: value}, note)
        refused(capsys, ["train", "--resume", "--out", "run"], says)
    for key in ("first", "members", "left", "done", "metrics", "seconds"):
        write_tensors(path, "checkpoint", tensors, {k: v for k, v in note.items() if k != key})
        refused(capsys, ["train", "--resume", "--out", "run"], "was not written by a training")


def test_a_chunk_that_is_missing(broken, whole):
    """What follows a gap is trained again."""
    Path("run/chunks/00000.safetensors").unlink()
    assert main(["train", "--resume", "--out", "run"]) == 0
    for file in ("model.safetensors", "metrics.jsonl"):
        assert Path("run", file).read_bytes() == (whole / file).read_bytes(), file


@pytest.mark.parametrize("line", [b"{}\n", b'{"kind": "epoch"}\n', b"[1]\n", b"noise\n", b"\xff\n", b"1\n"])
def test_foreign_lines_of_metrics(broken, whole, capsys, line):
    path = Path("run/metrics.jsonl")
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([lines[0], line, *lines[1:]]))
    refused(capsys, ["train", "--resume", "--out", "run"], "line 2 of run/metrics.jsonl was changed")
    path.write_bytes(b"".join([*lines, line]))  # after the checkpoint, lines are dropped anyway
    assert main(["train", "--resume", "--out", "run"]) == 0
    assert path.read_bytes() == (whole / "metrics.jsonl").read_bytes()


def test_seconds_are_those_of_all_attempts(here, monkeypatch, capsys):
    step = Population.step

    def slow(self):
        time.sleep(0.1)
        if self.members[0].number == 1 and self.epochs_done == 2:
            raise KeyboardInterrupt
        step(self)

    with monkeypatch.context() as patch:
        patch.setenv("GRAND_CHECKPOINT_SECONDS", "0")
        patch.setattr(Population, "step", slow)
        assert main(["train", "toy", *SMALL, "--out", "run"]) == 130
    assert main(["train", "--resume", "--out", "run"]) == 0
    assert seconds_of("run") > 5 * 0.1


def seconds_of(folder: str) -> float:
    return json.loads(Path(folder, "summary.json").read_text())["seconds"]


def test_seconds_of_one_attempt_are_counted_once(here, monkeypatch):
    """Chunks and checkpoints of this very attempt are no earlier ones."""
    step, clock = Population.step, [0.0]

    def counted(self):
        clock[0] += 1
        return step(self)

    monkeypatch.setenv("GRAND_CHECKPOINT_SECONDS", "0")
    monkeypatch.setattr(Population, "step", counted)
    monkeypatch.setattr("graphdiffusion.training.chunks.time", SimpleNamespace(monotonic=lambda: clock[0]))
    assert main(["train", "toy", *SMALL, "--out", "run"]) == 0
    assert seconds_of("run") == clock[0] > 0


# what goes out


def test_cells_of_predictions_are_no_formulas(here):
    names = ["=1+1", "+a", "-b", "@c", "\tx", "plain", "-5", "+1.5e3", "=", "a=b"]
    n = 60
    rng = np.random.default_rng(0)
    ids = [names[i] if i < len(names) else f"n{i}" for i in range(n)]
    kinds = ["=cmd|' /C calc'!A0", "-plum", "7"]
    Path("bad").mkdir()
    rows = [["source", "target"], *([ids[i], ids[(i + 1) % n]] for i in range(n))]
    features = [["id", "f"], *([ids[i], f"{rng.normal():.3f}"] for i in range(n))]
    labels = [["id", "label"], *([ids[i], kinds[i % 3]] for i in range(n))]
    for name, table in (("edges", rows), ("features", features), ("labels", labels)):
        with open(f"bad/{name}.csv", "w", newline="") as file:
            csv.writer(file).writerows(table)
    # a name with | would be several labels
    assert main(["train", "bad", *SMALL, "--task", "classification", "--out", "run"]) == 0
    assert main(["predict", "run", "--out", "p.csv"]) == 0
    with open("p.csv", newline="") as file:
        found = list(csv.DictReader(file))
    expected = ["'=1+1", "'+a", "'-b", "'@c", "x", "plain", "-5", "+1.5e3", "'=", "a=b"]
    assert [row["id"] for row in found[: len(names)]] == expected
    assert {row["class"] for row in found} <= {"'=cmd|' /C calc'!A0", "'-plum", "7"}
    assert all(float(row["p_7"]) >= 0 for row in found)
