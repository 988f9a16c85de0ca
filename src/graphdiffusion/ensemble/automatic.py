"""The automatic choice: candidates race on the user's graph, the best ones become a weighted ensemble.

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
from torch import Tensor
from torch_geometric.data import Data

from ..errors import ConfigError, NotEnoughMemory, SolverError
from ..training.answers import Answers, answers_of, fit_temperature, joined, mean_answer
from ..training.assess import assessed
from ..training.config import Config
from ..training.folder import holds_run, is_finished, open_folder
from ..training.population import Population
from ..training.problem import Member, Problems, split_kind, splits_of
from ..training.runs import Run, load_run
from ..training.summary import Result
from ..training.trainer import Trainer
from .plan import SIZES, Plan, Size, fit_work, remaining, smaller
from .portfolio import Candidate
from .weights import kept, stacked

log = logging.getLogger("graphdiffusion")

ROUNDS = 4  # trainings of a candidate where the data has one split only


class Progress(Protocol):
    """Callbacks of an automatic choice, beside those of a training."""

    def plan(self, plan: Plan) -> None: ...

    def fit(self, name: str, done: float, total: float) -> None: ...

    def epoch(self, done: int, total: int, population: Population) -> None: ...

    def finished(self, results: Sequence[Result]) -> None: ...


@dataclass
class Standing:
    """How a candidate has done so far.

    Attributes:
        runs: Its trainings in the race.
        loss: Of its mean answers for the nodes that have validated.
        weight: In the ensemble.
        failure: Why it could not be trained.
    """

    candidate: Candidate
    runs: list[Run] = field(default_factory=list)
    loss: float = math.inf
    weight: float = 0.0
    failure: str = ""

    @property
    def results(self) -> list[Result]:
        """The results of all trainings."""
        return [result for run in self.runs for result in run.results]

    @property
    def score(self) -> float | None:
        """Mean validation score; a candidate that failed has none."""
        values = [r.val for r in self.results if r.val is not None]
        return fmean(values) if values and not self.failure else None

    def answers(self) -> tuple[Tensor, Tensor]:
        """Nodes that have validated, and the mean answers for them."""
        return mean_answer(self.runs[0].problem.task, answers_of_runs(self.runs), "val")

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
        self.done, self.total = 0.0, plan.work
        self.started = time.monotonic()
        self.before = 0.0  # seconds that earlier processes have spent on trainings of this plan
        if progress is not None:
            progress.plan(plan)

    def race(self) -> tuple[list[Standing], list[Standing]]:
        """The standings of all candidates, and those that are chosen."""
        standings = [Standing(candidate) for candidate in self.plan.candidates]
        for rung, rounds in enumerate((self.rounds[:1], self.rounds[1:])):
            self._cut(standings, rung)
            for standing in standings[: self.plan.size.race[rung]] if rounds else []:
                self._train(standing, f"{standing.candidate.name}-{rung + 1}", rounds)
            standings = ranked(standings)
        if standings[0].failure:
            raise SolverError(f"no candidate could be trained: {standings[0].failure}")
        self._cut(standings, len(self.plan.size.race))
        chosen = self._chosen(standings)
        if self.plan.refit:
            self.total = self.done + self.plan.size.fits * sum(self._work(s) for s in chosen)
        return standings, chosen

    def _work(self, standing: Standing) -> float:
        """Of one training of a candidate."""
        config = standing.candidate.config(self.base)
        return fit_work(self.problems.of(config), config)

    def _cut(self, standings: Sequence[Standing], rung: int) -> None:
        """Make the plan from a rung on as small as the time left demands, and store it."""
        each = [self._work(standing) for standing in standings]

        def rest(size: Size) -> float:
            return remaining(size, each, rung, len(self.rounds), self.plan.refit)

        if self.done and not math.isinf(self.budget):
            passed = time.monotonic() - self.started
            left = (self.budget - passed) * self.done / passed  # in multiplications
            fitting = [size for size in (self.plan.size, *SIZES) if rest(size) <= left] or [SIZES[-1]]
            size = smaller(self.plan.size, fitting[0], rung)
            if size != self.plan.size:
                self.plan = replace(self.plan, size=size, work=self.done + rest(size))
                self.store(self.plan)
                if self.progress is not None:
                    self.progress.plan(self.plan)
        self.total = self.done + rest(self.plan.size)

    def _chosen(self, standings: Sequence[Standing]) -> list[Standing]:
        """The candidates in the ensemble, the largest weight first."""
        best = standings[0]
        equal = [s for s in standings if not s.failure and len(s.results) == len(best.results)]
        found = [standing.answers() for standing in equal]
        nodes = found[0][0]
        for own, _ in found:  # a model that cannot be integrated gives no answer
            nodes = nodes[torch.isin(nodes, own)]
        answers = torch.stack([answers[torch.isin(own, nodes)] for own, answers in found])
        weights = stacked(best.runs[0].problem.task, nodes, answers)
        for place, weight in kept(weights, self.plan.size.chosen).items():
            equal[place].weight = weight
        return sorted((s for s in equal if s.weight), key=lambda s: -s.weight)

    def _train(self, standing: Standing, name: str, rounds: Sequence[Member]) -> None:
        if standing.failure:
            return
        try:
            standing.runs.append(self._fit(name, standing.candidate.config(self.base), rounds))
            nodes, answers = standing.answers()
            loss = float(standing.runs[0].problem.task.mean_loss(answers, nodes))
            if not math.isfinite(loss):
                raise SolverError("its answers for the validation nodes are not finite")
            standing.loss = loss
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
            self.progress.fit(name, self.done, self.total)
        if is_finished(path):
            run = self._load(path)
            self.before += run.summary["seconds"]
        else:
            with open_folder(path, config, self.data, holds_run(path)) as folder:
                Trainer(problem, config, members, folder, self.progress).run()
            self.before += folder.before
            run = self._load(path)
        self.done += fit_work(problem, config) * len(members)
        return run

    def _load(self, path: Path) -> Run:
        run = load_run(path)
        run.remember(self.data, self.problems.of(run.config))
        return run


def answers_of_runs(runs: Sequence[Run], weights: Sequence[float] | None = None) -> Answers:
    """The answers of all members of several runs.

    Args:
        runs: Which.
        weights: Of each member of a run; by default all have the same.
    """
    parts = []
    for run, weight in zip(runs, weights or [1.0] * len(runs), strict=True):
        members = [result.member for result in run.results]
        parts.append(answers_of(run.problem, run.config, members, run.states, weight))
    return joined(parts)


def assess_runs(runs: Sequence[Run], weights: Sequence[float]) -> tuple[float, dict[str, Any]]:
    """Temperature and figures of the mean of all members, each for the nodes that it did not learn from."""
    task, answers = runs[0].problem.task, answers_of_runs(runs, weights)
    temperature = fit_temperature(task, answers)
    return temperature, assessed(task, answers, temperature)


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
    return sorted(standings, key=lambda s: (bool(s.failure), -len(s.results), s.loss))
