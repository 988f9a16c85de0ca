"""What is to be predicted: one class for each node, numbers, or any of several labels."""

from typing import Literal, get_args

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphdiffusion.errors import ArgumentError, DataError

Kind = Literal["classification", "regression", "multilabel"]
Task = Literal["auto", "classification", "regression", "multilabel"]
TASKS: tuple[str, ...] = get_args(Kind)


def task_of(data: Data) -> str:
    """The task of a graph: `data.task`, which the readers set, else what the form of `data.y` says.

    int64 (n,) are classes; floating point (n,) or (n, 1) are numbers; floating point or bool (n, k) with
    k ≥ 2 are several labels if nothing but 0, 1 and NaN (unlabelled) occurs, else numbers.
    """
    task = data.get("task")
    if task is not None:
        if task not in TASKS:
            raise DataError(f"data.task must be one of {', '.join(TASKS)}, got {task!r}")
        return str(task)
    y = data.y
    if y.dtype == torch.bool:
        return "multilabel"
    if not y.is_floating_point():
        return "classification"
    return "multilabel" if y.dim() == 2 and y.size(1) > 1 and only_zero_and_one(y) else "regression"


def labelled(data: Data) -> Tensor:
    """(n,) bool: the nodes whose target is known."""
    return known(data.y)


def known(y: Tensor) -> Tensor:
    """(n,) bool: the targets that are known."""
    if y.dtype == torch.bool:
        return torch.ones(y.size(0), dtype=torch.bool, device=y.device)
    if not y.is_floating_point():
        return y >= 0
    return ~y.isnan() if y.dim() == 1 else ~y.isnan().any(dim=1)


def only_zero_and_one(y: Tensor) -> bool:
    """Whether a tensor of numbers holds nothing else, NaN apart."""
    return bool(((y == 0) | (y == 1) | y.isnan()).all())


def check_task(task: str) -> None:
    """Refuse a value of the argument `task` that is none."""
    if task not in get_args(Task):
        raise ArgumentError(f"task must be one of {', '.join(get_args(Task))}, got {task!r}")
