"""The equations of GRAND's successors side by side, from a results file."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..experiments.results import read_results
from ..experiments.successors import GRAND, MODELS, PARTS, RIVALS
from .style import BLUE, GREEN, GREY, new_figure, save, tidy

HEADS = {"sets": "", "labels": "labels a class: {:g}", "edges": "random edges added: {:.0%}"}


def plot_successors(results: str | os.PathLike[str], path: str | os.PathLike[str] | None = None) -> Path:
    """The picture of a results file, by default ``picture.png`` beside it.

    A panel for each data set and level: test accuracy of every model with its 95% interval.
    """
    results = Path(results)
    found = read_results(results)["figures"]
    panels = [
        (part, data, level)
        for part in PARTS
        for data, level in dict.fromkeys((f["data"], f["level"]) for f in found if f["part"] == part)
    ]
    models = [name for name in MODELS if any(f["model"] == name for f in found)]
    columns = min(4, max(1, len(panels)))
    rows = -(-len(panels) // columns)
    figure, axes = new_figure(
        figsize=(3.4 * columns + 1.2, (0.26 * len(models) + 1.0) * rows),
        nrows=rows, ncols=columns, sharey=True,
    )  # fmt: skip
    grid = np.ravel(axes)
    for axis, panel in zip(grid, panels, strict=False):
        own = [f for f in found if (f["part"], f["data"], f["level"]) == panel]
        _bars(axis, own, models)
        part, data, level = panel
        axis.set_title(", ".join(filter(None, (data, HEADS[part].format(level)))), fontsize=10)
    for axis in grid[len(panels) :]:
        axis.set_visible(False)
    return save(figure, results.with_name("picture.png") if path is None else path)


def _bars(axis: Any, figures: Sequence[Mapping[str, Any]], models: Sequence[str]) -> None:
    tidy(axis)
    for f in figures:
        colour = GREY if f["model"] in RIVALS else BLUE if f["model"] in GRAND else GREEN
        axis.errorbar(f["test"], models.index(f["model"]), xerr=f["half"], fmt="o", color=colour, capsize=2)
    axis.set_yticks(range(len(models)), [MODELS[name][0] for name in models])
    axis.set_ylim(len(models) - 0.5, -0.5)
    low, high = axis.get_xlim()
    axis.set_xlim(max(low, 0.0), min(high, 100.0))  # intervals of few splits are wider than that
    axis.set_xlabel("test accuracy (%)", fontsize=9)
