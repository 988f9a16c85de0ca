"""What happened in a run, from the files in its folder."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import DataError
from ..training.folder import is_finished
from ..training.runs import read_summary
from ..training.summary import counted
from .curves import plot_curves, read_curves
from .style import BLUE, GREY, axes_of, new_figure, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def plot_run(folder: str | os.PathLike[str]) -> Figure:
    """Curves of a run, finished or not: loss, validation score and evaluations against the epoch.

    Of a finished one also the score of every member.
    """
    folder = Path(folder)
    finished = is_finished(folder)
    summary = read_summary(folder) if finished else {}
    found = read_curves(folder)
    if not found["loss"]:
        raise DataError(f"{folder} holds no finished epoch: name a folder that grand train has made.")
    figure, axes = new_figure(figsize=(12 if finished else 9, 3.1), ncols=4 if finished else 3)
    plot_curves({"loss": found["loss"]}, "training loss", ax=axes[0])
    plot_curves({"score": found["val"]}, *_validation(summary), ax=axes[1])
    plot_curves({"cost": found["evaluations"]}, "evaluations of the right-hand side", ax=axes[2])
    axes[2].set_ylim(bottom=0)
    if finished:
        plot_members(summary, ax=axes[3])
    return figure


def _validation(summary: Mapping[str, Any]) -> tuple[str, float]:
    """Title and factor of the validation score; that of classes where the run is unfinished."""
    score = summary.get("val")
    if score is None or score["unit"]:
        return f"validation {'accuracy' if score is None else score['metric']}, %", 100
    return f"validation {score['metric']}", 1


def plot_members(summary: Mapping[str, Any], ax: Axes | None = None) -> Figure:
    """Every member of a run a dot, spread sideways where they are many; mean and 95% interval beside them.

    Scores on test nodes, or where there are none on validation nodes.
    """
    figure, axis = axes_of(ax)
    part = "val" if summary["test"] is None else "test"
    score = summary[part]
    if score is None:
        axis.set_axis_off()
        return figure
    factor, digits = (100, 1) if score["unit"] else (1, 3)
    values = sorted(factor * r[part] for r in summary["results"] if r[part] is not None)
    width = min(0.25, 0.04 * len(values))
    places = [width * ((k * 0.618034) % 1 - 0.5) for k in range(len(values))]
    axis.scatter(places, values, color=BLUE, alpha=0.7, s=22, edgecolors="white", linewidths=0.5)
    mean = score["mean"]
    low, high = score["ci95"] or (mean, mean)
    reach = [[mean - low], [high - mean]]
    axis.errorbar(0.35, mean, reach, color="black", marker="D", markersize=5, capsize=4)
    text, offset = f"{mean:.{digits}f}\n({low:.{digits}f} to {high:.{digits}f})", (7, 7)
    axis.annotate(text, (0.35, mean), offset, textcoords="offset points", fontsize=9)
    axis.axhline(mean, color=GREY, linewidth=0.6, linestyle=":")
    axis.set_xlim(-0.3, 0.85)
    axis.set_xticks([])
    name = "validation" if part == "val" else "test"
    shown = f"{name} {score['metric']}" + (", %" if score["unit"] else "")
    axis.set_title(f"{shown}, {counted(len(values), 'training')}", fontsize=10)
    tidy(axis)
    return figure
