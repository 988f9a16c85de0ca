"""What happened in a run, from the files in its folder."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

from ..errors import DataError
from ..training.folder import is_finished
from ..training.journal import read_lines
from ..training.runs import read_summary
from ..training.summary import counted
from .style import BLUE, GREEN, GREY, ORANGE, new_figure, save, tidy


def plot_run(folder: str | os.PathLike[str]) -> Path:
    """Curves of a run, read from ``metrics.jsonl`` and ``summary.json``, as ``curves.png`` beside them.

    Loss, validation accuracy and evaluations against the epoch, one thin line for each group of members
    trained together and a thick one for their mean; then the test accuracy of every member, if the run
    has come to its end.
    """
    folder = Path(folder)
    finished = is_finished(folder)
    summary = read_summary(folder) if finished else {}
    lines = read_lines(folder / "metrics.jsonl", summary["metrics"] if finished else None)
    epochs = [line for line in lines if line["kind"] == "epoch"]
    if not epochs:
        raise DataError(f"{folder} holds no finished epoch: name a folder that grand train has made.")
    figure, axes = new_figure(figsize=(12 if finished else 9, 3.1), ncols=4 if finished else 3)
    for axis, key, title, factor, colour in (
        (axes[0], "loss", "training loss", 1, ORANGE),
        (axes[1], "val", *_validation(summary), BLUE),
        (axes[2], "evaluations", "evaluations of the right-hand side", 1, GREEN),
    ):
        _curves(axis, epochs, key, factor, colour)
        axis.set_title(title, fontsize=10)
        axis.set_xlabel("epoch")
        tidy(axis)
    axes[2].set_ylim(bottom=0)
    if finished:
        _members(axes[3], summary)
    return save(figure, folder / "curves.png")


def _validation(summary: dict[str, Any]) -> tuple[str, float]:
    """Title and factor of the validation score; that of classes where the run is unfinished."""
    score = summary.get("val")
    if score is None or score["unit"]:
        return f"validation {'accuracy' if score is None else score['metric']}, %", 100
    return f"validation {score['metric']}", 1


def _curves(axis: Any, epochs: list[dict[str, Any]], key: str, factor: float, colour: str) -> None:
    groups: dict[int, dict[int, float]] = {}
    for line in epochs:
        value = math.nan if line[key] is None else line[key]  # a loss that is not finite leaves a gap
        groups.setdefault(line["chunk"], {})[line["epoch"]] = factor * value
    for values in groups.values():
        many = len(groups) > 1
        axis.plot(
            *zip(*values.items(), strict=True),
            color=colour,
            alpha=0.3 if many else 1,
            linewidth=0.9 if many else 1.8,
        )
    if len(groups) > 1:  # the mean, as far as all of them go
        last = min(max(values) for values in groups.values())
        shared = sorted(e for e in set.intersection(*(set(v) for v in groups.values())) if e <= last)
        mean = [sum(values[e] for values in groups.values()) / len(groups) for e in shared]
        axis.plot(shared, mean, color=colour, linewidth=2)


def _members(axis: Any, summary: dict[str, Any]) -> None:
    """Every member a dot, spread sideways where they are many; mean and 95% interval beside them.

    Scores on test nodes, or where there are none on validation nodes.
    """
    part = "val" if summary["test"] is None else "test"
    score = summary[part]
    if score is None:
        axis.set_axis_off()
        return
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
