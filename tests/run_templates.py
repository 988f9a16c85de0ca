"""A finished run and one that was stopped, made once and put back for every test, at the same place."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from test_cli_basics import SMALL, write_graph

from graphdiffusion.cli import main
from graphdiffusion.training import Population


class Templates:
    """Folders ``toy`` (a graph) and ``run`` (a run on it), finished or stopped in its second chunk.

    Args:
        folder: An empty folder.
        options: Of the training, besides those of all tests.
    """

    def __init__(self, folder: Path, *options: str) -> None:
        self.place, self.kept = folder / "place", folder / "kept"
        self.place.mkdir()
        before = Path.cwd()
        os.chdir(self.place)
        try:
            write_graph(Path("toy"))
            assert main(["train", "toy", *SMALL, *options, "--out", "run"]) == 0
            shutil.copytree(self.place, self.kept / "finished")
            shutil.rmtree("run")
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("GRAND_CHECKPOINT_SECONDS", "0")
                patch.setattr(Population, "step", _interrupted)
                assert main(["train", "toy", *SMALL, *options, "--out", "run"]) == 130
            shutil.copytree(self.place, self.kept / "stopped")
        finally:
            os.chdir(before)

    def restore(self, kind: str) -> Path:
        """The files as they were, in the place where they were made."""
        shutil.rmtree(self.place)
        shutil.copytree(self.kept / kind, self.place)
        return self.place


_step = Population.step


def _interrupted(self: Population) -> None:
    if self.members[0].number == 1 and self.epochs_done == 2:
        raise KeyboardInterrupt
    _step(self)
