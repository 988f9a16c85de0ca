"""The equations of GRAND's successors beside GRAND, GCN, GAT and MLP, each with one search budget.

Five parts: graphs whose neighbours differ, with their ten splits; few labels; random edges added; edges
changed by an attack on GCN; and by an attack on each model itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch_geometric.data import Data

from ..training.config import Config
from ..training.problem import PER_CLASS
from ..training.runs import Run
from ..training.summary import device_name, versions
from .perturbed import attacked, with_random_edges
from .record import Plan
from .results import Note, Results, Tick, require_known
from .successor_figures import figures, verdict
from .successor_models import MODELS, space_of, start_of
from .trained import Bench, trained

PARTS = ("sets", "labels", "edges", "attack", "adaptive")
SURROGATE = "gcn"  # that the attack is made on

# what one core can do in some hours
TRIALS = {
    "texas": 64, "cornell": 64, "wisconsin": 64, "chameleon": 64, "actor": 32, "squirrel": 32,
    "cora": 32, "citeseer": 32, "pubmed": 8,
}  # fmt: skip
ON_PUBMED = ("mlp", "gcn", "gat", "linear", "labelled-source", "graphcon", "adc")
TOO_SLOW = {
    **dict.fromkeys(("cora", "citeseer"), ("convection",)),
    **dict.fromkeys(("actor", "squirrel"), ("convection", "acmp")),
    "pubmed": tuple(model for model in MODELS if model not in ON_PUBMED),
}
# settings that only say which points are measured
LISTS = (
    "sets", "citations", "disturbed", "per_class", "shares", "attacks", "adaptive", "models", "left_out",
)  # fmt: skip


@dataclass(frozen=True)
class Settings:
    """What the figures depend on.

    Attributes:
        sets: Graphs with ten splits of their own.
        citations: Graphs of few labels.
        disturbed: Graphs of the other parts.
        per_class: Training nodes of each class, for few labels.
        shares: Random edges that are added, as a share of those that are there.
        attacks: Edges that an attack may add or remove, likewise.
        adaptive: Those that an attack on the model itself may.
        models: Which.
        left_out: Models that are too slow on a data set, by its name.
        splits: Random splits of the parts besides sets, one training on each.
        adaptive_splits: Of the attack on the model itself.
        trials: Of each search, the same for all models, by data set; 0: the settings it would start from.
        each: Trials of one structure in a search.
        stay: Probability that an option of a structure is that of the start.
        finalists: Trials of each search that are trained again on fresh splits.
        final_seeds: Number of these splits.
        searched_per_class: Training nodes of each class in the searches of few labels.
        epochs: At most.
        hidden: Width of all models.
    """

    sets: tuple[str, ...] = ("texas", "cornell", "wisconsin", "chameleon", "actor", "squirrel")
    citations: tuple[str, ...] = ("cora", "citeseer", "pubmed")
    disturbed: tuple[str, ...] = ("cora",)
    per_class: tuple[int, ...] = (1, 2, 5, 10, 20)
    shares: tuple[float, ...] = (0.0, 0.5, 1.0)
    attacks: tuple[float, ...] = (0.0, 0.05, 0.1, 0.25)
    adaptive: tuple[float, ...] = (0.0, 0.1)
    models: tuple[str, ...] = tuple(MODELS)
    left_out: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: dict(TOO_SLOW))
    splits: int = 10
    adaptive_splits: int = 5
    trials: Mapping[str, int] = field(default_factory=lambda: dict(TRIALS))
    each: int = 2
    stay: float = 0.3
    finalists: int = 3
    final_seeds: int = 5
    searched_per_class: int = 5
    epochs: int = 100
    hidden: int = 32


FULL = Settings()
SMALL = replace(
    FULL, sets=(), citations=("cora-embedded",), disturbed=("cora-embedded",), per_class=(1, 5),
    shares=(0.0, 0.5), attacks=(0.1,), adaptive=(0.1,), splits=4, adaptive_splits=1, trials={}, epochs=20,
    hidden=16, left_out={},
    models=("mlp", "gcn", "linear", "allen-cahn", "blurring-sharpening", "labelled-source", "graphcon"),
)  # fmt: skip


def reproduce(
    out: Path,
    *,
    small: bool,
    root: str | None,
    device: torch.device,
    note: Note,
    part: str = "",
    only: Sequence[str] = (),
    trials: int = 0,
) -> Path:
    """Measure in ``<out>/successors``, or ``successors-small``; the path of the results file.

    Args:
        part: This alone.
        only: These data sets alone.
        trials: Of every search; 0: those of the settings. Then no model is left out.
    """
    settings = SMALL if small else FULL
    known = {*settings.sets, *settings.citations, *settings.disturbed}
    require_known("only", sorted(only), sorted(known))
    if trials:
        settings = replace(settings, trials=dict.fromkeys(sorted(known), trials), left_out={})
    folder = out / ("successors-small" if small else "successors")
    results = Results(folder, asdict(settings), note, LISTS)
    work = Work(settings, folder, root, device, note)
    wanted = [p for p in points_of(settings) if part in ("", p["part"]) and (not only or p["data"] in only)]
    work.read(results.missing(wanted))
    results.measure(wanted, work.compute)
    results.conclude(lambda: {"figures": figures(results.points), "verdict": verdict(results.points)})
    return results.path


def points_of(settings: Settings) -> list[dict[str, Any]]:
    """What identifies every point: part, data set, model, and the labels a class or the share of edges."""
    parts: dict[str, tuple[Sequence[str], Sequence[float]]] = {
        "sets": (settings.sets, (0.0,)),
        "labels": (settings.citations, [float(count) for count in settings.per_class]),
        "edges": (settings.disturbed, settings.shares),
        "attack": (settings.disturbed, settings.attacks),
        "adaptive": (settings.disturbed, settings.adaptive),
    }
    return [
        {"part": part, "data": name, "model": model, "level": level}
        for part, (names, levels) in parts.items()
        for name in names
        for model in settings.models
        for level in levels
        if model not in settings.left_out.get(name, ())
    ]


class Work(Bench):
    """Searches, trainings and attacks of the points, each once."""

    settings: Settings

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._attacked: dict[tuple[str, str, int, float], Data] = {}

    def compute(self, point: Mapping[str, Any], tick: Tick) -> dict[str, Any]:
        """The figures of a point."""
        config = self.config(point)
        run = self.run(point, config)
        if point["part"] in ("attack", "adaptive") and point["level"]:
            scores = self.under_attack(point, run, tick)
        else:
            scores = [(result.val or 0.0, result.test or 0.0) for result in run.results]
        if point["part"] == "adaptive":
            scores = scores[: self.settings.adaptive_splits]
        return {
            "test": [100 * test for _, test in scores],
            "val": [100 * val for val, _ in scores],
            "trials": self.settings.trials.get(point["data"], 0),
            "options": config.to_dict(),
            "device": device_name(self.device),
            "versions": versions(),
        }

    def config(self, point: Mapping[str, Any]) -> Config:
        """The best settings that a search finds for a model on a data set, by validation.

        All parts besides sets have one search, on the graph as it is and with few labels.
        """
        own, name, model = self.settings, point["data"], point["model"]
        split = "given" if point["part"] == "sets" else "random"
        start = start_of(model, name, split, epochs=own.epochs, hidden=own.hidden, device=self.device.type)
        if split == "random":
            start = start.replace(per_class=own.searched_per_class)
        if trials := own.trials.get(name, 0):
            plan = Plan(
                trials=trials,
                families=math.ceil(trials / own.each),
                stay=own.stay,
                finalists=own.finalists,
                final_seeds=own.final_seeds,
            )
            start = self.searched(start, space_of(model), plan, f"{split}-{name}-{model}")
        if split == "given":
            return start.replace(splits=0)
        labels = int(point["level"]) if point["part"] == "labels" else PER_CLASS
        return start.replace(splits=own.splits, per_class=labels)

    def run(self, point: Mapping[str, Any], config: Config) -> Run:
        """The trainings of a point. An attack comes after them: they are those of the graph as it is."""
        name, data = f"{point['data']}-{point['model']}", self.graph(point["data"])
        if point["part"] != "sets":
            name += f"-{config.per_class}-labels"
        if point["part"] == "edges" and point["level"]:
            name += f"-{point['level']:g}-edges"
            data = with_random_edges(data, point["level"])
        return trained(config, self.folder / "runs" / name, data)

    def under_attack(self, point: Mapping[str, Any], run: Run, tick: Tick) -> list[tuple[float, float]]:
        """Validation and test accuracy of every trained model on the graph its split is attacked with."""
        model = point["model"] if point["part"] == "adaptive" else SURROGATE
        victims = run
        if model != point["model"]:
            its = {**point, "model": model}
            victims = self.run(its, self.config(its))
        members = range(self.settings.adaptive_splits if point["part"] == "adaptive" else len(run.results))
        found = []
        for member in members:
            key = (point["data"], model, member, point["level"])
            if key not in self._attacked:
                self._attacked[key] = attacked(victims, member, point["level"])
            val, test = on_graph(run, member, self._attacked[key])
            found.append((val, test))
            tick((member + 1) / len(members))
        return found


def on_graph(run: Run, member: int, data: Data) -> tuple[float, float]:
    """Validation and test accuracy of a trained model on another graph with the same nodes."""
    own = replace(run)
    own.remember(data)
    val, test = own.evaluate(member)
    return val or 0.0, test or 0.0
