"""What a docstring says of a class and of its arguments, as plain text."""

from __future__ import annotations

import inspect
import re


def help_texts(cls: type) -> dict[str, str]:
    """The first sentences below ``Args:`` in a docstring, by the names before the colon."""
    text = inspect.cleandoc(cls.__doc__ or "")
    found: dict[str, str] = {}
    _, _, below = text.partition("Args:\n")
    for entry in re.split(r"\n(?=    \S)", below.split("\n\n")[0]):
        names, colon, words = entry.strip().partition(": ")
        if colon and re.fullmatch(r"\w+(, \w+)*", names):
            found |= {name: plain(words) for name in names.split(", ")}
    return found


def summary_of(cls: type) -> str:
    """The first sentence of a docstring, without its markup."""
    text = inspect.cleandoc(cls.__doc__ or "").split("\n\n")[0]
    return plain(text).split(". ")[0].rstrip(".,:")


def plain(words: str) -> str:
    """Text of a docstring without its markup."""
    words = re.sub(r'`"([^"]+)"\s+<[^>]+>`_', r'"\1"', words)
    words = re.sub(r":\w+:`~?(?:[\w.]+\.)?([^`]+)`", r"\1", " ".join(words.split()))
    return words.replace("``", "").replace("\\cdot", "·")
