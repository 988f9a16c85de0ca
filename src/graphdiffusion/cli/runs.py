"""``grand evaluate`` and ``grand predict``: what a finished run is good for."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import ConfigError
from .messages import say
from .options import ROOT, Plugins

if TYPE_CHECKING:
    from torch import Tensor

    from ..ensemble import Ensemble
    from ..training import Run

_RUN = typer.Argument(help="Folder of a finished run.", show_default=False)


def add_to(app: typer.Typer) -> None:
    app.command("evaluate")(evaluate)
    app.command("predict")(predict)


def evaluate(
    run: Annotated[Path, _RUN],
    member: Annotated[str, typer.Option(help="Number of a member, best, or all.")] = "all",
    plugin: Plugins = None,
    root: Annotated[str, ROOT] = "",
) -> None:
    """Compute the scores of a run's models again, from its folder."""
    from ..ensemble.folder import holds_choice
    from ..training import load_run
    from ..training.summary import scores
    from .automatic import evaluate_choice
    from .tables import described, print_table

    if holds_choice(run):
        evaluate_choice(run, root or None)
        return
    found = load_run(run, root or None)
    chosen = found.results
    if member != "all":
        number = _member(found, member, "all")
        chosen = [r for r in found.results if r.number == number]
    reached = {r.number: found.evaluate(r.number) for r in chosen}
    again = [replace(r, val=reached[r.number][0], test=reached[r.number][1]) for r in chosen]
    shown, unit = (_percent, " %") if found.task.percent else (_number, "")
    metric = found.task.metric
    print_table(
        str(run),
        (
            "member",
            "split",
            "init",
            "best epoch",
            "T",
            f"validation {metric}{unit}",
            f"test {metric}{unit}",
        ),
        [
            (
                r.number,
                r.split,
                r.init,
                r.best_epoch,
                "" if r.time is None else f"{r.time:.3g}",
                shown(r.val),
                shown(r.test),
            )
            for r in again
        ],
    )
    for name, text in reversed(described(scores(found.config, found.problem, again))):
        print(f"{name}: {text}", flush=True)


def predict(
    run: Annotated[Path, _RUN],
    data: Annotated[
        str | None,
        typer.Option(
            help="Graph to predict on: a folder, an .npz file or a name.", show_default="the run's"
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="CSV file to write.")] = Path("predictions.csv"),
    member: Annotated[
        str, typer.Option(help="all: the mean of all models; or the number of one, or best.")
    ] = "all",
    plugin: Plugins = None,
    root: Annotated[str, ROOT] = "",
) -> None:
    """Write the class of every node, and the probabilities of all classes, by node id; or the numbers.

    An id or class that begins with =, +, -, @, a tab or a carriage return, and is no number, gets an
    apostrophe before it: spreadsheets would take it for a formula.
    """
    from ..ensemble import load_ensemble
    from ..files import write_bytes
    from ..training.problem import read_data

    found = load_ensemble(run, root or None)
    number = _chosen(found, member)
    if out.is_dir():
        raise ConfigError(f"{out} is a folder: name a file to write.")
    graph = None
    if data is not None:
        elsewhere = found.moved(data)
        graph = read_data(elsewhere.runs[0].config, root or None)
        if found.runs[0].fingerprint.matches(graph):  # the run's own graph, wherever it lies
            found, graph = elsewhere, None
    answers = found.predict(graph, number)
    graph = found.data if graph is None else graph
    ids = graph.get("node_ids") or range(len(answers))
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    heads, rows = _columns(found.runs[0].task.name, found.names, answers)
    writer.writerow(["id", *heads])
    for node, row in zip(ids, rows, strict=True):
        writer.writerow([_cell(str(node)), *row])
    write_bytes(out, text.getvalue().encode())
    count = len(found.members)
    by = (
        f"member {number}"
        if number is not None
        else f"the mean of {count} models"
        if count > 1
        else "one model"
    )
    say(f"predicted {len(answers):,} nodes with {by}: {out}")


def _columns(task: str, names: list[str], answers: Tensor) -> tuple[list[str], Iterator[list[str]]]:
    """Headings and rows of a table of answers: what is predicted, then probabilities if there are any."""
    values = answers.tolist()
    if task == "regression":
        return list(map(_cell, names)), ([f"{v:.6g}" for v in row] for row in values)
    probabilities = [f"p_{name}" for name in names]
    if task == "multilabel":
        chosen = ("|".join(n for n, v in zip(names, row, strict=True) if v > 0.5) for row in values)
        head = "labels"
    else:
        chosen = (names[k] for k in answers.argmax(-1).tolist())
        head = "class"
    rows = ([_cell(name), *(f"{v:.6g}" for v in row)] for name, row in zip(chosen, values, strict=True))
    return [head, *probabilities], rows


def _chosen(found: Ensemble, text: str) -> int | None:
    """The number of one model, or ``None`` for all of them."""
    if text == "all":
        return None
    if text == "best":
        return found.best
    if text not in map(str, range(len(found.members))):
        raise ConfigError(
            f"--member must be a number from 0 to {len(found.members) - 1}, or all, best; got {text!r}."
        )
    return int(text)


def _cell(text: str) -> str:
    """Text that no spreadsheet takes for a formula; numbers stay as they are."""
    formula = text.startswith(("=", "+", "-", "@", "\t", "\r"))
    return f"'{text}" if formula and not re.fullmatch(r"[+-]?\d+(\.\d*)?([eE][+-]?\d+)?", text) else text


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.2f}"


def _number(score: float | None) -> str:
    return "" if score is None else f"{score:.4f}"


def _member(run: Run, text: str, *others: str) -> int:
    if text == "best":
        return run.best
    numbers = {str(r.number): r.number for r in run.results}
    if text not in numbers:
        words = ", ".join(("best", *others))
        raise ConfigError(
            f"--member must be a number from 0 to {len(run.results) - 1}, or {words}; got {text!r}."
        )
    return numbers[text]
