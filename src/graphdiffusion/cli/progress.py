"""Progress of a training: a bar on a terminal, lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Column

from ..ensemble.progress import PAUSE, state_of
from ..training.population import Population
from ..training.summary import Result, duration
from .messages import say


def watching(members: int, console: Console, quiet: bool) -> AbstractContextManager[Any]:
    """What shows the progress of so many trainings on a console: a context manager that gives a watcher."""
    if quiet:
        return nullcontext()
    return Bar(members, console) if console.is_terminal else nullcontext(Lines(members))


class Bar:
    """A :class:`~graphdiffusion.training.Watcher` that draws a bar; a context manager.

    It shows the time left, members that have finished, the epoch, and of those in training the mean loss,
    the mean validation score and the evaluations of the last integration. A narrow terminal cuts the text,
    never the time.
    """

    def __init__(self, members: int, console: Console) -> None:
        self.members, self.done = members, 0
        self.progress = Progress(
            TaskProgressColumn(),
            TimeRemainingColumn(table_column=Column(no_wrap=True, min_width=7)),
            BarColumn(bar_width=20),
            TextColumn(
                "{task.description}", table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1)
            ),
            console=console,
            transient=True,
            expand=True,
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
        text = f"{self.done}/{self.members} trained · {state_of(population)} · "
        text += f"{population.evaluations} evaluations"
        self.progress.update(self.task, description=text, completed=done, total=total)

    def finished(self, results: Sequence[Result]) -> None:
        self.done += len(results)


class Lines:
    """A :class:`~graphdiffusion.training.Watcher` that prints a line now and then, with the time left."""

    def __init__(self, members: int) -> None:
        self.members, self.done = members, 0
        self.started = self.shown = time.monotonic()

    def epoch(self, done: int, total: int, population: Population) -> None:
        now = time.monotonic()
        if now - self.shown < PAUSE:
            return
        self.shown = now
        left = duration((now - self.started) * (total - done) / done)
        say(f"{self.done} of {self.members} trained, about {left} left · {state_of(population)}")

    def finished(self, results: Sequence[Result]) -> None:
        self.done += len(results)
