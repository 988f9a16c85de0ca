"""Depth, section 5.2 and figure 3: accuracy and Dirichlet energy of GRAND and of stacked layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from ..errors import ConfigError, FolderInUse
from ..graph import Graph
from ..nn.trajectory import last_state
from ..training.config import Config
from ..training.runs import Run
from ..training.summary import device_name, versions
from .presets import preset_config
from .record import Plan
from .results import Note, Results, Tick, require_known
from .space import read_space
from .trained import Bench, trained

# title, row whose settings a search starts from, options that are fixed, option that is the depth
STEPS: dict[str, Any] = {"solver": "rk4", "step_size": 1.0}
MODELS: dict[str, tuple[str, str, dict[str, Any], str]] = {
    "linear": ("GRAND-l", "linear", {"terms": "source", **STEPS}, "time"),
    "nonlinear": ("GRAND-nl", "nonlinear", {"terms": "source", **STEPS}, "time"),
    "no-source": ("GRAND-l, no source", "linear", {"terms": "", **STEPS}, "time"),
    "gcn": ("GCN", "gcn", {}, "layers"),
    "gcn-residual": ("residual GCN", "gcn", {"residual": True}, "layers"),
    "gat": ("GAT", "gat", {}, "layers"),
}
# milliseconds of an epoch for each layer or unit of T, about, on one core: cheap points come first
COST = {"gcn": 1, "gcn-residual": 2, "linear": 5, "no-source": 5, "gat": 8, "nonlinear": 13}
KEPT = 5.0  # points
AFTER = 4  # the paper's claim is on depths above
EDGES = 1 << 18  # that are looked at together
GRAND, STACKED = ("linear", "nonlinear"), ("gcn", "gcn-residual")
TUNED = ("once", "every")  # at a moderate depth and then only deepened, as in the paper; or at every depth
SHAPES = ("hidden", "heads", "attention_dim", "output_heads")  # one width for all models


@dataclass(frozen=True)
class Settings:
    """What the figures depend on. The paper prints neither data sets nor depths: all but τ = 1 is ours.

    Attributes:
        data: Data sets.
        depths: T of GRAND with RK4 and τ = 1, or the number of layers.
        moderate: The depth that models are tuned at when they are tuned once.
        splits: Random splits of the paper's kind, one training on each.
        trials: Of each search; 0: no search, the settings that it would start from.
        finalists: Trials of each search that are trained again on fresh splits.
        final_seeds: Number of these splits.
        tuned: Whether models are tuned once, at every depth, or both.
        hidden: Width of all models; of GAT that of all heads together.
        epochs: At most.
        patience: Epochs without a better validation accuracy.
    """

    data: tuple[str, ...] = ("cora", "citeseer", "pubmed")
    depths: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64, 128)
    moderate: int = 4
    splits: int = 4
    trials: int = 16
    finalists: int = 3
    final_seeds: int = 4
    tuned: tuple[str, ...] = TUNED
    hidden: int = 32
    epochs: int = 100
    patience: int = 30


FULL = Settings()
SMALL = replace(
    FULL, data=("cora",), depths=(1, 2, 4, 8, 16), splits=2, trials=0, tuned=("once",), epochs=60
)


def reproduce(
    out: Path,
    *,
    small: bool,
    root: str | None,
    device: torch.device,
    note: Note,
    only: Sequence[str] = (),
    model: Sequence[str] = (),
    tuned: str = "",
    deepest: int | None = None,
) -> Path:
    """Measure figure 3 in ``<out>/depth``, or ``depth-small``; the path of the results file.

    Args:
        only: These data sets alone.
        model: These models alone.
        tuned: This kind of tuning alone.
        deepest: Up to this depth.
    """
    settings = SMALL if small else FULL
    require_known("only", only, settings.data)
    require_known("model", model, tuple(MODELS))
    require_known("tuned", [tuned] if tuned else [], settings.tuned)
    wanted = [
        p
        for p in points_of(settings)
        if (not only or p["data"] in only)
        and (not model or p["model"] in model)
        and tuned in ("", p["tuned"])
        and (deepest is None or p["depth"] <= deepest)
    ]
    if not wanted:
        raise ConfigError(f"deepest must be at least {min(settings.depths)}, got {deepest}.")
    folder = out / ("depth-small" if small else "depth")
    results = Results(folder, asdict(settings), note)
    work = Work(settings, folder, root, device, note)
    work.remember(results.points)
    work.read(results.missing(wanted))
    for point in results.missing(wanted):
        if point["tuned"] == "once":  # so that the time left is that of the trainings alone
            with suppress(FolderInUse):
                work.config(point)
    results.measure(wanted, work.compute, cost)
    planned = len(points_of(settings))
    results.conclude(
        lambda: {"figures": figures(results.points), "verdict": verdict(results.points, planned)}
    )
    return results.path


def points_of(settings: Settings) -> list[dict[str, Any]]:
    """What identifies every point; of a data set and a kind of tuning the cheap ones come first."""
    return [
        point
        for kind in settings.tuned
        for name in settings.data
        for point in sorted(
            (
                {"data": name, "tuned": kind, "model": model, "depth": depth}
                for model in MODELS
                for depth in settings.depths
            ),
            key=cost,
        )
    ]


def cost(point: Mapping[str, Any]) -> float:
    """Of a point, relative to others: a cheap one has the time to start besides."""
    return COST[point["model"]] * (2 + point["depth"])


class Work(Bench):
    """Searches and trainings of the points, each once."""

    settings: Settings

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._tuned: dict[tuple[str, str, int], Config] = {}

    def remember(self, points: Sequence[Mapping[str, Any]]) -> None:
        """Take the settings of models that are tuned once from the points that are measured.

        So a file that was measured elsewhere, without the folders of its searches, goes on with the same.
        """
        for p in (p for p in points if p["tuned"] == "once"):
            found = Config.from_dict({}, p["options"] | {"device": self.device.type})
            self._tuned[p["data"], p["model"], self.settings.moderate] = found

    def compute(self, point: Mapping[str, Any], tick: Tick) -> dict[str, Any]:
        """The figures of a point."""
        config = self.config(point)
        name = "-".join(str(point[key]) for key in ("data", "tuned", "model", "depth"))
        run = trained(config, self.folder / "runs" / name, self.graph(point["data"]), tick)
        return {
            "test": [100 * (result.test or 0.0) for result in run.results],
            "energy": [last_energy(run, result.number) for result in run.results],
            "epochs": [result.epochs for result in run.results],
            "options": config.to_dict(),
            "device": device_name(self.device),
            "versions": versions(),
        }

    def config(self, point: Mapping[str, Any]) -> Config:
        """The settings of a point: those that were found at the depth it is tuned at, deepened."""
        own, model, depth = self.settings, point["model"], point["depth"]
        tuned_at = depth if point["tuned"] == "every" else own.moderate
        key = (point["data"], model, tuned_at)
        tuned = self._tuned[key] if key in self._tuned else self.search(*key)
        return tuned.replace(splits=own.splits, **{MODELS[model][3]: depth})

    def search(self, name: str, model: str, depth: int) -> Config:
        """The best settings that a search finds at a depth; one that is in its folder is not repeated."""
        own, (_, row, fixed, option) = self.settings, MODELS[model]
        start = preset_config(name, row, f"own-{row}", device=self.device.type)
        start = start.replace(
            splits=0, epochs=own.epochs, patience=own.patience, **fixed, **{option: depth}
        )
        start = start.replace(hidden=own.hidden // start.heads if row == "gat" else own.hidden)
        if not own.trials:
            return start
        space = {k: v for k, v in read_space(row).items() if k not in {*fixed, *SHAPES, option}}
        plan = Plan(trials=own.trials, finalists=own.finalists, final_seeds=own.final_seeds)
        return self.searched(start, space, plan, f"{name}-{model}-{depth}")


@torch.no_grad()
def last_energy(run: Run, member: int) -> float:
    """Dirichlet energy of the state that the last layer of a trained model reads, over its size."""
    state, _ = last_state(run.model(member), run.problem.x, run.problem.graph)
    return relative_energy(run.problem.graph, state if isinstance(state, Tensor) else state.dense())


def relative_energy(graph: Graph, x: Tensor) -> float:
    r"""Dirichlet energy over its size: 0 where neighbours have equal states, at most 2.

    :math:`\tfrac12 \sum_{ij} \|x_i - x_j\|^2 \big/ \sum_i d_i \|x_i\|^2` over the edges ij
    in both directions, without self-loops.
    """
    apart = graph.row != graph.col
    row, col, x = graph.row[apart].long(), graph.col[apart].long(), x.double()
    size = float(x.square().sum(1)[row].sum())
    parts = zip(row.split(EDGES), col.split(EDGES), strict=True)  # all at once may not fit in memory
    energy = sum(float((x[i] - x[j]).square().sum()) for i, j in parts)
    return energy / (2 * size) if size > 0 else 0.0


def figures(points: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Of each model, data set and kind of tuning: accuracy at its best depth and at its deepest."""
    found: dict[tuple[str, str, str], dict[int, float]] = {}
    for p in points:
        found.setdefault((p["data"], p["tuned"], p["model"]), {})[p["depth"]] = fmean(p["test"])
    return [
        {
            "data": data,
            "tuned": kind,
            "model": model,
            "title": MODELS[model][0],
            "best": max(means.values()),
            "best_depth": max(means, key=lambda depth: means[depth]),
            "deepest": means[max(means)],
            "deepest_depth": max(means),
            "least_deep": min((mean for depth, mean in means.items() if depth > AFTER), default=None),
        }
        for (data, kind, model), means in sorted(found.items(), key=lambda own: _place(*own[0]))
    ]


def _place(data: str, kind: str, model: str) -> tuple[int, ...]:
    """The order of the rows of a table."""
    return FULL.data.index(data), TUNED.index(kind), list(MODELS).index(model)


def verdict(points: Sequence[Mapping[str, Any]], planned: int) -> str:
    """The paper's claim: GRAND keeps its accuracy, GCN and its residual form lose half after 4 layers.

    Kept: at the deepest at most ``KEPT`` points below the best depth. Lost: at some depth above 4 at most
    half of the best. Of models that are tuned once, as the paper's are, and that are measured at some depth
    above 4. Models may be measured up to different depths: each is compared with itself alone, and each
    depth is named.

    Args:
        points: All that are measured.
        planned: The number of points of the whole figure.
    """
    own = [f for f in figures(points) if f["tuned"] == "once" and f["deepest_depth"] > AFTER]
    kept = {_case(f): f["best"] - f["deepest"] <= KEPT for f in own if f["model"] in GRAND}
    bare = {_case(f): f["best"] - f["deepest"] <= KEPT for f in own if f["model"] == "no-source"}
    lost = {_case(f): f["least_deep"] <= f["best"] / 2 for f in own if f["model"] in STACKED}
    so_far = f"By {len(points)} of {planned} points: " if len(points) < planned else ""
    if not kept or not lost:
        return f"{so_far}no verdict before GRAND and GCN, tuned once, have a point above depth {AFTER}."
    holds = all(kept.values()) and all(lost.values())
    return (
        f"{so_far}The paper's claim {'holds' if holds else 'does not hold as a whole'}: GRAND keeps its "
        f"accuracy {_where(kept)}; GCN loses half of its own after {AFTER} layers {_where(lost)}."
        + (f" Without the source, as in the text, accuracy is kept {_where(bare)}." if bare else "")
    )


def _case(own: Mapping[str, Any]) -> str:
    return f"{own['title']} on {own['data']} up to {own['deepest_depth']}"


def _where(found: Mapping[str, bool]) -> str:
    """Where a statement is true, and where it is not."""
    sides = (
        f"{word} {', '.join(names)}"
        for word, side in (("true for", True), ("not for", False))
        if (names := [case for case, true in found.items() if true is side])
    )
    return f"in {sum(found.values())} of {len(found)} cases ({'; '.join(sides)})"
