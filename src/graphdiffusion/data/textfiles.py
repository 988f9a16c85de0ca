"""CSV and TSV files, read in parts: only columns are held as a whole."""

import csv
from array import array
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from graphdiffusion.data.dialect import DECIMAL_COMMA, separator_of
from graphdiffusion.data.foreign import reason
from graphdiffusion.data.limits import CELL_BYTES, NUMBER_BYTES, TEXT_BYTES, check_memory
from graphdiffusion.data.tables import (
    Index,
    Table,
    TextColumns,
    Texts,
    column_label,
    number,
    parse,
    refuse_mixed,
    written,
)
from graphdiffusion.data.wholenumbers import read_whole_numbers
from graphdiffusion.errors import DataError

# Read at a time. More rows would keep the garbage collector busy.
_ROWS, _CELLS = 500, 1 << 17


def read_text(path: Path, text_columns: TextColumns, notes: list[str]) -> Table:
    """The rows of a .csv or .tsv file but the blank ones; the first is kept apart, see `Table.first`."""
    try:
        separator = separator_of(path, notes)
        cells = _count_cells(path, separator)
        return _Reader(path, separator, text_columns, cells).read(notes)
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path.name}, line {_line_of_bad_bytes(path)}: the bytes are not UTF-8 text; "
            "save the file as UTF-8"
        ) from error
    except OSError as error:
        raise DataError(f"{path.name} cannot be read ({reason(error)})") from error


def _count_cells(path: Path, separator: str) -> int:
    """At most so many cells are in the file, which is not held; a line that is too long is refused."""
    check_memory(path.stat().st_size, path.name)
    cells, line, longest = 1, 0, 0
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            lines = block.split(b"\n")
            longest = max(longest, line + len(lines[0]), *map(len, lines[1:]), 0)
            line = len(lines[-1]) + (line if len(lines) == 1 else 0)
            cells += block.count(separator.encode()) + len(lines) - 1
    check_memory(TEXT_BYTES * longest, f"{path.name}: a line of {longest:,} bytes")
    return cells


def _line_of_bad_bytes(path: Path) -> int:
    raw = path.read_bytes()
    try:
        raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        return raw[: error.start].count(b"\n") + 1
    return 1


def _blocks(path: Path, separator: str, size: int) -> Iterator[tuple[int, list[list[str]]]]:
    """Rows that are not blank, taken from `size` at a time, and the number of the last line read."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, delimiter=separator, strict=True)
        try:
            while block := list(islice(reader, size)):
                if min(map(len, block)) < 2:
                    block = [row for row in block if len(row) > 1 or "".join(row).strip()]
                yield reader.line_num, block
        except csv.Error as error:
            raise DataError(f"{path.name}, line {reader.line_num}: {reason(error)}") from error


class _Reader:
    """Takes a file in blocks of rows, and adds the cells of each block to the columns."""

    def __init__(self, path: Path, separator: str, text_columns: TextColumns, cells: int) -> None:
        self.path, self.name, self.separator = path, path.name, separator
        rows = list(islice(chain.from_iterable(block for _, block in _blocks(path, separator, 1)), 2))
        if not rows:
            raise DataError(f"{path.name} is empty")
        self.first = [cell.strip() for cell in rows[0]]
        in_r = len(rows[-1]) == len(rows[0]) + 1  # R writes no name for the column of ids
        self.width = len(rows[-1]) if in_r else len(rows[0])
        chosen = text_columns(self.first)
        self.rest = [k for k in range(self.width) if k not in chosen]
        self.codes = {k: array("q") for k in range(self.width) if k in chosen}
        self.index = Index()  # of all columns: the two ends of edges are the same nodes
        size = cells * (len(self.codes) * CELL_BYTES + len(self.rest) * NUMBER_BYTES) // self.width
        check_memory(size, f"{self.name}: a table of {cells:,} cells")
        self.parts: list[NDArray[np.float32]] = [np.empty((0, len(self.rest)), dtype=np.float32)]
        self.rows = 0
        self.decimal_comma = separator != ","
        self.marks: set[str] = set()  # of decimals in the columns of numbers
        self.with_comma: str | None = None  # a number that has one

    def read(self, notes: list[str]) -> Table:
        whole = None if self.rest else read_whole_numbers(self.path, self.separator, self.width)
        if whole is None:
            columns = self._read_rows()
        else:
            self.rows = len(whole)
            columns = {k: written(whole[:, k]) for k in self.codes}
        if self.with_comma is not None:
            text = self.with_comma
            notes.append(
                f"{self.name}: a comma in a number is taken as a decimal comma: {text!r} is "
                f"{number(text, decimal_comma=True)}"
            )
        return Table(
            self.name, "line", self.width, self.rows, columns, np.concatenate(self.parts),
            first=self.first, place=self._line, decimal_comma=self.decimal_comma,
        )  # fmt: skip

    def _read_rows(self) -> dict[int, Texts | NDArray]:
        """Read all rows; returns the columns of texts."""
        start = 1  # the first row is kept apart
        for _, block in _blocks(self.path, self.separator, min(_ROWS, 1 + _CELLS // self.width)):
            self._add(block[start:])
            start = 0 if block else start
        if len(self.marks) > 1:
            refuse_mixed(self.name)
        columns: dict[int, Texts | NDArray] = {}
        for k, codes in self.codes.items():
            column = columns[k] = Texts.of(np.array(codes, dtype=np.int64), self.index)
            if self.decimal_comma and self.with_comma is None:
                self.with_comma = next(filter(DECIMAL_COMMA.fullmatch, column.values), None)
        return columns

    def _add(self, block: list[list[str]]) -> None:
        if set(map(len, block)) - {self.width}:
            i, row = next((i, row) for i, row in enumerate(block) if len(row) != self.width)
            as_first = -1 if len(self.first) == self.width else 0
            raise DataError(
                f"{self.name}, line {self._line(self.rows + i)}: expected {self.width} columns as in "
                f"line {self._line(as_first)}, found {len(row)}"
            )
        cells, width = list(chain.from_iterable(block)), self.width
        for k, codes in self.codes.items():
            codes.extend(map(self.index.__getitem__, cells[k::width]))
        for k in sorted(self.codes, reverse=True):
            del cells[k::width]
            width -= 1
        if width and cells:
            self.parts.append(parse(cells, self.rest, self._where, self.decimal_comma))
            if self.decimal_comma:
                self._note_decimals(cells)
        self.rows += len(block)

    def _note_decimals(self, cells: list[str]) -> None:
        joined = "".join(cells)
        self.marks.update(mark for mark in ",." if mark in joined)
        if self.with_comma is None and "," in joined:
            self.with_comma = next(cell.strip() for cell in cells if "," in cell)

    def _where(self, i: int, k: int) -> str:
        """Row i of a block; the first row of the file names the column if it holds a word."""
        named = len(self.first) == self.width and number(self.first[k], self.decimal_comma) is None
        name = self.first[k] if named else ""
        return f"{self.name}, line {self._line(self.rows + i)}, {column_label(k, name)}"

    def _line(self, i: int) -> int:
        """The line of row i, found by reading again: it is needed for messages only."""
        lines = (line for line, block in _blocks(self.path, self.separator, 1) if block)
        return next(islice(lines, i + 1, None), 0)
