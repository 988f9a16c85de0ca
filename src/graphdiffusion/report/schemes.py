"""Accuracy, error and stability of the schemes: figure 4 left of the paper, from a results file."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from ..errors import DataError
from ..experiments.results import read_results
from ..experiments.scheme_errors import EQUATIONS
from ..experiments.scheme_list import MODELS, SCHEMES
from ..experiments.scheme_stability import LONGEST
from ..experiments.scheme_verdict import ended
from .style import BLUE, GREEN, GREY, ORANGE, RED, new_figure, save, tidy

PURPLE, SKY, BLACK = "#CC79A7", "#56B4E9", "#000000"
LINES: dict[str, tuple[str, Any, str]] = {
    "ab4": (RED, "-", "o"),
    "torchdiffeq-explicit": (RED, ":", "x"),
    "torchdiffeq-implicit": (BLUE, ":", "x"),
    "am3": (BLUE, "-", "o"),
    "am3-newton": (BLUE, "--", "s"),
    "am4": (SKY, "-", "o"),
    "am4-newton": (SKY, "--", "s"),
    "rk4": (ORANGE, "-", "D"),
    "dopri5": (BLACK, "-", "*"),
    "trapezoid": (GREEN, "-", "^"),
    "bdf2": (GREEN, "--", "v"),
    "esdirk": (GREEN, ":", "P"),
    "semi-implicit": (GREY, "-", "h"),
    "closed": (BLACK, "", "X"),
    "exponential-euler": (PURPLE, ":", "<"),
    "exponential-midpoint": (PURPLE, "-", "d"),
    "exponential-two-step": (PURPLE, "--", "D"),
    "exponential-cf4": (PURPLE, "-.", ">"),
    "exponential21": (PURPLE, ":", "1"),
    "exponential42": (PURPLE, ":", "2"),
}
WRONG = 1e2  # errors above, and states that are not finite, are drawn there
COLUMNS = 4
# of limits: key, colour, label, size; the smaller mark lies on the larger
MARKS = (("theory", ORANGE, "theory, of fixed steps", 7), ("limit", BLUE, "measured by integrating", 4))


def plot_schemes(results: str | os.PathLike[str], path: str | os.PathLike[str] | None = None) -> Path:
    """The picture of a results file, by default ``picture.png`` beside it.

    Above test accuracy against seconds of training, with the standard error; in the middle the error of
    x(T) against evaluations; below the longest stable step of each scheme, measured and by theory. A part
    that is not measured is left out.
    """
    results = Path(results)
    content = read_results(results)
    spectra = content["settings"]["spectra"]
    parts: dict[str, list[dict[str, Any]]] = {"accuracy": [], "errors": [], "stability": []}
    for point in content["points"]:
        parts[point["part"]].append(point)
    there = [name for name, own in parts.items() if own]
    if not there:
        raise DataError(f"{results} has no points yet: let the experiment measure some.")
    shown = [(spectrum, key) for spectrum in spectra for key, *_ in MARKS]
    limited = [p for p in parts["stability"] if any(_known(p, *own) for own in shown)]
    heights = {"accuracy": 4.5, "errors": 4.5, "stability": 1.2 + 0.28 * len(limited)}
    tall = [heights[name] for name in there]
    figure, axes = new_figure(figsize=(15, sum(tall)), nrows=len(there), ncols=COLUMNS, height_ratios=tall)
    rows = dict(zip(there, axes.reshape(-1, COLUMNS), strict=True))
    used: set[str] = set()
    if "accuracy" in rows:
        for axis, model in zip(rows["accuracy"], MODELS, strict=False):
            own = [p for p in parts["accuracy"] if p["model"] == model]
            used |= _accuracies(axis, own, MODELS[model][0])
        rows["accuracy"][0].set_ylabel("test accuracy (%)")
    if "errors" in rows:
        places = {(p["equation"], p["trained"]): p for p in parts["errors"]}
        cases = ((e, trained) for e in EQUATIONS for trained in (False, True))
        for axis, case in zip(rows["errors"], cases, strict=True):
            used |= _errors(axis, places.get(case), case)
        rows["errors"][0].set_ylabel("relative error of x(T)")
    if "accuracy" in rows:
        _legend(rows["accuracy"][-1], used)
    elif used:
        figure.legend(handles=_handles(used), loc="outside lower center", ncols=5, frameon=False)
    if "stability" in rows:
        grid = rows["stability"][0].get_gridspec()
        for axis in rows["stability"]:
            axis.remove()
        below = figure.add_subplot(grid[len(there) - 1, :])
        _limits(below, limited, spectra)
    return save(figure, results.with_name("picture.png") if path is None else path)


def _accuracies(axis: Any, points: Sequence[Mapping[str, Any]], title: str) -> set[str]:
    """Means of the runs that came to their end; larger marks are longer steps, open ones had other runs."""
    tidy(axis)
    axis.set_title(f"{title}: trainings", fontsize=11)
    axis.set_xlabel("seconds of training")
    used = set()
    for name, (colour, style, marker) in LINES.items():
        own = sorted(
            (p for p in points if p["scheme"] == name and p["train_seconds"]),
            key=lambda p: -(p["amount"] or 0),
        )
        shown = [(p, ended(p)) for p in own]
        shown = [(p, scores) for p, scores in shown if scores]
        if not shown:
            continue
        used.add(name)
        seconds = [p["train_seconds"] for p, _ in shown]
        means = [fmean(scores) for _, scores in shown]
        axis.plot(seconds, means, color=colour, linestyle=style or "none", linewidth=1)
        for (p, scores), x, y in zip(shown, seconds, means, strict=True):
            spread = stdev(scores) / len(scores) ** 0.5 if len(scores) > 1 else 0.0
            failed = any(run["reason"] for run in p["runs"])
            adaptive = SCHEMES[name].kind in ("adaptive", "closed")
            size = 9 if adaptive else 4 + 2.2 * min(5.0, p["amount"]) ** 0.5
            axis.errorbar(
                x, y, spread, color=colour, marker=marker, markersize=size, elinewidth=0.8,
                markerfacecolor="white" if failed else colour,
            )  # fmt: skip
    if used:
        _log_axis(axis)
    axis.set_ylim(0, 100)
    return used


def _errors(axis: Any, point: Mapping[str, Any] | None, case: tuple[str, bool]) -> set[str]:
    tidy(axis)
    equation, trained = case
    axis.set_title(f"{EQUATIONS[equation]}, {'trained' if trained else 'untrained'}", fontsize=11)
    axis.set_xlabel("evaluations, or sparse products")
    used = set()
    for name, (colour, style, marker) in LINES.items():
        rows = [r for r in (point or {}).get("rows", ()) if r["scheme"] == name]
        if not rows:
            continue
        used.add(name)
        rows.sort(key=lambda row: -(row["amount"] or 0))
        errors = [min(WRONG, r["error"] if r["error"] is not None else WRONG) for r in rows]
        axis.plot(
            [_work(r) for r in rows], errors, color=colour, linestyle=style or "none", marker=marker,
            markersize=5, linewidth=1.2,
        )  # fmt: skip
    axis.set_ylim(5e-8, 2 * WRONG)
    axis.axhline(WRONG, color=GREY, linewidth=0.6, linestyle="--")
    if used:
        _log_axis(axis)
    axis.set_yscale("log")
    return used


def _log_axis(axis: Any) -> None:
    """Seconds or counts, often within a decade: ticks at 1, 2 and 5, if there is room."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axis.set_xscale("log")
    low, high = axis.get_xlim()
    axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 300 * low else (1,)))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, place: f"{value:g}"))


def _work(row: Mapping[str, Any]) -> int:
    """Evaluations; of the exponential schemes and the semi-implicit one the products, which are more."""
    inner = SCHEMES[row["scheme"]].solver.startswith(
        ("exponential-", "exponential2", "exponential4", "semi")
    )
    return max(1, row["evaluations"], row["inner_iterations"] if inner else 0)


def _handles(used: set[str]) -> list[Any]:
    """A line of the legend for each scheme."""
    from matplotlib.lines import Line2D

    return [
        Line2D([], [], color=colour, linestyle=style or "none", marker=marker, label=SCHEMES[name].title)
        for name, (colour, style, marker) in LINES.items()
        if name in used
    ]


def _legend(axis: Any, used: set[str]) -> None:
    axis.set_axis_off()
    if used:
        axis.legend(
            handles=_handles(used), loc="upper left", frameon=False, fontsize=8, labelspacing=0.25,
            borderaxespad=0.0,
        )  # fmt: skip
    axis.text(
        0.02, 0.0, "above: mean and standard error of the runs\nthat came to their end; larger marks are\n"
        "longer steps, open ones had runs that failed.\nbelow: errors "
        f"over {WRONG:g} lie on the dashed line.", fontsize=8, transform=axis.transAxes, va="bottom",
    )  # fmt: skip


def _limits(axis: Any, points: Sequence[Mapping[str, Any]], spectra: Sequence[str]) -> None:
    """Measured beside theory, a line for each scheme; an arrow where there is no limit."""
    tidy(axis)
    marks = {"interval": ("o", "[−2, 0] (circles)"), "disc": ("s", "disc (squares)")}
    for place, point in enumerate(points):
        told = {}
        for key, colour, _, size in MARKS:
            known = {s: point[s][key] for s in spectra if _known(point, s, key)}
            for spectrum, limit in known.items():
                y = place + 0.3 * (spectra.index(spectrum) - (len(spectra) - 1) / 2)
                marker = marks[spectrum][0] if limit else ">"
                axis.plot(
                    limit or LONGEST, y, color=colour, marker=marker, markersize=size, linestyle="none"
                )
            told[key] = " and ".join(dict.fromkeys(map(_number, known.values()))) or "–"
        axis.annotate(
            f"{told['limit']} (theory {told['theory']})", (1, place), xycoords=("axes fraction", "data"),
            xytext=(6, 0), textcoords="offset points", va="center", fontsize=8.5,
        )  # fmt: skip
    axis.set_xscale("log")
    axis.set_xlim(5e-4, 2 * LONGEST)
    axis.set_ylim(max(len(points), 1) - 0.4, -0.6)
    axis.set_yticks(range(len(points)), [SCHEMES[p["scheme"]].title for p in points], fontsize=8.5)
    axis.set_xlabel(f"longest stable τα; an arrow: no limit up to {LONGEST:g}")
    graphs = " and ".join(marks[s][1] for s in spectra)
    axis.set_title(f"limits of stability, eigenvalues of A − I in: {graphs}", fontsize=11)
    for _, colour, label, size in MARKS[::-1]:
        axis.plot([], [], color=colour, marker="s", markersize=size, linestyle="none", label=label)
    axis.legend(frameon=False, fontsize=9, loc="lower left")


def _known(point: Mapping[str, Any], spectrum: str, key: str) -> bool:
    own = point.get(spectrum, {})
    return "limit" in own if key == "limit" else bool(own.get("known"))


def _number(limit: float | None) -> str:
    return "none" if limit is None else f"{limit:.2g}" if limit < 0.1 else f"{limit:.2f}"
