"""Pictures: made from files or from the library, without a display, the same bytes each time."""

from __future__ import annotations

import math
import struct
from pathlib import Path

import pytest

from graphdiffusion.data import load_data
from graphdiffusion.errors import DataError
from graphdiffusion.report import plot_diffusion, plot_run, plot_stability, step_errors, style
from graphdiffusion.training import Config, Result, load_problem
from graphdiffusion.training.fingerprint import Fingerprint
from graphdiffusion.training.journal import Journal
from graphdiffusion.training.storage import write_json
from graphdiffusion.training.summary import summarise


def size(path: Path) -> tuple[int, int]:
    content = path.read_bytes()
    assert content.startswith(b"\x89PNG")
    return struct.unpack(">II", content[16:24])


def write_run(folder: Path, chunks: int, finished: bool) -> None:
    folder.mkdir()
    journal = Journal(folder / "metrics.jsonl")
    lines = [
        {
            "kind": "epoch",
            "chunk": c,
            "epoch": e,
            "loss": 2 / (e + c + 1) if e < 9 else math.nan,
            "val": 0.5,
            "evaluations": 20 + e,
        }
        for c in range(chunks)
        for e in range(10 - c)
    ]
    for line in lines:
        journal.append(line)
    with open(journal.path, "a") as file:
        file.write('{"kind": "ep')
    if finished:
        data = load_data("cora-embedded")
        config = Config(splits=chunks, inits=1)
        fingerprint = Fingerprint.of(config, data)
        fingerprint.write(folder)
        results = [Result(k, k, k, 0.8, 0.8 + 0.01 * k, 5, 10, 2.0, {}) for k in range(chunks)]
        summary = summarise(load_problem(config, data), config, results, 1.5)
        about = {"run": fingerprint.run, "metrics": journal.last}
        write_json(folder / "summary.json", "summary", about | summary | {"figures": {}})


@pytest.mark.parametrize("chunks", [1, 3])
@pytest.mark.parametrize("finished", [True, False])
def test_plot_run(tmp_path, chunks, finished):
    folder = tmp_path / "run"
    write_run(folder, chunks, finished)
    path = style.save(plot_run(folder), tmp_path / "curves.png")
    assert size(path) == (1800 if finished else 1350, 465)
    before = path.read_bytes()
    assert style.save(plot_run(str(folder)), path).read_bytes() == before


def test_damaged_metrics(tmp_path):
    write_run(tmp_path / "run", 2, True)
    path = tmp_path / "run" / "metrics.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    for content, says in (
        ([*lines[:5], b'{"epoch": 3}\n', *lines[5:]], "line 6 of .*metrics.jsonl was changed or damaged"),
        (lines[:5] + lines[6:], "line 6 of .*metrics.jsonl was changed or damaged"),
        (lines[:5], "metrics.jsonl lacks lines"),
    ):
        path.write_bytes(b"".join(content))
        with pytest.raises(DataError, match=says):
            plot_run(tmp_path / "run")


def test_a_folder_without_a_run(tmp_path):
    with pytest.raises(DataError, match="no finished epoch"):
        plot_run(tmp_path)


def test_plot_diffusion(tmp_path):
    path = plot_diffusion(tmp_path / "new" / "diffusion.png")
    assert size(path)[0] == 1800


def test_stability(tmp_path):
    errors = step_errors((0.5, 0.9, 1.2, 1.5, 3.0))
    euler, rk4, implicit = errors.values()
    assert euler[1] < 1e-2 and euler[2] > 1e3  # theorem 1
    assert rk4[2] < 1e-6 and rk4[3] > 1  # its own limit, 1.39
    assert all(math.isfinite(e) and e < 1e-2 for e in implicit)  # theorem 2
    assert size(plot_stability(tmp_path / "stability.png", (0.5, 1.2, 3.0)))[0] == 1050
