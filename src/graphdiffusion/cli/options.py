"""Options of a command, generated from the configuration: one source of truth."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import typer

from ..training.config import Config


def with_config(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command that takes ``**options`` an option for every field of :class:`Config` but the data.

    Typer reads signatures, so the command is shown to it with one in which the fields are written out.
    """
    own = inspect.signature(command, eval_str=True)
    parameters = [p for p in own.parameters.values() if p.kind is not p.VAR_KEYWORD]
    hints = get_type_hints(Config)
    for field in fields(Config):
        if field.name != "data":
            annotation = _annotation(field.name, hints[field.name], field.default, field.metadata)
            parameters.append(
                inspect.Parameter(
                    field.name,
                    inspect.Parameter.KEYWORD_ONLY,
                    default=field.default,
                    annotation=annotation,
                )
            )
    command.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    return command


def given(context: typer.Context) -> dict[str, Any]:
    """The options of the configuration that stand on the command line, with their values."""
    names = [field.name for field in fields(Config)]
    return {
        name: context.params[name]
        for name in names
        if (source := context.get_parameter_source(name)) is not None and source.name == "COMMANDLINE"
    }


def flag(name: str) -> str:
    """How an option is written: ``--label-rate``."""
    return "--" + name.replace("_", "-")


def _annotation(name: str, hint: Any, default: Any, metadata: Any) -> Any:
    kind, text, choices = hint, metadata["help"], None
    if get_origin(hint) is Literal:
        # choices are checked by the configuration, which suggests the nearest
        kind, choices = str, get_args(hint)
        text = f"{text} One of: {', '.join(choices)}."
    written = f"{flag(name)}/--no-{name.replace('_', '-')}" if hint is bool else flag(name)
    option = typer.Option(
        written,
        help=text,
        rich_help_panel=metadata["group"].capitalize(),
        metavar="NAME" if choices else None,
        show_default="empty" if default == "" else True,
    )
    return Annotated[kind, option]
