"""Tables of the experiment on the successors' equations in Markdown, from a results file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..experiments.successor_figures import best_of_each, figures
from ..experiments.successor_models import MODELS

Case = tuple[str, str, float]  # part, data set, level


def successor_tables(found: Mapping[str, Any]) -> dict[str, str]:
    """Every table that the points of a results file give, by name.

    A cell has the mean test accuracy and, in brackets, the paired difference to GRAND-l with half of its
    95% interval; bold where the model is above GRAND-l beyond the interval.
    """
    points = found["points"]
    own = figures(points)
    cases = list(dict.fromkeys((f["part"], f["data"], f["level"]) for f in own))
    sets = [case for case in cases if case[0] == "sets"]
    tables = {"successors sets": _table(own, {case: case[1] for case in sets}, _trials(own, sets), points)}
    for data in dict.fromkeys(data for part, data, _ in cases if part == "labels"):
        columns = {c: _labels(c[2]) for c in sorted(c for c in cases if c[:2] == ("labels", data))}
        tables[f"successors labels {data}"] = _table(own, columns, [], points)
    heads = {
        "edges": "{:.0%} random edges",
        "attack": "attack on GCN, {:.0%}",
        "adaptive": "on itself, {:.0%}",
    }
    columns = {c: heads[c[0]].format(c[2]) for c in cases if c[0] in heads and c[2] > 0}
    clean = {c: "as it is" for c in cases if c[0] == "edges" and c[2] == 0}
    tables["successors robust"] = _table(own, clean | columns, [], ())
    return tables


def _labels(count: float) -> str:
    return f"{count:g} label{'s' * (count != 1)} a class"


def _table(
    own: Sequence[Mapping[str, Any]],
    columns: Mapping[Case, str],
    more: Sequence[Sequence[str]],
    points: Sequence[Mapping[str, Any]],
) -> str:
    """A row for each model; below ``more`` rows, and of ``points`` the best equation and the best rival."""
    known = {(f["part"], f["data"], f["level"], f["model"]): f for f in own}
    rows = [
        [MODELS[model][0], *(_cell(known.get((*case, model))) for case in columns)]
        for model in MODELS
        if any((*case, model) in known for case in columns)
    ]
    best = {(b["part"], b["data"], b["level"]): b for b in best_of_each(points)}
    if any(case in best for case in columns):
        rows += [
            ["*best equation by validation*", *(_title(best.get(c), "best") for c in columns)],
            ["*best rival by validation*", *(_title(best.get(c), "rival") for c in columns)],
            ["*equation − rival*", *(_difference(best.get(c)) for c in columns)],
        ]
    heads = ["", *columns.values()]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in [*rows, *more])])


def _cell(f: Mapping[str, Any] | None) -> str:
    if f is None:
        return "–"
    text = f"{f['test']:.1f}"
    if f["model"] == "linear" or f["difference"] is None:
        return f"{text} ± {f['half']:.1f}"
    text += f" ({_signed(f['difference'])} ± {f['difference_half']:.1f})"
    return f"**{text}**" if f["difference"] > f["difference_half"] else text


def _title(best: Mapping[str, Any] | None, key: str) -> str:
    return "–" if best is None else MODELS[best[key]][0]


def _difference(best: Mapping[str, Any] | None) -> str:
    return "–" if best is None else f"{_signed(best['difference'])} ± {best['half']:.1f}"


def _signed(value: float) -> str:
    """With its sign; a difference that is rounded to 0 has none."""
    text = f"{value:+.1f}"
    return "0.0" if text.endswith("0.0") and len(text) == 4 else text


def _trials(own: Sequence[Mapping[str, Any]], cases: Sequence[Case]) -> list[list[str]]:
    found = {(f["part"], f["data"], f["level"]): str(f["trials"]) for f in own}
    return [["*trials of each search*", *(found[case] for case in cases)]]
