"""Accuracy and Dirichlet energy against depth: figure 3 of the paper, from a results file."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from ..data import dataset_info
from ..errors import DataError
from ..experiments.depth import MODELS, TUNED
from ..experiments.results import read_results
from .style import BLUE, GREEN, GREY, ORANGE, RED, new_figure, save, tidy

LINES = {
    "linear": (BLUE, "-", "o"),
    "nonlinear": (GREEN, "-", "s"),
    "no-source": (BLUE, ":", "v"),
    "gcn": (RED, "--", "^"),
    "gcn-residual": (ORANGE, "--", "D"),
    "gat": (GREY, "--", "x"),
}
HEADS = {"once": "tuned at depth {}, then deepened", "every": "tuned at every depth"}
SMALLEST = 1e-6  # energies below are drawn there


def plot_depth(results: str | os.PathLike[str], path: str | os.PathLike[str] | None = None) -> Path:
    """The picture of a results file, by default ``picture.png`` beside it.

    Above test accuracy, mean and standard deviation over the splits; below the Dirichlet energy of the
    state that the last layer reads, over its size. A line ends at the deepest depth that is measured.
    """
    results = Path(results)
    content = read_results(results)
    if not content["points"]:
        raise DataError(f"{results} has no points yet: let the experiment measure some.")
    columns = [
        (data, kind)
        for data in content["settings"]["data"]
        for kind in TUNED
        if any((p["data"], p["tuned"]) == (data, kind) for p in content["points"])
    ]
    figure, axes = new_figure(
        figsize=(4.2 * len(columns) + 0.6, 6.4), nrows=2, ncols=len(columns), sharex=True, sharey="row"
    )
    axes = axes.reshape(2, -1)
    for place, (data, kind) in enumerate(columns):
        own = [p for p in content["points"] if (p["data"], p["tuned"]) == (data, kind)]
        above, below = axes[:, place]
        _lines(above, own, "test", band=True)
        _lines(below, own, "energy")
        settings = content["settings"]
        how = HEADS[kind].format(settings["moderate"]) if settings["trials"] else "without a search"
        above.set_title(f"{dataset_info(data).name}: {how}", fontsize=11)
        below.set_xlabel("depth: T with τ = 1, or layers")
        below.set_xscale("log", base=2)
        below.set_yscale("log")
        depths = settings["depths"]
        below.set_xticks(depths, [str(depth) for depth in depths])
    axes[0, 0].set_ylabel("test accuracy (%)")
    axes[1, 0].set_ylabel("Dirichlet energy, relative")
    axes[0, 0].legend(fontsize=9, frameon=False, loc="lower left")
    return save(figure, results.with_name("picture.png") if path is None else path)


def _lines(axis: Any, points: Sequence[Mapping[str, Any]], key: str, band: bool = False) -> None:
    tidy(axis)
    for model, (colour, style, marker) in LINES.items():
        own = sorted((p for p in points if p["model"] == model), key=lambda p: p["depth"])
        if not own:
            continue
        depths = [p["depth"] for p in own]
        means = [max(fmean(p[key]), SMALLEST) for p in own]
        axis.plot(
            depths,
            means,
            color=colour,
            linestyle=style,
            marker=marker,
            markersize=4,
            label=MODELS[model][0],
        )
        if band and len(own[0][key]) > 1:
            spread = [stdev(p[key]) for p in own]
            low, high = ([m + sign * s for m, s in zip(means, spread, strict=True)] for sign in (-1, 1))
            axis.fill_between(depths, low, high, color=colour, alpha=0.12, linewidth=0)
