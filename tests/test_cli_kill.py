"""`kill -9` at ten random moments: resumed, a run ends with the very bytes of an unbroken one."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from commands import Grand
from test_cli_basics import write_graph

KILLS = 10
OPTIONS = [
    "--preset", "none", "--split", "random",
    "--hidden", "8", "--heads", "2", "--attention-dim", "8", "--time", "2", "--per-class", "4",
    "--splits", "3", "--epochs", "150", "--device", "cpu",
]  # fmt: skip
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "GRAND_CHECKPOINT_SECONDS": "0.02"}


def wait_for(process: Grand, metrics: Path, epochs: int) -> None:
    """Until the process has written so many epochs, however fast the machine is."""
    before = _lines(metrics)
    while process.poll() is None and _lines(metrics) < before + epochs:
        time.sleep(0.002)


def _lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL")
def test_kill(tmp_path):
    graph = str(write_graph(tmp_path / "toy"))
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    command = [sys.executable, "-m", "graphdiffusion.cli", "train", graph, *OPTIONS, "--out", str(whole)]
    unbroken = subprocess.Popen(command, env=os.environ | ENVIRONMENT, stdout=subprocess.DEVNULL)

    rng = random.Random(0)
    for kill in range(KILLS + 1):
        begun = (broken / "config.toml").exists()
        more = ["--resume"] if begun else [graph, *OPTIONS]
        process = Grand("train", *more, "--out", str(broken), said=tmp_path / "said.txt", **ENVIRONMENT)
        if kill < KILLS:
            wait_for(process, broken / "metrics.jsonl", rng.randint(1, 44))
            time.sleep(rng.uniform(0, 0.02))
            assert process.poll() is None, "the run ended before its ten kills: give it more epochs"
            process.kill()
        process.wait(600)
    assert process.poll() == 0
    assert unbroken.wait() == 0
    for name in ("model.safetensors", "metrics.jsonl", "config.toml", "fingerprint.json"):
        assert (broken / name).read_bytes() == (whole / name).read_bytes(), name
    assert {p.name for p in broken.iterdir()} == {p.name for p in whole.iterdir()}
    assert (broken / "log.txt").read_text().count("resumed chunk") >= KILLS // 2
