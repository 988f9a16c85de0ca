"""Depth, section 5.2 and figure 3: accuracy and Dirichlet energy of GRAND and of stacked layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from ..graph import Graph
from ..nn.trajectory import last_state
from ..training.config import Config
from ..training.folder import holds_run, is_finished, open_folder
from ..training.problem import load_problem, pick_device, protocol, read_data
from ..training.runs import Run, load_run
from ..training.summary import device_name, versions
from ..training.trainer import Trainer
from .presets import preset_config
from .record import Plan
from .results import Note, Tick, open_results
from .search import search
from .space import Space, read_space

# title, row whose settings a search starts from, options that are fixed, option that is the depth
MODELS: dict[str, tuple[str, str, dict[str, Any], str]] = {
    "linear": ("GRAND-l", "linear", {"solver": "rk4", "step_size": 1.0}, "time"),
    "nonlinear": ("GRAND-nl", "nonlinear", {"solver": "rk4", "step_size": 1.0}, "time"),
    "no-source": ("GRAND-l, no source", "linear", {"solver": "rk4", "step_size": 1.0, "terms": ""}, "time"),
    "gcn": ("GCN", "gcn", {}, "layers"),
    "gcn-residual": ("residual GCN", "gcn", {"residual": True}, "layers"),
    "gat": ("GAT", "gat", {}, "layers"),
}
KEPT = 5.0  # points
EDGES = 1 << 18  # that are looked at together
GRAND, STACKED = ("linear", "nonlinear"), ("gcn", "gcn-residual")
TUNED = ("once", "every")  # at a moderate depth and then only deepened, as in the paper; or at every depth


@dataclass(frozen=True)
class Settings:
    """What the figures depend on. The paper prints neither data sets nor depths: all but τ = 1 is ours.

    Attributes:
        data: Data sets.
        depths: T of GRAND with RK4 and τ = 1, or the number of layers.
        moderate: The depth that models are tuned at when they are tuned once.
        splits: Random splits of the paper's kind, one training on each.
        trials: Of each search; 0: no search, the settings that it would start from.
        tuned: Whether models are tuned once, at every depth, or both.
    """

    data: tuple[str, ...] = ("cora", "citeseer", "pubmed")
    depths: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64, 128)
    moderate: int = 4
    splits: int = 10
    trials: int = 50
    tuned: tuple[str, ...] = TUNED


FULL = Settings()
SMALL = replace(FULL, data=("cora",), depths=(1, 2, 4, 8, 16, 32), splits=2, trials=0, tuned=("once",))


def reproduce(out: Path, *, small: bool, root: str | None, device: torch.device, note: Note) -> Path:
    """Measure figure 3 in ``<out>/depth``, or ``depth-small``; the path of the results file."""
    settings = SMALL if small else FULL
    folder = out / ("depth-small" if small else "depth")
    graphs: dict[str, Data] = {}
    with open_results(folder, asdict(settings), note) as results:

        def compute(point: Mapping[str, Any], tick: Tick) -> dict[str, Any]:
            name, depth = point["data"], point["depth"]
            if name not in graphs:
                graphs[name] = read_data(preset_config(name, "gcn", "start"), root)
            tuned_at = depth if point["tuned"] == "every" else settings.moderate
            where = folder / "search" / f"{name}-{point['model']}-{tuned_at}"
            config = tuned(point, tuned_at, settings, graphs[name], where, device.type, note)
            config = config.replace(splits=settings.splits, **{MODELS[point["model"]][3]: depth})
            run = trained(config, folder / "runs" / "-".join(map(str, point.values())), graphs[name])
            return {
                "test": [100 * (result.test or 0.0) for result in run.results],
                "energy": [last_energy(run, result.number) for result in run.results],
                "options": config.to_dict(),
                "device": device_name(device),
                "versions": versions(),
            }

        wanted = [
            {"data": name, "tuned": kind, "model": model, "depth": depth}
            for kind in settings.tuned
            for name in settings.data
            for model in MODELS
            for depth in settings.depths
        ]
        results.measure(wanted, compute)
        results.conclude(figures=figures(results.points), verdict=verdict(results.points))
    return results.path


def tuned(
    point: Mapping[str, Any],
    depth: int,
    settings: Settings,
    data: Data,
    folder: Path,
    device: str,
    note: Note,
) -> Config:
    """The best settings that a search finds at a depth; a search that is in its folder is not repeated."""
    _, row, fixed, option = MODELS[point["model"]]
    start = preset_config(point["data"], row, "start", device=device)
    start = start.replace(splits=0, **fixed, **{option: depth})
    if not settings.trials:
        return start
    space: Space = {name: own for name, own in read_space(row).items() if name not in {*fixed, option}}
    return search(start, space, Plan(trials=settings.trials), folder, data=data, watcher=note).best


def trained(config: Config, folder: Path, data: Data) -> Run:
    """The run of a configuration in a folder, trained to its end if it is not."""
    if not is_finished(folder):
        problem = load_problem(config, data).to(pick_device(config.device))
        with open_folder(folder, config, problem.data, holds_run(folder)) as kept:
            Trainer(problem, config, protocol(config, problem.data), kept).run()
    run = load_run(folder)
    run.remember(data)
    return run


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
    """Of each model, data set and kind of tuning: accuracy at its best depth and at the deepest."""
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
            "least_deep": min(mean for depth, mean in means.items() if depth > 4 or depth == max(means)),
        }
        for (data, kind, model), means in found.items()
    ]


def verdict(points: Sequence[Mapping[str, Any]]) -> str:
    """The paper's claim: GRAND keeps its accuracy, GCN and its residual form lose half after 4 layers.

    Kept: at the deepest at most ``KEPT`` points below the best depth. Lost: at some depth above 4 at most
    half of the best. Of models that are tuned once, as the paper's are.
    """
    own = [f for f in figures(points) if f["tuned"] == "once"]
    kept = {_case(f): f["best"] - f["deepest"] <= KEPT for f in own if f["model"] in GRAND}
    lost = {_case(f): f["least_deep"] <= f["best"] / 2 for f in own if f["model"] in STACKED}
    holds = all(kept.values()) and all(lost.values())
    return (
        f"The paper's claim {'holds' if holds else 'does not hold as a whole'}: GRAND keeps its accuracy "
        f"{_where(kept)}; GCN loses half of its own after 4 layers {_where(lost)}."
    )


def _case(own: Mapping[str, Any]) -> str:
    return f"{own['title']} on {own['data']}"


def _where(found: Mapping[str, bool]) -> str:
    """Where a statement is true."""
    names = ", ".join(case for case, true in found.items() if true)
    return f"in {sum(found.values())} of {len(found)} cases" + (f" ({names})" if names else "")
