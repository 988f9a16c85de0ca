"""Files of JSON lines that grow during a run or a search."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import DataError
from ..files import naming, write_bytes
from .storage import MEND, dumps


class Journal:
    """Lines written one at a time. The checksum in each covers the lines before it as well.

    Attributes:
        last: The checksum of the last line, which stands for all of them; ``""`` where there is none, and
            ``None`` as long as the file has not been read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.last: str | None = None

    def cut(self, until: str | None = None) -> None:
        """Drop a last line that a kill has cut off, and what follows the line with the checksum ``until``.

        ``""`` drops everything. Other damage is refused.
        """
        if self.last is not None and self.last == until:
            return
        lines = read_lines(self.path, until)
        self.last = lines[-1]["checksum"] if lines else ""
        content = b"".join(map(_bytes, lines))
        if not self.path.exists() or self.path.stat().st_size > len(content):
            write_bytes(self.path, content)

    def append(self, content: Mapping[str, Any]) -> None:
        if self.last is None:
            self.cut()
        body = json.loads(dumps(content))
        line = body | {"checksum": _checksum(self.last or "", body)}
        with naming(self.path), open(self.path, "ab") as file:
            file.write(_bytes(line))
        self.last = line["checksum"]

    def flush(self) -> None:
        """Make sure that the lines are on the disk."""
        with naming(self.path), open(self.path, "ab") as file:
            os.fsync(file.fileno())


def read_lines(path: Path, until: str | None = None) -> list[dict[str, Any]]:
    """The lines of a journal; with ``until`` those up to the line with this checksum."""
    lines: list[dict[str, Any]] = []
    last = ""
    content = path.read_bytes() if path.exists() and until != "" else b""
    for number, raw in enumerate(content.split(b"\n")[:-1], 1):  # what follows the last newline was cut off
        line = _line(raw, last)
        if line is None:
            raise DataError(f"line {number} of {path} was changed or damaged after it was written: {MEND}.")
        lines.append(line)
        last = line["checksum"]
        if last == until:
            break
    if until is not None and last != until:
        raise DataError(f"{path} lacks lines that were written to it: {MEND}.")
    return lines


def _line(raw: bytes, before: str) -> dict[str, Any] | None:
    try:
        line = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    if not isinstance(line, dict) or not isinstance(line.get("checksum"), str):
        return None
    body = {key: value for key, value in line.items() if key != "checksum"}
    return line if line["checksum"] == _checksum(before, body) and _bytes(line) == raw + b"\n" else None


def _checksum(before: str, body: Mapping[str, Any]) -> str:
    return hashlib.sha256((before + dumps(body, sort_keys=True)).encode()).hexdigest()[:16]


def _bytes(line: Mapping[str, Any]) -> bytes:
    return (dumps(line) + "\n").encode()
