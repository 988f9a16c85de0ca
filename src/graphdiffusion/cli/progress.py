"""Progress of a training on the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from ..training.population import Population
from ..training.summary import Result


class Bar:
    """A :class:`~graphdiffusion.training.Watcher` that draws a bar; a context manager.

    It shows members that have finished, the epoch, and of those in training the mean loss, the mean
    validation score and the evaluations of the last integration, and the time left.
    """

    def __init__(self, members: int, console: Console) -> None:
        self.members, self.done = members, 0
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            TaskProgressColumn(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
        )
        self.task = self.progress.add_task("starting", total=None)

    def __enter__(self) -> Self:
        self.progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.progress.stop()

    def epoch(self, done: int, total: int, population: Population) -> None:
        score = float(population.score.nanmean())
        val = f"{100 * score:.1f}%" if population.problem.task.percent else f"{score:.3f}"
        text = (
            f"{self.done}/{self.members} trained · epoch {int(population.epoch)} · "
            f"loss {float(population.loss.mean()):.3f} · val {val} · {population.evaluations} evaluations"
        )
        self.progress.update(self.task, description=text, completed=done, total=total)

    def finished(self, results: Sequence[Result]) -> None:
        self.done += len(results)
