"""``grand evaluate`` and ``grand predict``: what a finished run is good for."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import ConfigError
from .messages import say

if TYPE_CHECKING:
    from ..training import Run

_RUN = typer.Argument(help="Folder of a finished run.", show_default=False)


def add_to(app: typer.Typer) -> None:
    app.command("evaluate")(evaluate)
    app.command("predict")(predict)


def evaluate(
    run: Annotated[Path, _RUN],
    member: Annotated[str, typer.Option(help="Number of a member, best, or all.")] = "all",
) -> None:
    """Compute the accuracies of a run's models again, from its folder."""
    from ..training import load_run
    from ..training.summary import interval
    from .tables import percent, print_table

    found = load_run(run)
    chosen = found.results
    if member != "all":
        number = _member(found, member, "all")
        chosen = [r for r in found.results if r.number == number]
    scores = {r.number: found.evaluate(r.number) for r in chosen}
    print_table(
        str(run),
        ("member", "split", "init", "best epoch", "T", "validation %", "test %"),
        [
            (r.number, r.split, r.init, r.best_epoch, f"{r.time:.3g}", *map(_percent, scores[r.number]))
            for r in chosen
        ],
    )
    for name, place in (("validation", 0), ("test", 1)):
        values = interval([score[place] for score in scores.values()])
        shown = {k: 100 * v if v == v else None for k, v in values.items()}
        print(f"{name} accuracy: {percent(shown)}", flush=True)


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
) -> None:
    """Write the class of every node, and the probabilities of all classes, by node id."""
    from ..data import open_data
    from ..training import load_run
    from ..training.storage import write_bytes

    found = load_run(run)
    number = _member(found, member)
    if out.is_dir():
        raise ConfigError(f"{out} is a folder: name a file to write.")
    if data is None or _same(data, found.config.data):
        graph, probabilities = found.data, found.predict(member=number)
    else:
        settings = found.config
        graph = open_data(data, settings.root or None, settings.lcc, settings.directed)
        probabilities = found.predict(graph, number)
    ids = graph.get("node_ids") or range(len(probabilities))
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["id", "class", *(f"p_{name}" for name in found.class_names)])
    classes = probabilities.argmax(-1).tolist()
    for node, k, row in zip(ids, classes, probabilities.tolist(), strict=True):
        writer.writerow([node, found.class_names[k], *(f"{p:.6g}" for p in row)])
    write_bytes(out, text.getvalue().encode())
    say(f"predicted {len(probabilities):,} nodes with member {number}: {out}")


def _percent(share: float) -> str:
    return f"{100 * share:.2f}"


def _same(one: str, other: str) -> bool:
    """Whether two names or paths mean the same data."""
    from ..data import dataset_info, is_dataset

    if is_dataset(one) and is_dataset(other):
        return dataset_info(one) == dataset_info(other)
    return not is_dataset(one) and Path(one).expanduser().resolve() == Path(other)


def _member(run: Run, text: str, *others: str) -> int:
    if text == "best":
        return run.best
    if not text.isdecimal() or int(text) >= len(run.results):
        words = ", ".join(("best", *others))
        raise ConfigError(
            f"--member must be a number from 0 to {len(run.results) - 1}, or {words}; got {text!r}."
        )
    return int(text)
