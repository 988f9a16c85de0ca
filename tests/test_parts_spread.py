"""Trainings spread over a Ray cluster of this machine: the same bytes as one after the other."""

from __future__ import annotations

import json
import os
import time
from importlib.util import find_spec

import pytest
from commands import Grand
from test_cli_basics import write_graph

from graphdiffusion.cli import main

pytestmark = pytest.mark.skipif(
    find_spec("ray") is None and os.environ.get("GRAND_TEST_RAY") != "required",
    reason="Ray is not installed",
)

OPTIONS = [
    "--preset", "none", "--split", "random", "--per-class", "4", "--hidden", "8", "--heads", "2",
    "--attention-dim", "8", "--time", "2", "--splits", "3", "--epochs", "60", "--device", "cpu",
    "--no-report",
]  # fmt: skip
PATIENCE = 240  # seconds; the start of Ray takes most of them on a machine at work


def test_another_number_of_members_in_a_task_repeats_nothing(tmp_path):
    """More or fewer members fit in a task than before the driver was stopped."""
    from graphdiffusion.training.problem import Member
    from graphdiffusion.training.spread import _groups

    members = [Member(k, k, 0) for k in range(12)]
    for name in ("00000-4", "00004-4", "00008-2"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.toml").touch()
    (tmp_path / "00000-4" / "summary.json").touch()
    (tmp_path / "00004-4" / "config.toml").unlink()  # a task that has not begun

    def numbers(each, first=0):
        return [[m.number for m in group] for group in _groups(members[first:], each, tmp_path)]

    assert numbers(3) == [[0, 1, 2, 3], [4, 5, 6], [7], [8, 9], [10, 11]]
    assert numbers(8) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9], [10, 11]]
    assert numbers(8, first=4) == [[4, 5, 6, 7], [8, 9], [10, 11]]
    assert [len(group) for group in _groups(members, 5, tmp_path / "nowhere")] == [5, 5, 2]


def test_a_stopped_driver_repeats_nothing(tmp_path):
    """The driver is killed after its first task; what has finished then is not trained again."""
    graph, broken, whole = str(write_graph(tmp_path / "toy")), tmp_path / "broken", tmp_path / "whole"
    assert main(["train", graph, *OPTIONS, "--out", str(whole), "--quiet"]) == 0
    place, said = broken / "spread", tmp_path / "said.txt"

    def grand(*words: str) -> Grand:
        return Grand("train", *words, "--engine", "ray", said=said)

    driver, deadline = grand(graph, *OPTIONS, "--out", str(broken)), time.monotonic() + PATIENCE
    while not (done := list(place.glob("*/summary.json"))):
        if driver.poll() is not None or time.monotonic() > deadline:
            driver.kill()
            pytest.fail(said.read_text())
        time.sleep(0.02)
    driver.kill()
    driver.wait(20)
    written = {path: path.stat().st_ino for path in done}
    again = grand("--resume", "--out", str(broken), "--no-report")
    while again.poll() is None and place.exists() and time.monotonic() < deadline + PATIENCE:
        for path, number in written.items():
            if path.exists():  # until all is brought together
                assert path.stat().st_ino == number, "a task has trained again"
        time.sleep(0.02)
    assert again.wait(PATIENCE) == 0, said.read_text()
    assert (broken / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    a, b = (json.loads((run / "summary.json").read_text()) for run in (broken, whole))
    assert (a["results"], a["figures"]) == (b["results"], b["figures"])

    def epochs(run):
        lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
        return [(x["chunk"], x["epoch"], x["loss"]) for x in lines if x["kind"] == "epoch"]

    assert epochs(broken) == epochs(whole)
    assert sorted(p.name for p in broken.iterdir()) == sorted(p.name for p in whole.iterdir())
