"""The folder of a run: links in it, links to it, and what is removed where a run stops at its beginning."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest
from run_templates import Templates
from test_cli_bad_input import refused
from test_cli_basics import SMALL, write_graph

from graphdiffusion.cli import main
from graphdiffusion.data import open_data
from graphdiffusion.errors import DataError, SolverError
from graphdiffusion.report import plot_run
from graphdiffusion.training import Config, Population, Trainer, load_run, open_folder
from graphdiffusion.training.lock import writing
from graphdiffusion.training.problem import load_problem, protocol

NEW = ["train", "toy", *SMALL, "--out", "run"]
RESUME = ["train", "--resume", "--out", "run"]


@pytest.fixture(scope="module")
def templates(tmp_path_factory) -> Templates:
    return Templates(tmp_path_factory.mktemp("runs"))


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_graph(Path("toy"))
    return tmp_path


def content(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


FILES = {
    "finished": ("config.toml", "fingerprint.json", "metrics.jsonl", "model.safetensors", "summary.json"),
    "stopped": (
        "config.toml", "fingerprint.json", "metrics.jsonl", "checkpoint.safetensors", "log.txt", "chunks",
        "chunks/00000.safetensors",
    ),
}  # fmt: skip


@pytest.mark.parametrize("state", FILES)
def test_links_in_a_run_are_refused(templates, monkeypatch, capsys, state):
    """Nothing is read through them, and nothing is written or removed."""
    monkeypatch.chdir(templates.restore(state))
    for file in (*FILES[state], "lock", "report.html"):
        kept, outside = Path("run", file), Path("outside", Path(file).name)
        outside.parent.mkdir(exist_ok=True)
        if kept.exists():
            kept.rename(outside)
        else:
            outside.write_bytes(b"mine")
        kept.symlink_to(outside.resolve())
        before = content(Path("outside")), content(Path("run"))
        says = f"run/{file} is a symbolic link"
        for command in (NEW, RESUME, ["evaluate", "run"], ["predict", "run"]):
            refused(capsys, command, says)
        with pytest.raises(DataError, match=says):
            plot_run("run")
        assert (content(Path("outside")), content(Path("run"))) == before
        kept.unlink()
        if outside.is_dir() or file not in ("lock", "report.html"):
            outside.rename(kept)
        else:
            outside.unlink()


def test_a_lock_that_is_a_link(place):
    Path("folder").mkdir()
    Path("mine").write_text("mine")
    Path("folder/lock").symlink_to(Path("mine").resolve())
    with pytest.raises(OSError, match="cannot write folder/lock"), writing(Path("folder")):
        pass
    assert Path("mine").read_text() == "mine" and Path("folder/lock").is_symlink()


def test_files_of_the_user_among_the_chunks(templates, monkeypatch):
    monkeypatch.chdir(templates.restore("stopped"))
    Path("run/chunks/mine.safetensors").write_text("mine")
    Path("run/chunks/00007.safetensors").mkdir()
    Path("run/chunks/00007.safetensors/mine").write_text("mine")
    Path("run/chunks/00009.safetensors").write_text("behind a gap")
    assert main(RESUME) == 0
    assert content(Path("run/chunks")) == {"mine.safetensors": b"mine", "00007.safetensors/mine": b"mine"}


def test_a_folder_that_is_reached_through_a_link(place):
    Path("real").mkdir()
    for link, target in (("run", "real"), ("new", "made")):
        Path(link).symlink_to(target)
        assert main(["train", "toy", *SMALL, "--out", link]) == 0
        assert main(["evaluate", link]) == 0
        assert Path(link).is_symlink() and Path(target, "summary.json").is_file()
        assert len(load_run(link).results) == 2


@pytest.mark.parametrize("kind", ["new", "empty", "link", "link to nothing"])
def test_the_error_that_stops_a_run_is_reported(place, kind):
    """A folder that was there stays, as do files of others in it."""
    config, data = Config(data="toy"), open_data("toy")
    real = Path("real") if "link" in kind else Path("run")
    if kind in ("empty", "link"):
        real.mkdir()
    if "link" in kind:
        Path("run").symlink_to(real)
    with pytest.raises(SolverError, match="the first epoch"), open_folder(Path("run"), config, data):
        raise SolverError("the first epoch")
    assert list(real.iterdir()) == [] if kind in ("empty", "link") else not real.exists()
    with pytest.raises(SolverError, match="the first epoch"), open_folder(Path("run"), config, data):
        Path("run/mine.txt").write_text("mine")
        raise SolverError("the first epoch")
    assert content(real) == {"mine.txt": b"mine"}


def test_a_clean_up_that_fails(place, monkeypatch):
    """The first error is the one to report."""

    def fails(*_, **__):
        raise PermissionError(13, os.strerror(13))

    config, data = Config(data="toy"), open_data("toy")
    with pytest.raises(SolverError, match="the first epoch"), open_folder(Path("run"), config, data):
        for name in ("unlink", "rmdir"):
            monkeypatch.setattr(Path, name, fails)
        monkeypatch.setattr("shutil.rmtree", fails)
        raise SolverError("the first epoch")


def test_leftovers_of_a_kill(place):
    """A part of a file that a kill has left is in the way of no run, and is removed at its end."""
    for whole in range(3):  # files that a run has written before it is killed
        _killed_after(whole)
        assert [p for p in Path("run").iterdir() if p.suffix == ".part"]
        begun = Path("run/config.toml").exists()
        assert begun == (whole == 2)
        assert main(RESUME if begun else NEW) == 0
        assert not [p for p in Path("run").rglob("*") if p.suffix == ".part"]
        shutil.rmtree("run")


def _killed_after(whole: int) -> None:
    """Train in a process that ends when its next file is complete but not in its place yet."""
    replace, done = os.replace, []

    def end(source, target):
        if len(done) == whole:
            os._exit(9)
        done.append(target)
        replace(source, target)

    if (child := os.fork()) == 0:
        os.replace = end
        os._exit(main([*NEW, "--quiet"]))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9


def test_a_busy_folder_names_its_process(place, capsys, monkeypatch):
    """For a new run as well, though the folder holds a run already."""
    step = Population.step

    def seen(self):
        monkeypatch.setattr(Population, "step", step)
        refused(
            capsys, NEW, f"grand: process {os.getpid()} on {os.uname().nodename} has been writing since"
        )
        step(self)

    monkeypatch.setattr(Population, "step", seen)
    assert main(NEW) == 0
    assert Population.step is step
    capsys.readouterr()
    refused(capsys, NEW, "run holds a run already")


def test_no_second_is_counted_twice(place, monkeypatch):
    """The files that an attempt wrote itself say nothing of earlier ones."""
    monkeypatch.setenv("GRAND_CHECKPOINT_SECONDS", "0")
    config = Config(data="toy", hidden=4, heads=1, attention_dim=4, epochs=2, splits=3, device="cpu")
    problem = load_problem(config)
    started = time.monotonic()
    with open_folder(Path("run"), config, problem.data) as folder:
        Trainer(problem, config, protocol(config, problem.data), folder, chunk=1).run()
    assert 0 < load_run("run").summary["seconds"] <= time.monotonic() - started
