"""From an array to targets."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from graphdiffusion.data.labels import Targets, check_whole_rows, default_names, note_few, note_truth
from graphdiffusion.data.targets import Task
from graphdiffusion.errors import DataError


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
        if truth:
            note_truth(file, notes)
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
        raise DataError(
            f"{file}: target_names must be {values.shape[1]}, one for each target, got {len(names)}"
        )
    if task == "regression" and values.dtype.kind == "i" and (values == -1).any():
        notes.append(f"{file}: y holds -1, which is taken as a number; NaN marks a node without a number")
    with np.errstate(over="ignore"):
        numbers = values.astype(np.float64)
    unknown = np.isnan(numbers)
    check_whole_rows(unknown, names, lambda i: f"{file}, node {i}")
    wrong = np.abs(numbers) > np.finfo(np.float32).max
    if task == "multilabel":
        wrong |= ~(unknown | (numbers == 0) | (numbers == 1))
    if wrong.any():
        i, k = (int(v) for v in np.argwhere(wrong)[0])
        expected = "0 or 1" if task == "multilabel" else "a finite float32 number"
        raise DataError(f"{file}, node {i}: {names[k]} is {values[i, k]}, not {expected}")
    return Targets(task, numbers if task == "regression" else numbers.astype(np.float32), names)


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
    note_few(names, file, notes)
    return Targets("classification", classes, names)
