"""``compare.html``: several trainings side by side."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from ... import __version__
from ...ensemble.folder import holds_choice
from ...ensemble.folder import read_summary as read_choice
from ...errors import ConfigError, DataError
from ...files import write_bytes
from ...training.fingerprint import Fingerprint
from ...training.folder import holds_run, require_finished
from ...training.runs import read_summary
from ...training.summary import FIGURES, PARTS, duration, half_interval, wilson
from ..style import BLUE, axes_of, tidy
from .html import element, page, pictures, section, table

LONGEST = 40  # characters of a name in a picture


@dataclass(frozen=True)
class Entry:
    """One training as it is compared.

    Attributes:
        name: Of its folder, as short as it can be told from the others.
        data: Name of its graph.
        model: What was trained.
        metric: What the score is.
        score: On test nodes, or where there are none on validation nodes.
        low: Lower end of its 95% interval; the score itself where none is known.
        high: Upper end.
        each: Score of every training by split and initialisation; empty for an ensemble.
        same: Identifies data and protocol: trainings where it is equal have the same splits.
        seconds: That it took.
        parameters: Of a model; ``None`` for an ensemble.
        part: The nodes that the score is of, test or validation.
    """

    name: str
    data: str
    model: str
    metric: str
    score: float
    low: float
    high: float
    each: dict[tuple[int, int], float]
    same: Any
    seconds: float
    parameters: int | None
    part: str = "test"


def write_comparison(folders: Sequence[str | os.PathLike[str]], path: str | os.PathLike[str]) -> Path:
    """Write a page with the scores of several trainings, and their differences on the same splits."""
    if len(folders) < 2:
        raise ConfigError("a comparison needs at least two runs: name their folders.")
    path = Path(path)
    if path.is_dir():
        raise ConfigError(f"{path} is a folder: name a file to write.")
    entries = read_entries([Path(folder) for folder in folders])
    metrics = {entry.metric for entry in entries}
    if len(metrics) > 1:
        raise ConfigError(f"these runs have different scores, {' and '.join(sorted(metrics))}.")
    title = f"{len(entries)} runs compared"
    content = [element("h1", title), _scores(entries), _differences(entries)]
    content.append(element("p", f"Written by grand compare, graphdiffusion {__version__}.", class_="soft"))
    write_bytes(path, page(title, content, {}).encode())
    return path


def read_entries(folders: Sequence[Path]) -> list[Entry]:
    """What is compared of each folder."""
    resolved = [folder.resolve() for folder in folders]
    names = [folder.name for folder in resolved]
    shown = [str(f) if names.count(f.name) > 1 else f.name for f in resolved]
    told = [name.encode(errors="replace").decode() for name in shown]  # a name of a folder may be no text
    return [_entry(folder, name) for folder, name in zip(folders, told, strict=True)]


def _entry(folder: Path, name: str) -> Entry:
    if holds_choice(folder):
        found = read_choice(folder)
        own, key = found["figures"], FIGURES[found["metric"]]
        if key not in own:
            raise DataError(f"{folder} has no score: it has neither test nor validation nodes.")
        factor = 100.0 if found["unit"] else 1.0
        score = factor * own[key]
        low, high = (score, score)
        if found["metric"] == "accuracy":
            low, high = (factor * end for end in wilson(own[key], own["nodes"]))
        model = ", ".join(found["chosen"])
        metric = found["metric"] + (", %" if found["unit"] else "")
        part = "test" if own.get("part") == "test" else "validation"
        return Entry(
            name, found["data"], model, metric, score, low, high, {}, None, found["seconds"], None, part
        )  # fmt: skip
    if not holds_run(folder):
        raise DataError(f"{folder} holds no run: name a folder that grand train has made.")
    require_finished(folder)
    found = read_summary(folder)
    part = "val" if found["test"] is None else "test"
    own = found[part]
    if own is None:
        raise DataError(f"{folder} has no score: it has neither test nor validation nodes.")
    low, high = own["ci95"] or (own["mean"], own["mean"])
    factor = 100.0 if own["unit"] else 1.0
    each = {(r["split"], r["init"]): factor * r[part] for r in found["results"] if r[part] is not None}
    fingerprint, split = Fingerprint.read(folder), found["split"]
    # random splits follow from their own seed; others are numbered from the first one
    first = None if split["kind"] == "random" else fingerprint.options["seed"]
    same = (fingerprint.data, split["kind"], first, *(split[name] for name in PARTS), part)
    metric = own["metric"] + (", %" if own["unit"] else "")
    return Entry(
        name, found["data"], found["model"], metric, own["mean"], low, high, each, same,
        found["seconds"], found["parameters"], "test" if part == "test" else "validation",
    )  # fmt: skip


def _scores(entries: list[Entry]) -> Any:
    figure, ax = axes_of(None, figsize=(6.4, 0.42 * len(entries) + 1.1))
    for place, entry in enumerate(reversed(entries)):
        reach = [[entry.score - entry.low], [entry.high - entry.score]]
        ax.scatter(list(entry.each.values()), [place] * len(entry.each), s=14, color=BLUE, alpha=0.35)
        ax.errorbar(entry.score, place, xerr=reach, color="#000000", marker="D", markersize=5, capsize=4)
    names = [_label(entry.name) for entry in reversed(entries)]
    ax.set_yticks(range(len(entries)), names, fontsize=9)
    ax.set_ylim(-0.6, len(entries) - 0.4)
    ax.set_xlabel(entries[0].metric)
    tidy(ax)
    digits = _digits(entries)
    rows = [
        (
            e.name,
            e.data,
            e.model,
            f"{e.score:z.{digits}f}",
            f"{e.low:z.{digits}f} to {e.high:z.{digits}f}",
            e.part,
            len(e.each) or "ensemble",
            "" if e.parameters is None else f"{e.parameters:,}",
            duration(e.seconds),
        )
        for e in entries
    ]
    heads = (
        "run", "data", "model", entries[0].metric, "95% interval", "nodes", "trainings", "parameters",
        "time",
    )  # fmt: skip
    caption = "Mean and 95% interval; a dot for every training."
    if len({e.part for e in entries}) > 1:
        caption += " Some scores are of test nodes, others of validation nodes, which chose the model."
    shown = [pictures([figure], "scores", caption), table(heads, rows, "Scores")]
    return section("Scores", *shown, name="scores")


def _differences(entries: list[Entry]) -> Any:
    """Every run minus the first, over the splits and initialisations that both have."""
    first, rows, digits = entries[0], [], _digits(entries)
    for other in entries[1:]:
        shared = sorted(first.each.keys() & other.each.keys()) if first.same == other.same else []
        splits = sorted({split for split, _ in shared})
        if not shared or first.same is None:
            rows.append((other.name, "", "", "other data, splits or an ensemble: not paired"))
            continue
        each = [fmean(other.each[k] - first.each[k] for k in shared if k[0] == s) for s in splits]
        half = half_interval(each)
        interval = f"± {half:.{digits}f}" if len(each) > 1 else ""
        verdict = "no difference shown" if abs(fmean(each)) <= half else "a difference"
        rows.append((other.name, f"{fmean(each):+z.{digits}f}", interval, f"{verdict}, {len(each)} splits"))
    about = (
        f"Each run minus {first.name}, on the same splits and from the same seeds, with the 95% interval "
        "of the mean over splits. Differences of pairs are surer than those of the means above."
    )
    heads = ("run", "difference", "95% interval", "what it shows")
    shown = [element("p", about, class_="soft"), table(heads, rows, f"Differences to {first.name}")]
    return section("Differences", *shown, name="differences")


def _label(name: str) -> str:
    """A name in a picture: on one line, short enough to leave room, and never mathematics."""
    line = " ".join(name.split())
    return (line if len(line) <= LONGEST else f"…{line[1 - LONGEST :]}").replace("$", "\\$")


def _digits(entries: list[Entry]) -> int:
    return 2 if entries[0].metric.endswith("%") else 4
