"""How a text file is written: its encoding, and what separates its columns."""

import codecs
import re
from pathlib import Path

from graphdiffusion.errors import DataError

MARKS = {",": "commas", ";": "semicolons", "\t": "tabs"}
_QUOTED = re.compile(rb'"[^"]*"')
DECIMAL_COMMA = re.compile(r"\s*[+-]?\d+,\d+([eE][+-]?\d+)?\s*")
_OTHER_ENCODINGS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_BE)
_HEAD = 1 << 16  # bytes of the first line that are looked at


def separator_of(path: Path, notes: list[str]) -> str:
    """What separates the columns, by the first line that is not blank.

    It is that of the file's suffix where the line has it, else the one that occurs most often.
    """
    line = _first_line(path)
    if _are_decimal(line):
        line = line.replace(",", ".")
    usual = "\t" if path.suffix.lower() == ".tsv" else ","
    found = usual if usual in line else max(MARKS, key=line.count)
    if found == usual or found not in line:
        return usual
    notes.append(f"{path.name}: the columns are taken as separated by {MARKS[found]}")
    return found


def _first_line(path: Path) -> str:
    """The beginning of the first line that is not blank, without what is quoted."""
    with path.open("rb") as file:
        if file.read(4).startswith(_OTHER_ENCODINGS):
            raise DataError(f"{path.name} is UTF-16 or UTF-32 text; save it as UTF-8")
        file.seek(0)
        while block := file.readline(_HEAD):
            for line in block.splitlines():
                if line.strip():
                    return _QUOTED.sub(b"", line).decode("utf-8", "replace")
    return ""


def _are_decimal(line: str) -> bool:
    """Whether all commas are between the digits of numbers that something else separates: `7;0,5;1,5`."""
    mark = ";" if ";" in line else "\t"
    with_commas = [cell for cell in line.split(mark) if "," in cell]
    return mark in line and all(DECIMAL_COMMA.fullmatch(cell) for cell in with_commas)
