"""What an automatic choice found, from the summary in its folder."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..ensemble.folder import read_summary
from ..training.summary import FIGURES
from .style import BLUE, GREEN, GREY, ORANGE, axes_of, new_figure, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST = 30  # classes whose confusion can be read


def plot_choice(folder: str | os.PathLike[str]) -> Figure:
    """An automatic choice, from its summary.

    The validation scores of all configurations; simple methods beside the ensemble; and for classes the
    confusion of the test nodes and the reliability of the probabilities.
    """
    found = read_summary(Path(folder))
    own = found["figures"]
    classes = "confusion" in own and len(found["names"]) <= MOST
    panels = 2 + classes + ("reliability" in own)
    figure, axes = new_figure(figsize=(4.2 * panels, 4.0), ncols=panels)
    plot_race(found, ax=axes[0])
    plot_baselines(found, ax=axes[1])
    if classes:
        plot_confusion(found["names"], own["confusion"], ax=axes[2])
    if "reliability" in own:
        plot_reliability(own, ax=axes[-1])
    return figure


def plot_race(found: Mapping[str, Any], ax: Axes | None = None) -> Figure:
    """A bar for each configuration in the summary of a choice; the chosen ones in colour."""
    figure, axis = axes_of(ax)
    factor = 100 if found["unit"] else 1
    entries = [r for r in found["race"] if r["val"] is not None][::-1]
    values = [factor * r["val"] for r in entries]
    colours = [BLUE if r["name"] in found["chosen"] else GREY for r in entries]
    axis.barh([r["name"] for r in entries], values, color=colours)
    _written(axis, values)
    axis.set_title(
        f"validation {found['metric']}{', %' if found['unit'] else ''}; chosen in blue", fontsize=10
    )
    axis.margins(x=0.15)
    tidy(axis)
    return figure


def _written(axis: Any, values: Sequence[float]) -> None:
    """Numbers beside bars."""
    for place, value in enumerate(values):
        where = {"textcoords": "offset points", "va": "center", "fontsize": 8}
        text = f"{value:.3g}" if abs(value) >= 5e-4 else "0"
        axis.annotate(text, (max(value, 0.0), place), (3, 0), **where)


def plot_baselines(found: Mapping[str, Any], ax: Axes | None = None) -> Figure:
    """Simple methods, and the ensemble, on the same nodes, from the summary of a choice."""
    figure, axis = axes_of(ax)
    factor = 100 if found["unit"] else 1
    own = found["figures"]
    mean = own.get(FIGURES[found["metric"]])
    values = {**found["baselines"], "this ensemble": mean}
    shown = {name: factor * value for name, value in values.items() if value is not None}
    names = list(shown)[::-1]
    axis.barh(
        names, [shown[n] for n in names], color=[BLUE if n == "this ensemble" else ORANGE for n in names]
    )
    _written(axis, [shown[name] for name in names])
    part = "test" if own.get("part") == "test" else "validation"
    axis.set_title(f"{found['metric']} on {part} nodes{', %' if found['unit'] else ''}", fontsize=10)
    axis.margins(x=0.15)
    tidy(axis)
    return figure


def plot_confusion(
    names: Sequence[str], confusion: Sequence[Sequence[int]], ax: Axes | None = None
) -> Figure:
    """What the nodes of each class, a row each, are predicted as."""
    figure, axis = axes_of(ax)
    counts = np.array(confusion, dtype=float)
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    axis.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    small = 8 if len(names) <= 12 else 6
    for i, j in np.ndindex(*counts.shape):
        if counts[i, j]:
            colour = "white" if shares[i, j] > 0.5 else "black"
            axis.text(
                j, i, f"{counts[i, j]:.0f}", ha="center", va="center", fontsize=small - 1, color=colour
            )
    axis.set_xticks(range(len(names)), names, rotation=60, ha="right", fontsize=small)
    axis.set_yticks(range(len(names)), names, fontsize=small)
    axis.set_xlabel("predicted")
    axis.set_ylabel("class")
    axis.set_title("nodes of each class, by prediction", fontsize=10)
    return figure


def plot_reliability(own: Mapping[str, Any], ax: Axes | None = None) -> Figure:
    """Accuracy against confidence, from figures of predictions."""
    figure, axis = axes_of(ax)
    bins = own["reliability"]
    axis.plot([0, 1], [0, 1], color=GREY, linewidth=0.8, linestyle=":")
    sizes = [10 + 200 * b["nodes"] / own["nodes"] for b in bins]
    confidence, accuracy = ([b[key] for b in bins] for key in ("confidence", "accuracy"))
    axis.plot(confidence, accuracy, color=GREEN, linewidth=1.2)
    axis.scatter(confidence, accuracy, s=sizes, color=GREEN, alpha=0.8)
    axis.set_xlabel("confidence")
    axis.set_ylabel("accuracy")
    axis.set_xlim(0, 1.02)
    axis.set_ylim(0, 1.02)
    axis.set_title(f"reliability: calibration error {own['calibration_error']:.3f}", fontsize=10)
    tidy(axis)
    return figure
