"""Options of a command, generated from the configuration: one source of truth."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import ConfigError

ROOT = typer.Option("--root", help="Folder with raw data files; empty: $GRAND_DATA or the cache.")
PLUGIN = typer.Option(
    "--plugin",
    help="Python file that registers classes of your own; it is run. May be given several times.",
    show_default="none",
)
Plugins = Annotated[list[Path] | None, PLUGIN]

_METAVAR = {int: "INTEGER", float: "NUMBER", str: "TEXT"}


def load_plugins(arguments: Sequence[str]) -> tuple[str, ...]:
    """Load the plug-ins that a command line names: their classes bring options, so they come first.

    Returns their sums.
    """
    named = [after for word, after in pairwise(arguments) if word == "--plugin"]
    named += [word.partition("=")[2] for word in arguments if word.startswith("--plugin=")]
    if not named:
        return ()
    from ..plugins import load_plugin

    return tuple(load_plugin(path).sha256 for path in named)


def require_folder(path: Path, option: str) -> None:
    """Refuse a path that is a file, or lies in one."""
    there = next((own for own in (path, *path.parents) if own.exists()), None)
    if there is not None and not there.is_dir():
        raise ConfigError(f"{option} needs a folder, and {there} is a file.")


def with_config(command: Callable[..., None], configured: bool) -> Callable[..., None]:
    """Give a command that takes ``**options`` an option for everything that can be configured but the data.

    Typer reads signatures: the command gets one in which all options are written out; none of them if it is
    not to be ``configured``.
    """
    own = inspect.signature(command, eval_str=True)
    parameters = [p for p in own.parameters.values() if p.kind is not p.VAR_KEYWORD]
    if configured:
        from ..training.choices import all_options

        parameters += [_parameter(option) for option in all_options().values() if option.name != "data"]

    def shown(*args: Any, **kwargs: Any) -> None:
        command(*args, **kwargs)

    shown.__name__, shown.__doc__ = command.__name__, command.__doc__
    shown.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
    shown.__annotations__ = {p.name: p.annotation for p in parameters}
    return shown


def given(context: typer.Context) -> dict[str, Any]:
    """The options of the configuration that stand on the command line, with their values."""
    from ..training.choices import all_options

    return {
        name: _value(name, context.params[name], option.kind)
        for name, option in all_options().items()
        if (source := context.get_parameter_source(name)) is not None and source.name == "COMMANDLINE"
    }


def flag(name: str) -> str:
    """How an option is written: ``--label-rate``."""
    return "--" + name.replace("_", "-")


def _parameter(option: Any) -> inspect.Parameter:
    """An option as a parameter for Typer.

    Numbers and choices are texts for Typer: the configuration checks them, with better messages.
    """
    name, text = flag(option.name), option.help
    if choices := option.values():
        several = option.named is not None and option.named.several
        text = f"{text} {'Out of' if several else 'One of'}: {', '.join(choices)}."
    shown = typer.Option(
        f"{name}/--no-{name[2:]}" if option.kind is bool else name,
        help=text,
        rich_help_panel=option.group.capitalize(),
        metavar=None if option.kind is bool else "NAME" if choices else _METAVAR[option.kind],
        show_default="empty" if option.default == "" else True,
    )
    return inspect.Parameter(
        option.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=option.default if option.kind is bool else str(option.default),
        annotation=Annotated[bool if option.kind is bool else str, shown],
    )


def _value(name: str, text: Any, kind: type) -> Any:
    if kind not in (int, float):
        return text
    try:
        return kind(text)
    except ValueError:
        what = "a whole number" if kind is int else "a number"
        raise ConfigError(f"{flag(name)} must be {what}, got {text!r}.") from None
