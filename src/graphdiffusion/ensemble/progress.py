"""Progress of an automatic choice, in lines."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from ..training.population import Population
from ..training.summary import Result, duration
from .plan import Plan

PAUSE = 20.0  # seconds between two lines


def state_of(population: Population) -> str:
    """Epoch, loss and validation score of those in training."""
    score = float(population.score.nanmean())
    shown = f"{100 * score:.1f}%" if population.problem.task.percent else f"{score:z.3f}"
    validation = "" if score != score else f" · val {shown}"
    return f"epoch {int(population.epoch)} · loss {float(population.loss.mean()):.3f}{validation}"


class Stages:
    """Progress of an automatic choice: a line for every fit, with the time left, and lines in long fits.

    Args:
        say: Takes each line.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self.say = say
        self.started = self.shown = time.monotonic()
        self.name = ""

    def plan(self, plan: Plan) -> None:
        self.say(f"plan: {plan}.")

    def fit(self, name: str, done: float, total: float) -> None:
        self.name, self.shown = name, time.monotonic()
        share = min(done / total, 0.99) if total else 0.0
        passed = self.shown - self.started
        left = f", about {duration(passed * (1 - share) / share)} left" if share > 0.02 else ""
        self.say(f"{100 * share:.0f}% of the work{left}: training {name}")

    def epoch(self, done: int, total: int, population: Population) -> None:
        if time.monotonic() - self.shown >= PAUSE:
            self.shown = time.monotonic()
            self.say(f"{self.name} · {state_of(population)}")

    def finished(self, results: Sequence[Result]) -> None:
        """The next fit says it."""
