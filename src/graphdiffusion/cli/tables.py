"""Results as tables on standard output."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..training.summary import describe


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


def print_summary(folder: Path, found: Mapping[str, Any], plugins: Sequence[Path] = ()) -> None:
    """What ``summary.json`` says, and where the results are."""
    members = found["results"]
    splits = len({m["split"] for m in members})
    count = f"{len(members)} (splits: {splits}, initialisations of each: {len(members) // splits})"
    edges = f"{found['edges_given'] // 2:,}"
    if found["edges_used"] != found["edges_given"]:
        edges += f" given, {found['edges_used'] // 2:,} after rewiring"
    print_facts(
        f"{found['model']} on {found['data']}",
        [
            ("test accuracy", describe(found["test"])),
            ("validation accuracy", describe(found["val"])),
            ("trainings", count),
            ("nodes", f"{found['nodes']:,}"),
            ("edges", edges),
            ("parameters", f"{found['parameters']:,}"),
            ("time", f"{found['seconds']:.1f} s"),
            ("device", found["device"]),
        ],
    )
    print(f"Results: {folder}")
    more = "".join(f" --plugin {shlex.quote(str(path))}" for path in plugins)
    print(f"Next:    grand predict {shlex.quote(str(folder))} --out predictions.csv{more}", flush=True)
