"""Training on random groups of the parts of a graph: an approximation for graphs too large for memory.

The graph is cut once. In every epoch the parts are dealt into groups at random, and each group gives one
update of the parameters, on the subgraph of its nodes: edges to other groups are left out. Validation and
test are on the whole graph. The groups depend on the seed of the run and on the epoch alone: all members of
a population have the same ones, together as alone, and a run that was stopped goes on with them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..errors import ConfigError
from ..graph import Graph
from ..nn import Model, SparseFeatures
from ..nn.modules import Features, own_rows
from ..ops.noise import derive
from ..options import arguments_of
from ..partition.cut import cut
from ..partition.induced import induced
from ..partition.part import Part
from .config import Config
from .problem import Problem
from .tasks import Task

PARTS = 4  # for each group, where no number is given
_DEAL, _GROUP = 11, 101  # salts of keys


@dataclass(frozen=True, eq=False)
class View:
    """A graph as a model is given it: the whole one, or the subgraph of a group.

    Attributes:
        graph: The graph.
        x: Features of its nodes, as the model takes them.
        prepared: What :meth:`Model.prepare` gave for it.
        task: The targets of its nodes.
    """

    graph: Graph
    x: Features
    prepared: Any
    task: Task


@dataclass(frozen=True, eq=False)
class Batch:
    """What one update of the parameters is computed from.

    Attributes:
        view: The graph.
        key: Of the random numbers of each member, ``(P,)``.
        nodes: Training nodes, padded to one length, ``(P, m)``.
        weight: Of these nodes in the loss; of padding 0.
        shown: Nodes with labels that the model may see, ``(P, n)`` bool.
        total: What the sum over the nodes is divided by, ``(P,)``.
    """

    view: View
    key: Tensor
    nodes: Tensor
    weight: Tensor
    shown: Tensor
    total: Tensor


class Batches:
    """The groups of a training.

    Args:
        problem: The whole graph.
        config: With ``batches`` of at least 1.
        model: That is trained.
    """

    def __init__(self, problem: Problem, config: Config, model: Model) -> None:
        if isinstance(problem.graph, Part):
            raise ConfigError(refused_with_parts(config))
        if "num_nodes" in arguments_of(type(model)):
            raise ConfigError(
                f"the model {config.model} has parameters of each node, and a group of parts has fewer "
                "nodes than the graph: leave out batches."
            )
        self.count, self.seed, self.model = config.batches, config.seed, model
        parts = config.batch_parts or min(PARTS * self.count, problem.num_nodes)
        if parts < self.count:
            raise ConfigError(
                f"{self.count} batches need as many parts of the graph, got {parts}: take fewer batches or "
                "more batch_parts."
            )
        method = config.batch_cut
        key = ("batches", parts, method, self.seed)
        self.part = problem.once(
            key, lambda: cut(problem.graph.to("cpu"), parts, method, self.seed).to(problem.graph.device)
        )
        self.parts = parts

    def deal(self, epoch: int) -> Tensor:
        """The group of each part in an epoch, ``(parts,)``: as many parts in each, give or take one."""
        key = derive(derive(torch.tensor(self.seed), _DEAL), epoch)
        order = torch.argsort(derive(key, torch.arange(self.parts)))
        group = torch.empty_like(order)
        group[order] = torch.arange(self.parts) % self.count
        return group.to(self.part.device)

    def groups(self, epoch: int) -> Iterator[Tensor]:
        """The nodes of each group in an epoch, rising; every node is in one group."""
        group = self.deal(epoch)[self.part]
        for number in range(self.count):
            yield (group == number).nonzero().flatten()

    def of(self, whole: Batch, train: Tensor, epoch: int) -> Iterator[Batch]:
        """A batch for each group in an epoch, from that of the whole graph; one is held at a time.

        The mean of the losses of all groups is a mean over all training nodes, as on the whole graph.

        Args:
            whole: The batch of the whole graph.
            train: Training nodes, ``(P, n)`` bool.
            epoch: Counted from 0.
        """
        weight = whole.weight.new_zeros(train.shape).scatter_(1, whole.nodes, whole.weight)
        for number, nodes in enumerate(self.groups(epoch)):
            own, _ = padded(train[:, nodes])
            yield Batch(
                self.view(whole.view, nodes),
                whole.key if number == 0 else derive(whole.key, _GROUP + number),
                own,
                weight[:, nodes].gather(1, own),
                whole.shown[:, nodes],
                whole.total / self.count,
            )

    def view(self, whole: View, nodes: Tensor) -> View:
        """The subgraph of some nodes."""
        graph = induced(whole.graph, nodes)
        x = own_rows(whole.x, nodes)
        if isinstance(x, SparseFeatures):
            x = replace(x, places=None)  # dropout has places in the subgraph, as of dense features
        with torch.no_grad():
            prepared = self.model.prepare(graph)
        return View(graph, x, prepared, type(whole.task)(whole.task.y[nodes], whole.task.names))


def padded(mask: Tensor) -> tuple[Tensor, Tensor]:
    """The places where a mask ``(P, n)`` is set, padded to ``(P, m)``, and which of them are no padding."""
    counts = mask.sum(1)
    order = torch.argsort((~mask).to(torch.int8), dim=1, stable=True)
    nodes = order[:, : int(counts.max())]
    return nodes, torch.arange(nodes.shape[1], device=mask.device) < counts[:, None]


def refused_with_parts(config: Config) -> str:
    """Why a training on parts has no batches."""
    return (
        f"batches is {config.batches}, an approximation in one process, and --parts is the exact training "
        "in several: leave out one of the two."
    )
