"""Curves of trainings, read from their journals: every member a line, and quantiles over the members."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..training.folder import is_finished
from ..training.journal import read_lines
from ..training.runs import read_summary
from .style import BLUE, GREEN, GREY, ORANGE, RED, axes_of, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = (BLUE, ORANGE, GREEN, RED, GREY)
LINES = 60  # with more members, bands alone
QUANTILES = (0.1, 0.5, 0.9)
KEYS = ("loss", "val", "evaluations")

Curves = Mapping[Any, Mapping[int, float]]  # of each member its value by epoch


def read_curves(folder: Path) -> dict[str, dict[int, dict[int, float]]]:
    """``loss``, ``val`` and ``evaluations`` of every member of a run by epoch, from its journal.

    Evaluations, and whatever a run of an earlier version wrote, are those of members that were trained
    together.
    """
    found: dict[str, dict[int, dict[int, float]]] = {key: {} for key in KEYS}
    until = read_summary(folder)["metrics"] if is_finished(folder) else None
    for line in read_lines(folder / "metrics.jsonl", until):
        if line["kind"] != "epoch":
            continue
        each = line.get("each", {})
        for key, own in found.items():
            known = key in each
            numbers, values = (each["number"], each[key]) if known else ([line["chunk"]], [line[key]])
            for number, value in zip(numbers, values, strict=True):
                own.setdefault(number, {})[line["epoch"]] = math.nan if value is None else value
    return found


def plot_curves(
    curves: Mapping[str, Curves], title: str, factor: float = 1.0, ax: Axes | None = None
) -> Figure:
    """Curves of groups of members against the epoch: thin lines, the median, and 10 to 90 percent.

    Quantiles are those of the members that are still trained.
    """
    figure, ax = axes_of(ax)
    for place, (name, members) in enumerate(curves.items()):
        colour = COLOURS[place % len(COLOURS)]
        if len(members) <= LINES:
            for values in members.values():
                x, y = zip(*sorted(values.items()), strict=True)
                alone = len(members) == 1
                ax.plot(x, factor * np.array(y), color=colour, alpha=1 if alone else 0.25,
                        linewidth=1.6 if alone else 0.8, label=name if alone else None)  # fmt: skip
        if len(members) > 1:
            _band(ax, members, factor, colour, name)
    ax.set_xlabel("epoch")
    ax.set_title(title, fontsize=10)
    if len(curves) > 1:
        ax.legend(fontsize=8, frameon=False)
    tidy(ax)
    return figure


def _band(ax: Any, members: Curves, factor: float, colour: str, name: str) -> None:
    """The median, and what lies between the outer quantiles."""
    epochs = sorted({epoch for values in members.values() for epoch in values})
    rows: list[Sequence[float]] = []
    for epoch in epochs:
        own = [values[epoch] for values in members.values() if epoch in values]
        finite = [v for v in own if math.isfinite(v)]
        rows.append(np.quantile(finite, QUANTILES).tolist() if finite else [math.nan] * 3)
    low, middle, high = factor * np.array(rows).T
    ax.plot(epochs, middle, color=colour, linewidth=1.8, label=name)
    ax.fill_between(epochs, low, high, color=colour, alpha=0.18, linewidth=0)
