"""Seconds, accuracy and iterations against K: figure 4 of the paper, right, from a results file."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

from ..experiments.results import read_results
from ..experiments.sparsity_claims import FEW, MODELS
from ..training.summary import half_interval
from .style import BLUE, GREEN, GREY, ORANGE, RED, new_figure, save, tidy

LINES = {
    "closed-form": (GREEN, "-", "s"),
    "exponential-midpoint": (GREEN, "-", "s"),
    "dopri5": (BLUE, "-", "o"),
    "adams-moulton-1": (RED, "-", "^"),
    "adams-moulton-0.5": (RED, "--", "^"),
    "adams-moulton-0.25": (RED, ":", "^"),
    "semi-implicit-1": (ORANGE, "-", "D"),
    "semi-implicit-4": (ORANGE, "--", "D"),
    "adams-bashforth-0.125": (GREY, "--", "v"),
    "adams-bashforth-0.005": (GREY, "-", "v"),
}
ITERATIONS = "× iterations or products"


def plot_sparsity(results: str | os.PathLike[str], path: str | os.PathLike[str] | None = None) -> Path:
    """The picture of a results file, by default ``picture.png`` beside it.

    From above: median seconds an epoch; test accuracy, mean and 95% interval over splits; evaluations and
    iterations of one integral. The graph as it is stands at the left.
    """
    results = Path(results)
    content = read_results(results)
    ks = content["settings"]["ks"]
    models = [m for m in MODELS if any(p["model"] == m for p in content["points"])]
    figure, axes = new_figure(
        figsize=(5.4 * len(models) + 2.6, 8.6), nrows=3, ncols=len(models), sharex=True, sharey="row"
    )
    axes = axes.reshape(3, -1)
    shown: dict[str, Any] = {}
    for column, model in zip(axes.T, models, strict=True):
        own = [p for p in content["points"] if p["model"] == model]
        shown |= _speed(column[0], own, content["titles"], ks)
        _accuracy(column[1], own, ks)
        shown |= _work(column[2], own, ks)
        for axis in column:
            tidy(axis)
            axis.axvspan(-0.5, 0.5, color="#f4f4f4", zorder=0)
            axis.set_xlim(-0.5, len(ks) + 0.4)
        devices = ", ".join(dict.fromkeys(p["device"] for p in own))
        column[0].set_title(f"{MODELS[model]} ({devices})", fontsize=12)
        column[2].set_xticks(range(len(ks) + 1), ["as it is", *map(str, ks)])
        column[2].set_xlabel("K, entries kept of each row")
    axes[0, 0].set_ylabel("seconds an epoch")
    axes[1, 0].set_ylabel("test accuracy (%)")
    axes[2, 0].set_ylabel("evaluations of an integral")
    for row in (0, 2):
        axes[row, 0].set_yscale("log")
    last = shown.pop(ITERATIONS, None)
    order = [content["titles"][name] for name in LINES if content["titles"][name] in shown]
    shown = {title: shown[title] for title in order} | ({} if last is None else {ITERATIONS: last})
    figure.legend(shown.values(), shown.keys(), fontsize=9, frameon=False, loc="outside right upper")
    return save(figure, results.with_name("picture.png") if path is None else path)


def _place(k: int, ks: Sequence[int]) -> float:
    """Where K stands on the axis; 0, the graph as it is, at the left."""
    return list(ks).index(k) + 1.0 if k else 0.0


def _speed(
    axis: Any, points: Sequence[Mapping[str, Any]], titles: Mapping[str, str], ks: Sequence[int]
) -> dict[str, Any]:
    shown = {}
    for p in (p for p in points if p["kind"] == "speed"):
        values = {_place(g["k"], ks): median(g["seconds"]) for g in p["graphs"]}
        shown[titles[p["scheme"]]] = _line(axis, values, p["scheme"])
    return shown


def _accuracy(axis: Any, points: Sequence[Mapping[str, Any]], ks: Sequence[int]) -> None:
    """One line for each scheme and method, beside each other; hollow: heat."""
    own = [p for p in points if p["kind"] == "accuracy"]
    cases = list(dict.fromkeys((p["scheme"], p["rewire"]) for p in own if p["rewire"] != "none"))
    for number, (scheme, method) in enumerate(cases):
        shift = 0.09 * (number - (len(cases) - 1) / 2)
        group = [p for p in own if p["scheme"] == scheme and p["rewire"] in (method, "none")]
        group = sorted(group, key=lambda p: p["k"])
        if method != "ppr":  # the graph as it is, once
            group = [p for p in group if p["k"]]
        values = {_place(p["k"], ks) + shift: fmean(p["test"]) for p in group}
        halves = [half_interval(p["test"]) if len(p["test"]) > 2 else 0.0 for p in group]
        colour = LINES[scheme][0]
        axis.errorbar(values.keys(), values.values(), halves, fmt="none", ecolor=colour, elinewidth=1)
        _line(axis, values, scheme, hollow=method != "ppr")
    if any(0 < k < FEW for k in ks):
        edge = sum(0 < k < FEW for k in ks) + 0.5
        axis.axvline(edge, color=GREY, linestyle="--", linewidth=1)
        _remark(axis, f"K < {FEW} ", (edge, 0.94), xycoords=("data", "axes fraction"))
    if any(method == "heat" for _, method in cases):
        _remark(axis, "filled: PageRank, hollow: heat", (0.98, 0.02), xycoords="axes fraction")


def _work(axis: Any, points: Sequence[Mapping[str, Any]], ks: Sequence[int]) -> dict[str, Any]:
    """Evaluations as lines; iterations of implicit steps and products of exponential ones as crosses."""
    shown = {}
    for p in (p for p in points if p["kind"] == "speed"):
        places = [_place(g["k"], ks) for g in p["graphs"]]
        _line(axis, dict(zip(places, (g["evaluations"] for g in p["graphs"]), strict=True)), p["scheme"])
        iterations = [g["iterations"] for g in p["graphs"]]
        if any(iterations):
            marks = axis.plot(places, iterations, "x", color=LINES[p["scheme"]][0], markersize=5)
            shown[ITERATIONS] = marks[0]
    return shown


def _line(axis: Any, values: Mapping[float, float], scheme: str, hollow: bool = False) -> Any:
    """A line over the rewired graphs, and a point for the graph as it is."""
    colour, style, marker = LINES[scheme]
    how = {"color": colour, "marker": marker, "markersize": 5}
    how |= {"markerfacecolor": "white"} if hollow else {}
    apart = {place: value for place, value in values.items() if place < 0.5}
    others = {place: value for place, value in values.items() if place >= 0.5}
    axis.plot(apart.keys(), apart.values(), linestyle="none", **how)
    return axis.plot(others.keys(), others.values(), linestyle=style, linewidth=1.5, **how)[0]


def _remark(axis: Any, text: str, place: tuple[float, float], **how: Any) -> None:
    axis.annotate(text, place, ha="right", fontsize=9, color="#555555", **how)
