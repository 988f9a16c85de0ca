"""CSV and TSV files, read in parts: only columns are held as a whole."""

import csv
from array import array
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from graphdiffusion.data.foreign import reason
from graphdiffusion.data.limits import CELL_BYTES, TEXT_BYTES, check_memory
from graphdiffusion.data.tables import Index, Table, TextColumns, Texts, column_label, number, parse
from graphdiffusion.errors import DataError

_CELLS = 1 << 17  # read at a time


def read_text(path: Path, text_columns: TextColumns) -> Table:
    """The rows of a .csv or .tsv file but the blank ones; the first is kept apart, see `Table.first`."""
    separator = "\t" if path.suffix.lower() == ".tsv" else ","
    try:
        _check_size(path, separator)
        with path.open(encoding="utf-8-sig", newline="") as file:
            return _Columns(path.name, _rows(file, separator, path.name), text_columns).read()
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path.name}, line {_line_of_bad_bytes(path)}: the bytes are not UTF-8 text; "
            "save the file as UTF-8"
        ) from error
    except OSError as error:
        raise DataError(f"{path.name} cannot be read ({reason(error)})") from error


def _check_size(path: Path, separator: str) -> None:
    """Refuse a file that would take too much memory; its cells are counted without holding it."""
    size, cells = path.stat().st_size, 1
    check_memory(TEXT_BYTES * size, path.name)
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            cells += block.count(separator.encode()) + block.count(b"\n")
    check_memory(cells * CELL_BYTES, f"{path.name}: a table of {cells:,} cells")


def _line_of_bad_bytes(path: Path) -> int:
    raw = path.read_bytes()
    try:
        raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        return raw[: error.start].count(b"\n") + 1
    return 1


def _rows(file: Iterable[str], separator: str, name: str) -> Iterator[tuple[int, list[str]]]:
    """Line numbers and cells of the rows that are not blank."""
    reader = csv.reader(file, delimiter=separator, strict=True)
    try:
        for row in reader:
            if len(row) > 1 or (row and row[0].strip()):
                yield reader.line_num, row
    except csv.Error as error:
        raise DataError(f"{name}, line {reader.line_num}: {reason(error)}") from error


class _Columns:
    """Gathers the cells of rows, and turns them into columns whenever there are enough."""

    def __init__(self, name: str, rows: Iterator[tuple[int, list[str]]], text_columns: TextColumns) -> None:
        self.name, self.rows = name, rows
        self.first_place, first = next(rows, (0, []))
        if not first:
            raise DataError(f"{name} is empty")
        self.first = [cell.strip() for cell in first]
        self.chosen = text_columns(self.first)
        self.places = array("q")
        self.cells: list[str] = []
        self.done = 0  # rows that are in columns

    def read(self) -> Table:
        place, row = next(self.rows, (0, []))
        in_r = len(row) == len(self.first) + 1  # R writes no name for the column of ids
        self.width = width = len(row) if in_r else len(self.first)
        texts = [k for k in range(width) if k in self.chosen]
        self.rest = [k for k in range(width) if k not in self.chosen]
        self.index = {k: Index() for k in texts}
        self.codes = {k: array("q") for k in texts}
        self.blocks: list[NDArray[np.float32]] = [np.empty((0, len(self.rest)), dtype=np.float32)]
        while row:
            if len(row) != width:
                raise DataError(
                    f"{self.name}, line {place}: expected {width} columns as in line "
                    f"{self.first_place if len(self.first) == width else self.places[0]}, found {len(row)}"
                )
            self.cells += row
            self.places.append(place)
            if len(self.cells) >= _CELLS:
                self._flush()
            place, row = next(self.rows, (0, []))
        self._flush()
        blocks, self.blocks = self.blocks, []
        columns: dict[int, Texts | NDArray] = {
            k: Texts.of(np.frombuffer(self.codes[k], dtype=np.int64), index)
            for k, index in self.index.items()
        }
        return Table(
            self.name, "line", width, np.frombuffer(self.places, dtype=np.int64), columns,
            np.concatenate(blocks), first=self.first, first_place=self.first_place,
        )  # fmt: skip

    def _flush(self) -> None:
        cells, width = self.cells, self.width
        for k, index in self.index.items():
            self.codes[k].extend(map(index.__getitem__, cells[k::width]))
        for k in sorted(self.index, reverse=True):
            del cells[k::width]
            width -= 1
        if self.rest and cells:
            self.blocks.append(parse(cells, self.rest, self._where))
        self.done = len(self.places)
        cells.clear()

    def _where(self, i: int, k: int) -> str:
        """Row i of those that are not yet in columns; the first row names the column if it holds a word."""
        name = self.first[k] if len(self.first) == self.width and number(self.first[k]) is None else ""
        return f"{self.name}, line {self.places[self.done + i]}, {column_label(k, name)}"
