"""``grand train --parts`` and torchrun: the run of one process, and sentences where it cannot be."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
from commands import Grand
from test_cli_basics import write_graph
from torch.testing import assert_close

from graphdiffusion.cli import main
from graphdiffusion.cli.messages import go_on
from graphdiffusion.errors import GraphDiffusionError, WorkerError
from graphdiffusion.partition import read_about, write_parts_of_edges
from graphdiffusion.training import load_run
from graphdiffusion.training.launch import Order, launch_ray, raise_failure, work
from graphdiffusion.training.lock import writing
from graphdiffusion.training.worker import joined

OPTIONS = [
    "--preset", "none", "--split", "random", "--per-class", "4", "--hidden", "8", "--heads", "2",
    "--attention-dim", "8", "--time", "2", "--splits", "2", "--epochs", "8", "--device", "cpu", "--quiet",
    "--no-report",
]  # fmt: skip


def grand(*words: str, launcher: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """A command as a user gives it, whose processes are spawned."""
    command = [sys.executable, *launcher, "-m", "graphdiffusion.cli", *words]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=180)


def forked(*words: str, said: Path) -> Grand:
    """The same, at its end; its processes have no imports to wait for."""
    run = Grand(*words, said=said)
    assert run.wait(180) is not None
    return run


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
    words = ["--resume", "--out", str(out), "--parts", "2", "--quiet", "--no-report"]
    done = forked("train", *words, said=tmp_path / "said.txt")
    assert done.poll() == 0, done.said
    assert_same(out, wanted)
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in lines if line["kind"] == "epoch"] == [*range(8), *range(8)]


def test_a_finished_run_is_said_to_be_so(whole, monkeypatch, capsys):
    """Also where torchrun repeats a command; another command needs another folder."""
    graph, out = whole
    assert main(["train", "--resume", "--out", str(out), "--parts", "2", "--no-report"]) == 0
    assert "this run is finished." in capsys.readouterr().err
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    assert main(["train", graph, *OPTIONS, "--out", str(out)]) == 0
    assert "this run is finished." in capsys.readouterr().err
    assert main(["train", graph, *OPTIONS, "--hidden", "16", "--out", str(out)]) == 2
    assert "was started with other options" in capsys.readouterr().err


@pytest.fixture
def never_started(monkeypatch):
    """Trainings on parts end before a process is started."""

    def stopped(order, parts):
        raise WorkerError("not started")

    monkeypatch.setattr("graphdiffusion.training.launch.launch_here", stopped)


def test_parts_that_an_attempt_has_left(whole, tmp_path, never_started):
    """Options that change the graph change its parts, and so does another method."""
    words = ["train", whole[0], *OPTIONS, "--out", str(tmp_path / "run"), "--parts", "2"]
    found = []
    for more in (["--self-loops", "1"], ["--self-loops", "0"], ["--self-loops", "0", "--cut", "random"]):
        assert main([*words, *more]) == 2
        found.append(read_about(tmp_path / "run" / "parts"))
    assert found[1].edges < found[0].edges
    assert found[1].method != found[2].method == "random"


def test_parts_of_a_run_in_progress_stay(whole, tmp_path, never_started, capsys):
    """While a process trains, another one cuts the graph into no other parts."""
    out = tmp_path / "run"
    shutil.copytree(whole[1], out)
    (out / "summary.json").unlink()
    resume = ["train", "--resume", "--out", str(out), "--quiet", "--parts"]
    assert main([*resume, "2"]) == 2
    with writing(out):
        for parts in ("2", "3"):
            assert main([*resume, parts]) == 2
            assert "has been writing since" in capsys.readouterr().err
    assert read_about(out / "parts").parts == 2


def test_other_data_is_refused_before_the_cut(tmp_path, never_started, capsys):
    """The parts of a run stay, and no process is started."""
    graph, out = write_graph(tmp_path / "toy"), tmp_path / "run"
    assert main(["train", str(graph), *OPTIONS, "--out", str(out)]) == 0
    (out / "summary.json").unlink()
    resume = ["train", "--resume", "--out", str(out), "--quiet", "--parts", "2"]
    assert main(resume) == 2
    before = (out / "parts" / "about.json").read_bytes()
    write_graph(graph, n=70)
    capsys.readouterr()
    assert main(resume) == 2
    assert "have changed since the run began" in capsys.readouterr().err
    assert (out / "parts" / "about.json").read_bytes() == before


def test_threads_are_those_of_the_cores_that_are_given(monkeypatch):
    """A job of a queue has some cores of a machine, and its processes share them."""
    taken: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", taken.append)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(6)), raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    for name in ("OMP_PROC_BIND", "OMP_PLACES"):
        monkeypatch.delenv(name, raising=False)
    with joined("cpu"):
        assert taken == [3]


def test_self_loops_of_a_graph_cut_on_disk(tmp_path):
    """They are no edges of the graph as given."""
    random = np.random.default_rng(0)
    fields = {"x": random.random((40, 3)).astype(np.float32), "y": random.integers(2, size=40)}
    ring = np.stack([np.arange(40), (np.arange(40) + 1) % 40])
    write_parts_of_edges(
        tmp_path / "parts", ring, 40, parts=2, undirected=True, self_loops=1.0, fields=fields
    )
    words = [str(tmp_path / "parts"), *OPTIONS, "--out", str(tmp_path / "run")]
    done = forked("train", *words, said=tmp_path / "said.txt")
    assert done.poll() == 0, done.said
    summary = load_run(tmp_path / "run").summary
    assert [summary[k] for k in ("edges_given", "edges_used", "self_loops")] == [80, 80, 40]


def test_parts_half_written_are_removed(whole, tmp_path):
    """A kill of the writer leaves a folder under another name; the end of the run removes it."""
    out = tmp_path / "run"
    shutil.copytree(whole[1], out)
    (out / ".grand-0123.part" / "0").mkdir(parents=True)
    (out / ".grand-0123.part" / "0" / "row.npy").write_bytes(b"half")
    assert main(["train", "--resume", "--out", str(out), "--parts", "2", "--no-report"]) == 0
    assert not list(out.glob(".grand-*"))


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


def test_ray_is_missed_before_the_cut(whole, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.setitem(sys.modules, "ray.train.torch", None)
    words = ["train", whole[0], *OPTIONS, "--out", str(tmp_path / "run"), "--parts", "2", "--engine", "ray"]
    assert main(words) == 2
    assert "pip install 'graphdiffusion[cluster]'" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_choice_of_configurations_takes_no_engine(whole, tmp_path, capsys):
    assert main(["train", whole[0], "--out", str(tmp_path / "run"), "--engine", "ray"]) == 2
    assert "--engine ray is for one configuration or for parts" in capsys.readouterr().err


def test_other_processes_than_parts(tmp_path, monkeypatch, capsys):
    """The way out is that of who has started the processes."""
    random = np.random.default_rng(0)
    fields = {"x": random.random((40, 3)).astype(np.float32), "y": random.integers(2, size=40)}
    write_parts_of_edges(tmp_path / "parts", random.integers(40, size=(2, 90)), 40, parts=2, fields=fields)
    words = ["train", str(tmp_path / "parts"), "--preset", "none", "--out", str(tmp_path / "run")]
    assert main([*words, "--parts", "3"]) == 2
    assert "is cut into 2 parts: take --parts 2, or cut it again." in capsys.readouterr().err
    monkeypatch.setenv("WORLD_SIZE", "3")
    monkeypatch.setenv("RANK", "0")
    assert main(words) == 2
    assert "start as many processes, not 3, or cut it again." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("fields", "more", "sentence"),
    [
        ({"y": np.int32}, [], "data.y must be int64"),
        ({"x": np.float64}, [], "must be float32 of shape (40, F), got torch.float64 of shape (40, 3)"),
        ({"train_mask": np.uint8}, [], "data.train_mask must be bool"),
        ({}, ["--task", "regression"], "data.y must be floating point of shape (40, k) for regression"),
        ({}, ["--self-loops", "2"], "give it self-loops before, and leave out --self-loops"),
    ],
)
def test_a_folder_of_parts_is_checked_before_the_start(
    tmp_path, never_started, capsys, fields, more, sentence
):
    random = np.random.default_rng(0)
    given = {"x": random.random((40, 3)).astype(np.float32), "y": random.integers(2, size=40)}
    given |= {name: given.get(name, np.ones(40)).astype(dtype) for name, dtype in fields.items()}
    write_parts_of_edges(tmp_path / "parts", random.integers(40, size=(2, 90)), 40, parts=2, fields=given)
    words = ["train", str(tmp_path / "parts"), "--preset", "none", "--out", str(tmp_path / "run"), *more]
    assert main(words) == 2
    assert sentence in capsys.readouterr().err


def test_a_damaged_part_begins_no_run(tmp_path):
    """The process of another part says so, and the first one has written nothing."""
    random = np.random.default_rng(0)
    fields = {"x": random.random((40, 3)).astype(np.float32), "y": random.integers(2, size=40)}
    write_parts_of_edges(tmp_path / "parts", random.integers(40, size=(2, 90)), 40, parts=2, fields=fields)
    col = np.load(tmp_path / "parts" / "1" / "col.npy", mmap_mode="r+")
    col[0] ^= 1
    col.flush()
    words = [str(tmp_path / "parts"), *OPTIONS, "--out", str(tmp_path / "run")]
    done = forked("train", *words, said=tmp_path / "said.txt")
    assert done.poll() == 2
    assert "col.npy was changed or damaged" in done.said and "Go on with" not in done.said
    assert not (tmp_path / "run" / "config.toml").exists()


def test_a_process_that_fails_is_named(whole, tmp_path):
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
    words += ["--plugin", str(plugin), "--model", "broken", "--out", str(tmp_path / "run"), "--parts", "2"]
    done = forked("train", whole[0], *words, said=tmp_path / "said.txt")
    assert done.poll() == 2
    assert "a process has failed (RuntimeError: no such thing)." in done.said


def test_a_sentence_about_a_path_is_no_lost_process(whole, tmp_path):
    """A process that fails by itself is not started again, whatever words its error has."""
    out = tmp_path / "a run"
    shutil.copytree(whole[1], out)
    (out / "summary.json").unlink()
    plugins = (str(tmp_path / "connection.py"),)
    again = go_on(out, plugins, "raw data", parts=2)
    assert again.endswith(f"train --resume --out '{out}' --plugin {plugins[0]} --root 'raw data' --parts 2")
    order = Order({}, plugins, out, out / "parts", True, again=again)
    with pytest.raises(GraphDiffusionError, match=r"connection\.py"):
        work(order)
    with pytest.raises(WorkerError) as raised:
        raise_failure(order)
    assert str(raised.value).endswith(f" Go on with: {again}")


def test_a_failure_on_a_full_disk(whole, tmp_path, monkeypatch, caplog):
    """The reason that cannot be noted is said, and is not replaced by another error."""
    out = tmp_path / "run"
    shutil.copytree(whole[1], out)
    (out / "summary.json").unlink()
    order = Order({}, (str(tmp_path / "gone.py"),), out, out / "parts", True)

    def full(self, text):
        self.touch()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(GraphDiffusionError, match=r"gone\.py"):
        work(order)
    assert "gone.py" in caplog.text
    with pytest.raises(WorkerError, match=r"its reason stands above: .*failed\.txt could not be written"):
        raise_failure(order)


def test_a_lost_process_leaves_no_traceback(whole, tmp_path, monkeypatch, capsys, caplog):
    out = tmp_path / "run"
    shutil.copytree(whole[1], out)
    (out / "summary.json").unlink()

    def lost(config):
        raise RuntimeError("gloo: Connection closed by peer")

    monkeypatch.setattr("graphdiffusion.training.launch.joined", lost)
    order = Order({}, (), out, out / "parts", True)
    with pytest.raises(RuntimeError, match="closed by peer"):
        work(order)
    assert "Traceback" not in capsys.readouterr().err
    assert "has lost another one (gloo: Connection closed by peer)" in caplog.text
    assert not order.failed.exists()


def test_an_interrupted_command_is_repeated_in_full(whole, tmp_path, monkeypatch, capsys):
    """With the engine, the folder of raw data and plug-ins: without them it would not go on."""

    def interrupted(order, parts):
        shutil.copy(whole[1] / "config.toml", tmp_path / "run")
        raise KeyboardInterrupt

    monkeypatch.setattr("graphdiffusion.training.launch.launch_ray", interrupted)
    monkeypatch.setattr("graphdiffusion.training.launch.require_ray", lambda: None)
    (tmp_path / "my own.py").touch()
    more = ["--plugin", str(tmp_path / "my own.py"), "--root", "raw data", "--parts", "2"]
    more += ["--engine", "ray"]
    assert main(["train", whole[0], *OPTIONS, "--out", str(tmp_path / "run"), *more]) == 130
    said = f"--plugin '{tmp_path / 'my own.py'}' --root 'raw data' --parts 2 --engine ray"
    assert said in capsys.readouterr().err.replace("\n", " ")


def test_an_interrupt_of_ray(tmp_path, monkeypatch):
    """Ray ends the process itself at a Ctrl-C: the command would say nothing."""
    torch_trainer = pytest.importorskip("ray.train.torch").TorchTrainer
    monkeypatch.setattr(torch_trainer, "__init__", lambda self, *args, **more: None)
    monkeypatch.setattr(torch_trainer, "fit", lambda self: sys.exit(0))
    with pytest.raises(KeyboardInterrupt):
        launch_ray(Order({}, (), tmp_path / "run", tmp_path / "run" / "parts", False), 2)


def test_an_interrupt_is_a_sentence(whole, tmp_path):
    """Ctrl-C ends all processes, and says how to go on."""
    out = tmp_path / "a run"
    words = ["train", whole[0], *OPTIONS, "--out", str(out), "--parts", "2", "--epochs", "100000"]
    run = Grand(*words, said=tmp_path / "said.txt")
    deadline = time.monotonic() + 120
    while not (out / "metrics.jsonl").exists():
        assert run.poll() is None and time.monotonic() < deadline, run.said
        time.sleep(0.01)
    os.killpg(run.pid, signal.SIGINT)  # as a terminal does
    assert run.wait(60) == 130
    assert f"go on with: grand train --resume --out '{out}' --parts 2" in run.said
    assert "Traceback" not in run.said and "death signal" not in run.said
