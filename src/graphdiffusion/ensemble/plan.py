"""Which trainings an automatic choice carries out: counted in work, so the same on every machine."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..training.config import Config
from ..training.memory import feature_entries
from ..training.population import Population
from ..training.problem import Member, Problem
from ..training.summary import counted
from ..training.template import model_template
from ..training.timing import epoch_seconds
from .portfolio import Candidate

# multiplications of the default plan, at most: some minutes on two cores, or on a GPU
WORK = {"cpu": 1.6e12, "cuda": 1e14}
SPARE = 0.5  # share of the epochs that early stopping leaves, roughly


@dataclass(frozen=True)
class Size:
    """How much is tried.

    Attributes:
        race: Candidates that train on the first split, and on all others.
        chosen: Candidates in the ensemble.
        fits: Trainings of each of them on all labels.
    """

    race: tuple[int, int]
    chosen: int
    fits: int


# from the largest to the smallest
SIZES = (
    Size((9, 4), 4, 4),
    Size((9, 3), 3, 3),
    Size((6, 3), 3, 2),
    Size((5, 2), 2, 2),
    Size((3, 2), 2, 1),
    Size((2, 1), 1, 1),
    Size((1, 1), 1, 1),
)


@dataclass(frozen=True)
class Plan:
    """What is tried on a graph.

    Attributes:
        candidates: The configurations, the most promising first.
        size: How much of them.
        rounds: Trainings of a candidate in the race: one for each split, or several on the only one.
        refit: Whether the chosen ones are trained on all labels at last.
        compare: Whether simple methods are trained for comparison.
        work: Estimate of all trainings, in multiplications.
    """

    candidates: list[Candidate]
    size: Size
    rounds: int
    refit: bool
    compare: bool
    work: float

    def to_dict(self) -> dict[str, Any]:
        """The plan as ``plan.json`` holds it."""
        return asdict(self)

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> Plan:
        """The plan that ``plan.json`` holds."""
        first, others = found["size"]["race"]
        size = Size((int(first), int(others)), int(found["size"]["chosen"]), int(found["size"]["fits"]))
        candidates = [Candidate(str(c["name"]), dict(c["options"])) for c in found["candidates"]]
        flags = bool(found["refit"]), bool(found["compare"])
        return cls(candidates, size, int(found["rounds"]), *flags, float(found["work"]))

    def __str__(self) -> str:
        first, others = self.size.race
        parts = [f"{counted(first, 'configuration')} trained once"]
        if self.rounds > 1:
            parts[0] += f", the best {others} of them {self.rounds} times"
        parts.append(f"an ensemble of at most {self.size.chosen}")
        if self.refit:
            parts.append(f"{counted(self.size.fits, 'fit')} of each to all labels")
        return "; ".join(parts)


def epoch_work(problem: Problem, config: Config) -> float:
    """Multiplications of one epoch, training and validation, roughly."""
    model = model_template(config, problem.in_channels, problem.out_channels, problem.num_nodes)
    nodes, edges = problem.graph.num_nodes, problem.graph.num_edges
    entries = feature_entries(problem, model)
    return 4.0 * model.work(nodes, edges, entries)  # two passes, and the backward pass costs two


def fit_work(problem: Problem, config: Config) -> float:
    """Multiplications of one training, roughly; with patience about half of the epochs are spared."""
    share = SPARE if config.patience else 1.0
    return share * config.epochs * epoch_work(problem, config)


def speed(problem: Problem, config: Config) -> float:
    """Multiplications a second on this machine, from a few epochs of a configuration."""
    population = Population(problem, config, [Member(0, config.seed, config.seed)])
    return epoch_work(problem, config) / epoch_seconds(population)


def make_plan(
    problem: Problem,
    base: Config,
    candidates: Sequence[Candidate],
    rounds: int,
    refit: bool,
    compare: bool = True,
    most: float = math.inf,
) -> Plan:
    """The largest plan whose work is at most ``most``, and that of the device; at least one training."""
    most = min(most, WORK[problem.y.device.type])
    each = [fit_work(problem, c.config(base)) for c in candidates]
    for size in SIZES:
        work = remaining(size, each, 0, rounds, refit)
        if work <= most:
            break
    first = min(size.race[0], len(candidates))
    size = Size((first, min(size.race[1], first)), min(size.chosen, first), size.fits)
    return Plan(list(candidates[:first]), size, rounds, refit, compare, work)


def remaining(size: Size, each: Sequence[float], rung: int, rounds: int, refit: bool) -> float:
    """Work of a plan from a rung of the race on.

    Args:
        each: Work of one training of each candidate, in the order in which they stand.
        rung: From 0; beyond the race there are the last fits alone.
    """
    total = 0.0
    for place, (many, times) in enumerate(zip(size.race, (1, rounds - 1), strict=True)):
        if place >= rung:
            # who goes on is not known yet: it may be the dearest ones
            chosen = each[:many] if place == rung else sorted(each[: size.race[rung]], reverse=True)[:many]
            total += times * sum(chosen)
    dearest = sorted(each[: size.race[min(rung, len(size.race) - 1)]], reverse=True)
    return total + refit * size.fits * sum(dearest[: size.chosen])


def smaller(old: Size, new: Size, rung: int) -> Size:
    """The old size up to a rung, the smaller of both from there on."""
    race = [
        a if place < rung else min(a, b)
        for place, (a, b) in enumerate(zip(old.race, new.race, strict=True))
    ]
    return Size((race[0], race[1]), min(old.chosen, new.chosen), min(old.fits, new.fits))
