"""What the command line says besides its results: on standard error, a line at a time."""

from __future__ import annotations

import difflib
import logging
import os
import shlex
import shutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any


def say(message: str) -> None:
    """One line on standard error."""
    print("grand:", " ".join(message.split()), file=sys.stderr, flush=True)


class _Sentences(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno == logging.WARNING:  # errors are raised besides
            say(record.getMessage())


@contextmanager
def warnings_said() -> Iterator[None]:
    """Say what the library logs as a warning meanwhile."""
    log, handler = logging.getLogger("graphdiffusion"), _Sentences(logging.WARNING)
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)


def draw(name: str, results: Path) -> Path:
    """The picture beside results, by a function of the report."""
    return getattr(import_module("..report", __package__), name)(results)


def report(folder: Path, **how: Any) -> Path | None:
    """The report of a finished training; what goes wrong with it is said, and the training stands."""
    from ..report.page import write_report

    try:
        return write_report(folder, **how)
    except Exception as error:
        say(f"the report could not be written ({type(error).__name__}: {error}); the results are complete.")
        return None


def command() -> str:
    """How this program is called here: by its name where that is found, else by its path."""
    called = Path(sys.argv[0])
    if called.name != "grand" or shutil.which("grand") is not None:
        return "grand"
    here = os.path.relpath(called)
    return shlex.quote(here if not here.startswith("..") else str(called))


def go_on(
    out: Path, plugins: Iterable[Path], root: str | None, parts: int = 0, engine: str = "local"
) -> str:
    """The command that goes on with a run."""
    given = ["--resume", "--out", str(out)]
    for path in plugins:
        given += ["--plugin", str(path)]
    given += ["--root", root] if root else []
    given += ["--parts", str(parts)] if parts else []
    given += ["--engine", engine] if engine != "local" else []
    return f"{command()} train {shlex.join(given)}"


def one_sentence(error: Any) -> str:
    """A usage error as one sentence; an unknown option is answered with the nearest known one."""
    message = str(error.format_message()).rstrip(".")
    wrong = getattr(error, "option_name", None)
    context = getattr(error, "ctx", None)
    if not message.startswith("No such option") or wrong is None or context is None:
        return f"{message}."
    known = [name for p in context.command.params for name in (*p.opts, *p.secondary_opts)]
    near = difflib.get_close_matches(wrong, [name for name in known if name.startswith("--")], 1, 0.5)
    hint = f"did you mean {near[0]}?" if near else f"see {context.command_path} --help."
    return f"no such option {wrong}: {hint}"
