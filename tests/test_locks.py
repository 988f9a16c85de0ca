"""One writer for a folder: real processes that want the same one, kills, and locks that mean nothing."""

from __future__ import annotations

import json
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from commands import Grand
from test_cli_basics import write_graph
from test_cli_kill import ENVIRONMENT

from graphdiffusion.cli import main
from graphdiffusion.data import load_data
from graphdiffusion.errors import FolderInUse
from graphdiffusion.experiments import reproduce
from graphdiffusion.experiments.tablefile import merge
from graphdiffusion.experiments.tables import cells
from graphdiffusion.training.journal import read_lines
from graphdiffusion.training.lock import writing
from graphdiffusion.training.storage import read_json

PAIRS = 8
OPTIONS = [
    "--hidden", "8", "--heads", "2", "--attention-dim", "8", "--time", "2",
    "--split", "random", "--per-class", "4", "--splits", "1", "--epochs", "100000", "--patience", "0",
    "--device", "cpu",
]  # fmt: skip


def lines(folder: Path) -> int:
    path = folder / "metrics.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


@pytest.mark.skipif(sys.platform == "win32", reason="no flock")
def test_pairs_of_processes(tmp_path):
    """Of two processes on one folder exactly one trains; when it is killed, another goes on at once."""
    graph, folder = str(write_graph(tmp_path / "toy")), tmp_path / "run"
    reached = 0
    for pair in range(PAIRS):
        begun = (folder / "config.toml").exists()
        arguments = ["train", *(["--resume"] if begun else [graph, *OPTIONS]), "--out", str(folder)]
        says = [tmp_path / f"says {pair} {k}" for k in (0, 1)]
        both = [Grand(*arguments, said=path, **ENVIRONMENT) for path in says]
        end = time.monotonic() + 60
        while all(process.poll() is None for process in both) and time.monotonic() < end:
            time.sleep(0.01)
        (refused,) = [k for k in (0, 1) if both[k].poll() is not None]
        winner = both[1 - refused]
        assert both[refused].poll() == 2
        # where both begin at once, the lines about the data may come before the refusal
        message = says[refused].read_text().splitlines()[-1]
        assert message.startswith(f"grand: process {winner.pid} on {os.uname().nodename} has been ")
        while winner.poll() is None and lines(folder) < reached + 5 and time.monotonic() < end:
            time.sleep(0.01)
        assert winner.poll() is None and lines(folder) >= reached + 5
        winner.kill()
        winner.wait(60)
        reached = max(reached, lines(folder) - 20)
    # the lines follow each other, no epoch is there twice, and the checksums of the lines agree
    epochs = [line["epoch"] for line in read_lines(folder / "metrics.jsonl")]
    assert epochs == list(range(len(epochs))) and len(epochs) >= 5


def test_a_folder_is_held_by_one(tmp_path):
    folder = tmp_path / "new" / "folder"
    with writing(folder):
        assert json.loads((folder / "lock").read_text())["process"] == os.getpid()
        says = rf"process {os.getpid()} on .* in {folder}: wait until it ends"
        with pytest.raises(FolderInUse, match=says), writing(folder):
            pass
        (folder / "lock").write_text("noise")
        with pytest.raises(FolderInUse, match="another process is writing"), writing(folder):
            pass
    assert not folder.exists()  # nothing was written
    folder.mkdir(parents=True)
    (folder / "lock").write_bytes(b"\xff\x00 left by a process that was killed")
    with writing(folder):
        pass
    assert list(folder.iterdir()) == []


def test_a_lock_of_another_process_stays(tmp_path):
    """Where the folder of a process is removed, another may hold a new one of the same name."""
    folder = tmp_path / "folder"
    with writing(folder):
        (folder / "lock").unlink()
        folder.rmdir()
        second = writing(folder)
        second.__enter__()
    with pytest.raises(FolderInUse), writing(folder):
        pass
    second.__exit__(None, None, None)
    assert not folder.exists()


def test_results_of_two_processes_are_merged_one_after_the_other(tmp_path):
    """A table is read and written under a lock that is waited for: no cell is lost."""
    cell = {"data": "cora", "mean": 80.0}
    with ThreadPoolExecutor() as pool:
        with writing(tmp_path):
            both = [
                pool.submit(merge, tmp_path / "table2.json", "table2", cell | {"row": row})
                for row in ("linear", "nonlinear")
            ]
            time.sleep(0.2)
            assert not any(one.done() for one in both)
        for one in both:
            one.result()
    found = read_json(tmp_path / "table2.json", "table")["cells"]
    assert [c["row"] for c in found] == ["linear", "nonlinear"]


def test_other_commands_are_refused_too(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_graph(Path("toy"))
    small = ["--split", "random", "--per-class", "4", "--epochs", "1", "--device", "cpu"]
    with writing(Path("search")), writing(Path("run")), writing(Path("out/table2/cora-linear")):
        assert main(["tune", "toy", *small, "--out", "search"]) == 2
        assert main(["train", "toy", *small, "--out", "run"]) == 2
        shown = capsys.readouterr().err.splitlines()
        assert len(shown) == 3 and shown.pop(0) == "grand: using the preset own-linear."
        assert all("has been writing since" in line for line in shown)
        graph = load_data("cora-embedded")
        monkeypatch.setattr("graphdiffusion.experiments.tables.read_data", lambda *_: graph)
        wanted = cells("table2", ["cora"], ["linear"], splits=1, inits=1, device="cpu")
        found = reproduce(wanted, Path("out"))
    assert "has been writing since" in found["missing"]["cora-linear"]
    assert sorted(p.name for p in Path().iterdir()) == ["out", "toy"]
