"""Trainings spread over a Ray cluster of this machine: the same bytes as one after the other."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest
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


def grand(*words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "graphdiffusion.cli", "train", *words]
    quiet = {"RAY_DEDUP_LOGS": "0", "GRAND_CHECKPOINT_SECONDS": "0.05"}
    return subprocess.Popen(
        command, env=os.environ | quiet, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )


def test_a_stopped_driver_repeats_nothing(tmp_path):
    """The driver is killed after its first task; what has finished then is not trained again."""
    graph, broken, whole = str(write_graph(tmp_path / "toy")), tmp_path / "broken", tmp_path / "whole"
    assert main(["train", graph, *OPTIONS, "--out", str(whole), "--quiet"]) == 0
    driver = grand(graph, *OPTIONS, "--out", str(broken), "--engine", "ray")
    place, deadline = broken / "spread", time.monotonic() + 120
    while not (done := list(place.glob("*/summary.json"))):
        assert driver.poll() is None and time.monotonic() < deadline, driver.communicate()[1]
        time.sleep(0.02)
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    before = {path: path.stat().st_mtime_ns for path in done}
    kept = {path: json.loads(Path(path).read_text())["seconds"] for path in done}
    again = grand("--resume", "--out", str(broken), "--engine", "ray")
    _, said = again.communicate(timeout=180)
    assert again.returncode == 0, said
    assert before and kept
    assert f"{3} of {3} tasks have finished" in said or "tasks have finished" in said
    assert (broken / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    a, b = (json.loads((run / "summary.json").read_text()) for run in (broken, whole))
    assert (a["results"], a["figures"]) == (b["results"], b["figures"])
    lines = [
        [json.loads(x) for x in (run / "metrics.jsonl").read_text().splitlines()] for run in (broken, whole)
    ]
    epochs = [[(x["chunk"], x["epoch"], x["loss"]) for x in own if x["kind"] == "epoch"] for own in lines]
    assert epochs[0] == epochs[1]
    assert not place.exists()
