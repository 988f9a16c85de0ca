"""A search: random trials, successive halving by validation, and a choice among the best on fresh splits.

The test nodes are never looked at, and the seeds of a search are not those of a reported training.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

from torch_geometric.data import Data

from ..errors import ConfigError
from ..training.config import Config
from ..training.memory import free_memory
from ..training.problem import pick_device, read_data
from ..training.summary import counted, duration
from ..training.tasks import Task
from ..training.timing import epoch_seconds
from .race import Outcome, Workshop, race, rungs
from .record import Book, Entry, Leaderboard, Plan
from .space import Space, Trial, draw_trials

Note = Callable[[str], None]

TIMED_MEMBERS = 32  # at most so many train together when an epoch is timed


def search(
    config: Config,
    space: Space,
    plan: Plan,
    folder: Path | None = None,
    *,
    data: Data | None = None,
    watcher: Note = lambda line: None,
) -> Leaderboard:
    """Look for better options than those of a configuration.

    Args:
        config: Where to start, with all options that the space does not hold.
        space: Options and their values.
        plan: How.
        folder: Keeps ``trials.jsonl``, ``leaderboard.json`` and ``best.toml``; a search that was stopped
            goes on from there.
        data: The graph; by default that of the configuration.
        watcher: Called with each line that reports progress.
    """
    trials = draw_trials(config, space, plan.trials, plan.families, plan.seed, plan.stay)
    data = read_data(config) if data is None else data
    workshop = Workshop(data, pick_device(config.device))
    workshop.rehearse(config, plan.race_seeds[0])
    with Book(config, space, plan, folder).open(data) as book:
        return _search(book, workshop, trials, watcher)


def _search(book: Book, workshop: Workshop, trials: Sequence[Trial], watcher: Note) -> Leaderboard:
    plan = book.plan
    done = book.outcomes(trials)
    left = [trial for trial in trials if trial.number not in done]
    families = len({t.family for t in trials})
    watcher(
        f"search {book.name}: {counted(len(trials), 'trial')} in "
        f"{families} {'family' if families == 1 else 'families'}."
    )
    if done:
        watcher(f"{len(done)} trials are finished already.")
    earlier: dict[int, list[float]] = defaultdict(list)
    for outcome in done.values():
        for rung, score in outcome.rungs.items():
            earlier[rung].append(score)
    outcomes = list(done.values())
    if left:
        needed = duration(estimate(workshop, book, left))
        watcher(f"about {needed} on this machine, by a few epochs of the start.")
        outcomes += race(
            workshop,
            left,
            plan.race_seeds,
            grace=plan.grace,
            reduction=plan.reduction,
            earlier=earlier,
            budget=plan.budget,
            reached=book.write,
            note=watcher,
        )
    return conclude(book, workshop, outcomes, watcher)


def estimate(workshop: Workshop, book: Book, trials: Sequence[Trial]) -> float:
    """Seconds that the race of some trials and the finals take, from a few epochs of the first trial.

    Trials are taken to cost what the first one costs; a budget of the race is kept.
    """
    plan, config = book.plan, trials[0].config
    timed = [Trial(k, config) for k in range(min(TIMED_MEMBERS, len(trials)))]
    population = workshop.lanes(timed, plan.race_seeds[:1])[0].population
    each = epoch_seconds(population) / len(population)
    epochs, before, racing = 0.0, 0, float(len(trials) * len(plan.race_seeds))
    for rung in rungs(plan.grace, plan.reduction, config.epochs):
        epochs += racing * (rung - before)
        before, racing = rung, racing / plan.reduction
    return min(each * epochs, plan.budget) + each * plan.finalists * plan.final_seeds * config.epochs


def conclude(book: Book, workshop: Workshop, outcomes: Sequence[Outcome], watcher: Note) -> Leaderboard:
    """Train the best trials again on fresh splits, and rank by the mean of their validation accuracy."""
    plan = book.plan
    ranked = sorted(outcomes, key=lambda o: (o.epochs, o.score), reverse=True)
    chosen = [o.trial for o in ranked if math.isfinite(o.score)][: plan.finalists]
    if not chosen:
        raise ConfigError("no trial could be trained: all integrations failed, or the budget is too small.")
    # what the search started from takes part, so that its gain can be told
    chosen += [o.trial for o in outcomes if o.trial.number == 0 and o.trial not in chosen]
    values = book.finals(chosen)
    todo = [trial for trial in chosen if trial.number not in values]
    watcher(f"{counted(len(chosen), 'finalist')} on {plan.final_seeds} fresh seeds each.")
    by_number = {trial.number: trial for trial in todo}
    partly: dict[int, list[float]] = defaultdict(list)
    free_memory()
    for lane in workshop.lanes(todo, plan.fresh_seeds):
        for part in workshop.advance([lane], lane.config.epochs):
            for member, standing in sorted(part.standings().items()):
                number = member // plan.final_seeds
                partly[number].append(standing.val)
                if len(partly[number]) == plan.final_seeds:
                    values[number] = partly[number]
                    book.write_final(by_number[number], values[number])
    task = workshop.problem(book.config).task
    board = _board(book, task, ranked, {trial.number: values[trial.number] for trial in chosen})
    book.conclude(board, len(outcomes))
    return board


def _board(
    book: Book, task: Task, ranked: Sequence[Outcome], finals: dict[int, list[float]]
) -> Leaderboard:
    entries = []
    for outcome in ranked:
        own = finals.get(outcome.trial.number)
        entries.append(
            Entry(
                outcome.trial.number,
                outcome.state,
                outcome.epochs,
                outcome.score if math.isfinite(outcome.score) else None,
                statistics.fmean(own) if own else None,
                (statistics.stdev(own) if len(own) > 1 else 0.0) if own else None,
                book.options(outcome.trial),
            )
        )
    # a stable sort: among the others the order of the race remains
    entries.sort(key=lambda e: -math.inf if e.mean is None else e.mean, reverse=True)
    best = next(o.trial.config for o in ranked if o.trial.number == entries[0].trial)
    seconds = book.seconds if book.timed else None
    return Leaderboard(book.name, entries, best, book.folder, task.metric, task.percent, seconds)
