"""The paper's smaller claims: a small picture of each, from a results file."""

from __future__ import annotations

import math
import os
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import DataError
from ..experiments.results import read_results
from .style import BLUE, GREEN, GREY, ORANGE, RED, new_figure, save, tidy

COLOURS = (BLUE, ORANGE, GREEN, RED, GREY, "#56B4E9", "#CC79A7", "#000000")
MARKERS = "osv^Dx*+"
WORDS = {"holds": GREEN, "holds in part": ORANGE, "does not hold": RED, "is not shown": GREY}
COLUMNS = 3


def plot_claims(results: str | os.PathLike[str], path: str | os.PathLike[str] | None = None) -> Path:
    """The picture of a results file, by default ``picture.png`` beside it: a panel for each claim."""
    results = Path(results)
    found = read_results(results).get("figures") or []
    if not found:
        raise DataError(
            f"{results} lacks points that the picture needs: let the experiment come to its end."
        )
    columns = min(COLUMNS, len(found))
    rows = math.ceil(len(found) / columns)
    figure, axes = new_figure(figsize=(5.0 * columns, 3.7 * rows), nrows=rows, ncols=columns)
    engine: Any = figure.get_layout_engine()
    engine.set(w_pad=0.12, h_pad=0.12)
    places = [axes] if len(found) == 1 else list(axes.flat)
    for axis, own in zip(places, found, strict=False):
        _draw(axis, own["panel"])
        axis.set_title(own["panel"]["title"], fontsize=10, loc="left")
        axis.set_title(own["word"], fontsize=10, loc="right", color=WORDS[own["word"]], weight="bold")
    for axis in places[len(found) :]:
        axis.set_visible(False)
    return save(figure, results.with_name("picture.png") if path is None else path)


def _draw(axis: Any, panel: Mapping[str, Any]) -> None:
    tidy(axis)
    (_lines if panel["kind"] == "lines" else _bars)(axis, panel)
    if panel["level"] is not None:
        axis.axhline(panel["level"], color="black", linestyle=":", linewidth=1)
    axis.set_xlabel(panel["x"])
    axis.set_ylabel(panel["y"])
    if "y" in panel["log"]:
        axis.set_yscale("log")
    if "x" in panel["log"]:
        axis.set_xscale("log")
    many = panel["kind"] == "bars" and len(panel["series"]) > 4
    axis.legend(fontsize=7, frameon=False, ncols=2 if many else 1)


def _name(text: str) -> str:
    return text.replace("-embedded", "")


def _lines(axis: Any, panel: Mapping[str, Any]) -> None:
    for k, own in enumerate(panel["series"]):
        look = {"color": COLOURS[k % len(COLOURS)], "marker": MARKERS[k % len(MARKERS)], "markersize": 4}
        look["linestyle"] = "--" if k >= len(COLOURS) else "-"
        order = sorted(range(len(own["x"])), key=lambda place: own["x"][place])
        x, y = ([own[key][place] for place in order] for key in ("x", "y"))
        if own["half"]:
            spread = [own["half"][place] or 0.0 for place in order]
            axis.errorbar(x, y, spread, label=_name(own["label"]), capsize=3, linewidth=1, **look)
        else:
            axis.plot(x, y, label=_name(own["label"]), **look)


def _bars(axis: Any, panel: Mapping[str, Any]) -> None:
    names = list(dict.fromkeys(name for own in panel["series"] for name in own["x"]))
    width = 0.8 / max(1, len(panel["series"]))
    for k, own in enumerate(panel["series"]):
        places = [names.index(name) + (k + 0.5) * width - 0.4 for name in own["x"]]
        heights = [math.nan if value is None else value for value in own["y"]]
        spread = [value or 0.0 for value in own["half"]] if own["half"] else None
        colour = COLOURS[k % len(COLOURS)]
        axis.bar(places, heights, width, yerr=spread, label=_name(own["label"]), color=colour, capsize=3)
    axis.margins(y=0.3)  # room for the legend
    axis.set_xlim(-1 if len(names) == 1 else -0.6, max(1, len(names) - 0.4))
    if len(names) > 8:  # too many to stand side by side
        slanted: Any = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"}
        axis.set_xticks(range(len(names)), [_name(name) for name in names], fontsize=7, **slanted)
    else:
        labels = [textwrap.fill(_name(name), 12) for name in names]
        axis.set_xticks(range(len(names)), labels, fontsize=7 if len(names) > 4 else 8)
