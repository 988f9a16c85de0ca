"""Plug-ins: a user's own file that registers diffusivities, terms, equations, schemes and models.

A plug-in is code. It is loaded only where the user names its file; a run folder that needs one says which,
by name and SHA-256, and never loads it.
"""

from __future__ import annotations

import hashlib
import sys
import traceback
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from importlib.util import module_from_spec, spec_from_file_location
from os import PathLike
from pathlib import Path
from typing import Any

from .errors import ArgumentError, ConfigError, GraphDiffusionError
from .options import options_of
from .registry import registries

_PREFIX = "graphdiffusion_plugin_"

# options of the commands themselves
RESERVED = frozenset(
    ("budget", "config", "engine", "families", "final_seeds", "finalists", "fresh", "grace", "out",
     "plugin", "preset", "quiet", "race_seeds", "reduction", "resume", "root", "sampler", "space", "trials")
)  # fmt: skip


@dataclass(frozen=True)
class Plugin:
    """A file that has been loaded: its name and the SHA-256 of its content."""

    name: str
    sha256: str

    @property
    def module(self) -> str:
        """Name of the module that the file becomes."""
        return f"{_PREFIX}{self.sha256[:16]}"


_loaded: dict[str, Plugin] = {}  # by module


def load_plugin(path: str | PathLike[str]) -> Plugin:
    """Run a user's file, which registers its classes; once for each content.

    Raises:
        ConfigError: the file cannot be read or run, or a name is taken.
    """
    path = Path(path)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read the plug-in {path}: {error.strerror}.") from None
    plugin = Plugin(path.name, hashlib.sha256(content).hexdigest())
    if plugin.module in _loaded:
        return plugin
    registries()  # the library's own classes first: a plug-in must not take their names
    spec = spec_from_file_location(plugin.module, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"the plug-in {path} is no Python file: its name must end in .py.")
    module = module_from_spec(spec)
    sys.modules[plugin.module] = module
    try:
        exec(compile(content, str(path), "exec"), module.__dict__)  # the very bytes that were summed
        _check_options(plugin.module)
    except Exception as error:
        del sys.modules[plugin.module]
        for registry in registries().values():
            registry.forget(plugin.module)
        raise ConfigError(f"the plug-in {path} cannot be loaded: {_reason(error, path)}") from error
    _loaded[plugin.module] = plugin
    return plugin


def _check_options(module: str) -> None:
    """Read the options of the classes of a plug-in now: a mistake in one would break every command."""
    for registry in registries().values():
        for cls in registry.classes().values():
            if cls.__module__ == module and (taken := RESERVED & options_of(cls).keys()):
                raise ArgumentError(
                    f"{cls.__name__} has an option {min(taken)!r}, which the command line has: rename it"
                )


def used_plugins(classes: Iterable[type]) -> list[dict[str, str]]:
    """Name and sum of the plug-ins that some classes come from."""
    modules = dict.fromkeys(cls.__module__ for cls in classes)
    return [asdict(_loaded[module]) for module in modules if module in _loaded]


def require_plugins(wanted: Iterable[Mapping[str, Any]], owner: str) -> None:
    """Refuse to go on without the plug-ins that something was made with.

    Args:
        wanted: As :func:`used_plugins` gives them.
        owner: What was made with them, in the message.
    """
    for entry in wanted:
        name, sha256 = str(entry.get("name")), str(entry.get("sha256"))
        if any(plugin.sha256 == sha256 for plugin in _loaded.values()):
            continue
        other = next((p for p in _loaded.values() if p.name == name), None)
        if other is not None:
            raise ConfigError(
                f"{owner} needs the plug-in {name} with the SHA-256 {sha256}, but the file that was named "
                f"has {other.sha256}: name the file as it was."
            )
        raise ConfigError(
            f"{owner} needs the plug-in {name} with the SHA-256 {sha256}: name its file with --plugin (in "
            "Python, graphdiffusion.plugins.load_plugin). It is code: name only a file that you trust."
        )


def _reason(error: Exception, path: Path) -> str:
    """What went wrong in a plug-in, in one sentence with its line."""
    if isinstance(error, SyntaxError):
        return f"line {error.lineno}: {error.msg}."
    lines = [
        frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)
    ]
    place = f"line {lines[-1]}: " if lines else ""
    text = str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__
    return (
        f"{place}{text}."
        if isinstance(error, GraphDiffusionError)
        else f"{place}{type(error).__name__}: {text}."
    )
