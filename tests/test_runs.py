"""A run read back: accuracies equal to those of its summary, predictions, label features."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from test_cli_basics import write_graph

from graphdiffusion.data import open_data
from graphdiffusion.errors import ArgumentError, DataError
from graphdiffusion.training import Config, Member, Trainer, load_problem, load_run, open_folder, protocol

SMALL = {
    "hidden": 8, "heads": 2, "attention_dim": 8, "time": 2.0, "epochs": 6, "per_class": 4,
    "split": "random", "splits": 3,
}  # fmt: skip


def trained(folder: Path, members: list[Member] | None = None, **options) -> Path:
    graph = write_graph(folder / "toy")
    config = Config(data=str(graph), device="cpu", **{**SMALL, **options})
    problem = load_problem(config)
    with open_folder(folder / "run", config, problem.data) as run:
        Trainer(problem, config, members or protocol(config, problem.data), run).run()
    return folder / "run"


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"label_rate": 0.5, "batch_norm": True},
        {"variant": "nonlinear", "solver": "rk4"},
        {"mlp": True, "augment": 2, "inits": 2, "splits": 2},
    ],
)
def test_evaluate_gives_what_the_training_gave(tmp_path, options):
    run = load_run(trained(tmp_path, **options))
    assert len(run.results) == len(run.summary["results"])
    for result in run.results:
        assert run.evaluate(result.number) == (result.val, result.test)


def test_evaluate_after_a_sweep(tmp_path):
    run = load_run(trained(tmp_path, sweep=2.0, sweep_points=4, learn_time=True))
    assert any(result.time != 2.0 for result in run.results)
    for result in run.results:
        assert run.evaluate(result.number) == pytest.approx((result.val, result.test))


def test_members_with_their_own_options(tmp_path):
    members = [Member(0, 0, 0, {"time": 1.0}), Member(1, 0, 0, {"time": 3.0, "dropout": 0.4})]
    run = load_run(trained(tmp_path, members))
    assert [float(run.model(k).diffusion.time) for k in (0, 1)] == [1.0, 3.0]
    assert run.evaluate(1) == (run.results[1].val, run.results[1].test)


def test_predict(tmp_path):
    run = load_run(trained(tmp_path))
    assert run.names == ["apple", "pear", "plum"]
    assert run.best == max(run.results, key=lambda r: (r.val, -r.number)).number
    mean = run.predict()
    assert mean.shape == (60, 3) and torch.allclose(mean.sum(1), torch.ones(60))
    each = [run.predict(member=k) for k in range(3)]
    assert not torch.equal(each[0], each[1])
    torch.testing.assert_close(mean, torch.stack(each).mean(0))
    assert torch.equal(mean, run.predict(open_data(tmp_path / "toy")))
    assert torch.equal(each[2], run.predict(open_data(tmp_path / "toy"), 2))
    unseen = open_data(write_graph(tmp_path / "unseen", 30, labels=False))
    assert run.predict(unseen).shape == (30, 3)
    with pytest.raises(ArgumentError, match="members 0 to 2, and no member 7"):
        run.predict(member=7)
    with pytest.raises(DataError, match="take 5 features a node, but wide has 6"):
        run.predict(open_data(write_graph(tmp_path / "wide", 30, features=6)))
    with pytest.raises(DataError, match=r"expected a torch_geometric.data.Data, got str"):
        run.predict("toy")


def test_label_features(tmp_path):
    run = load_run(trained(tmp_path, label_rate=0.5))
    assert run.model().label_encoder is not None
    # on its own graph the model sees the labels of its training nodes, elsewhere none
    assert not torch.equal(run.predict(), run.predict(open_data(tmp_path / "toy")))


def test_changed_data(tmp_path):
    folder = trained(tmp_path)
    labels = (tmp_path / "toy" / "labels.csv").read_text()
    (tmp_path / "toy" / "labels.csv").write_text(labels.replace("apple", "pear"))
    run = load_run(folder)
    with pytest.raises(DataError, match=r"the labels and class names .* of toy have changed since the run"):
        run.evaluate(0)
    with pytest.raises(DataError, match="have changed since the run"):
        run.predict()
    assert run.predict(open_data(tmp_path / "toy")).shape == (60, 3)


def test_no_run(tmp_path):
    with pytest.raises(DataError, match="holds no run"):
        load_run(tmp_path)
    folder = trained(tmp_path)
    (folder / "summary.json").unlink()
    with pytest.raises(DataError, match="is unfinished: go on with grand train --resume"):
        load_run(folder)
