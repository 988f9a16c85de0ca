"""The results file of a table: its cells in order, each replaced when it is measured again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..training.lock import writing
from ..training.storage import read_json, write_json
from . import paper


def holds(path: Path, about: Mapping[str, str], options: str) -> bool:
    """Whether a results file has a cell that was measured with the same options."""
    entries = read_json(path, "table")["cells"] if path.exists() else []
    return any(_place(c) == _place(about) and c.get("options") == options for c in entries)


def merge(path: Path, table: str, cell: dict[str, Any]) -> None:
    """Put a cell into a results file in place of an older one, in the order of the table."""
    with writing(path.parent, wait=True):  # others may measure other cells of the table
        _replace(path, table, cell)


def _replace(path: Path, table: str, cell: dict[str, Any]) -> None:
    content = read_json(path, "table") if path.exists() else {}
    others = [c for c in content.get("cells", []) if _place(c) != _place(cell)]
    entries = sorted([*others, cell], key=_place)
    about = {
        "table": table,
        "source": paper.SOURCE,
        "unit": "percent",
        "protocol": (
            "readings of Planetoid's split: masks (on the largest component), whole (on the whole graph), "
            "authors (the random split of the authors' code, on the largest component)"
            if table == "table1"
            else "random splits: 20 nodes a class train, the rest of the development set validates, "
            "all others test; largest component; ogbn-arxiv: its published split"
        ),
    }
    write_json(path, "table", about | {"cells": entries})


def _place(cell: Mapping[str, Any]) -> tuple[int, int, int]:
    """Where a cell stands in its table."""
    data, readings = paper.DATA["table2"], ["", *paper.READINGS]
    return (
        paper.ROWS.index(cell["row"]),
        data.index(cell["data"]),
        readings.index(cell.get("reading", "")),
    )
