"""``grand evaluate``, ``predict``, ``report``, ``view`` and ``compare``: what finished runs are for."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import ConfigError
from .messages import say
from .options import ROOT, Plugins

if TYPE_CHECKING:
    from torch import Tensor

_RUN = typer.Argument(help="Folder of a finished run.", show_default=False)


def add_to(app: typer.Typer) -> None:
    app.command("evaluate")(evaluate)
    app.command("predict")(predict)
    app.command("report")(report)
    app.command("view")(view)
    app.command("compare")(compare)


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
        if member != "all":
            raise ConfigError(f"the figures of {run} are those of all its models: leave out --member.")
        evaluate_choice(run, root or None)
        return
    found = load_run(run, root or None)
    chosen = found.results
    number = _member(member, len(chosen), found.best)
    if number is not None:
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
    member: Annotated[str, typer.Option(help="Number of a member, best, or all: their mean.")] = "all",
    plugin: Plugins = None,
    root: Annotated[str, ROOT] = "",
) -> None:
    """Write the answer for every node, by node id: the mean over all members of the run.

    It is a class and the probabilities of all classes; or the labels that a node has, separated by | (and
    | alone where it has none), and the probabilities of all labels; or the numbers that are predicted.

    A text that begins with =, +, -, @, a tab or a carriage return, and is no number, gets an apostrophe
    before it: spreadsheets would take it for a formula.
    """
    from ..ensemble import load_ensemble
    from ..files import write_bytes
    from ..training.problem import read_data

    found = load_ensemble(run, root or None)
    number = _member(member, len(found.members), found.best)
    if out.is_dir():
        raise ConfigError(f"{out} is a folder: name a file to write.")
    graph = None
    if data is not None:
        graph = read_data(found.runs[0].config.replace(data=data), root or None)
        if all(own.fingerprint.matches(graph) for own in found.runs):  # their own graph, wherever it lies
            moved = [replace(own, config=own.config.replace(data=data)) for own in found.runs]
            found, graph = replace(found, runs=moved), None
        else:
            graph, notes = found.runs[0].matched(graph)  # the runs of one training have the same features
            for note in notes:
                say(note)
    answers = found.predict(graph, number)
    graph = found.runs[0].data if graph is None else graph
    ids = graph.get("node_ids") or range(len(answers))
    heads, rows = _columns(found.runs[0].task.name, found.names, answers)
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["id", *map(_cell, heads)])
    for node, row in zip(ids, rows, strict=True):
        writer.writerow([_cell(str(node)), *row])
    write_bytes(out, text.getvalue().encode())
    several = number is None and len(found.members) > 1
    source = f"the mean of {len(found.members)} members" if several else f"member {number or 0}"
    say(f"predicted {len(answers):,} nodes with {source}: {out}")


def report(
    run: Annotated[Path, _RUN],
    out: Annotated[
        Path | None, typer.Option(help="HTML file to write.", show_default="RUN/report.html")
    ] = None,
    plugin: Plugins = None,
    root: Annotated[str, ROOT] = "",
) -> None:
    """Write a page about a run, to look at in a browser: one file that needs no network.

    Scores beside simple methods, curves of all trainings, confusion and calibration, the nodes in the plane
    with a slider over t, Dirichlet energy along t, and the nodes that the models are surest to be wrong
    about.
    """
    from ..report.page import write_report

    print(f"Report: {write_report(run, out, root=root or None)}", flush=True)


def view(
    run: Annotated[Path, _RUN],
    out: Annotated[
        Path | None, typer.Option(help="HTML file to write instead of serving a page.", show_default=False)
    ] = None,
    member: Annotated[
        str, typer.Option(help="Number of a member, or best: the one that grand report shows.")
    ] = "best",
    port: Annotated[int, typer.Option(help="Port of 127.0.0.1 to serve at; 0: a free one.")] = 0,
    no_open: Annotated[bool, typer.Option("--no-open", help="Open no browser.")] = False,
    plugin: Plugins = None,
    root: Annotated[str, ROOT] = "",
) -> None:
    """Look at the graph of a run in a browser, with what one of its models does on it.

    Nodes by class, prediction or state along t, edges by attention; click a node to see its attention to
    its neighbours, and how its answer changes. The page is served on this machine alone until Ctrl-C, or
    written as one file (--out) that needs no network.
    """
    from ..ensemble import load_ensemble
    from ..report.view import serve_view, write_view

    if member == "all":
        raise ConfigError("one model is shown: name a --member, or best.")
    number = None
    if member != "best":
        number = _member(member, len(load_ensemble(run, root or None).members), 0)
    how: dict[str, Any] = {"root": root or None, "member": number, "note": say}
    if out is not None:
        print(f"Graph: {write_view(run, out, **how)}", flush=True)
        return

    def said(url: str) -> None:
        print(f"Graph: {url} (Ctrl-C stops it)", flush=True)

    serve_view(run, port, browser=not no_open, said=said, **how)


def compare(
    runs: Annotated[list[Path], typer.Argument(help="Folders of finished runs.", show_default=False)],
    out: Annotated[Path, typer.Option(help="HTML file to write.")] = Path("compare.html"),
    plugin: Plugins = None,
) -> None:
    """Write a page with several runs side by side, and their paired differences to the first one."""
    from ..report.page import write_comparison

    print(f"Comparison: {write_comparison(runs, out)}", flush=True)


def _columns(task: str, names: list[str], answers: Tensor) -> tuple[list[str], list[list[str]]]:
    """Headings, and the cells of every node below them."""
    from ..data.labels import SEPARATOR

    if task == "regression":
        return names, [[repr(value) for value in row] for row in answers.tolist()]
    cells = [[f"{value:.6g}" for value in row] for row in answers.tolist()]
    chances = [f"p_{name}" for name in names]
    if task == "classification":
        chosen = [names[k] for k in answers.argmax(-1).tolist()]
        return ["class", *chances], [[_cell(text), *row] for text, row in zip(chosen, cells, strict=True)]
    sets = [[n for n, p in zip(names, row, strict=True) if p > 0.5] for row in answers.tolist()]
    texts = [SEPARATOR.join(own) or SEPARATOR for own in sets]  # an empty cell would be an unknown label
    return ["labels", *chances], [[_cell(text), *row] for text, row in zip(texts, cells, strict=True)]


def _cell(text: str) -> str:
    """Text that no spreadsheet takes for a formula; numbers stay as they are."""
    formula = text.startswith(("=", "+", "-", "@", "\t", "\r"))
    return f"'{text}" if formula and not re.fullmatch(r"[+-]?\d+(\.\d*)?([eE][+-]?\d+)?", text) else text


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.2f}"


def _number(score: float | None) -> str:
    return "" if score is None else f"{score:z.4f}"


def _member(text: str, count: int, best: int) -> int | None:
    """The number of one of ``count`` members; ``None`` for all of them."""
    if text in ("all", "best"):
        return best if text == "best" else None
    numbers = {str(k): k for k in range(count)}
    if text not in numbers:
        raise ConfigError(f"--member must be a number from 0 to {count - 1}, best or all, got {text!r}.")
    return numbers[text]
