"""The paper's tables, measured: a cell is a preset trained by the paper's protocol."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from torch_geometric.data import Data

from ..data import dataset_info
from ..errors import ConfigError, GraphDiffusionError
from ..training.config import Config
from ..training.folder import holds_run, is_finished, open_folder, read_config
from ..training.lock import writing
from ..training.problem import load_problem, pick_device, protocol, read_data
from ..training.runs import read_summary
from ..training.storage import read_json, write_json
from ..training.summary import describe
from ..training.trainer import Trainer, Watcher
from . import paper
from .presets import preset_config, preset_name

Note = Callable[[str], None]


@dataclass(frozen=True)
class Cell:
    """One entry of a table.

    Attributes:
        table: ``"table1"`` or ``"table2"``.
        ending: Of the names of its files: empty, or the kind of preset that was asked for.
        data, row: Column and row.
        preset: Name of the preset.
        config: All options.
    """

    table: str
    ending: str
    data: str
    row: str
    preset: str
    config: Config

    @property
    def name(self) -> str:
        return f"{self.data}-{self.row}{self.ending}"

    @property
    def file(self) -> str:
        """Of the table; other kinds of presets have their own."""
        return f"{self.table}{self.ending}.json"


def cells(
    table: str,
    only: Sequence[str] = (),
    rows: Sequence[str] = paper.ROWS,
    *,
    splits: int = paper.SPLITS,
    inits: int = paper.INITS,
    preset: str = "auto",
    device: str = "auto",
    epochs: int | None = None,
) -> list[Cell]:
    """The cells of a table, cheap ones first: linear before nonlinear, small graphs before large ones.

    Args:
        table: ``"table1"`` (Planetoid's splits) or ``"table2"`` (random splits).
        only: Names of data sets; all of the table by default.
        rows: Models, by the names of their presets.
        splits, inits: Random splits (table 2 only), and initialisations of each.
        preset: ``"auto"`` or ``"paper"``.
        device: As in :class:`~graphdiffusion.training.Config`.
        epochs: In place of the preset's.
    """
    if table not in paper.TABLES:
        raise ConfigError(f"table must be one of {', '.join(paper.TABLES)}, got {table!r}.")
    wanted = [dataset_info(name).name for name in only] or list(paper.DATA[table])
    for name in wanted:
        if name not in paper.DATA[table]:
            raise ConfigError(f"{table} has no {name}; it has {', '.join(paper.DATA[table])}.")
    for row in rows:
        if row not in paper.ROWS:
            raise ConfigError(f"{table} has no row {row!r}; it has {', '.join(paper.ROWS)}.")
    split = "planetoid" if table == "table1" else "random"
    more: dict[str, Any] = {
        "splits": splits if table == "table2" else 1, "inits": inits, "device": device,
    }  # fmt: skip
    if epochs is not None:
        more["epochs"] = epochs
    return [
        Cell(
            table,
            "" if preset == "auto" else f"-{preset}",
            data,
            row,
            preset_name(data, row, preset, split),
            preset_config(data, row, preset, split=split, **more),
        )
        for row in paper.ROWS
        if row in rows
        for data in paper.DATA[table]
        if data in wanted
    ]


def reproduce(
    wanted: Sequence[Cell],
    out: Path,
    *,
    root: str | None = None,
    budget: float = math.inf,
    summary: Path | None = None,
    fresh: bool = False,
    note: Note = lambda line: None,
    watch: Callable[[Cell, int], Watcher | None] = lambda cell, members: None,
) -> dict[str, Any]:
    """Measure cells, each in a folder of its own that can be resumed, and write the table after each.

    Args:
        wanted: From :func:`cells`.
        out: Folder: ``<table>/<data>-<row>/`` for each run, and ``<table>.json`` with every member.
        root: Folder with raw data files, as in :func:`~graphdiffusion.data.load_data`.
        budget: Seconds after which no further cell is begun.
        summary: Folder for ``<table>.json`` without the members.
        fresh: Discard runs in ``out`` that were made with other options.
        note: Called with each line that reports progress.
        watch: Gives the watcher of a cell, for the number of its members.

    Returns:
        The content of ``<out>/<table>.json``, with the cells that were not measured under ``missing``.
    """
    started = time.monotonic()
    graphs: dict[str, Data] = {}
    missing: dict[str, str] = {}
    table = wanted[0].table
    for cell in wanted:
        folder = out / table / cell.name
        if time.monotonic() - started > budget and not is_finished(folder):
            missing[cell.name] = "the time budget is spent."
            note(f"{cell.name} is not measured: {missing[cell.name]}")
            continue
        try:
            found = _measure(cell, folder, root, graphs, fresh, note, watch)
        except GraphDiffusionError as error:  # files that are not here, for example: others go on
            missing[cell.name] = str(error)
            note(f"{cell.name} is not measured: {error}")
            continue
        _merge(out / cell.file, table, found)
        if summary is not None:
            _merge(summary / cell.file, table, {k: v for k, v in found.items() if k != "results"})
    path = out / wanted[0].file
    content = read_json(path, "table") if path.exists() else {"table": table, "cells": []}
    return content | {"missing": missing}


def _measure(
    cell: Cell,
    folder: Path,
    root: str | None,
    graphs: dict[str, Data],
    fresh: bool,
    note: Note,
    watch: Callable[[Cell, int], Watcher | None],
) -> dict[str, Any]:
    resume = holds_run(folder)
    if resume and (reason := _unusable(folder, cell.config)):
        if not fresh:
            raise ConfigError(f"{reason} Add --fresh to discard the run, or name another --out.")
        with writing(folder):
            shutil.rmtree(folder)
        resume = False
    if not is_finished(folder):
        config = read_config(folder)[0] if resume else cell.config
        if cell.data not in graphs:
            graphs[cell.data] = read_data(config, root)
        problem = load_problem(config, graphs[cell.data]).to(pick_device(cell.config.device))
        members = protocol(config, problem.data)
        note(f"{cell.name}: {len(members)} trainings with the preset {cell.preset}.")
        with open_folder(folder, config, problem.data, resume) as kept:
            Trainer(problem, config, members, kept, watch(cell, len(members))).run()
    found = read_summary(folder)
    note(f"{cell.name}: {describe(found['test'])} in {found['seconds']:.0f} s.")
    return _entry(cell, found)


def _unusable(folder: Path, wanted: Config) -> str:
    """Why the run in a folder does not count for these options; empty if it does, on whatever device."""
    try:
        stored, _ = read_config(folder)
    except GraphDiffusionError as error:
        return str(error)
    same = stored.replace(device="auto") == wanted.replace(device="auto")
    return "" if same else f"{folder} was made with other options (see its config.toml)."


def _entry(cell: Cell, found: dict[str, Any]) -> dict[str, Any]:
    """A cell of the results file, in percent."""
    mean, std = paper.TABLES[cell.table][cell.data, cell.row]
    results = found["results"]
    ours = found["test"]
    return {
        "data": cell.data,
        "row": cell.row,
        "model": cell.config.title,
        "preset": cell.preset,
        "mean": ours["mean"],
        "std": ours["std"],
        "ci95": ours["ci95"],
        "interval": ours["interval"],
        "test_nodes": ours["nodes"],
        "members": found["members"],
        "splits": ours["splits"],
        "inits": cell.config.inits,
        "paper": mean,
        "paper_std": std,
        "difference": ours["mean"] - mean,
        "val_mean": found["val"]["mean"],
        "val_std": found["val"]["std"],
        "parameters": found["parameters"],
        "epochs": fmean(r["epochs"] for r in results),
        "best_epoch": fmean(r["best_epoch"] for r in results),
        "seconds": found["seconds"],
        "device": found["device"],
        "nodes": found["nodes"],
        "edges": found["edges_used"],
        "versions": found["versions"],
        "results": results,
    }


def _merge(path: Path, table: str, cell: dict[str, Any]) -> None:
    """Put a cell into a results file in place of an older one, in the order of the table."""
    with writing(path.parent, wait=True):  # others may measure other cells of the table
        _replace(path, table, cell)


def _replace(path: Path, table: str, cell: dict[str, Any]) -> None:
    content = read_json(path, "table") if path.exists() else {}
    key = (cell["data"], cell["row"])
    others = [c for c in content.get("cells", []) if (c["data"], c["row"]) != key]
    order = list(paper.TABLES[table])
    entries = sorted([*others, cell], key=lambda c: order.index((c["data"], c["row"])))
    about = {
        "table": table,
        "source": paper.SOURCE,
        "unit": "percent",
        "protocol": (
            "Planetoid's split, largest component"
            if table == "table1"
            else "random splits: 20 nodes a class train, the rest of the development set validates, "
            "all others test; largest component"
        ),
    }
    write_json(path, "table", about | {"cells": entries})
