"""Which column of a table holds what: by the names of its header, else by position."""

import re
from collections import Counter
from collections.abc import Collection, Sequence

from graphdiffusion.data.tables import Table
from graphdiffusion.errors import DataError

# A node that has such a name is safe in a file with a header.
ID_WORDS = ("id", "ids", "node", "nodes", "node_id", "nodeid")
ID_IN_FRONT = ("", "name", "index")  # names of ids in the first column only
LABEL_WORDS = ("label", "labels", "class", "category", "subject", "target")
_LABEL_BESIDE_ID = ("y",)  # too short to be a header by itself
SOURCE_WORDS = ("source", "src", "from", "u", "i", "row", "node1", "source_id", "sourceid")
TARGET_WORDS = ("target", "dst", "to", "v", "j", "col", "node2", "target_id", "targetid")
WEIGHT_WORDS = ("weight", "weights", "w", "edge_weight", "value")
_LONG = ("feature", "value")


def edge_columns(table: Table) -> tuple[int, int, int | None]:
    """The columns of source, target and weight."""
    if table.header is None:
        return 0, 1, 2 if _two_or_three(table) == 3 else None
    names = _checked(table)
    source, target, weight = (_at(names, words) for words in (SOURCE_WORDS, TARGET_WORDS, WEIGHT_WORDS))
    ends = [k for k in range(len(names)) if k not in weight]
    if not (len(source) == len(target) == 1) and len(ends) == 2 and max(len(source), len(target)) < 2:
        # two names of which at least one is not known: in the order of the columns, or the other one
        first = source[0] if source else ends[1] if target == [ends[0]] else ends[0]
        source, target = [first], [k for k in ends if k != first]
    if len(source) != 1 or len(target) != 1 or len(weight) > 1:
        raise DataError(
            f"{table.name}: which of the columns {_listed(table, range(len(names)))} hold the ends of "
            "an edge? Name them source and target, a third one weight, and leave out all others"
        )
    _refuse_others(table, {*source, *target, *weight}, "source, target and weight")
    return source[0], target[0], weight[0] if weight else None


def feature_texts(first: Sequence[str]) -> list[int]:
    """The columns of texts in a table of features: the ids, and the features' names in the long format."""
    names = lower(first)
    column = id_column(names)
    if is_long(first):
        return [0 if column is None else column, names.index(_LONG[0])]
    return [0 if column is None else column]


def is_long(names: Sequence[str]) -> bool:
    """Whether the columns are id, feature and value."""
    found = lower(names)
    return len(found) == 3 and set(_LONG) < set(found) and id_column(found) is not None


def feature_columns(table: Table, notes: list[str]) -> tuple[int, list[str] | None]:
    """The column of ids, and the names of all others, None where there are none."""
    if table.header is None:
        return next(iter(table.columns)), None
    if len(table.header) == table.width - 1:  # of R
        column, names = 0, table.header
    else:
        column = feature_texts(table.header)[0]
        if lower(table.header)[column] not in (*ID_WORDS, *ID_IN_FRONT):
            notes.append(
                f"{table.name}: the column {table.header[column]!r} is taken as the ids of the nodes"
            )
        names = [name for k, name in enumerate(table.header) if k != column]
    if not any(names):
        return column, None
    if "" in names:
        k = [k for k in range(table.width) if k != column][names.index("")]
        raise DataError(
            f"{table.name}: column {k + 1} has no name; name it, or leave it out (pandas writes the index "
            "as such a column unless index=False)"
        )
    refuse_twice(names, table.name)
    return column, names


def label_columns(table: Table) -> tuple[int, list[int], list[int]]:
    """The column of ids, those of labels, and those of splits."""
    if table.header is None:
        return 0, [1], [2] if _two_or_three(table) == 3 else []
    names = _checked(table)
    splits = [k for k, name in enumerate(names) if name.startswith("split")]
    number = {k: names[k].removeprefix("split").strip("_") for k in splits}
    if all(text.isdecimal() for text in number.values()):
        splits.sort(key=lambda k: (len(number[k].lstrip("0")), number[k].lstrip("0")))  # 2 before 10
    others = [k for k in range(len(names)) if k not in splits]
    column = id_column(names)
    labels = [k for k in _labels_by_name(names) if k not in splits and k != column]
    if column is None:
        rest = [k for k in others if k not in labels]
        if len(rest) != 1 and len(others) != 2:
            raise DataError(
                f"{table.name}: which of the columns {_listed(table, others)} holds the ids of the nodes? "
                "Name it id"
            )
        column = rest[0] if len(rest) == 1 else others[0]
    if not labels:
        labels = [k for k in others if k != column]
    if not labels:
        raise DataError(f"{table.name}: there is no column of labels; name one label")
    _refuse_others(table, {column, *labels, *splits}, "id, label (label_1, label_2, ...) and split")
    return column, labels, splits


def _labels_by_name(names: Sequence[str]) -> list[int]:
    words = (*LABEL_WORDS, *_LABEL_BESIDE_ID)
    return [
        k for k, name in enumerate(names)
        if name in words or any(re.fullmatch(rf"{word}(_.+|\d+)", name) for word in words)
    ]  # fmt: skip


def lower(names: Sequence[str]) -> list[str]:
    """Names of columns as they are compared."""
    return [name.strip().lower() for name in names]


def _at(names: Sequence[str], words: Sequence[str]) -> list[int]:
    return [k for k, name in enumerate(names) if name in words]


def id_column(names: Sequence[str]) -> int | None:
    """The column of ids by its name, which is in lower case."""
    if names[:1] and names[0] in ID_WORDS:
        return 0
    found = _at(names, ID_WORDS)
    if found:
        return found[0]
    return 0 if names[:1] and names[0] in ID_IN_FRONT else None


def _checked(table: Table) -> list[str]:
    """The names of the columns in lower case: as many as there are columns, none twice."""
    header = table.header or []
    if len(header) != table.width:
        raise DataError(
            f"{table.name}: the header has {len(header)} columns, but {table.unit} {table.place(0)} has "
            f"{table.width}; name every column"
        )
    names = lower(header)
    refuse_twice(names, table.name)
    return names


def refuse_twice(names: Sequence[str], file: str) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise DataError(f"{file}: two columns are named {twice[0]!r}; rename one of them or leave it out")


def _refuse_others(table: Table, used: Collection[int], known: str) -> None:
    others = [k for k in range(table.width) if k not in used]
    if others:
        unnamed = any(not (table.header or [])[k] for k in others)
        raise DataError(
            f"{table.name}: unknown column {_listed(table, others)}; known are {known}: rename it or leave "
            "it out" + (" (pandas writes the index without a name unless index=False)" if unnamed else "")
        )


def _listed(table: Table, columns: Sequence[int] | range) -> str:
    return ", ".join(repr((table.header or [])[k]) for k in columns)


def _two_or_three(table: Table) -> int:
    """The number of columns of a table without a header."""
    if table.width not in (2, 3):
        spaces = any(" " in table.texts(k).cell(0) for k in table.columns)
        raise DataError(
            f"{table.where(0)}: expected 2 or 3 columns, found {table.width}"
            + ("; the row holds spaces: separate the columns by commas" if spaces else "")
        )
    return table.width
