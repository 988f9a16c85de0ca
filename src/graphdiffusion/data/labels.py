"""From the columns of a labels table, or an array, to targets and splits."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from graphdiffusion.data.limits import check_memory
from graphdiffusion.data.tables import Texts, number, sorted_names
from graphdiffusion.data.targets import Task
from graphdiffusion.errors import DataError

PARTS = ("train", "val", "test")
_PART_OF = {"train": 0, "val": 1, "valid": 1, "validation": 1, "dev": 1, "test": 2, "": -1}

_UNLABELLED = ("", "?")
_UNLABELLED_WORDS = ("nan", "na", "n/a", "<na>", "null")
_TRUTH = {"0": 0.0, "1": 1.0, "0.0": 0.0, "1.0": 1.0, "false": 0.0, "true": 1.0}
SEPARATOR = "|"


@dataclass(frozen=True)
class Targets:
    """`y` is (rows,) int64 for classification, else (rows, k) float32; `names` of classes or targets."""

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

    The task is recognised unless it is given. One column: cells with `|` hold several labels; numbers of
    which at least one is not whole are numbers to predict; everything else are classes. Several columns:
    nothing but 0 and 1, or true and false, are labels; other numbers are numbers to predict.
    """
    missing = np.stack([_missing(column, file, notes) for column in columns], axis=1)
    _check_whole_rows(missing, names, where)
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
    if task == "multilabel" or (task == "auto" and is_truth):
        _refuse_first(truth, columns, unlabelled, names, where, "is neither 0 nor 1, true nor false")
        return Targets("multilabel", _stacked(truth, unlabelled), list(names))
    numbers = [_values(column, _finite) for column in columns]
    _refuse_first(
        numbers, columns, unlabelled, names, where,
        "is not a finite float32 number; a column of classes is named label, and is the only one of labels"
        if len(columns) > 1 else "is not a finite float32 number",
    )  # fmt: skip
    return Targets("regression", _stacked(numbers, unlabelled), list(names))


def array_targets(
    y: NDArray,
    task: Task,
    file: str,
    notes: list[str],
    class_names: Sequence[str] | None = None,
    target_names: Sequence[str] | None = None,
) -> Targets:
    """The targets of an array (n,) or (n, k); floating point numbers are NaN where a node is unlabelled.

    Integers (n,) are classes, -1 where unlabelled; floating point (n,) are numbers to predict; (n, k) are
    several labels if nothing but 0 and 1 occurs, else numbers to predict.
    """
    if y.ndim not in (1, 2) or y.dtype.kind not in "iufb" or 0 in y.shape:
        raise DataError(
            f"{file}: y must be numbers (n,) or (n, k): integers for classes, -1 where unlabelled, "
            f"or floating point, NaN where unlabelled; got {y.dtype} of shape {y.shape}"
        )
    values = y.reshape(y.shape[0], -1)
    whole = values.dtype.kind in "iub"
    if task == "auto" and values.shape[1] > 1:
        truth = bool(((values == 0) | (values == 1) | (values != values)).all())
        task = "multilabel" if truth else "regression"
    elif task == "auto":
        task = "classification" if whole else "regression"
        if not whole and bool((np.isnan(values) | (values == np.floor(values))).all()):
            notes.append(
                f"{file}: y holds whole numbers as floating point, which are taken as numbers to predict; "
                "for classes store integers, or set task to classification"
            )
    if task == "classification":
        if values.shape[1] > 1:
            raise DataError(f"{file}: y has {values.shape[1]} columns, but a class needs one; keep one")
        return _array_classes(values[:, 0], class_names, file, notes)
    names = list(target_names or default_names(values.shape[1]))
    if len(names) != values.shape[1]:
        raise DataError(f"{file}: there are {len(names)} target_names for {values.shape[1]} targets")
    if task == "regression" and values.dtype.kind == "i" and (values == -1).any():
        notes.append(f"{file}: y holds -1, which is taken as a number; NaN marks a node without a number")
    with np.errstate(over="ignore"):
        numbers = values.astype(np.float32)
    unknown = np.isnan(numbers)
    _check_whole_rows(unknown, names, lambda i: f"{file}, node {i}")
    wrong = ~(np.isfinite(numbers) | unknown)
    if task == "multilabel":
        wrong |= ~(unknown | (numbers == 0) | (numbers == 1))
    if wrong.any():
        i, k = (int(v) for v in np.argwhere(wrong)[0])
        expected = "0 or 1" if task == "multilabel" else "a finite float32 number"
        raise DataError(f"{file}, node {i}: {names[k]} is {values[i, k]}, not {expected}")
    return Targets(task, numbers, names)


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
    return value if value is not None and abs(value) <= np.finfo(np.float32).max else None


def default_names(count: int) -> list[str]:
    """Names for targets that have none."""
    return ["target"] if count == 1 else [f"target_{k}" for k in range(count)]


def _missing(column: Texts, file: str, notes: list[str]) -> NDArray[np.bool_]:
    """(rows,) where the label is missing; words that were taken so are noted."""
    lower = [value.lower() for value in column.values]
    words = np.array([value in _UNLABELLED_WORDS for value in lower], dtype=bool)
    if words.any():
        found = ", ".join(
            repr(value) for value, is_word in zip(column.values, words, strict=True) if is_word
        )
        count = int(words[column.codes].sum())
        notes.append(
            f"{file}: {count:,} label{'s' * (count > 1)} {found} taken as unlabelled; "
            "a class of that name must be renamed"
        )
    return (words | np.array([value in _UNLABELLED for value in lower], dtype=bool))[column.codes]


def _check_whole_rows(
    missing: NDArray[np.bool_], names: Sequence[str], where: Callable[[int], str]
) -> None:
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
        notes.append(
            f"{file}: labels with {SEPARATOR!r} are taken as several labels; for classes whose names hold "
            "it, set task to classification"
        )
        return "multilabel"
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
    order = {name: k for k, name in enumerate(names)}
    numbers = np.array([order.get(value, -1) for value in column.values], dtype=np.int64)
    if "none" in (name.lower() for name in names):
        notes.append(f"{file}: 'none' is taken as a class; leave the cells of unlabelled nodes empty")
    _note_few(names, file, notes)
    return Targets("classification", np.where(unlabelled, -1, numbers[column.codes]), names)


def _array_classes(y: NDArray, given: Sequence[str] | None, file: str, notes: list[str]) -> Targets:
    """Classes are numbered without gaps unless they have names; else their numbers become their names."""
    if y.dtype.kind == "f":
        if np.isinf(y).any():
            raise DataError(f"{file}: y holds infinity, which is no class")
        known, values = ~np.isnan(y), np.where(np.isnan(y), -1, y)
    else:
        known, values = y != -1 if y.dtype.kind == "i" else np.ones(y.shape, dtype=bool), y
        if y.min() < -1:
            raise DataError(f"{file}: y must be -1 (unlabelled) or a class from 0, got {y.min()}")
    if given is not None:
        if (known & ((values < 0) | (values >= len(given)) | (values != np.floor(values)))).any():
            raise DataError(f"{file}: y must be -1 or a number below {len(given)}, as many as class_names")
        return Targets("classification", np.where(known, values, -1).astype(np.int64), list(given))
    labels, numbers = np.unique(values[known], return_inverse=True)
    classes = np.full(y.shape, -1, dtype=np.int64)
    classes[known] = numbers
    names = [f"{label:.0f}" if label == np.floor(label) else str(label) for label in labels.tolist()]
    if y.dtype.kind != "f":
        names = [str(int(label)) for label in labels.tolist()]
    _note_few(names, file, notes)
    return Targets("classification", classes, names)


def _note_few(names: Sequence[str], file: str, notes: list[str]) -> None:
    if len(names) < 2:
        found = f"all labels are {names[0]!r}" if names else "no node is labelled"
        notes.append(f"{file}: {found}; at least two classes are needed to learn from")


def _several_labels(column: Texts, unlabelled: NDArray[np.bool_], file: str) -> Targets:
    """Names between separators; a separator alone is a labelled node without any of them."""
    sets = [{part.strip() for part in value.split(SEPARATOR)} - {""} for value in column.values]
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


def _stacked(values: Sequence[NDArray[np.float64]], unlabelled: NDArray[np.bool_]) -> NDArray[np.float32]:
    y = np.stack(values, axis=1).astype(np.float32)
    y[unlabelled] = np.nan
    return y
