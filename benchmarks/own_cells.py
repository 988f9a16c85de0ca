"""Cells of ``own.py``: a data set at a label rate, several draws of the labels, and trainings on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from own_strangers import STRANGERS
from sklearn.decomposition import TruncatedSVD
from torch import Tensor
from torch_geometric.data import Data

from graphdiffusion import Config
from graphdiffusion.data import Split, load_data, number_of_splits, stack_splits
from graphdiffusion.ensemble.baselines import as_matrix
from graphdiffusion.nn import as_features
from graphdiffusion.training import Member, Population
from graphdiffusion.training.memory import chunk_size, free_memory
from graphdiffusion.training.problem import Problem, Problems

PAPER = ("cora", "citeseer", "pubmed", "coauthor-cs", "computers", "photo")
OTHERS = ("actor", "chameleon", "squirrel", "texas", "wisconsin", "cornell")
RATES = (5, 20, 100, 60)  # labels a class; the last one in percent


def rates_of(data: Data) -> tuple[int, ...]:
    """Label rates at which every class leaves as many nodes for the test; 0 stands for fixed splits."""
    if number_of_splits(data) > 1:
        return (0,)
    smallest = int(data.y[data.y >= 0].bincount().min())
    return tuple(rate for rate in RATES if rate == 60 or smallest >= 2 * rate)


def labels_of(data: Data, rate: int, draw: int) -> tuple[Tensor, Tensor]:
    """Nodes with a known label, and test nodes, each ``(n,)`` bool."""
    if number_of_splits(data) > 1:
        return (data.train_mask | data.val_mask)[:, draw], data.test_mask[:, draw]
    y = data.y
    generator = torch.Generator().manual_seed(1000 + draw)
    known = torch.zeros(len(y), dtype=torch.bool)
    for k in y[y >= 0].unique().tolist():
        nodes = (y == k).nonzero().flatten()
        count = round(0.6 * len(nodes)) if rate == 60 else rate
        known[nodes[torch.randperm(len(nodes), generator=generator)[:count]]] = True
    return known, (y >= 0) & ~known


def opened(name: str, root: str | None) -> Data:
    """A data set by name; ``cora~16`` has its features reduced to 16 numbers, as own graphs often have."""
    if name in STRANGERS:
        return STRANGERS[name]()
    plain, _, width = name.partition("~")
    data = load_data(plain, root)
    if width:
        matrix = as_matrix(as_features(data.x))
        data.x = torch.from_numpy(TruncatedSVD(int(width), random_state=0).fit_transform(matrix)).float()
        data.name = name
    return data


class Cell:
    """A data set at a label rate.

    Attributes:
        known: Nodes with a known label in each draw, ``(draws, n)``.
        test: All others with a label.
        base: Options of the data.
    """

    def __init__(self, data: Data, rate: int, draws: int, device: torch.device) -> None:
        self.data, self.rate, self.draws, self.device = data, rate, draws, device
        self.problems = Problems(data, device)
        self.known, self.test = (
            torch.stack(part)
            for part in zip(*(labels_of(data, rate, d) for d in range(draws)), strict=True)
        )
        self.base: dict[str, Any] = {"data": data.name.partition("~")[0], "split": "folds"}

    def labels(self, draw: int) -> Tensor:
        """What a user with this draw has: -1 where the label is not known."""
        return torch.where(self.known[draw], self.data.y, -1)

    def accuracies(self, answers: Tensor) -> list[float]:
        """Of answers ``(draws, n, classes)`` on the test nodes of each draw."""
        right = answers.argmax(-1) == self.data.y
        return [float(right[d][self.test[d]].double().mean()) for d in range(self.draws)]

    def whole(self, draws: Sequence[int], fits: int) -> tuple[list[Member], Split]:
        """Trainings on all labels, several for each draw."""
        none = torch.zeros_like(self.known[0])
        each = [Split(self.known[d], none, self.test[d]) for d in draws for _ in range(fits)]
        return [Member(k, 0, k) for _ in draws for k in range(fits)], stack_splits(each)


def train(
    cell: Cell, config: Config, members: Sequence[Member], split: Split, ends: Sequence[int] | None = None
) -> dict[str, Tensor]:
    """Train members together: each for ``ends`` epochs, or as long as validation says.

    Returns:
        ``outputs`` ``(members, n, classes)``, and ``epochs`` up to the best one.
    """
    problem, size = cell.problems.of(config), len(members)
    fit = chunk_size(problem, config, size) if cell.device.type == "cuda" else size
    parts = []
    for first in range(0, size, fit):
        own = slice(first, first + fit)
        masks = Split(split.train[own], split.val[own], split.test[own])
        parts.append(_together(problem, config, members[own], masks, None if ends is None else ends[own]))
        free_memory()
    return {key: torch.cat([part[key] for part in parts]) for key in parts[0]}


def _together(
    problem: Problem, config: Config, members: Sequence[Member], split: Split, ends: Sequence[int] | None
) -> dict[str, Tensor]:
    numbered = [Member(k, member.split, member.init) for k, member in enumerate(members)]
    population = Population(problem, config, numbered, split)
    last = config.epochs if ends is None else max(ends)
    outputs: Tensor | None = None
    for epoch in range(1, last + 1):
        failure = population.step()
        if failure is not None:
            raise failure
        if ends is not None and epoch in ends:
            now = population.outputs(population.stack.tensors).softmax(-1)
            which = torch.tensor([end == epoch for end in ends], device=now.device)
            outputs = now if outputs is None else torch.where(which[:, None, None], now, outputs)
        if ends is None and epoch % 10 == 0 and bool(population.finished().all()):
            break
    if outputs is None:
        outputs = population.outputs(population.final()[0]).softmax(-1)
    return {"outputs": outputs.float().cpu(), "epochs": population.best_epoch.cpu() + 1}
