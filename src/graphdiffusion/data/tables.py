"""Rows of text from CSV, TSV and Parquet files, each row knowing its place for error messages."""

import csv
import io
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphdiffusion.data.foreign import reason
from graphdiffusion.data.limits import CELL_BYTES, PARQUET_BYTES, TEXT_BYTES, check_memory
from graphdiffusion.errors import DataError

TABLES = (".csv", ".tsv", ".parquet")


@dataclass(frozen=True)
class Table:
    """Stripped cells, row after row in one list: a million small lists would keep the garbage
    collector busy for longer than the reading takes.

    `widths` are the numbers of cells of the rows, `places` their line numbers (text) or row
    numbers (Parquet), from 1. `header` are the names of the columns: those of a Parquet file, or
    the first row of a text once it has been taken off as such.
    """

    path: Path
    unit: str
    cells: list[str]
    widths: list[int]
    places: Sequence[int]
    header: list[str] | None = None

    def where(self, i: int) -> str:
        """`"edges.csv, line 17"` for row i."""
        return f"{self.path.name}, {self.unit} {self.places[i]}"

    def row(self, i: int) -> list[str]:
        start = sum(self.widths[:i])
        return self.cells[start : start + self.widths[i]]

    @property
    def is_regular(self) -> bool:
        """All rows have the same number of columns."""
        return self.widths.count(self.widths[0]) == len(self.widths)

    def without_header(self) -> "Table":
        if len(self.widths) == 1:
            raise DataError(f"{self.path.name} has a header but no rows")
        cells = self.cells[self.widths[0] :]
        return Table(self.path, self.unit, cells, self.widths[1:], self.places[1:], self.row(0))

    def check_widths(self, allowed: range, expected: str) -> int:
        """The number of columns, which must be in `allowed` and the same in every row."""
        first = self.widths[0]
        for i, width in enumerate(self.widths):
            if width not in allowed:
                raise DataError(
                    f"{self.where(i)}: expected {expected} columns, found {width}"
                    + _separator_hint(self.path, self.row(i))
                )
            if width != first:
                raise DataError(
                    f"{self.where(i)}: expected {first} columns as in {self.unit} "
                    f"{self.places[0]}, found {width}"
                )
        return first

    def column(self, k: int) -> list[str]:
        """Column k of a regular table."""
        return self.cells[k :: self.widths[0]]

    def ids(self, k: int) -> list[str]:
        """Column k as node ids, none of them empty."""
        ids = self.column(k)
        if "" in ids:
            raise DataError(f"{self.where(ids.index(''))}: the node id in column {k + 1} is empty")
        return ids


def _separator_hint(path: Path, row: list[str]) -> str:
    text = "".join(row)
    if path.suffix.lower() == ".csv" and "\t" in text:
        return "; the row holds tabs: name a tab-separated file .tsv"
    if path.suffix.lower() == ".csv" and ";" in text:
        return "; the row holds semicolons: separate the columns by commas"
    if path.suffix.lower() == ".tsv" and "," in text:
        return "; the row holds commas: name a comma-separated file .csv"
    return ""


def require_file(path: Path, suffixes: Sequence[str]) -> str:
    """The suffix of an existing file, which must be one of `suffixes`."""
    if not os.path.isfile(path):  # in contrast to Path.is_file, False for a name that is too long
        raise DataError(f"there is no file {str(path)!r}")
    suffix = path.suffix.lower()
    if suffix not in suffixes:
        raise DataError(f"{path.name}: expected a file that ends in one of {', '.join(suffixes)}")
    return suffix


def read_table(path: Path) -> Table:
    """All rows of a .csv, .tsv or .parquet file; blank lines are skipped."""
    suffix = require_file(path, TABLES)
    table = _read_parquet(path) if suffix == ".parquet" else _read_text(path, suffix)
    if not table.widths:
        raise DataError(f"{path.name} is empty")
    return table


def _read_text(path: Path, suffix: str) -> Table:
    tabs = suffix == ".tsv"
    check_memory(TEXT_BYTES * path.stat().st_size, path.name)
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path.name} cannot be read ({reason(error)})") from error
    count = raw.count(b"\t" if tabs else b",") + raw.count(b"\n") + 1
    check_memory(count * CELL_BYTES, f"{path.name}: a table of {count:,} cells")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise DataError(
            f"{path.name}, line {line}: the bytes are not UTF-8 text; save the file as UTF-8"
        ) from error
    reader = csv.reader(io.StringIO(text, newline=""), delimiter="\t" if tabs else ",", strict=True)
    # Stripping takes as long as reading, and most large files have nothing to strip.
    bare = re.search(r'["]|[^\S\r\n\t]' if tabs else r'["]|[^\S\r\n]', text) is None
    cells: list[str] = []
    widths, lines = [], []
    try:
        for row in reader:
            if not bare:
                row = [cell.strip() for cell in row]
            if row and row != [""]:
                cells += row
                widths.append(len(row))
                lines.append(reader.line_num)
    except csv.Error as error:
        raise DataError(f"{path.name}, line {reader.line_num}: {reason(error)}") from error
    return Table(path, "line", cells, widths, lines)


def _read_parquet(path: Path) -> Table:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise DataError(
            f"{path.name}: Parquet files are read by pyarrow, which cannot be imported ({reason(error)}); "
            "install it with: pip install 'graphdiffusion[parquet]', or save the table as .csv"
        ) from error
    try:
        names, columns = _parquet_columns(pa, pq, path)
    except DataError:
        raise
    except Exception as error:  # pyarrow has exceptions of its own, and passes on many others
        raise DataError(f"{path.name} is not a readable Parquet file ({reason(error)})") from error
    rows = len(columns[0]) if columns else 0
    cells = [cell for row in zip(*columns, strict=True) for cell in row]
    return Table(path, "row", cells, [len(columns)] * rows, range(1, rows + 1), names)


def _parquet_columns(pa: Any, pq: Any, path: Path) -> tuple[list[str], list[list[str]]]:
    """Names and columns as text. Encoded and compressed, any number of rows fits into a small file."""
    with pq.ParquetFile(path) as file:
        about, schema = file.metadata, file.schema_arrow
    # pandas stores an unnamed index as a column of this name; it is no part of the table.
    fields = [field for field in schema if not field.name.startswith("__index_level_")]
    size = PARQUET_BYTES * sum(about.row_group(k).total_byte_size for k in range(about.num_row_groups))
    size += about.num_rows * max(1, len(fields)) * CELL_BYTES
    check_memory(size, f"{path.name}: a table of {about.num_rows:,} rows and {len(fields):,} columns")
    for field in fields:
        kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        number = pa.types.is_primitive(kind) or pa.types.is_decimal(kind)
        if not (number or _is_text(pa, kind) or pa.types.is_null(kind)):
            raise DataError(
                f"{path.name}: the column {field.name!r} holds {field.type}; "
                "expected one number or text in each cell"
            )
    # As a dictionary, a text that is repeated a million times is held once.
    names = [field.name for field in fields]
    repeated = [field.name for field in fields if _is_text(pa, field.type)]
    with pq.ParquetFile(path, read_dictionary=repeated) as file:
        content = file.read(columns=names)
    columns = [[cell for chunk in content[name].chunks for cell in _texts(pa, chunk)] for name in names]
    return [name.strip() for name in names], columns


def _is_text(pa: Any, kind: Any) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def _texts(pa: Any, chunk: Any) -> list[str]:
    if pa.types.is_dictionary(chunk.type):
        values = _texts(pa, chunk.dictionary)
        return ["" if k is None else values[k] for k in chunk.indices.to_pylist()]
    values = chunk.to_pylist()
    for k, value in enumerate(values):  # one by one: long texts are not held twice
        values[k] = "" if value is None else str(value).strip()
    return values
