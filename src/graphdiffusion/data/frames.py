"""Typed tables: Parquet files, and DataFrames of pandas and polars."""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphdiffusion.data.foreign import reason
from graphdiffusion.data.limits import CELL_BYTES, NUMBER_BYTES, PARQUET_BYTES, check_memory
from graphdiffusion.data.tables import (
    Index,
    Table,
    TextColumns,
    Texts,
    column_label,
    number,
    refuse_number,
    text_of,
)
from graphdiffusion.errors import DataError

_CELLS = 1 << 20  # of a Parquet file, decoded at a time


def is_frame(source: Any) -> bool:
    """Whether this is a DataFrame of pandas or polars, or something that behaves like one."""
    return all(hasattr(source, name) for name in ("columns", "dtypes", "__len__", "__getitem__"))


def read_frame(frame: Any, name: str, text_columns: TextColumns) -> Table:
    """The columns of a DataFrame, whose index is no part of the table. Messages call it `name`."""
    names = [str(column).strip() for column in frame.columns]
    _check_names(names, name)
    rows, chosen = len(frame), text_columns(names)
    _check_size(rows, len(names), sum(k in chosen for k in range(len(names))), 0, name)
    if not names or not rows:
        raise DataError(f"{name} is empty")

    def load(k: int) -> Texts | NDArray:
        return _series(frame[frame.columns[k]], f"{name}: the column {names[k]!r}")

    columns = {k: load(k) for k in range(len(names)) if k in chosen}
    rest = [k for k in range(len(names)) if k not in chosen]
    x = np.empty((rows, len(rest)), dtype=np.float32)
    for j, k in enumerate(rest):
        x[:, j] = _finite(load(k), partial(_cell, name, 0, column_label(k, names[k])))
    return Table(name, "row", len(names), rows, columns, x, names)


def _cell(file: str, start: int, label: str, i: int) -> str:
    return f"{file}, row {start + i + 1}, {label}"


def read_parquet(path: Path, text_columns: TextColumns) -> Table:
    """The columns of a Parquet file."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise DataError(
            f"{path.name}: Parquet files are read by pyarrow, which cannot be imported ({reason(error)}); "
            "install it with: pip install pyarrow, or save the table as .csv"
        ) from error
    try:
        return _Parquet(pa, pq, path).read(text_columns)
    except DataError:
        raise
    except Exception as error:  # pyarrow has exceptions of its own, and passes on many others
        raise DataError(f"{path.name} is not a readable Parquet file ({reason(error)})") from error


class _Parquet:
    """Encoded and compressed, any number of rows fits into a small file: its size is checked first."""

    def __init__(self, pa: Any, pq: Any, path: Path) -> None:
        self.pa, self.pq, self.path = pa, pq, path

    def read(self, text_columns: TextColumns) -> Table:
        name = self.path.name
        with self.pq.ParquetFile(self.path) as file:
            about, schema = file.metadata, file.schema_arrow
        # pandas stores an unnamed index as a column of this name; it is no part of the table.
        fields = [field for field in schema if not field.name.startswith("__index_level_")]
        for field in fields:
            self._check_type(field)
        names = [field.name.strip() for field in fields]
        _check_names(names, name)
        rows, chosen = about.num_rows, text_columns(names)
        texts = [k for k in range(len(names)) if k in chosen]
        decoded = sum(about.row_group(k).total_byte_size for k in range(about.num_row_groups))
        _check_size(rows, len(names), len(texts), PARQUET_BYTES * decoded, name)
        if not names or not rows:
            raise DataError(f"{name} is empty")
        # As a dictionary, a text that is repeated a million times is held once.
        repeated = [field.name for field in fields if self._is_text(field.type)]
        with self.pq.ParquetFile(self.path, read_dictionary=repeated) as file:
            content = file.read(columns=[fields[k].name for k in texts])
            columns = {k: self._column(content[fields[k].name]) for k in texts}
            del content
            rest = {k: fields[k].name for k in range(len(names)) if k not in chosen}
            x = self._numbers(file, rest, rows)
        return Table(name, "row", len(names), rows, columns, x, names)

    def _numbers(self, file: Any, fields: dict[int, str], rows: int) -> NDArray[np.float32]:
        """The columns `fields`, by their positions, as (rows, columns); some rows are decoded at a time."""
        x = np.empty((rows, len(fields)), dtype=np.float32)
        if not fields:
            return x
        start = 0
        for batch in file.iter_batches(max(1, _CELLS // len(fields)), columns=list(fields.values())):
            part = x[start : start + batch.num_rows]
            for j, (k, field) in enumerate(fields.items()):
                where = partial(_cell, self.path.name, start, column_label(k, field.strip()))
                part[:, j] = _finite(self._column(batch.column(field)), where)
            start += batch.num_rows
        return x

    def _is_text(self, kind: Any) -> bool:
        return self.pa.types.is_string(kind) or self.pa.types.is_large_string(kind)

    def _check_type(self, field: Any) -> None:
        types = self.pa.types
        kind = field.type.value_type if types.is_dictionary(field.type) else field.type
        single = types.is_primitive(kind) or types.is_decimal(kind) or types.is_null(kind)
        if not single and not self._is_text(kind):
            raise DataError(
                f"{self.path.name}: the column {field.name!r} holds {field.type}; "
                "expected one number or text in each cell"
            )

    def _column(self, column: Any) -> Texts | NDArray:
        """Numbers as they are stored; everything else, and integers of which some are missing, as texts."""
        types = self.pa.types
        kind = column.type
        floating = types.is_floating(kind)
        if floating or ((types.is_integer(kind) or types.is_boolean(kind)) and not column.null_count):
            values = (
                column.to_numpy() if isinstance(column, self.pa.ChunkedArray) else column.to_numpy(False)
            )
            return values.astype(np.float64) if floating else values
        chunks = column.chunks if isinstance(column, self.pa.ChunkedArray) else [column]
        index, codes = Index(), []
        for chunk in chunks:
            if types.is_dictionary(kind):
                own = np.append(_codes(chunk.dictionary, index), index[""] if chunk.null_count else 0)
                codes.append(
                    own[chunk.indices.cast(self.pa.int64()).fill_null(len(own) - 1).to_numpy(False)]
                )
            else:
                codes.append(_codes(chunk, index))
        return Texts.of(np.concatenate(codes) if codes else np.empty(0, np.int64), index)


def _codes(values: Any, index: Index) -> NDArray[np.int64]:
    """Numbers of the texts of an Arrow array; they are taken some at a time, not to be held twice."""
    codes = np.empty(len(values), dtype=np.int64)
    step = max(1, _CELLS * len(values) // max(1, values.nbytes))
    for start in range(0, len(values), step):
        part = values.slice(start, step).to_pylist()
        codes[start : start + step] = [index["" if v is None else str(v).strip()] for v in part]
    return codes


def _check_names(names: Sequence[str], file: str) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise DataError(f"{file}: two columns are named {twice[0]!r}; rename one of them")


def _check_size(rows: int, columns: int, texts: int, decoded: int, file: str) -> None:
    """Refuse a table that takes too much memory; `texts` of its columns hold texts."""
    size = decoded + rows * (texts * CELL_BYTES + (columns - texts) * NUMBER_BYTES)
    check_memory(size, f"{file}: a table of {rows:,} rows and {columns:,} columns")


def _series(series: Any, what: str) -> Texts | NDArray:
    """Numbers as they are stored; everything else, and integers of which some are missing, as texts."""
    pandas = hasattr(series, "isna")
    missing = bool(series.isna().any()) if pandas else series.null_count() > 0
    values = series.to_numpy()
    if values.dtype.kind in "biuf" and (not missing or "float" in str(series.dtype).lower()):
        return values
    cells = series.to_list()
    holes = series.isna().to_list() if pandas else [cell is None for cell in cells]
    index = Index()
    codes = np.empty(len(cells), dtype=np.int64)
    for i, (cell, hole) in enumerate(zip(cells, holes, strict=True)):
        if isinstance(cell, list | tuple | dict | set | bytes | np.ndarray):
            raise DataError(f"{what} holds {type(cell).__name__}; expected one number or text in each cell")
        codes[i] = index["" if hole else text_of(cell)]
    return Texts.of(codes, index)


def _finite(column: Texts | NDArray, where: Callable[[int], str]) -> NDArray[np.float32]:
    """A column as features."""
    if isinstance(column, Texts):
        found = [number(value) for value in column.values]
        values = np.array([np.nan if value is None else value for value in found])[column.codes]
    else:
        values = column
    with np.errstate(over="ignore"):
        x = values.astype(np.float32)
    wrong = ~np.isfinite(x)
    if wrong.any():
        i = int(np.argmax(wrong))
        cell = (
            column.cell(i) if isinstance(column, Texts) else "" if np.isnan(values[i]) else str(values[i])
        )
        refuse_number(cell, where(i))
    return x
