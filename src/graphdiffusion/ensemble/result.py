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
        weights: Of each run, with sum 1; the members of a run share it.
        summary: What the training found.
    """

    runs: list[Run]
    weights: list[float]
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
        """All models, each as its run and its number there."""
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
                run.remember(self.data)
        each = zip(self.weights, self.runs, strict=True)
        parts = [weight * run.predict(data).double() for weight, run in each]
        return torch.stack(parts).sum(0).to(self.runs[0].task.dtype)


def crossed_runs(folder: Path, root: str | PathLike[str] | None = None) -> tuple[list[Run], list[float]]:
    """The runs of the race that the figures of a choice come from, and the weights of their members."""
    return _runs(folder, "crossed", root)


def _runs(folder: Path, part: str, root: str | PathLike[str] | None) -> tuple[list[Run], list[float]]:
    """The runs under a heading of the summary, and the numbers beside them."""
    found = read_summary(folder)
    with reading(folder / SUMMARY, MEND):
        runs = [load_run(folder / FITS / str(name), root) for name in found[part]]
        weights = [float(weight) for weight in found[part].values()]
    if not runs or not all(0 < weight <= 1 for weight in weights):
        raise DataError(f"{folder / SUMMARY} names no run, or a weight that is none: {MEND}.")
    return runs, weights


def load_ensemble(folder: str | PathLike[str], root: str | PathLike[str] | None = None) -> Ensemble:
    """Read a finished training: every file complete and unchanged, or an error.

    Args:
        folder: The folder of a run, or of an automatic choice.
        root: Folder with raw data files, as in :func:`~graphdiffusion.data.load_data`.
    """
    folder = Path(folder)
    if not holds_choice(folder):
        run = load_run(folder, root)
        return Ensemble([run], [1.0], run.summary)
    runs, weights = _runs(folder, "runs", root)
    summary = read_summary(folder)
    with reading(folder / SUMMARY, MEND):
        temperature = float(summary["temperature"])
    return Ensemble([replace(run, temperature=temperature) for run in runs], weights, summary)
