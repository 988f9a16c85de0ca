"""What a training learns: a class for each node, numbers, or several labels. Losses and scores of each.

Outputs of a model are ``(..., n, outputs)``; masks, and what is computed from them, have a row for each
member.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import (
    binary_cross_entropy,
    binary_cross_entropy_with_logits,
    cross_entropy,
    nll_loss,
    one_hot,
)
from torch_geometric.data import Data

from ..data.targets import known, task_of
from ..errors import DataError
from ..partition.whole import active_part, smallest, somewhere, sum_nodes, total
from .scores import accuracy, squeezed, surprise

Statistics = dict[str, Tensor]

LOWEST = -1e6  # of R², which has no bound below; outputs that are not finite have it too

_TINY = torch.finfo(torch.float64).tiny


class Task:
    """Base of the tasks.

    Args:
        y: Targets of all nodes.
        names: One for each output.

    Attributes:
        metric: The score that chooses the best epoch, as it is shown.
        percent: Whether it is shown in percent.
        outputs: Channels of the model's output.
        labelled: Nodes with a target, ``(n,)`` bool.
        stored: Names of the statistics, each ``(P, outputs)`` float64.
        dtype: Of the answers that are given out.
    """

    stored: ClassVar[tuple[str, ...]] = ()
    dtype: ClassVar[torch.dtype] = torch.float32
    name: ClassVar[str]
    metric: ClassVar[str]
    percent: ClassVar[bool] = True

    def __init__(self, y: Tensor, names: list[str]) -> None:
        self.y, self.names = y, names
        self.labelled = known(y)

    @property
    def outputs(self) -> int:
        return len(self.names)

    def to(self, device: torch.device | str) -> Task:
        return type(self)(self.y.to(device), self.names)

    def statistics(self, train: Tensor) -> Statistics:
        """What is needed of the training nodes of each member, ``(P, n)``: stored with its model."""
        return {}

    def weights(self, nodes: Tensor, used: Tensor) -> Tensor:
        """Weights of training nodes ``(P, m)`` that give every class the same weight in the loss.

        Their mean over the nodes that are ``used``, ``(P, m)`` bool, is 1.
        """
        raise DataError(f"class weights need classes, and the task is {self.name}: leave them out.")

    def losses(self, output: Tensor, nodes: Tensor, statistics: Statistics) -> Tensor:
        """Loss of the outputs ``(P, m, outputs)`` at nodes ``(P, m)`` → ``(P, m)``."""
        raise NotImplementedError

    def score(self, output: Tensor, mask: Tensor, statistics: Statistics) -> Tensor:
        """How good outputs ``(..., n, outputs)`` are on masked nodes: at most 1, NaN without nodes."""
        raise NotImplementedError

    def surprise(self, output: Tensor, mask: Tensor, statistics: Statistics) -> Tensor:
        """Loss over the masked nodes squeezed into [0, 1]; infinite where an output is not finite."""
        raise NotImplementedError

    def shown(self, mask: Tensor, statistics: Statistics) -> Tensor:
        """Targets of masked nodes ``(..., n)`` as features ``(..., n, outputs)``, zero for the others."""
        raise NotImplementedError

    def observed(self, mask: Tensor, statistics: Statistics) -> Tensor:
        """The same as terms of an equation see them, with a last column that is 1 at the masked nodes: a
        target may be 0.
        """
        shown = self.shown(mask, statistics)
        return torch.cat([shown, mask.unsqueeze(-1).to(shown)], -1)

    def answers(self, output: Tensor, statistics: Statistics, temperature: float = 1.0) -> Tensor:
        """Probabilities, or numbers in the units of the targets."""
        raise NotImplementedError

    def mean_loss(self, answers: Tensor, nodes: Tensor) -> Tensor:
        """Mean negative log-likelihood of answers ``(m, outputs)`` for nodes ``(m,)``."""
        raise NotImplementedError


class Classification(Task):
    """One class for each node: cross-entropy, accuracy."""

    name, metric = "classification", "accuracy"

    def weights(self, nodes: Tensor, used: Tensor) -> Tensor:
        classes = one_hot(self.y[nodes].clamp_min(0), self.outputs).double() * used.unsqueeze(-1)
        counts = sum_nodes(classes)
        present = (counts > 0).sum(-1)
        every = total(used.sum(-1, keepdim=True))
        return (classes / counts.clamp_min(1)).sum(-1) * every / present[..., 0, None]

    def losses(self, output: Tensor, nodes: Tensor, statistics: Statistics) -> Tensor:
        targets = self.y[nodes].clamp_min(0).flatten()
        return cross_entropy(output.flatten(0, 1), targets, reduction="none").view(nodes.shape)

    def score(self, output: Tensor, mask: Tensor, statistics: Statistics) -> Tensor:
        return accuracy(output, self.y, mask)

    def surprise(self, output: Tensor, mask: Tensor, statistics: Statistics) -> Tensor:
        return surprise(output, self.y, mask)

    def shown(self, mask: Tensor, statistics: Statistics) -> Tensor:
        return one_hot(self.y.clamp_min(0), self.outputs) * mask.unsqueeze(-1)

    def observed(self, mask: Tensor, statistics: Statistics) -> Tensor:
        return self.shown(mask, statistics)  # a one-hot row is never 0

    def answers(self, output: Tensor, statistics: Statistics, temperature: float = 1.0) -> Tensor:
        return (output / temperature).softmax(-1)

    def mean_loss(self, answers: Tensor, nodes: Tensor) -> Tensor:
        return nll_loss(answers.clamp_min(_TINY).log(), self.y[nodes].to(answers.device))


class Regression(Task):
    """Numbers: the squared error of targets that are standardised on the training nodes; R².

    R² is the mean over the targets of 1 − Σ(y − f)² / Σ(y − ȳ)², sums over the masked nodes. Where a target
    is the same on all of them, 0 counts, or 1 if it is met exactly.

    Targets are float64 until they are standardised: the seconds of a day, counted from 1970, are equal in
    float32.
    """

    name, metric, percent = "regression", "R²", False
    stored, dtype = ("shift", "scale"), torch.float64

    def __init__(self, y: Tensor, names: list[str]) -> None:
        super().__init__((y.unsqueeze(-1) if y.dim() == 1 else y).double(), names)
        self._values = self.y.nan_to_num(0.0)

    def statistics(self, train: Tensor) -> Statistics:
        each = [_mean_and_deviation(self._values[nodes]) for nodes in train]
        shift, scale = (torch.stack(parts) for parts in zip(*each, strict=True))
        return {"shift": shift, "scale": scale}

    def _standard(self, values: Tensor, statistics: Statistics) -> Tensor:
        """Targets ``(..., m, outputs)`` in the units of each member ``(P, m, outputs)``, float64."""
        shift, scale = (statistics[key].unsqueeze(-2) for key in ("shift", "scale"))
        return (values - shift) / scale

    def losses(self, output: Tensor, nodes: Tensor, statistics: Statistics) -> Tensor:
        wanted = self._standard(self._values[nodes], statistics).to(output.dtype)
        return (output - wanted).square().mean(-1)

    def score(self, output: Tensor, mask: Tensor, statistics: Statistics) -> Tensor:
        return r_squared(output, self._standard(self._values, statistics), mask)

    def surprise(self, output: Tensor, mask: Tensor, statistics: Statistics) -> Tensor:
        error = (output - self._standard(self._values, statistics)).square().mean(-1)
        return _squeezed(error, mask, output)

    def shown(self, mask: Tensor, statistics: Statistics) -> Tensor:
        return self._standard(self._values, statistics) * mask.unsqueeze(-1)

    def answers(self, output: Tensor, statistics: Statistics, temperature: float = 1.0) -> Tensor:
        shift, scale = (statistics[key].unsqueeze(-2) for key in ("shift", "scale"))
        return output.double() * scale + shift

    def mean_loss(self, answers: Tensor, nodes: Tensor) -> Tensor:
        # of a normal distribution around the answer, with the variance that fits best, up to a constant
        wanted = self._values[nodes].to(answers)
        error = (answers - wanted).square().mean(0)
        spread = (wanted - wanted.mean(0)).square().mean(0)
        return 0.5 * (error / torch.where(spread > 0, spread, 1.0)).clamp_min(_TINY).log().mean()


class Multilabel(Task):
    """Any of several labels: binary cross-entropy of each; F1 over all decisions together (micro-F1)."""

    name, metric = "multilabel", "micro-F1"

    def __init__(self, y: Tensor, names: list[str]) -> None:
        super().__init__(y.float(), names)
        self._values = self.y.nan_to_num(0.0)

    def losses(self, output: Tensor, nodes: Tensor, statistics: Statistics) -> Tensor:
        return binary_cross_entropy_with_logits(output, self._values[nodes], reduction="none").mean(-1)

    def score(self, output: Tensor, mask: Tensor, statistics: Statistics) -> Tensor:
        chosen, wanted = (output > 0) & mask.unsqueeze(-1), (self._values > 0) & mask.unsqueeze(-1)
        right = total((chosen & wanted).sum((-2, -1))).double()
        made = total(chosen.sum((-2, -1)) + wanted.sum((-2, -1)))
        # with neither labels nor choices every decision is right
        found = torch.where(made > 0, 2 * right / made.clamp_min(1), 1.0)
        return found.masked_fill(~somewhere(mask.any(-1)), torch.nan)

    def surprise(self, output: Tensor, mask: Tensor, statistics: Statistics) -> Tensor:
        target = self._values.expand_as(output)
        loss = binary_cross_entropy_with_logits(output, target, reduction="none").mean(-1).double()
        return _squeezed(loss, mask, output)

    def shown(self, mask: Tensor, statistics: Statistics) -> Tensor:
        return self._values * mask.unsqueeze(-1)

    def answers(self, output: Tensor, statistics: Statistics, temperature: float = 1.0) -> Tensor:
        return (output / temperature).sigmoid()

    def mean_loss(self, answers: Tensor, nodes: Tensor) -> Tensor:
        # a mean of probabilities may round to more than 1
        return binary_cross_entropy(answers.clamp(0, 1), self._values[nodes].to(answers))


def _mean_and_deviation(values: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of values ``(m, outputs)``; 1 where they are all the same."""
    # on the device of the values: a group that Ray makes for GPUs takes no other tensors
    count = int(total(torch.tensor(len(values), device=values.device)))
    if not count:
        return values.new_zeros(values.shape[1]), values.new_ones(values.shape[1])
    first = _first(values)
    rest = values - first  # small beside large values, and exactly 0 where all are the same
    mean = total(rest.sum(0)) / count
    deviation = (total((rest - mean).square().sum(0)) / count).sqrt()
    return first + mean, torch.where(deviation > 0, deviation, 1.0)


def _first(values: Tensor) -> Tensor:
    """One of the values ``(m, outputs)``, the same on all parts: the first, and on parts the smallest."""
    if active_part() is None:
        return values[0]
    return smallest(values.amin(0) if len(values) else values.new_full(values.shape[1:], torch.inf))


def _squeezed(loss: Tensor, mask: Tensor, output: Tensor) -> Tensor:
    """Mean loss over the masked nodes squeezed into [0, 1]; infinite where an output is not finite."""
    return squeezed(total(torch.where(mask, loss, 0.0).sum(-1)), mask, output)


def r_squared(found: Tensor, wanted: Tensor, mask: Tensor) -> Tensor:
    """Coefficient of determination on masked nodes, mean over the targets; NaN where there are none.

    It is at least ``LOWEST``.
    """
    weight = mask.unsqueeze(-1).double()
    values = wanted.double()
    centre = sum_nodes(values * weight) / sum_nodes(weight).clamp_min(1)
    spread = sum_nodes((values - centre).square() * weight).squeeze(-2)
    error = sum_nodes(torch.where(mask.unsqueeze(-1), (found.double() - values).square(), 0.0)).squeeze(-2)
    each = torch.where(spread > 0, 1 - error / torch.where(spread > 0, spread, 1.0), (error == 0).double())
    found = each.mean(-1).nan_to_num(LOWEST).clamp_min(LOWEST)
    return found.masked_fill(~somewhere(mask.any(-1)), torch.nan)


TASKS: dict[str, type[Task]] = {task.name: task for task in (Classification, Regression, Multilabel)}


def make_task(data: Data) -> Task:
    """The task of a graph with checked labels."""
    name, y = task_of(data), data.y
    if name == "classification":
        labels = y[y >= 0]
        if labels.numel() == 0:
            raise DataError("the data has no labels: give some nodes a class to learn from.")
        named = data.get("class_names") or [str(k) for k in range(int(labels.max()) + 1)]
        return Classification(y, [str(text) for text in named][: int(labels.max()) + 1])
    if not bool(known(y).any()):
        raise DataError("the data has no labels: give some nodes a target to learn from.")
    width = 1 if y.dim() == 1 else y.shape[1]
    named = data.get("target_names") or [str(k) for k in range(width)]
    return TASKS[name](y, [str(text) for text in named])
