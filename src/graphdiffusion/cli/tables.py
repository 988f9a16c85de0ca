"""Results as tables on standard output."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..training.summary import counted, describe, describe_parts, wilson
from .messages import command


def console() -> Console:
    return Console(highlight=False)


def error_console() -> Console:
    return Console(stderr=True)


def print_facts(title: str, facts: Iterable[tuple[str, Any]]) -> None:
    """A table of names and values."""
    table = Table(title=title, title_justify="left", show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts:
        table.add_row(name, Text(str(value)))
    console().print(table)


def print_table(title: str, heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """A table with headings; numbers stand to the right."""
    table = Table(title=title, title_justify="left")
    listed = [list(row) for row in rows]
    for k, head in enumerate(heads):
        numeric = all(str(row[k]).replace(".", "", 1).isdecimal() for row in listed)
        table.add_column(head, justify="right" if numeric else "left", overflow="fold")
    for row in listed:
        table.add_row(*(Text(str(value)) for value in row))
    console().print(table)


def described(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Test and validation score, as far as there are nodes for them."""
    parts = (("test", found["test"]), ("validation", found["val"]))
    return [(f"{name} {score['metric']}", describe(score)) for name, score in parts if score is not None]


_FIGURES = {
    "accuracy": "accuracy", "balanced_accuracy": "balanced accuracy", "macro_f1": "macro F1",
    "weighted_f1": "weighted F1", "micro_f1": "micro F1", "all_right": "all labels right",
    "roc_auc": "ROC-AUC", "r2": "R²", "rmse": "root mean square error", "mae": "mean absolute error",
    "calibration_error": "calibration error",
}  # fmt: skip
_SHARES = ("accuracy", "balanced_accuracy", "macro_f1", "weighted_f1", "micro_f1", "all_right")


def described_figures(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Figures of the mean answer of all models, and what it was made of."""
    own = found["figures"]
    rows = []
    for key, name in _FIGURES.items():
        if key in own:
            text = f"{100 * own[key]:.2f}%" if key in _SHARES else f"{own[key]:.4g}"
            if key == "r2":
                text = f"{own[key]:z.4f}"  # it may be a little below zero
            if key == "accuracy":
                low, high = wilson(own[key], own["nodes"])
                ends = f"{100 * low:.1f} to {100 * high:.1f}"
                text += f" (95% interval {ends}, {own['nodes']:,} {_part(own)} nodes)"
            if key == "calibration_error" and "uncalibrated_error" in own:
                text += f" ({own['uncalibrated_error']:.4g} before calibration)"
            rows.append((name, text))
    split, members = found["split"], found["members"]
    made = counted(members, "model") + (", some of them trained on all labels" if found["refit"] else "")
    return [
        *rows,
        ("split", describe_parts(split)),
        ("ensemble", made),
        ("time", f"{found['seconds']:.1f} s"),
        ("device", found["device"]),
    ]


def _mean_figures(own: Mapping[str, Any], members: int) -> list[tuple[str, str]]:
    """The main figures of one model, or of the mean answer of several."""
    shown = [
        f"{name} {100 * own[key]:.2f}%" for key, name in _FIGURES.items() if key in own and key in _SHARES
    ]
    name = "figures" if members == 1 else f"mean of {members} models"
    return [(name, ", ".join(shown))] if shown else []


def _part(own: Mapping[str, Any]) -> str:
    return "test" if own["part"] == "test" else "validation"


def print_summary(
    folder: Path,
    found: Mapping[str, Any],
    plugins: Sequence[Path] = (),
    page: Path | None = None,
    whole: bool = True,
) -> None:
    """What ``summary.json`` says, and where the results are; ``whole``: the data was not in parts."""
    members = found["results"]
    splits = len({m["split"] for m in members})
    count = f"{len(members)} (splits: {splits}, initialisations of each: {len(members) // splits})"
    ways = 1 if found.get("directed") else 2  # an undirected edge is stored both ways
    edges = f"{found['edges_given'] // ways:,}"
    if found["edges_used"] != found["edges_given"]:
        edges += f" given, {found['edges_used'] // ways:,} after rewiring"
    print_facts(
        f"{found['model']} on {found['data']}",
        [
            *described(found),
            *_mean_figures(found["figures"], len(members)),
            ("trainings", count),
            ("nodes", f"{found['nodes']:,}"),
            ("edges", edges),
            ("parameters", f"{found['parameters']:,}"),
            ("time", f"{found['seconds']:.1f} s"),
            ("device", found["device"]),
        ],
    )
    print(f"Results: {folder}")
    if page is not None:
        print(f"Report:  {page}")
    more = "" if whole else " --data GRAPH"
    more += "".join(f" --plugin {shlex.quote(str(path))}" for path in plugins)
    print(
        f"Next:    {command()} predict {shlex.quote(str(folder))} --out predictions.csv{more}", flush=True
    )
