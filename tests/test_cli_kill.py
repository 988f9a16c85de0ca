"""`kill -9` at ten random moments: resumed, a run ends with the very bytes of an unbroken one."""

from __future__ import annotations

import multiprocessing
import os
import random
import subprocess
import sys
import time
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
import torch
from test_cli_basics import write_graph

from graphdiffusion.cli import main

KILLS = 10
OPTIONS = [
    "--preset", "none", "--split", "random",
    "--hidden", "8", "--heads", "2", "--attention-dim", "8", "--time", "2", "--per-class", "4",
    "--splits", "3", "--epochs", "150", "--device", "cpu",
]  # fmt: skip
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "GRAND_CHECKPOINT_SECONDS": "0.02"}


def grand(arguments: list[str]) -> None:
    """The life of a process that is to be killed."""
    os.environ |= ENVIRONMENT
    torch.set_num_threads(1)
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    sys.exit(main(arguments))


def wait_for(process: BaseProcess, metrics: Path, epochs: int) -> None:
    """Until the process has written so many epochs, however fast the machine is."""
    before = _lines(metrics)
    while process.is_alive() and _lines(metrics) < before + epochs:
        time.sleep(0.002)


def _lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL")
def test_kill(tmp_path):
    graph = str(write_graph(tmp_path / "toy"))
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    command = [sys.executable, "-m", "graphdiffusion.cli", "train", graph, *OPTIONS, "--out", str(whole)]
    unbroken = subprocess.Popen(command, env=os.environ | ENVIRONMENT, stdout=subprocess.DEVNULL)

    # processes forked from one that has imported torch and PyG: their start takes no time
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(["graphdiffusion.training.runs", "graphdiffusion.configs"])
    rng = random.Random(0)
    for kill in range(KILLS + 1):
        begun = (broken / "config.toml").exists()
        more = ["--resume"] if begun else [graph, *OPTIONS]
        process = processes.Process(target=grand, args=(["train", *more, "--out", str(broken)],))
        process.start()
        if kill < KILLS:
            wait_for(process, broken / "metrics.jsonl", rng.randint(1, 44))
            time.sleep(rng.uniform(0, 0.02))
            assert process.is_alive(), "the run ended before its ten kills: give it more epochs"
            process.kill()
        process.join()
    assert process.exitcode == 0
    assert unbroken.wait() == 0
    for name in ("model.safetensors", "metrics.jsonl", "config.toml", "fingerprint.json"):
        assert (broken / name).read_bytes() == (whole / name).read_bytes(), name
    assert {p.name for p in broken.iterdir()} == {p.name for p in whole.iterdir()}
    assert (broken / "log.txt").read_text().count("resumed chunk") >= KILLS // 2
