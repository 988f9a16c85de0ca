"""Trainings of an experiment: kept in folders, and made once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch_geometric.data import Data

from ..errors import ConfigError
from ..training.config import Config
from ..training.folder import holds_run, is_finished, open_folder, read_config
from ..training.lock import holding
from ..training.population import Population
from ..training.problem import load_problem, pick_device, protocol, read_data
from ..training.runs import Run, load_run
from ..training.summary import Result
from ..training.trainer import Trainer
from .record import Plan
from .results import Note, Tick
from .search import search
from .space import Space


class Bench:
    """Base of what an experiment does for its points.

    Args:
        settings: Of the experiment.
        folder: Where searches and trainings are kept.
        root: Folder with raw data files.
        device: Where to compute.
        note: Called with each line that reports progress.
    """

    def __init__(
        self, settings: Any, folder: Path, root: str | None, device: torch.device, note: Note
    ) -> None:
        self.settings, self.folder, self.root, self.device, self.note = settings, folder, root, device, note
        self._graphs: dict[str, Data] = {}
        self._best: dict[str, Config] = {}

    def graph(self, name: str) -> Data:
        """A data set by name, read once."""
        if name not in self._graphs:
            self._graphs[name] = read_data(Config(data=name), self.root)
        return self._graphs[name]

    def read(self, points: Iterable[Mapping[str, Any]]) -> None:
        """Read the data sets of some points: missing files are to show before anything is measured."""
        for name in dict.fromkeys(point["data"] for point in points):
            self.graph(name)

    def searched(self, start: Config, space: Space, plan: Plan, name: str) -> Config:
        """The best settings that a search finds, by validation; one that is in its folder is not repeated.

        A point that waits for a training asks again and again: a search is read once.

        Raises:
            FolderInUse: another process makes this search.
        """
        if name not in self._best:
            folder = self.folder / "search" / name
            with held(folder):
                self.note(f"{name}:")
                found = search(start, space, plan, folder, data=self.graph(start.data), watcher=self.note)
            self._best[name] = found.best
        return self._best[name]


class _Share:
    """Reports the share of a training that is done."""

    def __init__(self, tick: Tick) -> None:
        self.tick = tick

    def epoch(self, done: int, total: int, population: Population) -> None:
        self.tick(done / total)

    def finished(self, results: Sequence[Result]) -> None:
        pass


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Hold what is made in a folder, from before it exists; refused where another process makes it."""
    with holding(folder.with_name(f"{folder.name}.held")):
        yield


def trained(config: Config, folder: Path, data: Data, tick: Tick = lambda share: None) -> Run:
    """The run of a configuration in a folder, trained to its end if it is not.

    Args:
        config: Its options.
        folder: Where it is kept.
        data: The graph.
        tick: Called after every epoch with the share of the training that is done.

    Raises:
        FolderInUse: another process makes this run.
        ConfigError: the folder holds a run with other options; for a finished one the device is none.
    """
    if not is_finished(folder):
        with held(folder):
            _train(config, folder, data, tick)
    stored, _ = read_config(folder)
    if stored.replace(device=config.device) != config:
        raise ConfigError(
            f"{folder} holds a training with other options (see its config.toml): delete it, or name "
            "another folder with --out."
        )
    run = load_run(folder)
    run.remember(data)
    return run


def _train(config: Config, folder: Path, data: Data, tick: Tick) -> None:
    if is_finished(folder):  # since it was looked at
        return
    problem = load_problem(config, data).to(pick_device(config.device))
    with open_folder(folder, config, problem.data, holds_run(folder)) as kept:
        Trainer(problem, config, protocol(config, problem.data), kept, _Share(tick)).run()
