"""Models from configurations: with the weights of a seed, or without memory for any weights."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..errors import ArgumentError
from ..nn import Model
from ..options import arguments_of

if TYPE_CHECKING:
    from .config import Config
    from .problem import Member
    from .tasks import Task

TASK = "task."  # before the names of a task's statistics in the saved state of a member


# methods that an attribute of a model must not hide
_CALLED = (
    "run", "features", "prepare", "decay", "after_step", "capacity", "learns_capacity", "with_capacity",
    "memory", "at_fraction", "time_of", "warnings", "row", "title",
)  # fmt: skip


def build_model(
    config: Config, in_channels: int, classes: int, seed: int, num_nodes: int | None = None
) -> Model:
    """The model of a configuration with the weights of a seed; torch's own generator is left alone.

    Args:
        num_nodes: Nodes of the graph, for a model with parameters of each.
    """
    available: dict[str, Any] = {
        "in_channels": in_channels,
        "out_channels": classes,
        "label_channels": classes if config.label_rate > 0 else 0,
        "self_loops": config.self_loops,
        "num_nodes": num_nodes,
    }
    cls = config.model_class
    taken = {name: value for name, value in available.items() if name in arguments_of(cls)}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = cls(**taken, **config.model_options)
    for name in _CALLED:
        if not callable(getattr(model, name)):
            raise ArgumentError(
                f"{cls.__name__} has an attribute {name!r}, which the training calls: give it another name."
            )
    return model


@lru_cache(maxsize=256)
def model_template(config: Config, in_channels: int, classes: int, num_nodes: int | None = None) -> Model:
    """The model without memory for its tensors: their names, shapes and dtypes alone."""
    with torch.device("meta"):
        return build_model(config, in_channels, classes, 0, num_nodes)


def structure(config: Config) -> tuple[Any, ...]:
    """What members of one population must have in common: names, shapes and kinds of all tensors."""
    model = model_template(config, 2, 2)
    learnt = [(name, tuple(p.shape), p.requires_grad) for name, p in model.named_parameters()]
    return (*learnt, *((name, tuple(b.shape)) for name, b in model.named_buffers()))


def stacked_template(
    config: Config, in_channels: int, task: type[Task], outputs: int, num_nodes: int,
    members: Sequence[Member],
) -> dict[str, Tensor]:  # fmt: skip
    """The stacked states of some members, without memory."""
    model = model_template(config.replace(**members[0].options), in_channels, outputs, num_nodes)
    each = model.state_dict() | {
        f"{TASK}{name}": torch.empty(outputs, dtype=torch.float64) for name in task.stored
    }
    return {
        name: torch.empty((len(members), *value.shape), dtype=value.dtype, device="meta")
        for name, value in each.items()
    }
