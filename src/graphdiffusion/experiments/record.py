"""The record of a search: how it is carried out, what it found, and the files that keep both."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torch_geometric.data import Data

from ..errors import ConfigError, DataError
from ..files import is_part, write_bytes
from ..training.choices import MOST_SEEDS
from ..training.config import Config
from ..training.fingerprint import changed_parts, data_digests
from ..training.journal import Journal, read_lines
from ..training.lock import LOCK, writing
from ..training.problem import FIXED
from ..training.storage import read_json, write_json
from ..training.summary import shown
from .presets import preset_text
from .race import Outcome
from .space import STAY, Range, Space, Trial, space_plugins

# Reported trainings have seeds from 0; a search takes its own from here, and for the last choice others
# than for the race, so that a trial does not win by the split it happened to race on.
SEARCH_SEEDS = MOST_SEEDS
FINAL_SEEDS = 1_000
_BETWEEN = 10_000  # seeds of two searches
_DECISIVE = (
    "families",
    "seeds",
    "grace",
    "reduction",
    "seed",
)  # options of a plan that the score of a trial depends on


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
        metric: The score of the trials.
        percent: Whether it is shown in percent.
        seconds: Of all attempts, from the beginning of each to the last result that it kept; ``None`` where
            an earlier version has begun the search, and did not note them.
    """

    name: str
    entries: list[Entry]
    best: Config
    folder: Path | None
    metric: str
    percent: bool
    seconds: float | None


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
        stay: Probability that an option of a structure is the configuration's own.
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
    stay: float = STAY

    @classmethod
    def of(cls, trials: int) -> Plan:
        """The plan for the tables: with more trials than 200 there are more families and a larger final."""
        return cls(
            trials,
            families=max(8, trials // 25),
            finalists=max(8, trials // 60),
            final_seeds=max(10, trials // 50),
        )

    def __post_init__(self) -> None:
        for name in ("trials", "families", "seeds", "grace", "finalists", "final_seeds"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, got {getattr(self, name)}.")
        if not 1 < self.reduction < math.inf:
            raise ConfigError(f"reduction must be greater than 1, got {self.reduction:g}.")
        if not self.budget > 0:
            raise ConfigError(f"budget must be greater than 0 seconds, got {self.budget:g}.")
        if not 0 <= self.stay <= 1:
            raise ConfigError(f"stay is a probability, in [0, 1], got {self.stay:g}.")
        if not 0 <= self.seed < MOST_SEEDS:
            raise ConfigError(f"seed must be between 0 and {MOST_SEEDS - 1}, got {self.seed}.")
        if self.seeds > FINAL_SEEDS or self.final_seeds > _BETWEEN - FINAL_SEEDS:
            raise ConfigError(f"at most {FINAL_SEEDS} seeds and {_BETWEEN - FINAL_SEEDS} final_seeds.")

    @property
    def race_seeds(self) -> range:
        """Seeds of the trials in the race."""
        first = SEARCH_SEEDS + self.seed * _BETWEEN
        return range(first, first + self.seeds)

    @property
    def fresh_seeds(self) -> range:
        """Seeds of the final, others than those of the race."""
        first = SEARCH_SEEDS + self.seed * _BETWEEN + FINAL_SEEDS
        return range(first, first + self.final_seeds)


class Book:
    """What a search writes down, and reads when it is taken up again.

    Without a folder nothing is kept.

    Attributes:
        seconds: Spent until the last result, by earlier attempts too.
        timed: Whether these are all: a search of an earlier version did not note them.
    """

    def __init__(self, config: Config, space: Space, plan: Plan, folder: Path | None) -> None:
        self.config, self.space, self.plan, self.folder = config, space, plan, folder
        self.seconds, self.timed, self._began = 0.0, True, time.monotonic()
        # what a trial's score depends on; more trials, or more time, do not change it
        about = {
            "config": config.to_dict(),
            "space": {name: asdict(s) if isinstance(s, Range) else s for name, s in space.items()},
            **{k: v for k, v in asdict(plan).items() if k in _DECISIVE},
        }
        if plugins := space_plugins(config, space):
            about["plugins"] = plugins
        if config.split in FIXED:
            about["dealt"] = "anew"  # its training and validation nodes, for every seed
        del about["config"]["device"]
        digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()
        self.name = digest[:8]
        self._about = json.loads(json.dumps(about))
        self._trials: Journal | None = None
        self._earlier: list[dict[str, Any]] = []

    @contextmanager
    def open(self, data: Data) -> Iterator[Book]:
        """Hold the folder: a new one, or that of the same search on the same data."""
        if self.folder is None:
            yield self
            return
        path = self.folder / "search.json"
        if not path.exists():
            self._require_free()
        with writing(self.folder):
            if path.exists():
                self._check_same(read_json(path, "search"), data)
            else:
                self._require_free()
                write_json(path, "search", self._about | {"data": data_digests(data)})
            self._trials = Journal(self.folder / "trials.jsonl")
            self._trials.cut()
            self._earlier = read_lines(self._trials.path)
            known = [line["seconds"] for line in self._earlier if "seconds" in line]
            self.timed = len(known) == len(self._earlier)
            self.seconds = max(known, default=0.0)
            self._began = time.monotonic() - self.seconds
            yield self

    def _require_free(self) -> None:
        assert self.folder is not None
        folder = self.folder
        foreign = folder.is_dir() and any(p.name != LOCK and not is_part(p) for p in folder.iterdir())
        if foreign or (folder.exists() and not folder.is_dir()):
            raise ConfigError(f"{folder} holds other files and no search: name a new folder.")

    def _check_same(self, stored: dict[str, Any], data: Data) -> None:
        before = stored.pop("data", {})
        if stored != self._about:
            raise ConfigError(
                f"{self.folder} holds a search with other options (see its search.json): "
                "name another folder."
            )
        if parts := changed_parts(before, data_digests(data)):
            raise DataError(
                f"the {parts} of {self.config.data} have changed since the search in {self.folder} began: "
                "put the old data back, or name another folder."
            )

    def outcomes(self, trials: Sequence[Trial]) -> dict[int, Outcome]:
        """Trials whose outcome an earlier attempt has found."""
        return {
            trial.number: Outcome(
                trial,
                -math.inf if line["score"] is None else line["score"],
                line["epochs"],
                {int(rung): score for rung, score in line["rungs"].items()},
                line["state"],
            )
            for trial, line in self._known("trial", trials)
        }

    def write(self, rung: int, outcomes: Sequence[Outcome]) -> None:
        """Keep the outcomes that are final at a rung."""
        for o in (o for o in outcomes if o.state not in ("racing", "stopped")):
            self._append(
                {
                    "kind": "trial",
                    "trial": o.trial.number,
                    "state": o.state,
                    "epochs": o.epochs,
                    "score": o.score if math.isfinite(o.score) else None,
                    "rungs": {str(k): v for k, v in o.rungs.items() if math.isfinite(v)},
                    "options": self.options(o.trial),
                }
            )

    def finals(self, trials: Sequence[Trial]) -> dict[int, list[float]]:
        """Validation accuracies on the fresh seeds, by trial, where an earlier attempt has them."""
        known = self._known("final", trials)
        return {t.number: line["val"] for t, line in known if len(line["val"]) == self.plan.final_seeds}

    def write_final(self, trial: Trial, values: list[float]) -> None:
        self._append(
            {"kind": "final", "trial": trial.number, "val": values, "options": self.options(trial)}
        )

    def options(self, trial: Trial) -> dict[str, Any]:
        """What a trial has of its own."""
        own = trial.config.to_dict()
        return {name: own[name] for name in self.space if name in own}

    def conclude(self, board: Leaderboard, trials: int) -> None:
        """``leaderboard.json``, and ``best.toml``, a preset that says where it comes from."""
        if self.folder is None:
            return
        first, seeds = board.entries[0], self.plan.fresh_seeds
        entries = [asdict(entry) for entry in board.entries]
        content = {"search": self.name, "entries": entries}
        write_json(self.folder / "leaderboard.json", "leaderboard", content)
        assert first.mean is not None and first.std is not None
        mean, std = (shown(value, board.percent) for value in (first.mean, first.std))
        header = (
            f"Search {self.name}: {trials} trials on {self.config.data}, {self.config.row}, "
            f"{self.config.split} splits, successive halving.\n"
            f"Validation {mean.removesuffix('%')} ± {std} over {len(seeds)} trainings "
            f"with seeds from {seeds[0]}; the test nodes of these splits were not read."
        )
        write_bytes(self.folder / "best.toml", preset_text(board.best, self.space, header).encode())

    def _known(self, kind: str, trials: Sequence[Trial]) -> list[tuple[Trial, dict[str, Any]]]:
        """Trials with their lines; a line is a trial's if the options say so, not the number alone."""
        by_number = {trial.number: trial for trial in trials}
        return [
            (trial, line)
            for line in self._earlier
            if line["kind"] == kind
            and (trial := by_number.get(line["trial"])) is not None
            and line["options"] == self.options(trial)
        ]

    def _append(self, line: dict[str, Any]) -> None:
        self.seconds = time.monotonic() - self._began
        if self._trials is not None:
            self._trials.append(line | {"seconds": round(self.seconds, 2)})
