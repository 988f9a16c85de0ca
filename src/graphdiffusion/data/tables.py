"""A table column by column, whatever its source.

`textfiles` reads CSV and TSV, `frames` Parquet and DataFrames. Each different text is held once, and
numbers are never held as text: a table takes a few times the size of its file.
"""

from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from graphdiffusion.errors import DataError

# Which columns hold texts, given the names of the columns or the first row of a text file. All others
# hold numbers.
TextColumns = Callable[[Sequence[str]], Container[int]]


@dataclass(frozen=True)
class Texts:
    """A column of texts: each different one once in `values`, and its number there for each row."""

    codes: NDArray[np.int64]
    values: list[str]

    @classmethod
    def of(cls, codes: NDArray[np.int64], raw: Iterable[str]) -> "Texts":
        """Strip the values, merge those that become equal, and drop those that do not occur."""
        texts, index = list(raw), Index()
        used = np.flatnonzero(np.bincount(codes, minlength=len(texts)))
        stripped = [texts[k].strip() for k in used.tolist()]
        numbers = np.zeros(len(texts), dtype=np.int64)
        if len(set(stripped)) == used.size:  # nothing to merge
            numbers[used] = np.arange(used.size)
            return cls(numbers[codes], stripped)
        numbers[used] = np.fromiter(map(index.__getitem__, stripped), dtype=np.int64, count=used.size)
        return cls(numbers[codes], list(index))

    def cell(self, i: int) -> str:
        return self.values[self.codes[i]]


class Index(dict[str, int]):
    """Texts numbered in the order in which they are first asked for."""

    def __missing__(self, key: str) -> int:
        self[key] = number = len(self)
        return number


@dataclass(frozen=True)
class Table:
    """Some columns by their position, as texts or as stored numbers, and all others as float32 in `x`.

    `header` are the names of the columns, None where there are none. `first` is the first row of a text
    file as long as it is not known whether it is a header: it is not among the rows. `place` gives the
    number of a row in an error message. `decimal_comma` says that 0,5 is a number, because commas do not
    separate the columns.
    """

    name: str
    unit: str
    width: int
    rows: int
    columns: dict[int, Texts | NDArray]
    x: NDArray[np.float32]
    header: list[str] | None = None
    first: list[str] | None = None
    place: Callable[[int], Any] = lambda i: i + 1
    decimal_comma: bool = False

    def where(self, i: int) -> str:
        """`"edges.csv, line 17"` for row i, -1 for the first row of a text file that is kept apart."""
        return f"{self.name}, {self.unit} {self.place(i)}"

    def label(self, k: int) -> str:
        """How an error message names column k."""
        name = self.header[k] if self.header is not None and len(self.header) == self.width else ""
        return column_label(k, name)

    def texts(self, k: int) -> Texts:
        """Column k as texts."""
        column = self.columns[k]
        return column if isinstance(column, Texts) else written(column)

    def ids(self, k: int) -> Texts:
        """Column k as node ids, none of them empty."""
        column = self.texts(k)
        if "" in column.values:
            i = int(np.argmax(column.codes == column.values.index("")))
            raise DataError(f"{self.where(i)}: the node id in {self.label(k)} is empty")
        return column

    def numbers(self, k: int) -> NDArray[np.float64]:
        """Column k as numbers, of which some may not be finite."""
        column = self.columns[k]
        if not isinstance(column, Texts):
            return column.astype(np.float64)
        found = [self.number(value) for value in column.values]
        if self.decimal_comma and all(any(mark in value for value in column.values) for mark in ",."):
            refuse_mixed(self.name)
        if None in found:
            i = int(np.argmax(np.array([value is None for value in found])[column.codes]))
            raise DataError(f"{self.where(i)}, {self.label(k)}: {column.cell(i)!r} is not a number")
        return np.array(found, dtype=np.float64)[column.codes]

    def number(self, text: str) -> float | None:
        """The number that a cell holds, or None."""
        return number(text, self.decimal_comma)

    def with_header(self) -> "Table":
        """The first row names the columns."""
        if not self.rows:
            raise DataError(f"{self.name} has a header but no rows")
        return replace(self, header=self.first, first=None)

    def without_header(self) -> "Table":
        """The first row is one like the others."""
        first = self.first or []
        if len(first) != self.width:
            raise DataError(
                f"{self.where(0)}: expected {len(first)} columns as in {self.unit} {self.place(-1)}, "
                f"found {self.width}"
            )
        columns: dict[int, Texts | NDArray] = {k: _with(first[k], self.texts(k)) for k in self.columns}
        rest = [k for k in range(self.width) if k not in columns]
        place = self.place
        table = replace(self, rows=self.rows + 1, columns=columns, first=None, place=lambda i: place(i - 1))
        cells = [first[k] for k in rest]
        row = parse(cells, rest, lambda i, k: f"{table.where(i)}, {table.label(k)}", self.decimal_comma)
        return replace(table, x=np.concatenate([row, self.x]))


def column_label(k: int, name: str) -> str:
    return f"column {k + 1} ({name!r})" if name else f"column {k + 1}"


def number(text: str, decimal_comma: bool = False) -> float | None:
    """The number that a text holds, or None; underscores and digits of other scripts are none."""
    text = text.replace(",", ".") if decimal_comma else text
    try:
        return float(text) if text.isascii() and "_" not in text else None
    except ValueError:
        return None


def sorted_names(names: Iterable[str]) -> list[str]:
    """Sorted as numbers if all are plain ones, so that 2 comes before 10; as text otherwise."""
    names = list(names)
    if all(name.isascii() and name.isdecimal() and (name == "0" or name[0] != "0") for name in names):
        return sorted(sorted(names), key=len)  # numbers of any length; int() takes 4300 digits
    return sorted(names)


def parse(
    cells: list[str],
    columns: Sequence[int],
    where: Callable[[int, int], str],
    decimal_comma: bool = False,
) -> NDArray[np.float32]:
    """Cells, row after row, as finite numbers (rows, columns); `where(i, k)` names row i, column k."""

    def refuse(place: int) -> NoReturn:
        i, j = divmod(place, len(columns))
        refuse_number(cells[place], where(i, columns[j]))

    joined = "".join(cells)
    try:
        if not joined.isascii() or "_" in joined:  # float() takes both
            raise ValueError
        commas = decimal_comma and "," in joined
        texts = (cell.replace(",", ".") for cell in cells) if commas else cells
        values = np.fromiter(map(float, texts), dtype=np.float64, count=len(cells))
    except ValueError:
        refuse(next(k for k, cell in enumerate(cells) if number(cell, decimal_comma) is None))
    with np.errstate(over="ignore"):
        x = values.astype(np.float32)
    finite = np.isfinite(x)
    if not finite.all():
        refuse(int(np.argmin(finite)))
    return x.reshape(-1, len(columns)) if columns else x.reshape(1, 0)


def refuse_number(cell: str, where: str) -> NoReturn:
    """Say why a cell is no feature, and the way out."""
    cell = cell.strip()
    if not cell:
        raise DataError(f"{where} is empty; every node needs a number there, for instance 0 or the mean")
    if number(cell) is None:
        raise DataError(
            f"{where}: {cell!r} is not a number; encode a column of words as numbers, "
            "for instance with pandas.get_dummies, or leave it out"
        )
    raise DataError(f"{where}: {cell!r} is not a finite float32 number")


def refuse_mixed(file: str) -> NoReturn:
    """Say that 1.234 may be a fraction or more than a thousand."""
    raise DataError(
        f"{file}: some numbers have a decimal comma and others a point; write all of them with a point"
    )


def _with(cell: str, column: Texts) -> Texts:
    """The column with one more row before the others."""
    values = column.values
    if cell not in values:
        values = [*values, cell]
    return Texts(np.concatenate([[values.index(cell)], column.codes]), values)


def written(column: NDArray) -> Texts:
    """Stored numbers as texts."""
    values, codes = np.unique(column, return_inverse=True)
    return Texts.of(codes.astype(np.int64), map(text_of, values.tolist()))


def text_of(value: Any) -> str:
    """A value as text: a whole number is written as one whatever its type, and NaN is empty."""
    if isinstance(value, float | np.floating):
        if value != value:
            return ""
        if float(value).is_integer() and abs(float(value)) < 1 << 53:
            return str(int(value))
    return str(value)
