"""A search: random trials, successive halving by validation, and a choice among the best on fresh splits.

The test nodes are never looked at, and the seeds of a search are not those of a reported training.
"""

from __future__ import annotations

import hashlib
import json
import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torch_geometric.data import Data

from ..data import open_data
from ..errors import ConfigError
from ..training.config import Config
from ..training.problem import pick_device
from ..training.storage import append_line, read_json, read_lines, write_bytes, write_json
from .presets import preset_text
from .race import Outcome, Workshop, race
from .space import Range, Space, Trial, draw_trials

# Reported trainings have seeds from 0; a search takes its own from here, and for the last choice others
# than for the race, so that a trial does not win by the split it happened to race on.
SEARCH_SEEDS = 1_000_000
FINAL_SEEDS = 1_000
_BETWEEN = 10_000  # seeds of two searches

Note = Callable[[str], None]


@dataclass(frozen=True)
class Entry:
    """A trial on the leaderboard; accuracies in [0, 1]."""

    trial: int
    state: str
    epochs: int
    score: float | None
    mean: float | None  # over the fresh seeds, for those that came so far
    std: float | None
    options: dict[str, Any]


@dataclass(frozen=True)
class Leaderboard:
    """What a search found, best first.

    Attributes:
        name: Identifies configuration, space and parameters of the search.
        entries: All trials.
        best: The configuration of the first one.
        folder: Where everything is kept, or ``None``.
    """

    name: str
    entries: list[Entry]
    best: Config
    folder: Path | None


@dataclass(frozen=True)
class Plan:
    """How a search is carried out.

    Args:
        trials: Points of the space.
        families: Structures among them; each is a population of its own.
        seeds: Trainings of each trial in the race, on as many splits.
        grace: Epochs before the first cut.
        reduction: One in so many trials goes on at each rung.
        finalists: Trials that are trained again on fresh splits, besides the configuration itself.
        final_seeds: Number of these splits.
        seed: Of the trials, and of the splits.
        budget: Seconds that the race may take.
    """

    trials: int = 200
    families: int = 8
    seeds: int = 1
    grace: int = 10
    reduction: float = 2.0
    finalists: int = 8
    final_seeds: int = 10
    seed: int = 0
    budget: float = math.inf

    def __post_init__(self) -> None:
        for name in ("trials", "families", "seeds", "grace", "finalists", "final_seeds"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, got {getattr(self, name)}.")
        if not 1 < self.reduction < math.inf:
            raise ConfigError(f"reduction must be greater than 1, got {self.reduction:g}.")
        if not self.budget > 0:
            raise ConfigError(f"budget must be greater than 0 seconds, got {self.budget:g}.")
        if self.seed < 0:
            raise ConfigError(f"seed must be at least 0, got {self.seed}.")
        if self.seeds > FINAL_SEEDS or self.final_seeds > _BETWEEN - FINAL_SEEDS:
            raise ConfigError(f"at most {FINAL_SEEDS} seeds and {_BETWEEN - FINAL_SEEDS} final_seeds.")

    @property
    def race_seeds(self) -> range:
        first = SEARCH_SEEDS + self.seed * _BETWEEN
        return range(first, first + self.seeds)

    @property
    def fresh_seeds(self) -> range:
        first = SEARCH_SEEDS + self.seed * _BETWEEN + FINAL_SEEDS
        return range(first, first + self.final_seeds)


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
        config: Where to start, and what the space leaves alone.
        space: Options and their values.
        plan: How.
        folder: Keeps ``trials.jsonl``, ``leaderboard.json`` and ``best.toml``; a search that was stopped
            goes on from there.
        data: The graph; by default that of the configuration.
        watcher: Is told of the progress, a line at a time.
    """
    trials = draw_trials(config, space, plan.trials, plan.families, plan.seed)
    workshop = Workshop(_data(config) if data is None else data, pick_device(config.device))
    workshop.rehearse(config, plan.race_seeds[0])
    book = Book(config, space, plan, folder)
    book.open()
    done = book.outcomes(trials)
    left = [trial for trial in trials if trial.number not in done]
    watcher(f"search {book.name}: {len(trials)} trials in {len({t.family for t in trials})} families.")
    if done:
        watcher(f"{len(done)} trials are finished already.")
    earlier: dict[int, list[float]] = defaultdict(list)
    for outcome in done.values():
        for rung, score in outcome.rungs.items():
            earlier[rung].append(score)
    outcomes = list(done.values())
    if left:
        outcomes += race(
            workshop,
            left,
            plan.race_seeds,
            grace=plan.grace,
            reduction=plan.reduction,
            earlier=earlier,
            budget=plan.budget,
            settled=book.write_outcomes,
            note=watcher,
        )
    return conclude(book, workshop, outcomes, watcher)


def conclude(book: Book, workshop: Workshop, outcomes: Sequence[Outcome], watcher: Note) -> Leaderboard:
    """Train the best trials again on fresh splits, and rank by the mean of their validation accuracy."""
    plan = book.plan
    ranked = sorted(outcomes, key=lambda o: (o.epochs, o.score), reverse=True)
    chosen = [o.trial for o in ranked if math.isfinite(o.score)][: plan.finalists]
    if not chosen:
        raise ConfigError("no trial could be trained: every integration failed, or the budget is too small.")
    # what the search started from takes part, so that its gain can be told
    chosen += [o.trial for o in outcomes if o.trial.number == 0 and o.trial not in chosen]
    values = book.finals()
    todo = [trial for trial in chosen if trial.number not in values]
    watcher(f"{len(chosen)} finalists on {plan.final_seeds} fresh seeds each.")
    partly: dict[int, list[float]] = defaultdict(list)
    workshop.free()
    for lane in workshop.lanes(todo, plan.fresh_seeds):
        for part in workshop.advance([lane], lane.config.epochs):
            reached = part.population.best_val.tolist()
            for member, value in zip(part.population.members, reached, strict=True):
                number = member.number // plan.final_seeds
                partly[number].append(value)
                if len(partly[number]) == plan.final_seeds:
                    values[number] = partly[number]
                    book.write_final(number, values[number])
    board = _board(book, ranked, {trial.number: values[trial.number] for trial in chosen})
    book.conclude(board, len(outcomes))
    return board


def _board(book: Book, ranked: Sequence[Outcome], finals: dict[int, list[float]]) -> Leaderboard:
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
                {name: getattr(outcome.trial.config, name) for name in book.space},
            )
        )
    # a stable sort: among the others the order of the race remains
    entries.sort(key=lambda e: -math.inf if e.mean is None else e.mean, reverse=True)
    best = next(o.trial.config for o in ranked if o.trial.number == entries[0].trial)
    return Leaderboard(book.name, entries, best, book.folder)


class Book:
    """What a search writes down, and reads when it is taken up again."""

    def __init__(self, config: Config, space: Space, plan: Plan, folder: Path | None) -> None:
        self.config, self.space, self.plan, self.folder = config, space, plan, folder
        # what a trial's score depends on; more trials, or more time, do not change it
        about = {
            "config": config.to_dict(),
            "space": {name: asdict(s) if isinstance(s, Range) else s for name, s in space.items()},
            **{k: v for k, v in asdict(plan).items() if k in _DECISIVE},
        }
        for place in ("root", "device"):
            del about["config"][place]
        digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()
        self.name = digest[:8]
        self._about = json.loads(json.dumps(about))

    def open(self) -> None:
        """Begin a folder, or check that the one there belongs to this search."""
        if self.folder is None:
            return
        path = self.folder / "search.json"
        if path.exists():
            if read_json(path) != self._about:
                raise ConfigError(
                    f"{self.folder} holds a search with other options (see its search.json): "
                    "name another folder."
                )
            self._trim()
        elif self.folder.exists() and (not self.folder.is_dir() or any(self.folder.iterdir())):
            raise ConfigError(f"{self.folder} holds other files and no search: name a new folder.")
        else:
            write_json(path, self._about)

    def _trim(self) -> None:
        """Forget a line that was cut off, before others are written behind it."""
        assert self.folder is not None
        path = self.folder / "trials.jsonl"
        if path.exists() and not path.read_bytes().endswith(b"\n"):
            text = "".join(f"{json.dumps(line)}\n" for line in read_lines(path))
            write_bytes(path, text.encode())

    def outcomes(self, trials: Sequence[Trial]) -> dict[int, Outcome]:
        """Trials whose outcome an earlier attempt has found."""
        return {
            line["trial"]: Outcome(
                trials[line["trial"]],
                -math.inf if line["score"] is None else line["score"],
                line["epochs"],
                {int(rung): score for rung, score in line["rungs"].items()},
                line["state"],
            )
            for line in self._lines("trial")
            if line["trial"] < len(trials)
        }

    def write_outcomes(self, outcomes: Sequence[Outcome]) -> None:
        for o in outcomes:
            options = {name: getattr(o.trial.config, name) for name in self.space}
            self._append(
                {
                    "kind": "trial",
                    "trial": o.trial.number,
                    "state": o.state,
                    "epochs": o.epochs,
                    "score": o.score if math.isfinite(o.score) else None,
                    "rungs": {str(k): v for k, v in o.rungs.items() if math.isfinite(v)},
                    "options": options,
                }
            )

    def finals(self) -> dict[int, list[float]]:
        """Validation accuracies on the fresh seeds, by trial."""
        return {
            line["trial"]: line["val"]
            for line in self._lines("final")
            if len(line["val"]) == self.plan.final_seeds
        }

    def write_final(self, trial: int, values: list[float]) -> None:
        self._append({"kind": "final", "trial": trial, "val": values})

    def conclude(self, board: Leaderboard, trials: int) -> None:
        """``leaderboard.json``, and ``best.toml``, a preset that says where it comes from."""
        if self.folder is None:
            return
        first, seeds = board.entries[0], self.plan.fresh_seeds
        entries = [asdict(entry) for entry in board.entries]
        write_json(self.folder / "leaderboard.json", {"search": self.name, "entries": entries})
        assert first.mean is not None and first.std is not None
        header = (
            f"Search {self.name}: {trials} trials on {self.config.data}, {self.config.variant}, "
            f"{self.config.split} splits, successive halving.\n"
            f"Validation {100 * first.mean:.2f} ± {100 * first.std:.2f}% over {len(seeds)} trainings "
            f"with seeds from {seeds[0]}; the test nodes were not read."
        )
        write_bytes(
            self.folder / "best.toml", preset_text(board.best, self.space, header).encode()
        )

    def _lines(self, kind: str) -> list[dict[str, Any]]:
        if self.folder is None:
            return []
        return [line for line in read_lines(self.folder / "trials.jsonl") if line["kind"] == kind]

    def _append(self, line: dict[str, Any]) -> None:
        if self.folder is not None:
            append_line(self.folder / "trials.jsonl", line)


_DECISIVE = ("families", "seeds", "grace", "reduction", "seed")


def _data(config: Config) -> Data:
    return open_data(config.data, root=config.root or None, lcc=config.lcc)
