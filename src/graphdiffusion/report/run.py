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
        (axes[1], "val", "validation accuracy, %", 100, BLUE),
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
    """Every member a dot, spread sideways where they are many; mean and 95% interval beside them."""
    values = sorted(100 * r["test"] for r in summary["results"])
    width = min(0.25, 0.04 * len(values))
    places = [width * ((k * 0.618034) % 1 - 0.5) for k in range(len(values))]
    axis.scatter(places, values, color=BLUE, alpha=0.7, s=22, edgecolors="white", linewidths=0.5)
    mean, (low, high) = summary["test"]["mean"], summary["test"]["ci95"]
    reach = [[mean - low], [high - mean]]
    axis.errorbar(0.35, mean, reach, color="black", marker="D", markersize=5, capsize=4)
    text, offset = f"{mean:.1f}\n({low:.1f} to {high:.1f})", (7, 7)
    axis.annotate(text, (0.35, mean), offset, textcoords="offset points", fontsize=9)
    axis.axhline(mean, color=GREY, linewidth=0.6, linestyle=":")
    axis.set_xlim(-0.3, 0.85)
    axis.set_xticks([])
    axis.set_title(f"test accuracy, %, {len(values)} trainings", fontsize=10)
    tidy(axis)
