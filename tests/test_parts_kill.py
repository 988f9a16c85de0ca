"""Processes of a training on parts that are killed: all are started again, and the figures are the same."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
import time
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
import torch.distributed as dist
from commands import Grand

from graphdiffusion.partition import write_parts_of_edges
from graphdiffusion.training.rendezvous import fresh_store

PATIENCE = timedelta(seconds=20)


def test_an_attempt_does_not_see_what_earlier_ones_have_written():
    """Every attempt shares one store; of the first one, a process has died before it answered."""
    server = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)

    def client():
        return dist.TCPStore("localhost", server.port, is_master=False)

    client().set("grand/asks/2", "dead")
    for attempt in range(3):
        found = {}

        def join(number, found=found):
            found[number] = fresh_store(client(), number, 3, PATIENCE)

        threads = [threading.Thread(target=join, args=(number,)) for number in (2, 0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not found[1].check(["address"])
        found[0].set("address", str(attempt))
        assert [found[k].get("address").decode() for k in range(3)] == [str(attempt)] * 3


def folder_of_parts(folder):
    """A graph that was cut on disk, with two classes that its features show."""
    random = np.random.default_rng(0)
    y = random.integers(2, size=600)
    edges = random.integers(600, size=(2, 2400))
    x = (y[:, None] + random.standard_normal((600, 8))).astype(np.float32)
    write_parts_of_edges(
        folder, edges, 600, parts=2, undirected=True, self_loops=1.0, fields={"x": x, "y": y}
    )
    return folder


OPTIONS = ["--preset", "none", "--splits", "1", "--hidden", "4", "--heads", "1", "--attention-dim", "4"]
OPTIONS += ["--time", "3", "--epochs", "50", "--device", "cpu"]


def grand(*words, said):
    """A command that is to be killed, in part."""
    return Grand("train", *words, said=said, GRAND_CHECKPOINT_SECONDS="0.1")


def children(process):
    """Processes that a process has started, and theirs."""
    tasks = Path(f"/proc/{process}/task").glob("*/children")
    found = [int(pid) for path in tasks for pid in path.read_text().split()]
    return found + [own for pid in found for own in children(pid)]


def workers(process):
    """The processes of the parts."""
    return children(process.pid)


def command_of(process):
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process}/cmdline").read_text()
    return ""


def await_epochs(process, out, epochs):
    """Until a run has written so many epochs, and a checkpoint."""
    metrics, checkpoint = out / "metrics.jsonl", out / "checkpoint.safetensors"
    while not checkpoint.exists() or metrics.read_bytes().count(b"\n") < epochs:
        assert process.poll() is None, "the run has ended before its kill"
        time.sleep(0.01)


def figures(out):
    found = json.loads((out / "summary.json").read_text())
    return found["results"], found["figures"], (out / "metrics.jsonl").read_bytes()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The folder of the parts, and that of a run on them without kills."""
    folder = tmp_path_factory.mktemp("undisturbed")
    parts, whole = str(folder_of_parts(folder / "parts")), folder / "whole"
    run = grand(parts, *OPTIONS, "--out", str(whole), said=folder / "said.txt")
    assert run.wait(120) == 0, run.said
    return parts, whole


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds processes in /proc")
def test_a_killed_process_and_a_killed_parent(undisturbed, tmp_path):
    """The group is started again, then the command is repeated: both end as a run without kills."""
    (folder, whole), broken = undisturbed, tmp_path / "broken"
    said = tmp_path / "said.txt"
    first = grand(folder, "--parts", "2", *OPTIONS, "--out", str(broken), said=said)
    await_epochs(first, broken, 15)
    assert len(workers(first)) == 2
    os.kill(max(workers(first)), signal.SIGKILL)
    while "resumed chunk" not in (broken / "log.txt").read_text():
        assert first.poll() is None, "the group was not started again"
        time.sleep(0.01)
    left = workers(first)
    first.kill()
    first.wait(20)
    while any(command_of(pid) for pid in left):  # they end with their parent
        time.sleep(0.01)
    again = grand("--resume", "--out", str(broken), said=said)
    assert again.wait(120) == 0, again.said
    assert figures(broken) == figures(whole)
    assert {p.name for p in broken.iterdir()} == {p.name for p in whole.iterdir()}


def ray_workers(process):
    return [pid for pid in children(process.pid) if "RayTrainWorker" in command_of(pid)]


def test_a_killed_worker_of_ray(undisturbed, tmp_path):
    """Ray Train starts its workers again, and they go on from the checkpoint of the run."""
    pytest.importorskip("ray.train")
    (folder, whole), broken = undisturbed, tmp_path / "broken"
    said = tmp_path / "said.txt"
    killed = grand(folder, *OPTIONS, "--engine", "ray", "--out", str(broken), said=said)
    await_epochs(killed, broken, 15)
    os.kill(max(ray_workers(killed)), signal.SIGKILL)
    assert killed.wait(240) == 0, killed.said
    assert "resumed chunk" in (broken / "log.txt").read_text()
    assert figures(broken) == figures(whole)
