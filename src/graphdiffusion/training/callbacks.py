"""Watchers of a training that write to TensorBoard or MLflow.

>>> Trainer(problem, config, members, watcher=TensorBoard("logs")).run()
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from os import PathLike
from typing import Any

from ..errors import ArgumentError
from .population import Population
from .summary import Result
from .trainer import Watcher


class TensorBoard:
    """Writes loss, validation score and evaluations of every epoch, and the scores of finished members.

    Args:
        folder: Where the event files go; ``tensorboard --logdir FOLDER`` shows them.
    """

    def __init__(self, folder: str | PathLike[str]) -> None:
        self.writer = _imported("torch.utils.tensorboard", "tensorboard").SummaryWriter(str(folder))
        self._chunk = _Chunk()

    def epoch(self, done: int, total: int, population: Population) -> None:
        prefix, epoch = self._chunk.place(population)
        for name, value in _figures(population).items():
            self.writer.add_scalar(f"{prefix}/{name}", value, epoch)

    def finished(self, results: Sequence[Result]) -> None:
        for result in results:
            for name, value in (("val", result.val), ("test", result.test)):
                if value is not None:
                    self.writer.add_scalar(f"members/{name}", value, result.number)
        self.writer.flush()


class MLflow:
    """Logs the options as parameters, and loss, validation score and evaluations as metrics.

    The run is MLflow's active one, or a new one.

    Args:
        options: Options of the configuration, ``config.to_dict()``.
    """

    def __init__(self, options: dict[str, Any]) -> None:
        self.mlflow = _imported("mlflow", "mlflow")
        self.mlflow.log_params(options)
        self._chunk = _Chunk()

    def epoch(self, done: int, total: int, population: Population) -> None:
        prefix, epoch = self._chunk.place(population)
        figures = {f"{prefix}/{name}": value for name, value in _figures(population).items()}
        self.mlflow.log_metrics(figures, step=epoch)

    def finished(self, results: Sequence[Result]) -> None:
        for result in results:
            scores = {"members/val": result.val, "members/test": result.test}
            known = {name: value for name, value in scores.items() if value is not None}
            self.mlflow.log_metrics(known, step=result.number)


class Several:
    """Several watchers as one."""

    def __init__(self, watchers: Sequence[Watcher]) -> None:
        self.watchers = list(watchers)

    def epoch(self, done: int, total: int, population: Population) -> None:
        for watcher in self.watchers:
            watcher.epoch(done, total, population)

    def finished(self, results: Sequence[Result]) -> None:
        for watcher in self.watchers:
            watcher.finished(results)


class _Chunk:
    """Names the curves of members that train together after the first of them."""

    def __init__(self) -> None:
        self.first, self.epoch = 0, -1

    def place(self, population: Population) -> tuple[str, int]:
        epoch = population.epochs_done - 1
        if epoch <= self.epoch or self.epoch < 0:  # the next members have begun
            self.first = population.members[0].number
        self.epoch = epoch
        return f"members from {self.first}", epoch


def _figures(population: Population) -> dict[str, float]:
    found = {
        "loss": float(population.loss.mean()),
        "val": float(population.score.nanmean()),
        "evaluations": float(population.evaluations),
    }
    return {name: value for name, value in found.items() if value == value}


def _imported(module: str, package: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise ArgumentError(
            f"{package} cannot be imported ({error}): install it with pip install {package}."
        ) from None
