"""Is the first row of a text file a header? By the usual names, else by what the other rows hold."""

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from graphdiffusion.data.columns import (
    ID_IN_FRONT,
    ID_WORDS,
    LABEL_WORDS,
    SOURCE_WORDS,
    TARGET_WORDS,
    WEIGHT_WORDS,
    id_column,
    is_long,
    lower,
)
from graphdiffusion.data.labels import UNLABELLED
from graphdiffusion.data.tables import Table, Texts
from graphdiffusion.errors import DataError

_INTEGER = re.compile(r"-?\d+")


@dataclass(frozen=True)
class Known:
    """Ids that are known from other tables: `all` of the nodes, or some of them."""

    find: Callable[[], set[str]]
    all: bool

    @cached_property
    def ids(self) -> set[str]:
        return self.find()


def edge_header(table: Table, known: Known, notes: list[str]) -> Table:
    """Decide whether the first row of a table of edges names its columns."""
    if table.first is None:
        return table
    names = lower(table.first)
    ends = [k for k, name in enumerate(names) if name not in WEIGHT_WORDS][:2]
    if len(ends) < 2 or len(names) != table.width or not table.rows:
        words = _has(names, SOURCE_WORDS) and _has(names, TARGET_WORDS)
        return table.with_header() if words else table.without_header()
    columns = [table.texts(k) for k in ends]
    again = any(table.first[k] in column.values for k in ends for column in columns)
    if _has(names, SOURCE_WORDS) and _has(names, TARGET_WORDS):
        letters = all(len(names[k]) == 1 for k in ends)  # nodes may well be called u and v
        return table.without_header() if letters and again else table.with_header()
    weights = [k for k in range(table.width) if k not in ends]
    if any(_only_first_is_no_number(table, k) for k in weights) or _first_is_no_integer(table, ends):
        return table.with_header()
    if again:
        return table.without_header()
    cells = " and ".join(repr(table.first[k]) for k in ends)
    place = f"{table.name}, {table.unit} {table.place(-1)}"
    if any(len(names[k]) > 2 and names[k] in (*SOURCE_WORDS, *TARGET_WORDS) for k in ends):
        notes.append(f"{place}: {cells} are taken as names of columns")
        return table.with_header()
    others = [value for column in columns for value in column.values]
    if _unknown_here(table.first[ends[0]], others, known) and table.first[ends[1]] not in known.ids:
        notes.append(f"{place}: {cells} are taken as names of columns, because no such nodes are known")
        return table.with_header()
    if _each_twice(columns):
        notes.append(
            f"{place}: {cells} are taken as names of columns, because they occur only here and all other "
            "ids more than once; a header of the names source and target, or one more edge, settles it"
        )
        return table.with_header()
    notes.append(
        f"{place}: {cells}, which occur only here, are taken as an edge; if they name the columns, "
        "call them source and target"
    )
    return table.without_header()


def feature_header(table: Table, known: Known, notes: list[str]) -> Table:
    """Decide whether the first row of a table of features names its columns."""
    if table.first is None:
        return table
    names = lower(table.first)
    if table.width == len(names) + 1 and id_column(names) is None:  # R writes no name for the ids
        return table.with_header()
    if table.width != len(names):
        raise DataError(
            f"{table.name}: the header has {len(names)} columns, but {table.unit} {table.place(0)} has "
            f"{table.width}; name every column"
        )
    ids = next(iter(table.columns))
    rest = [name for k, name in enumerate(names) if k not in table.columns]
    words = bool(rest) and not any(name == "" or table.number(name) is not None for name in rest)
    if words or names[ids] in (*ID_WORDS, *ID_IN_FRONT) or is_long(names):
        return table.with_header()
    if table.rows and _first_is_no_integer(table, [ids]):
        return table.with_header()
    if table.rows and _unknown_here(table.first[ids], table.texts(ids).values, known):
        notes.append(
            f"{table.name}, {table.unit} {table.place(-1)}: taken as names of columns, because no node "
            f"{table.first[ids]!r} is known"
        )
        return table.with_header()
    return table.without_header()


def label_header(table: Table, known: Known, notes: list[str]) -> Table:
    """Decide whether the first row of a table of labels names its columns."""
    if table.first is None:
        return table
    names = lower(table.first)
    strong = (*ID_WORDS, *LABEL_WORDS)
    words = [k for k, name in enumerate(names) if name in strong or name.startswith("split")]
    words += [0] if names[0] in ID_IN_FRONT else []
    if not table.rows or len(names) != table.width:
        return table.with_header() if words else table.without_header()
    # a word that comes again in its column is no name of it: a class may be called class
    again = {k for k in range(table.width) if table.first[k] and table.first[k] in table.texts(k).values}
    if set(words) - again:
        return table.with_header()
    if _first_is_no_integer(table, [0]):
        return table.with_header()
    place = f"{table.name}, {table.unit} {table.place(-1)}"
    if 0 not in again and _unknown_here(table.first[0], table.texts(0).values, known):
        notes.append(f"{place}: taken as names of columns, because no node {table.first[0]!r} is known")
        return table.with_header()
    if 0 not in again and any(_only_first_is_no_number(table, k) for k in range(1, table.width)):
        notes.append(f"{place}: taken as names of columns, because the other labels are numbers")
        return table.with_header()
    return table.without_header()


def _has(names: Sequence[str], words: Sequence[str]) -> bool:
    return any(name in words for name in names)


def _only_first_is_no_number(table: Table, k: int) -> bool:
    """Numbers in every row but the first, cells without a value apart."""
    first = (table.first or [])[k]
    values = [value for value in table.texts(k).values if value.lower() not in UNLABELLED]
    if table.number(first) is not None or first.lower() in UNLABELLED or not values:
        return False
    return all(table.number(value) is not None for value in values)


def _first_is_no_integer(table: Table, columns: Sequence[int]) -> bool:
    """Integers as ids in every row but the first."""
    first = table.first or []
    return not any(_INTEGER.fullmatch(first[k]) for k in columns) and all(
        _INTEGER.fullmatch(value) for k in columns for value in table.texts(k).values
    )


def _unknown_here(cell: str, others: Collection[str], known: Known) -> bool:
    """An id that is not known, while the others are: all, or most where a wrong one is an error anyway."""
    if cell in known.ids or not known.ids:
        return False
    share = sum(value in known.ids for value in others) / max(1, len(others))
    return share >= (0.5 if known.all else 1.0)


def _each_twice(columns: Sequence[Texts]) -> bool:
    """Whether each id occurs at least twice in the columns together."""
    index: dict[str, int] = {}
    for column in columns:
        counts = np.bincount(column.codes, minlength=len(column.values)).tolist()
        for value, count in zip(column.values, counts, strict=True):
            index[value] = index.get(value, 0) + count
    return min(index.values()) > 1
