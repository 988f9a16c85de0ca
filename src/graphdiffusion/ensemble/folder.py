"""The folder of an automatic choice: its plan, written first, and its summary, written last."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from typing import Any

from torch_geometric.data import Data

from ..errors import ConfigError, DataError
from ..training.chunks import reading
from ..training.config import Config
from ..training.fingerprint import changed_parts, data_digests
from ..training.folder import require_free
from ..training.lock import writing
from ..training.storage import digest, read_json, write_json
from .plan import Plan
from .portfolio import KEPT

FORMAT = 1
PLAN, SUMMARY, FITS = "plan.json", "summary.json", "fits"

MEND = "put the original back, or train again in another folder"


def holds_choice(folder: Path) -> bool:
    """Whether an automatic choice was begun in a folder."""
    return (folder / PLAN).exists()


def is_chosen(folder: Path) -> bool:
    """Whether it has come to its end."""
    return holds_choice(folder) and (folder / SUMMARY).exists()


def read_plan(folder: Path) -> tuple[Config, Plan, dict[str, Any]]:
    """Options, plan and digests of the data of a choice."""
    path = folder / PLAN
    found = read_json(path, "plan", MEND)
    if found.get("format") != FORMAT:
        raise DataError(f"{folder} was written by another version: train again in another folder.")
    with reading(path, MEND):
        return Config.from_dict(found["options"]), Plan.from_dict(found["plan"]), dict(found["data"])


@contextmanager
def open_choice(
    folder: Path, base: Config, data: Data, make: Callable[[], Plan], resume: bool
) -> Iterator[Plan]:
    """Hold a folder for writing; its plan is made by ``make``, or read where the choice goes on.

    Raises:
        FolderInUse: another process is writing in it.
        ConfigError: it holds other files.
        DataError: the data has changed since the choice began, or a file is damaged.
    """
    if not resume:
        require_free(folder)
    with writing(folder):
        if resume:
            plan = read_plan(folder)[1]
            check_same(folder, data)
        else:
            plan = make()
            write_plan(folder, base, data, plan)
        yield plan


def write_plan(folder: Path, base: Config, data: Data, plan: Plan) -> None:
    options = {name: value for name, value in base.to_dict().items() if name in KEPT}
    about = {"format": FORMAT, "options": options, "plan": plan.to_dict(), "data": data_digests(data)}
    write_json(folder / PLAN, "plan", about)


def check_same(folder: Path, data: Data) -> None:
    """Refuse data that has changed since the choice began."""
    before = read_plan(folder)[2]
    if parts := changed_parts(before, data_digests(data)):
        raise DataError(
            f"the {parts} of {data.get('name') or 'the graph'} have changed since the run began: put the "
            "old data back, or train again in another folder (grand predict takes new data with --data)."
        )


def identity(folder: Path) -> str:
    """Identifies a choice in its summary."""
    return digest(read_json(folder / PLAN, "plan", MEND))


def write_summary(folder: Path, content: dict[str, Any]) -> None:
    write_json(folder / SUMMARY, "ensemble", {"run": identity(folder), **content})


def read_summary(folder: Path) -> dict[str, Any]:
    """What the choice found."""
    if not is_chosen(folder):
        raise ConfigError(
            f"{folder} is unfinished: go on with grand train --resume --out {quote(str(folder))}."
        )
    found = read_json(folder / SUMMARY, "ensemble", MEND)
    if found.get("run") != identity(folder):
        raise DataError(f"{folder / SUMMARY} belongs to another run: {MEND}.")
    return found
