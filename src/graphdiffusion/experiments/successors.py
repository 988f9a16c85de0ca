"""The equations of GRAND's successors beside GRAND, GCN, GAT and MLP, each with one search budget.

Three parts: graphs whose neighbours differ, with their ten splits; few labels; and random edges added.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from torch_geometric.data import Data

from ..data.structure import tidy_edges
from ..training.config import Config
from ..training.problem import read_data
from ..training.summary import device_name, half_interval, versions
from .depth import trained
from .presets import preset_config
from .record import Plan
from .results import Note, Tick, open_results
from .search import search
from .space import Range, Space, read_space

STEPS: dict[str, Any] = {"solver": "rk4", "step_size": 0.5}
PARTS = ("sets", "labels", "edges")
REACTION = {"reaction": Range(0.01, 0.9, log=True)}

# title, row whose settings a search starts from, options that are fixed, what the search tries besides
Entry = tuple[str, str, dict[str, Any], dict[str, Any]]
MODELS: dict[str, Entry] = {
    "mlp": ("MLP", "mlp", {}, {}),
    "gcn": ("GCN", "gcn", {}, {}),
    "gat": ("GAT", "gat", {}, {}),
    "linear": ("GRAND-l", "linear", {}, {}),
    "nonlinear": ("GRAND-nl", "nonlinear", {}, {}),
    "fisher": ("Fisher", "linear", {"terms": "source,fisher", **STEPS}, REACTION),
    "allen-cahn": ("Allen-Cahn", "linear", {"terms": "source,allen-cahn", **STEPS}, REACTION),
    "zeldovich": ("Zeldovich", "linear", {"terms": "source,zeldovich", **STEPS}, REACTION),
    "blurring-sharpening": (
        "blurring-sharpening", "linear", {"terms": "source,blurring-sharpening"}, REACTION
    ),
    "labelled-source": (
        "labelled source", "linear", {"terms": "source,labelled-source"},
        {"labelled": Range(0.1, 2.0, log=True)},
    ),
    "convection": (
        "convection", "linear", {"terms": "source,convection", **STEPS},
        {"convection": Range(0.05, 0.9, log=True)},
    ),
    "acmp": (
        "ACMP", "linear", {"equation": "acmp", "terms": "source", **STEPS},
        {**REACTION, "repulsion": Range(0.01, 0.9, log=True)},
    ),
    "graphcon": (
        "GraphCON", "linear",
        {"equation": "graphcon", "terms": "source", "solver": "symplectic-euler", "step_size": 0.5},
        {"stiffness": [0.5, 1.0, 2.0], "damping": [0.5, 1.0], "mix": [False, True]},
    ),
    "adc": ("ADC", "linear", {"equation": "adc", "terms": "source"}, {"pace": Range(0.2, 2.0, log=True)}),
    "blend": (
        "BLEND", "linear", {"equation": "blend", "terms": "source", "augment": 8, "positions": 8}, {}
    ),
    "fractional": (
        "fractional time", "linear", {"solver": "fractional", "step_size": 0.5},
        {"derivative": [0.5, 0.7, 0.85, 1.0]},
    ),
}  # fmt: skip
RIVALS, GRAND = ("mlp", "gcn", "gat"), ("linear", "nonlinear")
FEW = 2  # labels a class for which the claim of GRAND++ is looked at


@dataclass(frozen=True)
class Settings:
    """What the figures depend on.

    Attributes:
        sets: Graphs with ten splits of their own.
        citations: Graphs of the other two parts.
        per_class: Training nodes of each class, for few labels.
        shares: Random edges that are added, as a share of those that are there.
        models: Which.
        splits: Random splits of the other two parts, one training on each.
        trials: Of each search, the same for all models; 0: no search, the settings it would start from.
        epochs: At most.
        hidden: Width where nothing is searched; 0: that of the settings.
    """

    sets: tuple[str, ...] = ("chameleon", "squirrel", "actor", "texas", "wisconsin", "cornell")
    citations: tuple[str, ...] = ("cora", "citeseer", "pubmed")
    per_class: tuple[int, ...] = (1, 2, 5, 10, 20)
    shares: tuple[float, ...] = (0.0, 0.25, 0.5, 1.0)
    models: tuple[str, ...] = tuple(MODELS)
    splits: int = 20
    trials: int = 64
    epochs: int = 200
    hidden: int = 0


FULL = Settings()
SMALL = replace(
    FULL, sets=(), citations=("cora-embedded",), per_class=(1, 5), shares=(0.0, 0.5), splits=4, trials=0,
    epochs=20, hidden=16,
    models=("mlp", "gcn", "linear", "allen-cahn", "blurring-sharpening", "labelled-source", "graphcon"),
)  # fmt: skip


def reproduce(
    out: Path, *, small: bool, root: str | None, device: torch.device, note: Note, part: str = ""
) -> Path:
    """Measure in ``<out>/successors``, or ``successors-small``; the path of the results file."""
    settings = SMALL if small else FULL
    folder = out / ("successors-small" if small else "successors")
    graphs: dict[str, Data] = {}
    with open_results(folder, asdict(settings), note) as results:

        def compute(point: Mapping[str, Any], tick: Tick) -> dict[str, Any]:
            name, model = point["data"], point["model"]
            if name not in graphs:
                graphs[name] = read_data(Config(data=name), root)
            data = graphs[name]
            config = tuned(point, settings, data, folder / "search", device.type, note)
            config = config.replace(splits=0 if point["part"] == "sets" else settings.splits)
            if point["part"] == "labels":
                config = config.replace(per_class=int(point["level"]))
            if point["part"] == "edges":
                data = with_random_edges(data, point["level"])
            where = "-".join((point["part"], name, model, f"{point['level']:g}"))
            run = trained(config, folder / "runs" / where, data)
            return {
                "test": [100 * (result.test or 0.0) for result in run.results],
                "val": [100 * (result.val or 0.0) for result in run.results],
                "options": config.to_dict(),
                "device": device_name(device),
                "versions": versions(),
            }

        wanted = [p for p in points_of(settings) if part in ("", p["part"])]
        results.measure(wanted, compute)
        results.conclude(figures=figures(results.points), verdict=verdict(results.points))
    return results.path


def points_of(settings: Settings) -> list[dict[str, Any]]:
    """What identifies every point: part, data set, model, and the labels a class or the share of edges."""
    levels: dict[str, Sequence[float]] = {
        "sets": (0.0,),
        "labels": [float(count) for count in settings.per_class],
        "edges": settings.shares,
    }
    return [
        {"part": part, "data": name, "model": model, "level": level}
        for part in PARTS
        for name in (settings.sets if part == "sets" else settings.citations)
        for model in settings.models
        for level in levels[part]
    ]


def tuned(
    point: Mapping[str, Any], settings: Settings, data: Data, folder: Path, device: str, note: Note
) -> Config:
    """The best settings that a search finds for a model on a data set, by validation.

    Few labels and added edges take those of the graph as it is, with 20 labels a class.
    """
    _, row, fixed, more = MODELS[point["model"]]
    split = "given" if point["part"] == "sets" else "random"
    start = preset_config(point["data"], row, "start", split=split, device=device)
    start = start.replace(splits=0, epochs=settings.epochs, **fixed)
    if settings.hidden and "hidden" in start.to_dict():
        start = start.replace(hidden=settings.hidden)
    if not settings.trials:
        return start
    space: Space = {name: own for name, own in read_space(row).items() if name not in fixed}
    where = folder / f"{split}-{point['data']}-{point['model']}"
    return search(
        start, {**space, **more}, Plan(trials=settings.trials), where, data=data, watcher=note
    ).best


def with_random_edges(data: Data, share: float, seed: int = 0) -> Data:
    """The graph with random undirected edges, as many as ``share`` times those it has."""
    n, wanted = int(data.num_nodes or 0), round(share * data.edge_index.shape[1] / 2)
    if not wanted:
        return data
    generator = torch.Generator().manual_seed(seed)
    known = {(int(i), int(j)) for i, j in data.edge_index.T.tolist()}
    room = n * (n - 1) // 2 - len(known) // 2
    added: list[tuple[int, int]] = []
    while len(added) < min(wanted, room):
        i, j = torch.randint(0, n, (2,), generator=generator).tolist()
        if i != j and (i, j) not in known:
            known |= {(i, j), (j, i)}
            added.append((i, j))
    edges = torch.cat([data.edge_index, torch.tensor(added).T], 1)
    found = data.clone()
    found.edge_index = tidy_edges(edges.numpy(), n)[0]
    return found


def figures(points: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Of every point: means, half of the 95% interval, and the paired difference to GRAND-l."""
    found = []
    for p in points:
        base = next((q for q in points if _case(q) == _case(p) and q["model"] == "linear"), None)
        apart = None
        if base is not None and len(base["test"]) == len(p["test"]):
            apart = [own - other for own, other in zip(p["test"], base["test"], strict=True)]
        found.append(
            {
                **{key: p[key] for key in ("part", "data", "model", "level")},
                "title": MODELS[p["model"]][0],
                "test": fmean(p["test"]),
                "half": half_interval(p["test"]),
                "val": fmean(p["val"]),
                "difference": None if apart is None else fmean(apart),
                "difference_half": None if apart is None else half_interval(apart),
            }
        )
    return found


def verdict(points: Sequence[Mapping[str, Any]]) -> str:
    """Where the best diffusion equation, chosen by validation, is at or above the best rival.

    And whether the source at labelled nodes is above GRAND-l with one and two labels a class, beyond the
    95% interval of the paired difference.
    """
    sentences = []
    cases = {_case(p): [q for q in points if _case(q) == _case(p)] for p in points if p["part"] == "sets"}
    ahead = []
    for (_, name, _), own in cases.items():
        rivals, ours = ([p for p in own if (p["model"] in RIVALS) is rival] for rival in (True, False))
        if rivals and ours:
            best = [max(group, key=lambda p: fmean(p["val"])) for group in (ours, rivals)]
            test = [fmean(p["test"]) for p in best]
            ahead.append((name, MODELS[best[0]["model"]][0], test[0] - test[1]))
    if ahead:
        named = ", ".join(f"{name} {title} {gain:+.1f}" for name, title, gain in ahead)
        wins = sum(gain >= 0 for *_, gain in ahead)
        sentences.append(
            "The diffusion equation that validates best is at or above the best of MLP, GCN and GAT on "
            f"{wins} of {len(ahead)} sets whose neighbours differ ({named})."
        )
    few = [
        f
        for f in figures(points)
        if f["part"] == "labels" and f["level"] <= FEW and f["model"] == "labelled-source"
    ]
    known = [f for f in few if f["difference"] is not None]
    if known:
        better = sum(f["difference"] > f["difference_half"] for f in known)
        named = ", ".join(f"{f['data']} {f['level']:g}: {f['difference']:+.1f}" for f in known)
        sentences.append(
            f"With at most {FEW} labels a class the source at labelled nodes is above GRAND-l in {better} "
            f"of {len(known)} cases, beyond the interval ({named})."
        )
    return " ".join(sentences) or "Not enough is measured for a verdict."


def _case(point: Mapping[str, Any]) -> tuple[str, str, float]:
    return point["part"], point["data"], point["level"]
