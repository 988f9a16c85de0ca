"""The folder of a run: begun, taken up again, and cleared when the run is over."""

from __future__ import annotations

import shutil
from pathlib import Path

from ..errors import ConfigError
from .config import Config
from .storage import write_bytes


def open_folder(folder: Path, config: Config, resume: bool) -> None:
    """Make a run folder, or check that an unfinished one belongs to this configuration."""
    if not (resume and holds_run(folder)):
        require_free(folder)
        write_bytes(folder / "config.toml", config.to_toml().encode())
    elif Config.from_toml(folder / "config.toml") != config:
        raise ConfigError(
            f"{folder} was started with other options (see its config.toml): name another folder."
        )


def require_free(folder: Path) -> None:
    """Refuse a place where a new run would mix with other files."""
    if holds_run(folder):
        raise ConfigError(
            f"{folder} holds a run already: add --resume to go on with it, or name another folder."
        )
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is a file: name a folder for the run.")
    # a run killed while it wrote its first file has left that file's beginning
    if folder.exists() and any(entry.name != "config.toml.part" for entry in folder.iterdir()):
        raise ConfigError(f"{folder} holds other files and no run: name a new folder.")


def holds_run(folder: Path) -> bool:
    """Whether a run was begun here; ``config.toml`` is the first file that it writes."""
    return (folder / "config.toml").exists()


def is_finished(folder: Path) -> bool:
    """Whether a run has come to its end; ``summary.json`` is the last file that it writes."""
    return (folder / "summary.json").exists()


def clear_leftovers(folder: Path) -> None:
    """Remove what a finished run no longer needs."""
    (folder / "checkpoint.safetensors").unlink(missing_ok=True)
    if (folder / "chunks").exists():
        shutil.rmtree(folder / "chunks")
    for part in folder.glob("*.part"):
        part.unlink()
