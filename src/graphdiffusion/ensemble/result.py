"""Predictions of a finished training: of an ensemble, or of the members of one run."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from ..errors import ArgumentError, DataError
from ..training.chunks import reading
from ..training.runs import Run, load_run
from .folder import FITS, MEND, SUMMARY, holds_choice, read_summary


@dataclass(frozen=True, eq=False)
class Ensemble:
    """Trained models whose answers are averaged.

    Attributes:
        runs: The runs that hold them, all of one task.
        summary: What the training found.
    """

    runs: list[Run]
    summary: dict[str, Any]

    @property
    def names(self) -> list[str]:
        """Of the classes or targets."""
        return self.runs[0].names

    @cached_property
    def data(self) -> Data:
        """The graph of the training, read again; refused if it has changed since."""
        return self.runs[0].data

    @property
    def best(self) -> int:
        """The place in ``members`` of the one with the highest validation score; 0 where none has one."""
        found = [r.val for run in self.runs for r in run.results]
        scores = [-math.inf if score is None else score for score in found]
        return scores.index(max(scores))

    @property
    def members(self) -> list[tuple[Run, int]]:
        """Every model: its run, and its number there."""
        return [(run, result.number) for run in self.runs for result in run.results]

    def predict(self, data: Data | None = None, member: int | None = None) -> Tensor:
        """Probabilities ``(n, classes)`` of every node of a graph, or the numbers that are predicted.

        Args:
            data: Any graph with the features of the training; by default that of the training.
            member: One model, by its place in ``members``; by default the mean over all of them.
        """
        if member is not None:
            if not 0 <= member < len(self.members):
                raise ArgumentError(f"there are the members 0 to {len(self.members) - 1}, and no {member}.")
            run, number = self.members[member]
            return run.predict(data, number)
        if data is None:  # read once for all
            for run in self.runs:
                run.__dict__["data"] = self.data
        parts = [len(run.results) * run.predict(data).double() for run in self.runs]
        return (torch.stack(parts).sum(0) / len(self.members)).float()


def crossed_runs(folder: Path, root: str | PathLike[str] | None = None) -> list[Run]:
    """The runs of the race that the figures of an automatic choice come from."""
    summary = read_summary(folder)
    with reading(folder / SUMMARY, MEND):
        return [load_run(folder / FITS / str(name), root) for name in summary["crossed"]]


def load_ensemble(folder: str | PathLike[str], root: str | PathLike[str] | None = None) -> Ensemble:
    """Read a finished training: every file complete and unchanged, or an error.

    Args:
        folder: The folder of a run, or of an automatic choice.
        root: Folder with raw data files, as in :func:`~graphdiffusion.data.load_data`.
    """
    folder = Path(folder)
    if not holds_choice(folder):
        run = load_run(folder, root)
        return Ensemble([run], run.summary)
    summary = read_summary(folder)
    with reading(folder / SUMMARY, MEND):
        runs = [load_run(folder / FITS / str(name), root) for name in summary["runs"]]
        temperature = float(summary["temperature"])
    if not runs:
        raise DataError(f"{folder / SUMMARY} names no run: train again in another folder.")
    return Ensemble([replace(run, temperature=temperature) for run in runs], summary)
