"""When memory runs out: smaller chunks, no finished one repeated, a sentence where one is too much."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from test_cli_basics import SMALL, write_graph

from graphdiffusion.cli import main
from graphdiffusion.nn import GraphDiffusion
from graphdiffusion.training import Population

CPU = "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried"
ERRORS = {
    "GPU": lambda: torch.OutOfMemoryError("CUDA out of memory."),
    "CPU": lambda: RuntimeError(CPU),
    "Python": MemoryError,
}
MANY = [*SMALL, "--splits", "5", "--inits", "2"]

step = Population.step


@pytest.fixture(scope="module")
def unhindered(tmp_path_factory) -> list[dict]:
    """The results of the members in chunks that fit."""
    place = tmp_path_factory.mktemp("unhindered")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        patch.setattr("graphdiffusion.training.trainer.chunk_size", lambda *_: 2)
        write_graph(Path("toy"))
        assert main(["train", "toy", *MANY, "--out", "run"]) == 0
        return results("run")


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_graph(Path("toy"))
    monkeypatch.setattr("graphdiffusion.training.trainer.chunk_size", lambda *_: 8)


def room_for(members: int, monkeypatch, error=ERRORS["GPU"]) -> list[int]:
    """Memory for so many members; returns the number of those in each step that is tried."""
    tried: list[int] = []

    def narrow(self):
        tried.append(len(self))
        if len(self) > members and self.epochs_done == 1:  # when there are metrics already
            raise error()
        step(self)

    monkeypatch.setattr(Population, "step", narrow)
    return tried


def numbers(folder: str) -> list[int]:
    lines = [json.loads(line) for line in Path(folder, "metrics.jsonl").read_text().splitlines()]
    return [line["number"] for line in lines if line["kind"] == "member"]


def results(folder: str) -> list[dict]:
    return json.loads(Path(folder, "summary.json").read_text())["results"]


@pytest.mark.parametrize("kind", ERRORS)
def test_a_chunk_is_halved(here, unhindered, monkeypatch, kind):
    tried = room_for(3, monkeypatch, ERRORS[kind])
    assert main(["train", "toy", *MANY, "--out", "run"]) == 0
    # 8 fail in their second epoch, then 4, then 2 are trained; the last two are not tried with more again
    assert tried == [8, 8, 4, 4, *[2] * 15]
    assert numbers("run") == list(range(10))
    lines = [json.loads(line) for line in Path("run/metrics.jsonl").read_text().splitlines()]
    epochs = [(line["chunk"], line["epoch"]) for line in lines if line["kind"] == "epoch"]
    assert epochs == [(chunk, epoch) for chunk in range(0, 10, 2) for epoch in range(3)]
    assert results("run") == unhindered


def test_finished_chunks_of_another_size_are_not_repeated(here, unhindered, monkeypatch):
    monkeypatch.setenv("GRAND_CHECKPOINT_SECONDS", "0")
    tried = room_for(4, monkeypatch)
    narrow = Population.step

    def interrupted(self):
        if self.members[0].number == 4 and self.epochs_done == 2:
            raise KeyboardInterrupt
        narrow(self)

    monkeypatch.setattr(Population, "step", interrupted)
    assert main(["train", "toy", *MANY, "--out", "run"]) == 130
    assert tried == [8, 8, 4, 4, 4, 4, 4] and len(list(Path("run/chunks").iterdir())) == 1
    # less room than before: 4 members are finished, the others begin again in twos
    trained: list[list[int]] = []

    def narrower(self):
        trained.append([m.number for m in self.members])
        if len(self) > 2:
            raise MemoryError
        step(self)

    monkeypatch.setattr(Population, "step", narrower)
    assert main(["train", "--resume", "--out", "run"]) == 0
    assert trained == [[4, 5, 6, 7], *[[4, 5]] * 3, *[[6, 7]] * 3, *[[8, 9]] * 3]
    assert numbers("run") == list(range(10))
    assert results("run") == unhindered


@pytest.mark.parametrize("kind", ERRORS)
def test_one_training_that_does_not_fit(here, monkeypatch, capsys, kind):
    room_for(0, monkeypatch, ERRORS[kind])
    assert main(["train", "toy", *SMALL, "--out", "run"]) == 2
    says = capsys.readouterr().err
    assert says.endswith(
        "grand: one training does not fit in memory: take a smaller hidden or attention_dim, fewer heads, "
        "or gradient checkpoint.\n"
    )


@pytest.mark.parametrize("options", [["--hidden", "1000000000"], ["--hidden", "2147483647"]])
def test_models_beyond_the_memory_are_refused_at_once(here, capsys, options):
    more = ["--attention-dim", "2147483646"] if options[1] == "2147483647" else []
    assert main(["train", "toy", *SMALL, *options, *more, "--out", "run"]) == 2
    says = capsys.readouterr().err
    assert "memory" in says and "take a smaller hidden" in says and says.count("\n") == 1
    assert not Path("run").exists()


def test_memory_that_runs_out_anywhere_is_a_sentence(here, monkeypatch, capsys):
    assert main(["train", "toy", *SMALL, "--out", "run"]) == 0
    capsys.readouterr()

    def full(*_, **__):
        raise RuntimeError(CPU)

    monkeypatch.setattr("graphdiffusion.training.runs.build_graph", full)
    assert main(["predict", "run"]) == 2
    assert capsys.readouterr().err.startswith("grand: there is not enough memory: take a smaller hidden")


def test_checkpoints_take_less():
    """The estimate follows √N states: with many steps many more members fit."""
    plain, less = (
        GraphDiffusion(8, 12.1, solver="euler", step_size=0.005, gradient=gradient).memory(100, 500)
        for gradient in ("backprop", "checkpoint")
    )
    assert 5 * less < plain
