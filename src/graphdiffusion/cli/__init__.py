"""The command line ``grand``: a thin face on the rooms of the library."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import cache
from typing import Any

import typer
import typer.main

from ..errors import GraphDiffusionError
from . import about, demo, reproduce, runs, train, tune
from .messages import one_sentence, say, warnings_said
from .options import load_plugins

__all__ = ["main", "make_command"]

# before torch starts its threads: idle ones then sleep, and shared cores are free for others
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

CONFIGURED = ("train", "tune", "info")  # commands that take every option of a configuration


@cache
def make_command(configured: bool, plugins: tuple[str, ...] = ()) -> Any:
    """The command line; without the options of a configuration it needs neither torch nor PyG to start.

    Args:
        configured: Whether commands have the options of a configuration.
        plugins: What is loaded, which changes these options.
    """
    app = typer.Typer(
        name="grand",
        help="Graph neural diffusion: train, evaluate and use GRAND and its rivals on graphs.",
        add_completion=False,
        rich_markup_mode="rich",
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    train.add_to(app, configured)
    runs.add_to(app)
    tune.add_to(app, configured)
    reproduce.add_to(app)
    demo.add_to(app)
    about.add_to(app, configured)
    return typer.main.get_command(app)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code.

    0: done; 2: the input cannot be used, with one sentence on standard error; 130: interrupted.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        plugins = load_plugins(given)
        command = make_command(any(word in CONFIGURED for word in given), plugins)
        with warnings_said():
            code = command(given or ["--help"], prog_name="grand", standalone_mode=False)
    except GraphDiffusionError as error:
        return _refuse(str(error))
    except BrokenPipeError:  # the reader of the output has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        return _refuse(f"{place}{error.strerror or error}.")
    except (KeyboardInterrupt, typer.Abort):
        say("interrupted.")
        return 130
    except Exception as error:
        # typer keeps the class of its usage errors to itself, but every one has this method
        if hasattr(error, "format_message"):
            # empty where a group of commands was named alone: its help has been printed
            return _refuse(one_sentence(error)) if error.format_message() else 2
        from ..training.memory import ADVICE, is_out_of_memory

        if is_out_of_memory(error):
            return _refuse(f"there is not enough memory: {ADVICE}.")
        raise
    return code if isinstance(code, int) else 0


def _refuse(message: str) -> int:
    say(message)
    return 2
