"""The automatic choice: candidates race on the user's graph, the best ones become an ensemble.

Everything is kept in a folder. ``plan.json`` says what is to be done; each training is a run of its own in
``fits/``, so that an interrupted choice goes on where it was; ``summary.json`` is written last.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any, Protocol

import torch
from torch_geometric.data import Data

from ..errors import ConfigError, NotEnoughMemory, SolverError
from ..training.answers import Answers, answers_of, fit_temperature, joined
from ..training.assess import assessed
from ..training.config import Config
from ..training.folder import holds_run, is_finished, open_folder
from ..training.population import Population
from ..training.problem import Member, Problems, member_splits, split_kind, splits_of
from ..training.runs import Run, load_run
from ..training.summary import Result
from ..training.trainer import Trainer
from .plan import SIZES, Plan, fit_work, remaining, smaller
from .portfolio import Candidate

log = logging.getLogger("graphdiffusion")

ROUNDS = 4  # trainings of a candidate where the data has one split only


class Progress(Protocol):
    """Callbacks of an automatic choice, beside those of a training."""

    def fit(self, name: str, done: float, total: float) -> None: ...

    def epoch(self, done: int, total: int, population: Population) -> None: ...

    def finished(self, results: Sequence[Result]) -> None: ...


@dataclass
class Standing:
    """How a candidate has done so far."""

    candidate: Candidate
    results: list[Result] = field(default_factory=list)
    failure: str = ""

    @property
    def score(self) -> float:
        """Mean validation score; a candidate that failed has none."""
        values = [r.val for r in self.results if r.val is not None]
        return fmean(values) if values and not self.failure else -math.inf

    @property
    def epochs(self) -> int:
        """Epochs up to the best one, in the mean."""
        return max(1, round(fmean(r.best_epoch + 1 for r in self.results)))


class Automatic:
    """Carries out a plan.

    Args:
        plan: What is tried.
        base: Options of data and splits.
        data: The graph.
        device: Where to compute.
        folder: Keeps everything; what is finished there is not repeated.
        progress: Called on the way.
        budget: Seconds; where they would not do, the rest of the plan is made smaller.
        store: Keeps a plan that has been made smaller.
    """

    def __init__(
        self,
        plan: Plan,
        base: Config,
        data: Data,
        device: torch.device,
        folder: Path,
        progress: Progress | None = None,
        budget: float = math.inf,
        store: Callable[[Plan], None] = lambda plan: None,
    ) -> None:
        self.budget, self.store = budget, store
        self.plan, self.base, self.data, self.folder, self.progress = plan, base, data, folder, progress
        self.problems = Problems(data, device)
        self.rounds = rounds_of(base, data)
        self.done = 0.0
        self.started = time.monotonic()

    def race(self) -> tuple[list[Standing], list[Standing]]:
        """The standings of all candidates, and those that are chosen."""
        standings = [Standing(candidate) for candidate in self.plan.candidates]
        before = 0
        for rung, last in enumerate(self._ends()):
            self._cut(standings, rung)
            rounds = self.rounds[before:last]
            for standing in standings[: self.plan.size.race[rung]] if rounds else []:
                self._train(standing, f"{standing.candidate.name}-{rung + 1}", rounds)
            before = last
            standings = ranked(standings)
        if not math.isfinite(standings[0].score):
            raise SolverError(f"no candidate could be trained: {standings[0].failure}")
        self._cut(standings, len(self.plan.size.race))
        return standings, self._chosen(standings)

    def _cut(self, standings: Sequence[Standing], rung: int) -> None:
        """Make the plan from a rung on as small as the time left demands, and store it."""
        if math.isinf(self.budget) or not self.done:
            return
        passed = time.monotonic() - self.started
        left = (self.budget - passed) * self.done / passed  # in multiplications
        each = [
            fit_work(self.problems.of(config), config)
            for config in (s.candidate.config(self.base) for s in standings)
        ]
        for size in (self.plan.size, *SIZES):
            if remaining(size, each, rung, len(self.rounds), self.plan.refit) <= left:
                break
        size = smaller(self.plan.size, size, rung)
        if size != self.plan.size:
            self.plan = replace(self.plan, size=size)
            self.store(self.plan)

    def _chosen(self, standings: Sequence[Standing]) -> list[Standing]:
        """The best candidate, and the next ones that validation cannot tell from it.

        These are at most one standard error worse: that of an accuracy over all nodes that validated.
        """
        best = standings[0]
        masks = member_splits(best.candidate.config(self.base), self.data, [r.member for r in best.results])
        error = standard_error(best.score, int(masks.val.any(0).sum()))
        enough = [s for s in standings if len(s.results) == len(best.results)]
        return [s for s in enough[: self.plan.size.chosen] if s.score >= best.score - error]

    def _ends(self) -> tuple[int, int, int]:
        """How many rounds have been trained after each rung."""
        return (min(1, len(self.rounds)), min(2, len(self.rounds)), len(self.rounds))

    def _train(self, standing: Standing, name: str, rounds: Sequence[Member]) -> None:
        if standing.failure:
            return
        try:
            standing.results += self._fit(name, standing.candidate.config(self.base), rounds).results
        except (SolverError, NotEnoughMemory) as error:
            log.warning("candidate %s is left out: %s", standing.candidate.name, error)
            standing.failure = str(error)

    def refit(self, standing: Standing) -> Run:
        """Train a candidate on all labels, for as many epochs as validation found best."""
        config = standing.candidate.config(self.base)
        config = config.replace(split="all", epochs=standing.epochs, patience=0, inits=self.plan.size.fits)
        members = [Member(k, config.seed, config.seed * 1000 + k) for k in range(config.inits)]
        return self._fit(f"{standing.candidate.name}-final", config, members)

    def _fit(self, name: str, config: Config, members: Sequence[Member]) -> Run:
        """One run in the folder, trained unless it is finished."""
        path = self.folder / "fits" / name
        problem = self.problems.of(config)
        if self.progress is not None:
            self.progress.fit(name, self.done, self.plan.work)
        if not is_finished(path):
            with open_folder(path, config, self.data, holds_run(path)) as folder:
                Trainer(problem, config, members, folder, self.progress).run()
        self.done += fit_work(problem, config) * len(members)
        return self._load(path)

    def _load(self, path: Path) -> Run:
        run = load_run(path)
        run.__dict__.update(
            data=self.data, problem=self.problems.of(run.config)
        )  # what it would read again
        return run

    def crossed(self, chosen: Sequence[Standing]) -> list[Run]:
        """The runs of the chosen candidates in the race."""
        rungs = range(1, len(self.plan.size.race) + 1)
        paths = [self.folder / "fits" / f"{s.candidate.name}-{rung}" for s in chosen for rung in rungs]
        return [self._load(path) for path in paths if holds_run(path)]


def assess_runs(runs: Sequence[Run]) -> tuple[float, dict[str, Any]]:
    """Temperature and figures of the mean of all members, each for the nodes that it did not learn from."""
    parts: list[Answers] = []
    for run in runs:
        members = [result.member for result in run.results]
        parts.append(answers_of(run.problem, run.config, members, run.states))
    task, answers = runs[0].problem.task, joined(parts)
    temperature = fit_temperature(task, answers)
    return temperature, assessed(task, answers, temperature)


def standard_error(share: float, nodes: int) -> float:
    """Of an accuracy over so many nodes; never zero, and sensible where the score is no share."""
    share = min(max(share, 0.0), 1.0)
    return math.sqrt(max(share * (1 - share), 1 / nodes) / nodes)


def rounds_of(config: Config, data: Data) -> list[Member]:
    """The trainings of a candidate in the race: one for each split, or several for the only one."""
    splits, kind = splits_of(config, data), split_kind(config, data)
    if kind == "all":
        raise ConfigError("a choice of configurations needs validation nodes: take another split than all.")
    if splits > 1 or kind in ("shares", "folds"):
        return [Member(s, config.seed + s, (config.seed + s) * 1000) for s in range(splits)]
    return [Member(k, config.seed, config.seed * 1000 + k) for k in range(ROUNDS)]


def ranked(standings: Sequence[Standing]) -> list[Standing]:
    """The most trained ones first, among them the best; of equals the more promising; failed ones last."""
    return sorted(standings, key=lambda s: (not s.failure, len(s.results), s.score), reverse=True)
