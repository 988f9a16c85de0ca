"""``grand evaluate`` and ``grand predict``: what a finished run is good for."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import ConfigError
from .messages import say
from .options import ROOT, Plugins

if TYPE_CHECKING:
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
    from ..training import load_run
    from ..training.summary import scores
    from .tables import described, print_table

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
        ("member", "split", "init", "best epoch", "T", f"validation {metric}{unit}", f"test {metric}{unit}"),
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
    member: Annotated[str, typer.Option(help="Number of a member, or best.")] = "best",
    plugin: Plugins = None,
    root: Annotated[str, ROOT] = "",
) -> None:
    """Write the class of every node, and the probabilities of all classes, by node id.

    An id or class that begins with =, +, -, @, a tab or a carriage return, and is no number, gets an
    apostrophe before it: spreadsheets would take it for a formula.
    """
    from ..files import write_bytes
    from ..training import load_run
    from ..training.problem import read_data

    found = load_run(run, root or None)
    number = _member(found, member)
    if out.is_dir():
        raise ConfigError(f"{out} is a folder: name a file to write.")
    graph = None
    if data is not None:
        elsewhere = found.config.replace(data=data)
        graph = read_data(elsewhere, root or None)
        if found.fingerprint.matches(graph):  # the run's own graph, wherever it lies
            found, graph = replace(found, config=elsewhere), None
    probabilities = found.predict(graph, number)
    graph = found.data if graph is None else graph
    ids = graph.get("node_ids") or range(len(probabilities))
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["id", "class", *(f"p_{name}" for name in found.class_names)])
    classes = probabilities.argmax(-1).tolist()
    for node, k, row in zip(ids, classes, probabilities.tolist(), strict=True):
        writer.writerow([_cell(str(node)), _cell(found.class_names[k]), *(f"{p:.6g}" for p in row)])
    write_bytes(out, text.getvalue().encode())
    say(f"predicted {len(probabilities):,} nodes with member {number}: {out}")


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
