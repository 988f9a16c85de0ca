"""``grand train --parts`` and torchrun: the run of one process, and sentences where it cannot be."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from test_cli_basics import write_graph
from torch.testing import assert_close

from graphdiffusion.cli import main
from graphdiffusion.training import load_run

OPTIONS = [
    "--preset", "none", "--split", "random", "--per-class", "4", "--hidden", "8", "--heads", "2",
    "--attention-dim", "8", "--time", "2", "--splits", "2", "--epochs", "8", "--device", "cpu", "--quiet",
    "--no-report",
]  # fmt: skip


def grand(*words: str, launcher: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *launcher, "-m", "graphdiffusion.cli", *words]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=180)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """A graph, and a run on it in one process."""
    place = tmp_path_factory.mktemp("parts")
    graph = str(write_graph(place / "toy"))
    assert main(["train", graph, *OPTIONS, "--out", str(place / "whole")]) == 0
    return graph, place / "whole"


def assert_same(found: Path, wanted: Path) -> None:
    a, b = load_run(found), load_run(wanted)
    for name, value in a.states.items():
        assert_close(value, b.states[name], rtol=1e-3, atol=1e-4)
    assert [r.best_epoch for r in a.results] == [r.best_epoch for r in b.results]
    assert [r.test for r in a.results] == pytest.approx([r.test for r in b.results], abs=0.02)
    kept = ("nodes", "edges_given", "edges_used", "self_loops", "split", "names", "parameters")
    assert {k: a.summary[k] for k in kept} == {k: b.summary[k] for k in kept}
    assert sorted(p.name for p in found.iterdir()) == sorted(p.name for p in wanted.iterdir())


def test_parts_on_this_machine(whole, tmp_path):
    graph, wanted = whole
    done = grand("train", graph, *OPTIONS, "--out", str(tmp_path / "two"), "--parts", "2")
    assert done.returncode == 0, done.stderr
    assert "2 parts" in done.stderr and "rows are exchanged" in done.stderr
    assert_same(tmp_path / "two", wanted)


def test_torchrun(whole, tmp_path):
    graph, wanted = whole
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    done = grand("train", graph, *OPTIONS, "--out", str(tmp_path / "two"), launcher=launcher)
    assert done.returncode == 0, done.stderr
    assert_same(tmp_path / "two", wanted)


def test_a_run_goes_on_with_other_parts(whole, tmp_path, monkeypatch):
    """Begun in one process, stopped at a checkpoint, and ended in two."""
    from graphdiffusion.training.trainer import Trainer

    graph, wanted = whole
    out = tmp_path / "broken"
    monkeypatch.setenv("GRAND_CHECKPOINT_SECONDS", "0")
    noted = Trainer._checkpoint

    def stopped(self, first, members, population, done):
        noted(self, first, members, population, done)
        if first == 1 and population.epochs_done == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr(Trainer, "_checkpoint", stopped)
    assert main(["train", graph, *OPTIONS, "--out", str(out)]) == 130
    assert (out / "checkpoint.safetensors").exists()
    done = grand("train", "--resume", "--out", str(out), "--parts", "2", "--quiet", "--no-report")
    assert done.returncode == 0, done.stderr
    assert_same(out, wanted)
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in lines if line["kind"] == "epoch"] == [*range(8), *range(8)]


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (["--parts", "2", "--engine", "spark"], "--engine must be one of local, ray, got 'spark'."),
        (["--parts", "100000"], "can be cut into 1 to"),
        (["--parts", "2", "--cut", "metus"], "no method 'metus' of cutting. Did you mean 'metis'?"),
        (["--parts", "2", "--equation", "blend", "--positions", "4"], "train it in one process"),
        (["--parts", "2", "--refit"], "--refit is for a training in one process"),
    ],
)  # fmt: skip
def test_sentences(whole, tmp_path, capsys, more, sentence):
    assert main(["train", whole[0], *OPTIONS, "--out", str(tmp_path / "none"), *more]) == 2
    assert sentence in capsys.readouterr().err
    assert not (tmp_path / "none" / "config.toml").exists()


def test_a_process_that_fails_is_named(whole, tmp_path, monkeypatch):
    """What goes wrong in a process comes out as a sentence."""
    plugin = tmp_path / "broken.py"
    plugin.write_text(
        "from graphdiffusion.nn import MODELS, MLP\n"
        "@MODELS.register('broken')\n"
        "class Broken(MLP):\n"
        "    takes_parts = True\n"
        "    def run(self, *args, **more):\n"
        "        raise RuntimeError('no such thing')\n"
    )
    words = [
        "--preset",
        "none",
        "--splits",
        "1",
        "--epochs",
        "2",
        "--device",
        "cpu",
        "--quiet",
        "--no-report",
    ]
    more = ["--plugin", str(plugin), "--model", "broken", "--out", str(tmp_path / "run"), "--parts", "2"]
    done = grand("train", whole[0], *words, *more)
    assert done.returncode == 2
    assert "a process has failed (RuntimeError: no such thing)." in done.stderr
