"""Damage to files, at random but repeatable, and a count of the kinds of damage that were tried.

`damage(kind)` counts one case under its name; pytest prints the count at the end of a run. `BYTES` are
the kinds that any file can suffer, whatever its format.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random

cases: Counter[str] = Counter()  # since the last test; conftest.py adds them up over tests and processes


def damage(kind: str) -> None:
    """Count one case of this kind of damage, named like `"npz: header claims 2**40 rows"`."""
    cases[kind] += 1


def summary(total: Counter[str]) -> str:
    return f"fuzzing: {len(total)} kinds of damage, {total.total()} cases"


def _cut(content: bytes, chance: Random) -> tuple[int, int]:
    """Two places in the file, in order."""
    first, second = sorted(chance.randrange(len(content) + 1) for _ in range(2))
    return first, second


def _flip(content: bytes, chance: Random, count: int) -> bytes:
    out = bytearray(content)
    for _ in range(count):
        out[chance.randrange(len(out))] ^= 1 << chance.randrange(8)
    return bytes(out)


def _replace(content: bytes, chance: Random, fill: Callable[[bytes], bytes]) -> bytes:
    first, second = _cut(content, chance)
    return content[:first] + fill(content[first:second]) + content[second:]


def _move(content: bytes, chance: Random) -> bytes:
    first, second = _cut(content, chance)
    return content[first:second] + content[:first] + content[second:]


# Each maps the content of a file, which is not empty, and a source of chance to a damaged content.
BYTES: dict[str, Callable[[bytes, Random], bytes]] = {
    "one bit flipped": lambda content, chance: _flip(content, chance, 1),
    "many bits flipped": lambda content, chance: _flip(content, chance, 20),
    "a byte replaced": lambda content, chance: (
        content[: (k := chance.randrange(len(content)))] + chance.randbytes(1) + content[k + 1 :]
    ),
    "truncated": lambda content, chance: content[: chance.randrange(len(content))],
    "beginning lost": lambda content, chance: content[1 + chance.randrange(len(content)) :],
    "emptied": lambda content, chance: b"",
    "part removed": lambda content, chance: _replace(content, chance, lambda part: b""),
    "part zeroed": lambda content, chance: _replace(content, chance, lambda part: bytes(len(part))),
    "part set to 0xff": lambda content, chance: _replace(content, chance, lambda part: b"\xff" * len(part)),
    "part replaced by noise": lambda content, chance: _replace(
        content, chance, lambda part: chance.randbytes(len(part))
    ),
    "part repeated": lambda content, chance: _replace(content, chance, lambda part: part + part),
    "part reversed": lambda content, chance: _replace(content, chance, lambda part: part[::-1]),
    "part moved to the front": _move,
    "noise inserted": lambda content, chance: _replace(
        content, chance, lambda part: chance.randbytes(16) + part
    ),
    "noise appended": lambda content, chance: content + chance.randbytes(1 + chance.randrange(64)),
    "repeated as a whole": lambda content, chance: content + content,
    "replaced by noise": lambda content, chance: chance.randbytes(len(content)),
    "replaced by zeros": lambda content, chance: bytes(len(content)),
}
