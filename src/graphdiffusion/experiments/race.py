"""Successive halving: trials train together, and at every rung the worse ones are dropped.

Trials of one family are members of one population, in lanes that fit in memory. All lanes reach a rung
before any goes on, so that a trial is measured against every other one, of whatever family.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from statistics import fmean

import torch
from torch_geometric.data import Data

from ..data import Split, deal_again, stack_splits
from ..training.config import Config
from ..training.memory import chunk_size, free_memory, in_chunks, member_bytes, require_room
from ..training.population import Population
from ..training.problem import FIXED, Member, Problem, Problems, member_splits, split_kind, splits_of
from ..training.summary import counted, shown
from .lane import Lane, Standing
from .space import Trial

LOOK = 10  # epochs between two looks at the clock

Clock = Callable[[], float]


@dataclass
class Outcome:
    """What a trial has reached so far.

    Attributes:
        trial: The trial.
        score: Mean over its seeds of the best validation accuracy, less a little of the loss that decides
            between equals.
        epochs: Trained so far, by the seed that came least far.
        rungs: The score at each rung, by its epochs.
        state: ``"racing"``, ``"dropped"``, ``"finished"`` (also where an integration failed on the way),
            ``"failed"`` (before there was a score), ``"stopped"`` (out of time), or ``"start"``, which did
            not race.
    """

    trial: Trial
    score: float = -math.inf
    epochs: int = 0
    rungs: dict[int, float] = field(default_factory=dict)
    state: str = "racing"


class Workshop:
    """Data made ready for every family of a search, and populations that cannot see the test nodes.

    Args:
        data: The graph.
        device: Where to compute.
    """

    def __init__(self, data: Data, device: torch.device) -> None:
        self.device = device
        self._problems = Problems(data, device)

    def problem(self, config: Config) -> Problem:
        return self._problems.of(config)

    def rehearse(self, config: Config, seed: int) -> None:
        """Meet, before anything is written, the errors that splits and model would raise later."""
        problem = self.problem(config)
        require_room(problem, config)
        _dealt(config, problem.data, [Member(0, seed, seed)])

    def lanes(self, trials: Sequence[Trial], seeds: Sequence[int]) -> list[Lane]:
        """Every trial with every seed, grouped by family and cut to what fits in memory."""
        found = []
        for _, together in groupby(sorted(trials, key=lambda t: repr(t.family)), key=lambda t: t.family):
            family = list(together)
            shared = family[0].config
            members = [
                Member(
                    trial.number * len(seeds) + place,
                    seed,
                    seed * 1000,
                    {
                        name: value
                        for name in shared.per_member
                        if (value := getattr(trial.config, name)) != getattr(shared, name)
                    },
                )
                for trial in family
                for place, seed in enumerate(seeds)
            ]
            problem = self.problem(shared)
            largest = max((t.config for t in family), key=lambda config: member_bytes(problem, config))
            size = chunk_size(problem, largest, len(members))
            found += in_chunks(members, size, partial(self._lane, shared))
        return found

    def _lane(self, config: Config, members: list[Member]) -> Lane:
        problem = self.problem(config)
        split = _dealt(config, problem.data, members)
        blind = Split(split.train, split.val, torch.zeros_like(split.test))
        return Lane(config, Population(problem, config, members, blind))

    def advance(self, lanes: Iterable[Lane], epochs: int, left: Clock = lambda: math.inf) -> list[Lane]:
        """Train all lanes up to an epoch; a lane that does not fit in memory begins again in halves.

        Returns the lanes that are there now. When no time is ``left`` they stay where they are.
        """
        done: list[Lane] = []
        for lane in lanes:
            ended, members = dict(lane.ended), list(lane.population.members)
            if not members:  # all have failed
                done.append(lane)
                continue
            work = partial(self._advance, lane, len(members), epochs, left)
            parts = in_chunks(members, len(members), work)
            parts[0].ended |= ended
            done += parts
        return done

    def _advance(self, lane: Lane, whole: int, epochs: int, left: Clock, members: list[Member]) -> Lane:
        """Train some members of a lane; fewer than the ``whole`` of it in a lane of their own."""
        if len(members) < whole:
            lane = self._lane(lane.config, members)
        population = lane.population
        target = min(epochs, lane.config.epochs)
        try:
            while len(population) and population.epochs_done < target:
                if population.epochs_done % LOOK == 0 and left() <= 0:
                    break
                failure = population.step()
                if failure is not None:
                    lane.end(failure)
        finally:
            population.captured = None  # the graph holds the memory of a whole step
        return lane


def _dealt(config: Config, data: Data, members: Sequence[Member]) -> Split:
    """The splits of members in a search: of a fixed one, training and validation nodes are dealt anew."""
    if split_kind(config, data) not in FIXED:
        return member_splits(config, data, members)
    # of several splits that are given, each seed takes the next one
    count = splits_of(config, data)
    given = [replace(m, split=config.seed + m.split % count) for m in members]
    fixed = member_splits(config, data, given)
    return stack_splits([
        deal_again(Split(*parts), data.y, m.split)
        for m, *parts in zip(members, fixed.train, fixed.val, fixed.test, strict=True)
    ])  # fmt: skip


def scores(lanes: Iterable[Lane], seeds: int) -> dict[int, tuple[float, int]]:
    """Mean score and epochs of every trial with all of its members in the lanes."""
    found: dict[int, list[Standing]] = defaultdict(list)
    for lane in lanes:
        for number, standing in lane.standings().items():
            found[number // seeds].append(standing)
    return {k: (fmean(s.score for s in own), min(s.epochs for s in own)) for k, own in found.items()}


def rungs(grace: int, reduction: float, epochs: int) -> list[int]:
    """``grace · reductionᵏ`` below the last epoch, and the last epoch."""
    found, at = [], float(grace)
    while round(at) < epochs:
        found.append(round(at))
        at *= reduction
    return [*found, epochs]


def survivors(now: Mapping[int, float], earlier: Sequence[float], reduction: float) -> set[int]:
    """Trials among the best ``1/reduction`` of all that have been seen at a rung."""
    everyone = sorted([*now.values(), *earlier], reverse=True)
    bar = everyone[max(1, math.ceil(len(everyone) / reduction)) - 1]
    return {trial for trial, score in now.items() if score >= bar and math.isfinite(score)}


def race(
    workshop: Workshop,
    trials: Sequence[Trial],
    seeds: Sequence[int],
    *,
    grace: int,
    reduction: float,
    earlier: Mapping[int, Sequence[float]],
    budget: float,
    reached: Callable[[int, Sequence[Outcome]], None],
    note: Callable[[str], None],
) -> list[Outcome]:
    """Train trials and drop the worse ones as they go.

    Args:
        workshop: Data and device.
        trials: The trials.
        seeds: Of splits and weights; every trial is trained with each.
        grace: Epochs before the first cut.
        reduction: One in so many goes on; a rung has so many times the epochs of the one before.
        earlier: Scores at each rung of trials that took part in an attempt before this one.
        budget: Seconds; when they are over, all trials stop where they are.
        reached: Called with each rung and the trials that reached it; of those that do not go on, the
            outcome is final.
        note: Called with each line that reports progress.
    """
    started = time.monotonic()

    def left() -> float:
        return budget - (time.monotonic() - started)

    outcomes = {trial.number: Outcome(trial) for trial in trials}
    lanes = workshop.lanes(trials, seeds)
    percent = workshop.problem(trials[0].config).task.percent
    ends = {trial.number: trial.config.epochs for trial in trials}
    for rung in rungs(grace, reduction, max(ends.values())):
        lanes = workshop.advance(lanes, rung, left)
        for number, (score, epochs) in scores(lanes, len(seeds)).items():
            outcomes[number].score, outcomes[number].epochs = score, epochs
        # a trial ends with the first of its members
        ended = {number // len(seeds) for lane in lanes for number in lane.ended}
        racing = [o for o in outcomes.values() if o.state == "racing"]
        going = [o for o in racing if o.trial.number not in ended]
        if left() <= 0 and any(o.epochs < min(rung, ends[o.trial.number]) for o in going):
            for outcome in racing:
                outcome.state = "stopped"
            note(f"out of time after {time.monotonic() - started:.0f} s, at {rung} epochs.")
            break
        for outcome in going:
            outcome.rungs[rung] = outcome.score
        over = [o for o in racing if o.trial.number in ended or ends[o.trial.number] <= rung]
        for outcome in over:
            outcome.state = "finished" if math.isfinite(outcome.score) else "failed"
        now = {o.trial.number: o.score for o in going if o.state == "racing"}
        kept = survivors(now, earlier.get(rung, ()), reduction) if now else set()
        dropped = [outcomes[k] for k in now if k not in kept]
        for outcome in dropped:
            outcome.state = "dropped"
        reached(rung, racing)
        best = max(o.score for o in outcomes.values())
        note(
            f"{rung} epochs: {counted(len(racing), 'trial')}, best validation {shown(best, percent)}, "
            f"{len(kept)} go on ({time.monotonic() - started:.0f} s)."
        )
        lanes = _select(lanes, kept, len(seeds))
        free_memory()
        if not lanes:
            break
    return list(outcomes.values())


def _select(lanes: Iterable[Lane], kept: set[int], seeds: int) -> list[Lane]:
    """The lanes with only these trials in them."""
    left = []
    for lane in lanes:
        population = lane.population
        lane.ended.clear()  # none of these trials is kept
        stay = [k for k, m in enumerate(population.members) if m.number // seeds in kept]
        if not stay:
            continue
        if len(stay) < len(population):
            population.select(torch.tensor(stay, device=population.loss.device))
        left.append(lane)
    return left
