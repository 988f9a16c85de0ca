"""Options of a command, generated from the configuration: one source of truth."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import Field, fields
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import typer

from ..errors import ConfigError
from ..training.config import Config

ROOT = typer.Option("--root", help="Folder with raw data files; empty: $GRAND_DATA or the cache.")

_METAVAR = {int: "INTEGER", float: "NUMBER", str: "TEXT"}


def with_config(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command that takes ``**options`` an option for every field of :class:`Config` but the data.

    Typer reads signatures, so the command is shown to it with one in which the fields are written out.
    """
    own = inspect.signature(command, eval_str=True)
    parameters = [p for p in own.parameters.values() if p.kind is not p.VAR_KEYWORD]
    parameters += [_parameter(field) for field in fields(Config) if field.name != "data"]
    command.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    return command


def given(context: typer.Context) -> dict[str, Any]:
    """The options of the configuration that stand on the command line, with their values."""
    hints = get_type_hints(Config)
    return {
        name: _value(name, context.params[name], hint)
        for name, hint in hints.items()
        if (source := context.get_parameter_source(name)) is not None and source.name == "COMMANDLINE"
    }


def flag(name: str) -> str:
    """How an option is written: ``--label-rate``."""
    return "--" + name.replace("_", "-")


def _parameter(field: Field[Any]) -> inspect.Parameter:
    """An option as Typer wants it.

    Numbers and choices are texts to Typer: the configuration knows what they may be, and says it better.
    """
    hint = get_type_hints(Config)[field.name]
    name, text = flag(field.name), field.metadata["help"]
    if get_origin(hint) is Literal:
        text = f"{text} One of: {', '.join(get_args(hint))}."
    option = typer.Option(
        f"{name}/--no-{name[2:]}" if hint is bool else name,
        help=text,
        rich_help_panel=field.metadata["group"].capitalize(),
        metavar=None if hint is bool else _METAVAR.get(hint, "NAME"),
        show_default="empty" if field.default == "" else True,
    )
    return inspect.Parameter(
        field.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=field.default if hint is bool else str(field.default),
        annotation=Annotated[bool if hint is bool else str, option],
    )


def _value(name: str, text: Any, hint: Any) -> Any:
    if hint not in (int, float):
        return text
    try:
        return hint(text)
    except ValueError:
        kind = "a whole number" if hint is int else "a number"
        raise ConfigError(f"{flag(name)} must be {kind}, got {text!r}.") from None
