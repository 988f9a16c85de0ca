"""Graphs of one's own: numbers and several labels from files to predictions, masks of every form."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn import metrics
from test_cli_bad_input import refused
from test_cli_basics import write_graph
from test_training_population import data  # noqa: F401

from graphdiffusion.cli import main
from graphdiffusion.cli.runs import _columns
from graphdiffusion.data import open_data
from graphdiffusion.errors import DataError
from graphdiffusion.report import plot_run
from graphdiffusion.training import (
    Config,
    Population,
    Trainer,
    load_problem,
    load_run,
    open_folder,
    protocol,
)
from graphdiffusion.training.problem import member_splits
from graphdiffusion.training.storage import read_tensors, write_tensors

TINY = [
    "--preset", "none", "--hidden", "8", "--heads", "2", "--attention-dim", "8", "--time", "2",
    "--epochs", "6", "--splits", "2", "--device", "cpu",
]  # fmt: skip
KINDS = ("regression", "multilabel")


def write_targets(folder: Path, kind: str, n: int = 60, seed: int = 0) -> Path:
    """The ring of arcs with two numbers for each node, or any of three labels; every tenth has none."""
    write_graph(folder, n, seed)
    rng = np.random.default_rng(seed)
    arcs, lines = np.arange(n) * 3 // n, []
    for i in range(n):
        name = f'"node ""{i}"", {i % 7}"'
        if kind == "regression":
            cells = f"{arcs[i] + 0.3 * rng.normal():.4f},{1000 - 50 * arcs[i] + rng.normal():.4f}"
        else:
            cells = "|".join(["red", "wet", "big"][: arcs[i] + 1])
        if i % 10 != 9:
            lines.append(f"{name},{cells}\n")
    header = "id,age,height\n" if kind == "regression" else "id,label\n"
    (folder / "labels.csv").write_text(header + "".join(lines))
    return folder


@pytest.fixture(params=KINDS)
def kind(request, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_targets(Path("toy"), request.param)
    return request.param


def rows(path: str) -> list[dict[str, str]]:
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def test_from_files_to_predictions(kind, capsys):
    assert main(["train", "toy", *TINY, "--label-rate", "0.3", "--out", "run"]) == 0
    metric, unit = {"regression": ("R²", ""), "multilabel": ("micro-F1", "%")}[kind]
    out = capsys.readouterr().out
    assert f"validation {metric}" in out and f"test {metric}" in out
    summary = json.loads(Path("run/summary.json").read_text())
    names = {"regression": ["age", "height"], "multilabel": ["big", "red", "wet"]}[kind]
    assert (summary["task"], summary["names"], summary["outputs"]) == (kind, names, len(names))
    for part in ("test", "val"):
        assert (summary[part]["metric"], summary[part]["unit"]) == (metric, unit)
    assert summary["split"]["kind"] == "folds" and summary["split"]["labelled"] == 54
    assert all(r["test"] <= 1 for r in summary["results"])

    assert main(["evaluate", "run"]) == 0
    out = capsys.readouterr().out
    for result in summary["results"]:
        shown = f"{100 * result['val']:.2f}" if unit else f"{result['val']:.4f}"
        assert shown in out
    assert f"validation {metric}" in out

    run, graph = load_run("run"), open_data("toy")
    assert (run.temperature == 1) == (kind == "regression")
    # the figures are those of the mean over members with a node in their test, from the stored models
    config, problem = run.config, run.problem
    masks = member_splits(config, problem.data, [r.member for r in run.results]).test
    answers = torch.stack([run.predict(member=k) for k in range(2)]).double()
    nodes = masks.any(0)
    weight = masks[:, nodes].double().unsqueeze(-1)
    mean = ((answers[:, nodes] * weight).sum(0) / weight.sum(0)).numpy()
    wanted = graph.y[nodes].double().numpy()
    if kind == "regression":
        assert summary["figures"]["r2"] == pytest.approx(metrics.r2_score(wanted, mean), rel=1e-4)
    else:
        own = metrics.f1_score(wanted, mean > 0.5, average="micro")
        assert summary["figures"]["micro_f1"] == pytest.approx(own)
    assert summary["figures"]["part"] == "test" and summary["figures"]["nodes"] == int(nodes.sum())

    assert main(["predict", "run", "--out", "own.csv"]) == 0
    assert "60 nodes with the mean of 2 members" in capsys.readouterr().err
    found = rows("own.csv")
    heads = names if kind == "regression" else ["labels", *(f"p_{name}" for name in names)]
    assert list(found[0]) == ["id", *heads] and [row["id"] for row in found] == graph.node_ids
    values = np.array([[float(row[head]) for head in heads[-len(names) :]] for row in found])
    np.testing.assert_allclose(values, answers.mean(0), rtol=1e-4)
    if kind == "multilabel":
        for row, chances in zip(found, values, strict=True):
            chosen = [name for name, p in zip(names, chances, strict=True) if p > 0.5]
            assert row["labels"] == ("|".join(chosen) or "|")

    write_graph(Path("unseen"), 30, seed=1, labels=False)
    assert main(["predict", "run", "--data", "unseen", "--out", "unseen.csv", "--member", "1"]) == 0
    other = np.array([[float(row[h]) for h in heads[-len(names) :]] for row in rows("unseen.csv")])
    np.testing.assert_allclose(other, run.predict(open_data("unseen"), 1), rtol=1e-4)
    assert plot_run("run").axes


def test_predicted_labels_can_be_read(tmp_path):
    """Also those of a node that has none, which is not an unlabelled one."""
    heads, cells = _columns(
        "multilabel", ["red", "wet"], torch.tensor([[0.9, 0.8], [0.1, 0.2], [0.1, 0.6]])
    )
    assert heads == ["labels", "p_red", "p_wet"] and [row[0] for row in cells] == ["red|wet", "|", "wet"]
    rows = [f"{node},{row[0]}\n" for node, row in zip("abc", cells, strict=True)]
    (tmp_path / "labels.csv").write_text("id,labels\n" + "".join(rows))
    (tmp_path / "edges.csv").write_text("a,b\nb,c\nc,d\n")
    found = open_data(tmp_path)
    assert found.task == "multilabel" and found.target_names == ["red", "wet"]
    assert found.y[:3].tolist() == [[1, 1], [0, 0], [0, 1]] and bool(found.y[3].isnan().all())


def test_numbers_far_from_zero(tmp_path, monkeypatch):
    """A time in seconds since 1970 is learnt as well as the same time since the first of them."""
    monkeypatch.chdir(tmp_path)
    seconds = [8 * (i // 20) + i % 5 / 4 for i in range(60)]  # exact with and without 1.6e9
    answers = []
    for name, start in (("near", 0.0), ("far", 1.6e9)):
        write_graph(Path(name))
        lines = [f'"node ""{i}"", {i % 7}",{start + own!r}\n' for i, own in enumerate(seconds)]
        Path(name, "labels.csv").write_text("id,time\n" + "".join(lines))
        assert main(["train", name, *TINY, "--epochs", "40", "--rate", "0.05", "--out", f"run-{name}"]) == 0
        run = load_run(f"run-{name}")
        answers.append(run.predict())
        assert answers[-1].dtype == torch.float64
        own = [metrics.r2_score(start + np.array(seconds), run.predict(member=k)[:, 0]) for k in range(2)]
        assert min(own) > 0.3  # of one value for all nodes it is at most 0
    np.testing.assert_allclose(answers[1] - 1.6e9, answers[0], atol=1e-3)
    figures = [json.loads(Path(f"run-{n}/summary.json").read_text())["figures"] for n in ("near", "far")]
    for name in ("r2", "rmse", "mae"):
        assert figures[1][name] == pytest.approx(figures[0][name], rel=1e-3)
    assert main(["predict", "run-far", "--member", "1", "--out", "p.csv"]) == 0
    assert [float(row["time"]) for row in rows("p.csv")] == run.predict(member=1)[:, 0].tolist()


def test_resumed_runs_have_the_same_bytes(kind, monkeypatch):
    """Stopped in its first and in its second chunk; statistics of the task are among the bytes."""
    monkeypatch.setenv("GRAND_CHECKPOINT_SECONDS", "0")
    arguments = ["train", "toy", *TINY, "--epochs", "4", "--scaling", "columns"]
    assert main([*arguments, "--out", "whole"]) == 0
    step = Population.step
    for member in (0, 1):
        out = f"broken{member}"

        def interrupted(self, member=member):
            if self.members[0].number == member and self.epochs_done == 2:
                raise KeyboardInterrupt
            return step(self)

        monkeypatch.setattr(Population, "step", interrupted)
        assert main([*arguments, "--out", out]) == 130
        monkeypatch.setattr(Population, "step", step)
        assert main(["train", "--resume", "--out", out]) == 0
        for file in ("model.safetensors", "metrics.jsonl"):
            assert Path(out, file).read_bytes() == Path("whole", file).read_bytes(), file
        one, two = (json.loads(Path(p, "summary.json").read_text()) for p in (out, "whole"))
        for summary in (one, two):
            del summary["seconds"], summary["checksum"]
        assert one == two


def test_damage_of_the_statistics(tmp_path):
    graph = write_targets(tmp_path / "toy", "regression")
    config = Config(data=str(graph), hidden=4, heads=1, attention_dim=4, epochs=2, splits=1, device="cpu")
    problem = load_problem(config)
    with open_folder(tmp_path / "run", config, problem.data) as folder:
        Trainer(problem, config, protocol(config, problem.data), folder).run()
    path = tmp_path / "run" / "model.safetensors"
    kept = path.read_bytes()
    assert read_tensors(path, "model")[0]["task.shift"].shape == (1, 2)
    for change, says in (
        (lambda t: t.pop("task.scale"), r"lacks the tensor task\.scale"),
        (
            lambda t: t.update({"task.shift": torch.zeros(1, 3, dtype=torch.float64)}),
            r"tensor task\.shift .* shape \(1, 3\)",
        ),
        (
            lambda t: t.update({"task.shift": t["task.shift"].float()}),
            r"tensor task\.shift .* is float32 of shape \(1, 2\), where the model has float64",
        ),
        (lambda t: t["task.shift"].fill_(torch.inf), r"task\.shift .* holds NaN or infinity"),
    ):
        tensors, note = read_tensors(path, "model")
        change(tensors)
        write_tensors(path, "model", tensors, note)
        with pytest.raises(DataError, match=says):
            load_run(tmp_path / "run")
        path.write_bytes(kept)


SMALL = Config(hidden=8, heads=2, attention_dim=8, time=2.0, epochs=5, device="cpu")


@pytest.mark.parametrize("more", [{}, {"patience": 1}, {"sweep": 2.0, "sweep_points": 3}])
def test_without_validation_the_last_epoch_counts(data, more):  # noqa: F811
    config = SMALL.replace(split="all", inits=2, rate=0.5, **more)  # so fast that it gets worse again
    problem = load_problem(config, data)
    members = protocol(config, data)
    assert len(members) == 2
    population = Population(problem, config, members)
    assert bool(population.train.all()) and not bool(population.val.any() | population.test.any())
    for _ in range(5):
        population.step()
    state, val, test = population.final()
    for name, value in population.stack.tensors.items():
        assert torch.equal(state[name], value), name
    assert bool((val.isnan() & test.isnan()).all()) and population.best_fraction.tolist() == [1, 1]
    for result in Trainer(problem, config, members).run():
        assert (result.val, result.test, result.best_epoch, result.epochs) == (None, None, 4, 5)


def test_a_run_on_all_labels(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_graph(Path("toy"))
    assert main(["train", "toy", *TINY, "--split", "all", "--splits", "0", "--out", "run"]) == 0
    summary = json.loads(Path("run/summary.json").read_text())
    assert summary["test"] is summary["val"] is None and summary["figures"] == {}
    assert summary["split"]["train"] == 60
    for command in (["evaluate", "run"], ["predict", "run"]):
        assert main(command) == 0
    assert load_run("run").temperature == 1 and plot_run("run").axes
    capsys.readouterr()
    refused(capsys, ["train", "toy", "--split", "all", "--out", "choice"], "take another split than all")


def masked(data, **masks):  # noqa: F811
    own = data.clone()
    for name, places in masks.items():
        own[f"{name}_mask"] = places
    return own


def test_masks_without_validation_or_test(data):  # noqa: F811
    """A fifth of the training nodes validates; a part that is not given is empty."""
    places = torch.arange(60)
    for masks in (
        {"train": places < 40},
        {"train": places < 40, "test": places >= 50},
        {"train": places < 30, "val": (places >= 30) & (places < 40)},
    ):
        own = masked(data, **masks)
        problem = load_problem(SMALL, own)
        members = protocol(SMALL, own)
        assert len(members) == 1
        split = member_splits(SMALL, own, members)
        assert torch.equal((split.train | split.val)[0], places < 40)
        assert torch.equal(split.test[0], masks.get("test", places < 0))
        if "val" in masks:
            assert torch.equal(split.val[0], masks["val"])
        else:
            counts = torch.bincount(own.y[split.val[0]], minlength=3)
            assert int(counts.sum()) == 8 and int(counts.max() - counts.min()) <= 1
        (result,) = Trainer(problem, SMALL, members).run()
        assert 0 <= result.val <= 1 and (result.test is None) == ("test" not in masks)


def test_several_columns_of_masks(data):  # noqa: F811
    generator = torch.Generator().manual_seed(0)
    part = torch.randint(4, (60, 3), generator=generator)
    own = masked(data, train=part < 2, val=part == 2, test=part == 3)
    members = protocol(SMALL.replace(inits=2), own)
    assert [m.split for m in members] == [0, 0, 1, 1, 2, 2]
    split = member_splits(SMALL, own, members[::2])
    assert torch.equal(split.train, (part < 2).T) and torch.equal(split.test, (part == 3).T)
    assert len(protocol(SMALL.replace(splits=2), own)) == 2
    later = SMALL.replace(seed=5)  # columns are counted from the first, whatever the seed
    assert torch.equal(member_splits(later, own, protocol(later, own)).val, (part == 2).T)
    with pytest.raises(DataError, match="splits is 4, but the data has 3"):
        protocol(SMALL.replace(splits=4), own)
    shared = masked(data, train=part < 2, val=part == 2, test=torch.zeros(60, dtype=torch.bool))
    assert not bool(member_splits(SMALL, shared, protocol(SMALL, shared)).test.any())
