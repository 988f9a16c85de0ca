"""What a subclass inherits: not what followed from a method that it changes, and no promises."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

_OWN = __name__.partition(".")[0]

PROMISES = ("members", "capturable", "takes_parts")


class Declares:
    """Base of the kinds of classes that users bring: diffusivities, terms, equations and models.

    - A class that changes a method has the defaults of its kind for what followed from the method before.
      Otherwise a subclass with another dx/dt would be integrated by the closed form of the old one.
    - A class from outside this package makes its promises itself: what it adds to the class that it derives
      from may mix members, read from the device, or take a sum over the nodes of one part.

    Args:
        follows: What follows from a method, by its name: ``class Term(Declares, follows=...)``.
    """

    _follows: ClassVar[Mapping[str, Sequence[str]]] = {}

    def __init_subclass__(cls, follows: Mapping[str, Sequence[str]] | None = None, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls._follows = {**cls._follows, **(follows or {})}
        if Declares in cls.__bases__:
            return
        kind = next(base for base in cls.__mro__ if Declares in base.__bases__)
        stale = {name for method in cls._follows if method in vars(cls) for name in cls._follows[method]}
        if cls.__module__.partition(".")[0] != _OWN:
            stale.update(PROMISES)
        for name in stale - vars(cls).keys():
            setattr(cls, name, getattr(kind, name))
