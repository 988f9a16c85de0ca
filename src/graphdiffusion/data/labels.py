"""From the columns of a table of labels to targets and splits."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from graphdiffusion.data.limits import check_memory
from graphdiffusion.data.tables import Texts, number, refuse_mixed, sorted_names
from graphdiffusion.data.targets import Task
from graphdiffusion.errors import DataError

_PART_OF = {"train": 0, "val": 1, "valid": 1, "validation": 1, "dev": 1, "test": 2, "": -1}

_WORDS = ("nan", "na", "n/a", "<na>", "null")
UNLABELLED = ("", "?", *_WORDS)
_TRUTH = {"0": 0.0, "1": 1.0, "0.0": 0.0, "1.0": 1.0, "false": 0.0, "true": 1.0}
SEPARATOR = "|"


@dataclass(frozen=True)
class Targets:
    """`y` holds classes (rows,) int64, numbers (rows, k) float64 or labels (rows, k) float32.

    `names` are those of the classes or targets.
    """

    task: str
    y: NDArray
    names: list[str]

    @property
    def known(self) -> NDArray[np.bool_]:
        return self.y >= 0 if self.task == "classification" else ~np.isnan(self.y[:, 0])


def table_targets(
    columns: Sequence[Texts],
    names: Sequence[str],
    task: Task,
    where: Callable[[int], str],
    file: str,
    notes: list[str],
) -> Targets:
    """The targets of the label columns of a table, whose `names` are those of its header.

    The task is recognised unless it is given. One column: cells with `|` hold several labels, if two
    different cells have one in common; numbers of which at least one is not whole are numbers to predict;
    everything else are classes. Several columns: nothing but 0 and 1, or true and false, are labels; other
    numbers are numbers to predict.
    """
    missing = np.stack([_among(column, UNLABELLED) for column in columns], axis=1)
    _note_words(columns, file, notes)
    check_whole_rows(missing, names, where)
    unlabelled = missing[:, 0]
    if len(columns) == 1:
        column = columns[0]
        if task == "auto":
            task = _task_of_column(column, unlabelled, file, notes)
        if task == "classification":
            return _classes(column, unlabelled, file, notes)
        if task == "multilabel":
            return _several_labels(column, unlabelled, file)
    elif task == "classification":
        raise DataError(
            f"{file} has {len(columns)} columns of labels ({', '.join(names)}), but a class needs one; "
            "keep one of them"
        )
    truth = [_values(column, _TRUTH.get) for column in columns]
    is_truth = not any((np.isnan(values) & ~unlabelled).any() for values in truth)
    if task == "auto" and is_truth:
        note_truth(file, notes)
    if task == "multilabel" or (task == "auto" and is_truth):
        _refuse_first(truth, columns, unlabelled, names, where, "is neither 0 nor 1, true nor false")
        return Targets("multilabel", _stacked(truth, unlabelled).astype(np.float32), list(names))
    numbers = [_values(column, _finite) for column in columns]
    _refuse_first(
        numbers, columns, unlabelled, names, where,
        "is not a finite float32 number; a column of classes is named label, and is the only one of labels"
        if len(columns) > 1 else "is not a finite float32 number",
    )  # fmt: skip
    return Targets("regression", _stacked(numbers, unlabelled), list(names))


def with_points(column: Texts, file: str) -> Texts:
    """Labels with a decimal comma, written with a point, if all labels of the column are numbers."""
    points = [value.replace(",", ".") for value in column.values]
    if points == column.values or any(
        number(value) is None and value.lower() not in UNLABELLED for value in points
    ):
        return column
    if any("." in value for value in column.values):
        refuse_mixed(file)
    return Texts.of(column.codes, points)


def splits_of(
    columns: Sequence[Texts], known: NDArray[np.bool_], ids: Texts, where: Callable[[int], str]
) -> NDArray[np.int64]:
    """(rows, splits): 0, 1 and 2 for train, val and test, -1 for none."""
    parts = np.empty((len(known), len(columns)), dtype=np.int64)
    for k, column in enumerate(columns):
        numbers = np.array([_PART_OF.get(value.lower(), -2) for value in column.values], dtype=np.int64)
        parts[:, k] = numbers[column.codes]
    unknown = np.argwhere(parts == -2)
    if unknown.size:
        i, k = (int(v) for v in unknown[0])
        raise DataError(
            f"{where(i)}: unknown split {columns[k].cell(i)!r}; it must be train, val or test, "
            "or empty for none"
        )
    without = np.argwhere((parts >= 0) & ~known[:, None])
    if without.size:
        i, k = (int(v) for v in without[0])
        raise DataError(
            f"{where(i)}: node {ids.cell(i)!r} is in the split {columns[k].cell(i).lower()!r} but has no "
            "label; give it one or leave its split empty"
        )
    return parts


def _finite(text: str) -> float | None:
    """The number that a text holds, None if there is none or if it is infinite as float32."""
    value = number(text)
    return value if value is not None and abs(value) <= float(np.finfo(np.float32).max) else None


def default_names(count: int) -> list[str]:
    """Names for targets that have none."""
    return ["target"] if count == 1 else [f"target_{k}" for k in range(count)]


def _among(column: Texts, words: Sequence[str]) -> NDArray[np.bool_]:
    """(rows,) where a cell is one of the words, in whatever case."""
    return np.array([value.lower() in words for value in column.values], dtype=bool)[column.codes]


def _note_words(columns: Sequence[Texts], file: str, notes: list[str]) -> None:
    """Say which words were taken as no label: one of them may be the name of a class."""
    words = sorted({value for column in columns for value in column.values if value.lower() in _WORDS})
    if words:
        count = sum(int(_among(column, _WORDS).sum()) for column in columns)
        notes.append(
            f"{file}: {count:,} label{'s' * (count > 1)} {', '.join(map(repr, words))} taken as unlabelled"
            "; a class of that name must be renamed"
        )


def check_whole_rows(missing: NDArray[np.bool_], names: Sequence[str], where: Callable[[int], str]) -> None:
    partly = np.flatnonzero(missing.any(axis=1) & ~missing.all(axis=1))
    if partly.size:
        i = int(partly[0])
        known, unknown = int(np.argmin(missing[i])), int(np.argmax(missing[i]))
        raise DataError(
            f"{where(i)}: {names[known]!r} has a value and {names[unknown]!r} has none; "
            "a node has all of its targets or none"
        )


def _task_of_column(column: Texts, unlabelled: NDArray[np.bool_], file: str, notes: list[str]) -> Task:
    present = _present(column, unlabelled)
    if any(SEPARATOR in value for value in present):
        # without a name that two different cells share, sets of names are classes
        counts = Counter(name for value in present for name in _split(value))
        several = SEPARATOR in present or max(counts.values(), default=0) > 1
        if several:
            notes.append(
                f"{file}: labels with {SEPARATOR!r} are taken as several labels; "
                "task classification overrides it"
            )
            return "multilabel"
        notes.append(
            f"{file}: labels with {SEPARATOR!r} are taken as classes, because no two of them share a name; "
            "task multilabel overrides it"
        )
        return "classification"
    numbers = [number(value) for value in present]
    if present and all(value is not None for value in numbers):
        finite = [value for value in numbers if value is not None and np.isfinite(value)]
        if any(value != np.floor(value) for value in finite):
            return "regression"
    return "classification"


def _present(column: Texts, unlabelled: NDArray[np.bool_]) -> list[str]:
    """The different values of the labelled rows."""
    return [column.values[k] for k in np.unique(column.codes[~unlabelled]).tolist()]


def _classes(column: Texts, unlabelled: NDArray[np.bool_], file: str, notes: list[str]) -> Targets:
    names = sorted_names(_present(column, unlabelled))
    others = [name for name in names if name != "-1"]
    if "-1" in names and others and all(name.isascii() and name.isdecimal() for name in others):
        unlabelled = unlabelled | (np.array(column.values) == "-1")[column.codes]
        count = int((np.array(column.values) == "-1")[column.codes].sum())
        are = "label '-1' among class numbers is" if count == 1 else "labels '-1' among class numbers are"
        notes.append(f"{file}: {count:,} {are} taken as unlabelled")
        names = others
    order = {name: k for k, name in enumerate(names)}
    numbers = np.array([order.get(value, -1) for value in column.values], dtype=np.int64)
    if "none" in (name.lower() for name in names):
        notes.append(f"{file}: 'none' is taken as a class; leave the cells of unlabelled nodes empty")
    note_few(names, file, notes)
    return Targets("classification", np.where(unlabelled, -1, numbers[column.codes]), names)


def note_truth(file: str, notes: list[str]) -> None:
    """Say how columns of 0 and 1 are taken: they may also be numbers, or one class written in columns."""
    notes.append(
        f"{file}: several columns of nothing but 0 and 1 are taken as several labels for a node; task "
        "regression takes them as numbers, and classes are named in one column"
    )


def note_few(names: Sequence[str], file: str, notes: list[str]) -> None:
    if len(names) < 2:
        found = f"all labels are {names[0]!r}" if names else "no node is labelled"
        notes.append(f"{file}: {found}: every answer will be the same")


def _split(value: str) -> set[str]:
    return {part.strip() for part in value.split(SEPARATOR)} - {""}


def _several_labels(column: Texts, unlabelled: NDArray[np.bool_], file: str) -> Targets:
    """Names between separators; a separator alone is a labelled node without any of them."""
    sets = [_split(value) for value in column.values]
    present = np.unique(column.codes[~unlabelled]).tolist()
    names = sorted_names({name for k in present for name in sets[k]})
    if not names:
        raise DataError(f"{file}: no node has a label; several labels are written as a{SEPARATOR}b")
    check_memory(8 * len(column.codes) * len(names), f"{file}: {len(names):,} labels of each row")
    order = {name: k for k, name in enumerate(names)}
    rows = np.zeros((len(sets), len(names)), dtype=np.float32)
    for k in present:
        rows[k, [order[name] for name in sets[k]]] = 1
    y = rows[column.codes]
    y[unlabelled] = np.nan
    return Targets("multilabel", y, names)


def _values(column: Texts, read: Callable[[str], float | None]) -> NDArray[np.float64]:
    """(rows,) the cells as numbers, NaN where `read` finds none."""
    found = (read(value.lower()) for value in column.values)
    return np.array([np.nan if value is None else value for value in found])[column.codes]


def _refuse_first(
    values: Sequence[NDArray[np.float64]],
    columns: Sequence[Texts],
    unlabelled: NDArray[np.bool_],
    names: Sequence[str],
    where: Callable[[int], str],
    problem: str,
) -> None:
    wrong = np.argwhere(np.isnan(np.stack(values, axis=1)) & ~unlabelled[:, None])
    if wrong.size:
        i, k = (int(v) for v in wrong[0])
        raise DataError(f"{where(i)}, column {names[k]!r}: {columns[k].cell(i)!r} {problem}")


def _stacked(values: Sequence[NDArray[np.float64]], unlabelled: NDArray[np.bool_]) -> NDArray[np.float64]:
    y = np.stack(values, axis=1)
    y[unlabelled] = np.nan
    return y
