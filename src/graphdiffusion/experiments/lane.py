"""A lane of the race: members of one family that train together, and what became of them."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace

from ..errors import SolverError
from ..training.config import Config
from ..training.population import Population

log = logging.getLogger("graphdiffusion")


@dataclass(frozen=True)
class Standing:
    """How far a member has come: its best score, the validation accuracy in it, and its epochs."""

    score: float
    val: float
    epochs: int


@dataclass
class Lane:
    """Members of one family that train together.

    Attributes:
        config: What they share.
        population: Those in training.
        ended: Numbers of the members that could not be integrated.
    """

    config: Config
    population: Population
    ended: dict[int, Standing] = field(default_factory=dict)

    def standings(self) -> dict[int, Standing]:
        """Of all members, by number."""
        population = self.population
        values = population.best_score.tolist(), population.best_val.tolist()
        return self.ended | {
            member.number: Standing(score, val, population.epochs_done)
            for member, score, val in zip(population.members, *values, strict=True)
        }

    def end(self, error: SolverError) -> None:
        """Record and remove the members that could not be integrated."""
        failed, now = error.members, self.standings()
        assert failed is not None
        numbers, epochs = self.population.numbers(failed), self.population.epochs_done - 1
        log.info("members %s end at epoch %d: %s", numbers, epochs, error)
        self.ended |= {number: replace(now[number], epochs=epochs) for number in numbers}
        self.population.select((~failed).nonzero().flatten())
