"""Registries: the name beside a class is the only place where it is spelt."""

from __future__ import annotations

import logging
import pkgutil
import re
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import entry_points
from typing import Generic, TypeVar

from .errors import ArgumentError
from .options import nearest

log = logging.getLogger("graphdiffusion")

T = TypeVar("T")
C = TypeVar("C", bound=type)

ENTRY_POINTS = "graphdiffusion.plugins"  # modules of installed packages that register classes

_all: dict[str, Registry] = {}
_loaded: set[str] = set()


class Registry(Generic[T]):
    """Classes of one kind, by name.

    Args:
        kind: What they are, in messages and listings.
        home: Package with the modules of those that come with the library. They are imported when a name is
            first needed: a new file there is found by itself.
    """

    def __init__(self, kind: str, home: str) -> None:
        self.kind, self.home = kind, home
        self._classes: dict[str, type[T]] = {}
        _all[kind] = self

    def register(self, name: str) -> Callable[[C], C]:
        """Decorator: the class is known by this name."""

        if not re.fullmatch(r"[a-z0-9][a-z0-9._-]*", name) or name in ("auto", "none"):
            raise ArgumentError(
                f"a {self.kind} cannot be called {name!r}: a name has small letters, digits, dots and "
                "hyphens, and is neither auto nor none."
            )

        def add(cls: C) -> C:
            other = self._classes.get(name)
            if other is not None and (other.__module__, other.__qualname__) != (
                cls.__module__,
                cls.__qualname__,
            ):
                raise ArgumentError(
                    f"there is a {self.kind} {name!r} already, {other.__module__}.{other.__qualname__}: "
                    "choose another name."
                )
            self._classes[name] = cls
            cls.name = name  # type: ignore[attr-defined]
            return cls

        return add

    def names(self) -> list[str]:
        """All names, those of the library first."""
        self._load()
        return list(self._classes)

    def classes(self) -> dict[str, type[T]]:
        """All classes by name."""
        self._load()
        return dict(self._classes)

    def __getitem__(self, name: str) -> type[T]:
        self._load()
        if name not in self._classes:
            known = ", ".join(self._classes)
            raise ArgumentError(
                f"there is no {self.kind} {name!r}.{nearest(name, self._classes)} Known are {known}."
            )
        return self._classes[name]

    def forget(self, module: str) -> None:
        """Remove the classes of a module that could not be loaded."""
        self._classes = {name: cls for name, cls in self._classes.items() if cls.__module__ != module}

    def exported(self, name: str) -> type[T]:
        """The class of this Python name, for the ``__getattr__`` of a package."""
        if name[:1].isupper():  # submodules are looked up here first too
            self._load()
            for cls in self._classes.values():
                if cls.__name__ == name:
                    return cls
        raise AttributeError(f"module {self.home!r} has no attribute {name!r}")

    def _load(self) -> None:
        if self.home in _loaded:
            return
        _loaded.add(self.home)
        package = import_module(self.home)
        for module in pkgutil.walk_packages(package.__path__, f"{self.home}."):
            import_module(module.name)
        load_entry_points()


def registries() -> dict[str, Registry]:
    """All registries by kind, with their rooms imported."""
    for room in ("diffusivity", "equation", "solvers", "nn"):
        import_module(f"{__package__}.{room}")
    for registry in _all.values():
        registry.names()
    return dict(_all)


def load_entry_points() -> None:
    """Import what installed packages register, once."""
    if ENTRY_POINTS in _loaded:
        return
    _loaded.add(ENTRY_POINTS)
    for point in entry_points(group=ENTRY_POINTS):
        try:
            point.load()
        except Exception as error:  # of a foreign package: the library goes on without it
            log.warning(
                "the entry point %s cannot be loaded: %s: %s", point.value, type(error).__name__, error
            )
