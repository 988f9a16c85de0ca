"""The folder of a run: begun, held by one process, and taken up again.

It holds ``config.toml`` and ``fingerprint.json`` (the options, and digests of the data, that the run began
with), ``metrics.jsonl`` (a line for each epoch and for each member that has finished),
``model.safetensors`` (the best state of every member), ``summary.json`` and ``log.txt``. While the run is
unfinished there are also ``checkpoint.safetensors`` and ``chunks/``, and while a process writes, ``lock``.
The folder may be reached through a link, but holds none.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from shlex import quote
from typing import Any

from torch_geometric.data import Data

from ..data import is_dataset
from ..errors import ConfigError, DataError, GraphDiffusionError
from ..files import is_part, naming, write_bytes
from ..plugins import require_plugins
from .chunks import CHECKPOINT, CHUNKS, PARTS, RunFolder, clear_leftovers, leftovers
from .config import Config
from .fingerprint import Fingerprint
from .lock import LOCK, require_idle, writing

log = logging.getLogger("graphdiffusion")


@contextmanager
def open_folder(
    path: Path,
    config: Config,
    data: Data,
    resume: bool = False,
    digests: dict[str, Any] | None = None,
) -> Iterator[RunFolder]:
    """Hold the folder of a run for writing: a new one, or with ``resume`` an unfinished one.

    Args:
        path: The folder.
        config: Options of the run.
        data: The graph of the run, as ``Problem.data`` has it.
        resume: Go on with what is there.
        digests: Of all parts of the data, where they are known already.

    Raises:
        FolderInUse: another process is writing in it.
        ConfigError: it holds other files, a finished run, or a run with other options.
        DataError: the data has changed since the run began, a file is damaged, or there is a link.
    """
    if path.is_symlink():
        path = Path(os.path.realpath(path))
    _refuse_links(path)
    if not resume:
        require_free(path)
    with writing(path):
        if resume:
            fingerprint = check_same(path, config, data, digests)
        else:
            _require_empty(path)
            fingerprint = Fingerprint.of(config, data, digests)
            fingerprint.write(path)
            write_bytes(path / "config.toml", config.to_toml().encode())
        try:
            with _log(path / "log.txt"):
                yield RunFolder(path, fingerprint.run)
        except GraphDiffusionError:
            if not resume and not _has_progress(path):
                _discard(path)
            raise


def check_same(
    folder: Path, config: Config, data: Data, digests: dict[str, Any] | None = None
) -> Fingerprint:
    """What the run in a folder began with, which must be these options and this data."""
    if not holds_run(folder):
        raise ConfigError(f"{folder} holds no run to go on with: leave out --resume to start one.")
    if is_finished(folder):
        raise ConfigError(f"the run in {folder} is finished: there is nothing to go on with.")
    before = check_options(folder, config)
    before.check_data(data, data.get("name") or config.data, digests)
    return before


def check_options(folder: Path, config: Config) -> Fingerprint:
    """What the run in a folder began with, which must be these options."""
    stored, before = read_config(folder)
    if stored != config:
        raise ConfigError(
            f"{folder} was started with other options (see its config.toml): name another folder."
        )
    return before


def read_config(folder: Path) -> tuple[Config, Fingerprint]:
    """The options of the run in a folder, checked to be those that it began with."""
    fingerprint = Fingerprint.read(folder)
    require_plugins(fingerprint.plugins, f"the run in {folder}")
    config = Config.from_toml(folder / "config.toml")
    fingerprint.check_options(config, folder)
    return config, fingerprint


def require_place(config: Config) -> None:
    """Refuse a run on an own graph that is no longer where it was."""
    if not is_dataset(config.data) and not Path(config.data).exists():
        raise DataError(
            f"the graph of the run is no longer at {config.data}: put it back (grand predict takes it from "
            "another place with --data)."
        )


def require_free(folder: Path) -> None:
    """Refuse a place where a new run would mix with other files, or where another process writes."""
    require_idle(folder)
    _require_empty(folder)


def _require_empty(folder: Path) -> None:
    if holds_run(folder):
        raise ConfigError(
            f"{folder} holds a run already: add --resume to go on with it, or name another folder."
        )
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is a file: name a folder for the run.")
    # a run killed while it wrote its first files has left these
    own = {LOCK, "fingerprint.json", PARTS}
    if folder.exists() and any(p.name not in own and not is_part(p) for p in folder.iterdir()):
        raise ConfigError(f"{folder} holds other files and no run: name a new folder.")


def holds_run(folder: Path) -> bool:
    """Whether a run was begun here; its beginning writes ``config.toml`` last. Links are refused."""
    _refuse_links(folder)
    return (folder / "config.toml").exists()


def is_finished(folder: Path) -> bool:
    """Whether a run has come to its end; it writes ``summary.json`` last. Links are refused."""
    _refuse_links(folder)
    return (folder / "summary.json").exists()


def require_finished(folder: Path) -> None:
    """Refuse a run that has not come to its end."""
    if not is_finished(folder):
        raise DataError(
            f"{folder} is unfinished: go on with grand train --resume --out {quote(str(folder))}."
        )


def _refuse_links(folder: Path) -> None:
    """Refuse links in a folder: through one, a run would read, replace or delete files elsewhere."""
    for place, folders, files in os.walk(folder):
        for name in sorted([*folders, *files]):
            if (path := Path(place, name)).is_symlink():
                raise DataError(
                    f"{path} is a symbolic link, and the folder of a run must hold its files itself: put "
                    "the file in its place, or name another folder."
                )


def tidy(folder: Path) -> None:
    """Remove what is left where a run was killed when it had just come to its end."""
    if leftovers(folder):
        with writing(folder):
            clear_leftovers(folder)


def _has_progress(folder: Path) -> bool:
    metrics = folder / "metrics.jsonl"
    begun = metrics.exists() and metrics.stat().st_size > 0
    return begun or any((folder / name).exists() for name in (CHECKPOINT, CHUNKS))


def _discard(folder: Path) -> None:
    """Remove what a run has written that stopped before there was anything to go on from.

    The folder itself goes with its lock, unless there is something else in it.
    """
    # in this order, so that a kill leaves a run that goes on, or a place that is free
    for name in ("log.txt", "metrics.jsonl", "config.toml", "fingerprint.json"):
        with suppress(OSError):  # the error that stopped the run is the one to report
            (folder / name).unlink(missing_ok=True)


class _LogFile(logging.FileHandler):
    def handleError(self, record: logging.LogRecord) -> None:
        """A full disk must not put a traceback on the screen: the other files report it."""


@contextmanager
def _log(path: Path) -> Iterator[None]:
    """Keep what the library reports in a file."""
    with naming(path):
        handler = _LogFile(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    before = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield
    except GraphDiffusionError as error:
        log.error("%s", error)
        raise
    finally:
        log.removeHandler(handler)
        log.setLevel(before)
        with suppress(OSError):
            handler.close()
