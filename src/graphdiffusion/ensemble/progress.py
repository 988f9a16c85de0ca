"""Progress of an automatic choice, line by line: for terminals and files alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from ..training.population import Population
from ..training.summary import Result

PAUSE = 20.0  # seconds between two lines of one fit


class Lines:
    """A line for every fit, with the time left.

    Args:
        say: Prints a line.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self.say, self.started = say, time.monotonic()
        self.name, self.shown = "", self.started

    def fit(self, name: str, done: float, total: float) -> None:
        self.name = name
        share = min(done / total, 0.99) if total else 0.0
        passed = time.monotonic() - self.started
        left = f", about {_duration(passed * (1 - share) / share)} left" if share > 0.05 else ""
        self.say(f"{100 * share:3.0f}% of the plan{left}; training {name}.")

    def epoch(self, done: int, total: int, population: Population) -> None:
        now = time.monotonic()
        if now - self.shown > PAUSE:
            self.shown = now
            self.say(
                f"{self.name}: epoch {int(population.epoch)}, loss {float(population.loss.mean()):.3f}, "
                f"validation {float(population.score.nanmean()):.4f}."
            )

    def finished(self, results: Sequence[Result]) -> None:
        pass


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
