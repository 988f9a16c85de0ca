"""The paper's tables, measured: a cell is a model trained by the paper's protocol.

Its options are those of a preset, or what a search finds: the same number of trials for every model.
"""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from torch_geometric.data import Data

from ..configs import NOT_IN_PRESETS
from ..data import dataset_info
from ..errors import ConfigError, GraphDiffusionError
from ..training.config import Config
from ..training.folder import holds_run, is_finished, open_folder, read_config
from ..training.lock import writing
from ..training.problem import load_problem, pick_device, protocol, read_data
from ..training.runs import read_summary
from ..training.storage import digest, read_json
from ..training.summary import counted, describe
from ..training.trainer import Trainer, Watcher
from . import paper
from .presets import preset_config, preset_name
from .readings import hidden_tests
from .record import Plan
from .search import search
from .space import read_space
from .tablefile import holds, merge

Note = Callable[[str], None]


@dataclass(frozen=True)
class Cell:
    """One entry of a table.

    Attributes:
        table: ``"table1"`` or ``"table2"``.
        ending: Of the names of its files: empty, or what sets it apart from the cells of the table.
        data, row: Column and row.
        reading: Of table 1: what "Planetoid splits" is taken for.
        preset: Name of the preset.
        config: All options.
    """

    table: str
    ending: str
    data: str
    row: str
    reading: str
    preset: str
    config: Config

    @property
    def name(self) -> str:
        return "-".join(part for part in (self.data, self.row, self.reading) if part) + self.ending

    @property
    def about(self) -> dict[str, str]:
        """How results name it."""
        return {"data": self.data, "row": self.row} | ({"reading": self.reading} if self.reading else {})

    @property
    def file(self) -> str:
        """Of the table; other kinds of presets have their own."""
        return f"{self.table}{self.ending}.json"


def cells(
    table: str,
    only: Sequence[str] = (),
    rows: Sequence[str] = (),
    *,
    readings: Sequence[str] = (),
    splits: int = paper.SPLITS,
    inits: int = paper.INITS,
    preset: str = "auto",
    searched: bool = False,
    device: str = "auto",
    epochs: int | None = None,
) -> list[Cell]:
    """The cells of a table, cheap ones first: small graphs before large ones.

    Args:
        table: ``"table1"`` (Planetoid's splits) or ``"table2"`` (random splits).
        only: Names of data sets; all of the table by default.
        rows: Models, by the names of their presets; all of the table by default.
        readings: What "Planetoid splits" is taken for (table 1 only); all by default.
        splits, inits: Random splits (table 2 only), and initialisations of each.
        preset: ``"auto"`` or ``"paper"``.
        searched: The options are those that a search of the model starts from.
        device: As in :class:`~graphdiffusion.training.Config`.
        epochs: In place of the preset's.
    """
    if table not in paper.TABLES:
        raise ConfigError(f"table must be one of {', '.join(paper.TABLES)}, got {table!r}.")
    wanted = [dataset_info(name).name for name in only] or list(paper.DATA[table])
    for name in wanted:
        if name not in paper.DATA[table]:
            raise ConfigError(f"{table} has no {name}; it has {', '.join(paper.DATA[table])}.")
    if preset not in ("auto", "paper"):
        raise ConfigError(f"--preset must be auto or paper, got {preset!r}.")
    known = paper.GRAND if preset == "paper" else rows_of(table)
    rows = rows or known
    for row in rows:
        if row not in known:
            where = f"{table} of the preset paper" if preset == "paper" else table
            raise ConfigError(f"{where} has no row {row!r}; it has {', '.join(known)}.")
    kinds: dict[str, dict[str, Any]] = paper.READINGS if table == "table1" else {"": {}}
    for reading in readings:
        if table != "table1":
            raise ConfigError(f"readings are those of Planetoid's split, in table1: {table} has none.")
        if reading not in kinds:
            raise ConfigError(f"{table} has no reading {reading!r}; it has {', '.join(kinds)}.")
    more: dict[str, Any] = {"inits": inits, "device": device}
    if epochs is not None:
        more["epochs"] = epochs
    found = []
    for data in (name for name in paper.DATA[table] if name in wanted):
        for row in (name for name in rows_of(table) if name in rows):
            for reading in (kind for kind in kinds if not readings or kind in readings):
                options = {"splits": 1} | kinds[reading]
                if table == "table2":
                    options |= (
                        {"split": "given"} if _is_fixed(data) else {"split": "random", "splits": splits}
                    )
                kind = "start" if searched else preset
                name = preset_name(data, row, kind, options["split"])
                config = preset_config(data, row, kind, **options, **more)
                ending = "-paper" if preset == "paper" else ""
                ending += "" if epochs is None else f"-{epochs}-epochs"
                found.append(Cell(table, ending, data, row, reading, name, config))
    return found


def _is_fixed(data: str) -> bool:
    """Whether a data set of table 2 has one split that is published with it."""
    return not dataset_info(data).development


def rows_of(table: str) -> tuple[str, ...]:
    """The models of a table: those of the paper's, and two that do not use the graph."""
    named = {row for _, row in paper.TABLES[table]} | {"logistic", "mlp"}
    return tuple(row for row in paper.ROWS if row in named)


def reproduce(
    wanted: Sequence[Cell],
    out: Path,
    *,
    root: str | None = None,
    budget: float = math.inf,
    summary: Path | None = None,
    fresh: bool = False,
    plan: Plan | None = None,
    note: Note = lambda line: None,
    watch: Callable[[Cell, int], Watcher | None] = lambda cell, members: None,
) -> dict[str, Any]:
    """Measure cells, each in a folder of its own that can be resumed, and write the table after each.

    Args:
        wanted: From :func:`~graphdiffusion.experiments.tables.cells`.
        out: Folder: ``<table>/<data>-<row>/`` for each run, ``search/<data>-<row>/`` for each search, and
            ``<table>.json`` with every member.
        root: Folder with raw data files, as in :func:`~graphdiffusion.data.load_data`.
        budget: Seconds after which no further cell is begun.
        summary: Folder for ``<table>.json`` without the members; a cell that is there with the same options
            is not measured again.
        fresh: Discard runs in ``out`` that were made with other options.
        plan: Of a search for every model and data set, whose best options are then measured; by default
            the options of the cells are.
        note: Called with each line that reports progress.
        watch: Gives the watcher of a cell, for the number of its members.

    Returns:
        The content of ``<out>/<table>.json``, with the cells that were not measured under ``missing``.
    """
    started = time.monotonic()
    graphs: dict[tuple[str, bool], Data] = {}
    missing: dict[str, str] = {}
    table = wanted[0].table
    for cell in wanted:
        folder = out / table / cell.name
        if time.monotonic() - started > budget and not is_finished(folder):
            missing[cell.name] = "the time budget is spent."
            note(f"{cell.name} is not measured: {missing[cell.name]}")
            continue
        try:
            about: dict[str, Any] = {}
            if plan is not None:
                cell, about = tuned(cell, plan, out / "search", root, note)
            if summary is not None and holds(summary / cell.file, cell.about, _identity(cell)):
                note(f"{cell.name} is in {summary / cell.file} already.")
                continue
            found = _measure(cell, folder, root, graphs, fresh, note, watch) | about
        except GraphDiffusionError as error:  # files that are not here, for example: others go on
            missing[cell.name] = str(error)
            note(f"{cell.name} is not measured: {error}")
            continue
        merge(out / cell.file, table, found)
        if summary is not None:
            merge(summary / cell.file, table, {k: v for k, v in found.items() if k != "results"})
    path = out / wanted[0].file
    if not path.exists() and summary is not None:
        path = summary / wanted[0].file
    content = read_json(path, "table") if path.exists() else {"table": table, "cells": []}
    return content | {"missing": missing}


def _measure(
    cell: Cell,
    folder: Path,
    root: str | None,
    graphs: dict[tuple[str, bool], Data],
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
        which = (cell.data, config.lcc)  # the readings of table 1 differ in it
        if which not in graphs:
            graphs[which] = read_data(config, root)
        problem = load_problem(config, graphs[which]).to(pick_device(cell.config.device))
        members = protocol(config, problem.data)
        note(f"{cell.name}: {counted(len(members), 'training')} with the preset {cell.preset}.")
        with open_folder(folder, config, problem.data, resume) as kept:
            Trainer(problem, config, members, kept, watch(cell, len(members))).run()
    found = read_summary(folder)
    note(f"{cell.name}: {describe(found['test'])} in {found['seconds']:.0f} s.")
    return _entry(cell, found)


def tuned(
    cell: Cell, plan: Plan, folder: Path, root: str | None, note: Note
) -> tuple[Cell, dict[str, Any]]:
    """A cell with the options that a search finds, starting from its own, and facts about the search.

    For table 1 the search sees no label of a node that any reading tests: one search serves them all.
    """
    first = cell.table == "table1"
    split = "given" if first or _is_fixed(cell.data) else "random"
    name = f"{cell.data}-{cell.row}{'-planetoid' if first else ''}"
    config = cell.config.replace(splits=0, inits=1, lcc=True, split=split)
    data = read_data(config, root)
    board = search(
        config,
        read_space(cell.row),
        plan,
        folder / name,
        data=hidden_tests(data) if first else data,
        watcher=note,
    )
    kept = {key: getattr(cell.config, key) for key in NOT_IN_PRESETS}
    about = {
        "trials": len(board.entries),
        "search": board.name,
        **({} if board.seconds is None else {"search_seconds": board.seconds}),
    }
    return replace(cell, preset=name, config=board.best.replace(**kept)), about


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
    mean, std = paper.TABLES[cell.table].get((cell.data, cell.row), (None, None))
    results = found["results"]
    ours = found["test"]
    each: dict[int, list[float]] = {}
    for result in results:
        # where there is one split, initialisations are what two rows have in common
        number = result["split"] if cell.config.split == "random" else result["init"]
        each.setdefault(number, []).append(100 * result["test"])
    return {
        **cell.about,
        "model": paper.TITLES[cell.row],
        "preset": cell.preset,
        "options": _identity(cell),
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
        "difference": None if mean is None else ours["mean"] - mean,
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
        "per_split": {str(number): fmean(own) for number, own in each.items()},
        "results": results,
    }


def _identity(cell: Cell) -> str:
    """Identifies all options of a cell; the device is none of them."""
    return digest({k: v for k, v in cell.config.to_dict().items() if k != "device"})[:16]
