"""Points of an experiment that several processes measure."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import PROCESSES

from graphdiffusion.data import load_data
from graphdiffusion.errors import FolderInUse, NotEnoughMemory, StorageError
from graphdiffusion.experiments.record import Plan
from graphdiffusion.experiments.results import TAKEN, Results, read_results
from graphdiffusion.experiments.trained import Bench, held, trained
from graphdiffusion.training.config import Config
from graphdiffusion.training.lock import writing

POINTS = [{"k": k} for k in range(30)]


def work(folder: Path, name: str, slow: float, start: Any = None) -> None:
    """The life of a process: points with a shared training for each three of them."""
    if start is not None:
        start.wait(60)

    def compute(point: Any, tick: Any) -> dict[str, Any]:
        with held(folder / "runs" / str(point["k"] // 3)):
            (folder / "measured").open("a").write(f"{point['k']}\n")
            time.sleep(slow)
        return {"square": point["k"] ** 2, "by": name}

    results = Results(folder, {"n": 30}, lambda line: None)
    results.measure(POINTS, compute)
    results.conclude(lambda: {"sum": sum(p["square"] for p in results.points)})


def test_processes_share_the_points(tmp_path):
    """None is measured twice or lost, each process comes to the end, and no lock stays."""
    (tmp_path / "runs").mkdir()
    start = PROCESSES.Barrier(3)
    processes = [PROCESSES.Process(target=work, args=(tmp_path, name, 0.02, start)) for name in "abc"]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0, 0, 0]
    found = read_results(tmp_path / "results.json")
    assert sorted(p["k"] for p in found["points"]) == list(range(30))
    assert found["sum"] == sum(k**2 for k in range(30))
    assert len({p["by"] for p in found["points"]}) > 1
    assert sorted((tmp_path / "measured").read_text().split(), key=int) == [str(k) for k in range(30)]
    assert not (tmp_path / TAKEN).exists() and list((tmp_path / "runs").iterdir()) == []


def test_points_of_a_killed_process_are_measured_by_another(tmp_path):
    (tmp_path / "runs").mkdir()
    first = PROCESSES.Process(target=work, args=(tmp_path, "first", 600))
    first.start()
    end = time.monotonic() + 60
    while not (tmp_path / "measured").exists() and time.monotonic() < end:
        time.sleep(0.01)
    first.kill()
    first.join()
    work(tmp_path, "second", 0)
    points = read_results(tmp_path / "results.json")["points"]
    assert [(p["k"], p["by"]) for p in points] == [(k, "second") for k in range(30)]


def test_processes_that_are_killed_at_any_moment(tmp_path):
    """Others take their place: every point is there once, and the file can be read all the time."""
    (tmp_path / "runs").mkdir()
    chance, path = random.Random(0), tmp_path / "results.json"

    def started(name: str) -> Any:
        process = PROCESSES.Process(target=work, args=(tmp_path, name, 0.01))
        process.start()
        return process

    processes = [started(f"first-{k}") for k in range(4)]
    for k in range(12):
        time.sleep(chance.uniform(0.02, 0.2))
        place = chance.randrange(4)
        processes[place].kill()
        processes[place].join()
        processes[place] = started(f"other-{k}")
        assert not path.exists() or read_results(path)["points"]
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0, 0, 0, 0]
    found = read_results(path)
    assert sorted(p["k"] for p in found["points"]) == list(range(30))
    assert found["sum"] == sum(k**2 for k in range(30))


def test_what_others_have_in_hand_is_waited_for(tmp_path):
    """It is said, once; another process measures the point meanwhile."""
    lines: list[str] = []
    results = Results(tmp_path, {}, lines.append)
    asked = []

    def compute(point: Any, tick: Any) -> dict[str, Any]:
        asked.append(point["k"])
        if len(asked) < 3:
            raise FolderInUse("process 7 on host has been writing since noon in runs/one")
        return {}

    results.measure([{"k": 1}], compute)
    assert asked == [1, 1, 1]
    said = [line for line in lines if "another process has in hand" in line]
    assert len(said) == 1 and "process 7 on host" in said[0]


def test_a_search_is_read_once(tmp_path, monkeypatch):
    """A point that waits for its training asks for the settings every second; nothing is said again."""
    lines: list[str] = []

    def search(start: Config, *others: Any, watcher: Any, **more: Any) -> Any:
        watcher("2 trials")
        return type("Board", (), {"best": start.replace(rate=0.5)})

    monkeypatch.setattr("graphdiffusion.experiments.trained.search", search)
    bench = Bench(None, tmp_path, None, torch.device("cpu"), lines.append)
    start = Config(data="cora-embedded")
    with held(tmp_path / "search" / "one"):
        for _ in range(2):
            with pytest.raises(FolderInUse):
                bench.searched(start, {}, Plan(), "one")
    assert lines == []
    for _ in range(2):
        assert bench.searched(start, {}, Plan(), "one").rate == 0.5
    assert lines == ["one:", "2 trials"]


def test_a_training_in_hand_is_refused(tmp_path):
    config = Config(data="cora-embedded", hidden=8, heads=1, attention_dim=8, time=1.0, epochs=1, splits=1)
    data, folder = load_data("cora-embedded"), tmp_path / "run"
    with held(folder), pytest.raises(FolderInUse):
        trained(config, folder, data)
    assert not folder.exists()
    run = trained(config, folder, data)
    with held(folder):  # a finished one is read at any time
        assert trained(config, folder, data).results == run.results


def test_a_folder_that_goes_while_it_is_made_is_made_again(tmp_path, monkeypatch):
    """Another process removes it after mkdir has found it, and before it is looked at."""
    name, looks = tmp_path / "name", []
    is_dir = Path.is_dir

    def gone(path: Path) -> bool:
        if path == name and not looks:
            looks.append(path)
            name.rmdir()
        return is_dir(path)

    monkeypatch.setattr(Path, "is_dir", gone)
    name.mkdir()
    with writing(name):
        assert looks and list(name.iterdir())


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises((OSError, StorageError)), writing(Path("run")):
        pass


def test_what_does_not_fit_is_tried_again_after_the_others(tmp_path):
    """Other processes may use the memory; a point that never fits is an error once all others are there."""
    order, lines = [], []

    def compute(point: Any, tick: Any) -> dict[str, Any]:
        order.append(point["k"])
        if point["k"] in never or (point["k"] == 1 and order.count(1) == 1):
            raise (NotEnoughMemory if point["k"] == 1 else torch.OutOfMemoryError)("too large.")
        return {}

    never: set[int] = set()
    results = Results(tmp_path, {}, lines.append)
    results.measure(POINTS[:3], compute)
    assert order == [0, 1, 2, 1] and len(results.points) == 3
    assert "k 1: too large. It is tried again after the others." in lines
    never = {3}
    with pytest.raises(
        NotEnoughMemory, match="1 point did not fit in memory, the first is k 3: others may"
    ):
        results.measure(POINTS[:5], compute)
    assert order[4:] == [3, 4, 3] and len(read_results(results.path)["points"]) == 4
    order, never = [], {3}
    results = Results(tmp_path / "other", {}, lines.append)
    with pytest.raises(NotEnoughMemory):
        results.measure([POINTS[3], POINTS[1], POINTS[2]], compute)
    assert order == [3, 1, 2, 3, 1], "one that never fits does not keep the others from a second trial"
