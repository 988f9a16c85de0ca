"""Which classes work on one part of a graph."""

from __future__ import annotations

from typing import Any

_OWN = __name__.partition(".")[0]


def works_on_parts(thing: Any) -> bool:
    """Whether a diffusivity, term, equation or model declares ``takes_parts``.

    A class from outside this package declares it itself: what it adds to the class that it derives from may
    take a sum over nodes.
    """
    cls = type(thing)
    known = cls.__module__.partition(".")[0] == _OWN or "takes_parts" in vars(cls)
    return known and bool(thing.takes_parts)
