"""The equations of GRAND's successors side by side, from a results file."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..experiments.results import read_results
from ..experiments.successor_models import GRAND, MODELS, RIVALS
from ..experiments.successors import PARTS
from .style import BLUE, GREEN, GREY, new_figure, save, tidy

HEADS = {
    "sets": "",
    "labels": "labels a class: {:g}",
    "edges": "random edges added: {:.0%}",
    "attack": "attack on GCN: {:.0%}",
    "adaptive": "attack on the model: {:.0%}",
}


def plot_successors(
    results: str | os.PathLike[str],
    path: str | os.PathLike[str] | None = None,
    parts: Sequence[str] = PARTS,
) -> Path:
    """The picture of a results file, by default ``picture.png`` beside it.

    A panel for each data set and level: test accuracy of every model with its 95% interval.

    Args:
        results: The file.
        path: Of the picture.
        parts: Of the experiment; those that are measured are drawn.
    """
    results = Path(results)
    found = [f for f in read_results(results)["figures"] if f["part"] in parts]
    # an attack that changes nothing is the graph as it is
    found = [f for f in found if f["level"] or f["part"] in ("sets", "edges")]
    panels = [
        (part, data, level)
        for part in parts
        for data, level in dict.fromkeys((f["data"], f["level"]) for f in found if f["part"] == part)
    ]
    models = [name for name in MODELS if any(f["model"] == name for f in found)]
    # a row for the levels of each data set, where there are several
    levels = Counter(panel[:2] for panel in panels)
    columns = max(max(levels.values(), default=1), min(3, len(panels)), 1)
    rows = -(-len(panels) // columns)
    figure, axes = new_figure(
        figsize=(2.8 * columns + 1.4, (0.24 * len(models) + 1.0) * rows),
        nrows=rows, ncols=columns, sharey=True,
    )  # fmt: skip
    grid = np.ravel(axes)
    for axis, panel in zip(grid, panels, strict=False):
        own = [f for f in found if (f["part"], f["data"], f["level"]) == panel]
        _bars(axis, own, models)
        part, data, level = panel
        about = HEADS[part].format(level) if level else ""
        axis.set_title(", ".join(filter(None, (data, about))), fontsize=10)
    for axis in grid[len(panels) :]:
        axis.set_visible(False)
    return save(figure, results.with_name("picture.png") if path is None else path)


def _bars(axis: Any, figures: Sequence[Mapping[str, Any]], models: Sequence[str]) -> None:
    tidy(axis)
    for f in figures:
        colour = GREY if f["model"] in RIVALS else BLUE if f["model"] in GRAND else GREEN
        place, half = models.index(f["model"]), f["half"] or 0.0  # of one split alone there is no interval
        axis.errorbar(f["test"], place, xerr=half, fmt="o", color=colour, capsize=2)
    axis.set_yticks(range(len(models)), [MODELS[name][0] for name in models])
    axis.set_ylim(len(models) - 0.5, -0.5)
    low, high = axis.get_xlim()
    axis.set_xlim(max(low, 0.0), min(high, 100.0))  # intervals of few splits are wider than that
    axis.set_xlabel("test accuracy (%)", fontsize=9)
