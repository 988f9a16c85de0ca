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

from ..training.population import Population
from ..training.summary import Result, duration
from .messages import say

PAUSE = 20.0  # seconds between two lines


def watching(members: int, console: Console, quiet: bool) -> AbstractContextManager[Any]:
    """What shows the progress of so many trainings on a console: a context manager that gives a watcher."""
    if quiet:
        return nullcontext()
    return Bar(members, console) if console.is_terminal else nullcontext(Lines(members))


def _state(population: Population) -> str:
    """Epoch, loss and validation score of those in training."""
    score = float(population.score.nanmean())
    shown = f"{100 * score:.1f}%" if population.problem.task.percent else f"{score:.3f}"
    validation = "" if score != score else f" · val {shown}"
    return f"epoch {int(population.epoch)} · loss {float(population.loss.mean()):.3f}{validation}"


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
        text = f"{self.done}/{self.members} trained · {_state(population)} · "
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
        say(f"{self.done} of {self.members} trained, about {left} left · {_state(population)}")

    def finished(self, results: Sequence[Result]) -> None:
        self.done += len(results)


class Stages:
    """Progress of an automatic choice: a line for every fit, with the time left, and lines in long fits."""

    def __init__(self) -> None:
        self.started = self.shown = time.monotonic()
        self.name = ""

    def fit(self, name: str, done: float, total: float) -> None:
        self.name, self.shown = name, time.monotonic()
        share = min(done / total, 0.99) if total else 0.0
        passed = self.shown - self.started
        left = f", about {duration(passed * (1 - share) / share)} left" if share > 0.02 else ""
        say(f"{100 * share:.0f}% of the plan{left}: training {name}")

    def epoch(self, done: int, total: int, population: Population) -> None:
        if time.monotonic() - self.shown >= PAUSE:
            self.shown = time.monotonic()
            say(f"{self.name} · {_state(population)}")

    def finished(self, results: Sequence[Result]) -> None:
        """The next fit says it."""
