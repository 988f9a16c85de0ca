"""The answers of trained members for every node: their mean, and its calibration."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from scipy.optimize import minimize_scalar
from torch import Tensor

from ..partition.part import Part
from ..partition.whole import gathered
from .config import Config
from .memory import chunk_size, in_chunks
from .population import Population
from .problem import Member, Problem
from .tasks import Statistics, Task
from .template import TASK

# Temperatures lie between these. Beyond them validation has no error at all, or tells nothing.
COLDEST, HOTTEST = 0.05, 20.0

# Few nodes tell little of a temperature, or of weights: a penalty in units of one node's loss keeps them
# near to what they would be without any.
CAUTION = 3.0

KEPT = 1 << 26  # bytes of outputs that are computed once and kept for the next pass


@dataclass(frozen=True, eq=False)
class Answer:
    """The outputs of one member, ``(n, outputs)``, and the nodes ``(n,)`` of its validation and test.

    Its weight in means is relative to that of other members.
    """

    output: Tensor
    statistics: Statistics
    val: Tensor
    test: Tensor
    weight: float = 1.0


Visit = Callable[[Answer], None]
Answers = Callable[[Visit], None]  # calls a function with one answer after the other


def answers_of(
    problem: Problem,
    config: Config,
    members: Sequence[Member],
    states: Mapping[str, Tensor],
    weight: float = 1.0,
) -> Answers:
    """The answers of the members of one configuration, computed when they are first asked for.

    Where this is one part of a graph, the first process has the answers of all nodes, and others have none.

    Args:
        members: Which.
        states: Their saved tensors, stacked in this order.
        weight: Of each of them.
    """
    place = {member.number: k for k, member in enumerate(members)}
    device = problem.y.device
    parted = isinstance(problem.graph, Part)
    # an exchange between parts is made once: the first process keeps all answers
    small = parted or 4 * len(members) * problem.num_nodes * problem.out_channels <= KEPT
    kept: list[Answer] | None = None

    def together(visit: Visit) -> None:
        nonlocal kept
        if kept is not None:
            for answer in kept:
                visit(answer)
            return
        found: list[Answer] = []

        def chunk(chosen: list[Member]) -> None:
            population = Population(problem, config, chosen)
            own = torch.tensor([place[member.number] for member in chosen])
            saved = population.stack.saved
            state = {saved[k]: v[own].to(device) for k, v in states.items() if not k.startswith(TASK)}
            own_rows = population.outputs(population.stack.tensors | state)
            output, *masks = (gathered(v, 1) for v in (own_rows, population.val, population.test))
            if output is None:  # another process has all rows
                return
            output, whole_masks = output.cpu(), [mask.cpu() for mask in masks if mask is not None]
            for k in range(len(chosen)):
                statistics = {name: value[k].cpu() for name, value in population.statistics.items()}
                answer = Answer(output[k], statistics, whole_masks[0][k], whole_masks[1][k], weight)
                visit(answer)
                if small:
                    found.append(answer)

        in_chunks(members, chunk_size(problem, config, len(members)), chunk)
        kept = found if small else None

    return together


def mean_answer(task: Task, answers: Answers, part: str, temperature: float = 1.0) -> tuple[Tensor, Tensor]:
    """Nodes of a part, ``"val"`` or ``"test"``, and the mean answer of the members that have them there.

    So no answer counts for a node that its member has learnt from.
    """
    total = torch.zeros(len(task.y), task.outputs, dtype=torch.float64)
    weight = torch.zeros(len(task.y), dtype=torch.float64)

    def visit(answer: Answer) -> None:
        # a member that cannot be integrated gives no answer
        nodes = (getattr(answer, part) & answer.output.isfinite().all(-1)).nonzero().flatten()
        own = task.answers(answer.output[nodes], answer.statistics, temperature).double()
        total[nodes] += answer.weight * own
        weight[nodes] += answer.weight

    answers(visit)
    nodes = weight.nonzero().flatten()
    return nodes, total[nodes] / weight[nodes].unsqueeze(-1)


def fit_temperature(task: Task, answers: Answers) -> float:
    """The temperature T at which the mean answers on the m validation nodes are best: the least

        m · loss + CAUTION · (log T)²

    Outputs are divided by it before they become probabilities. 1 where there are no validation nodes, or no
    probabilities.
    """
    if task.name == "regression":
        return 1.0
    found: list[tuple[Tensor, Tensor, Tensor]] = []

    def visit(answer: Answer) -> None:
        nodes = (answer.val & answer.output.isfinite().all(-1)).nonzero().flatten()
        weights = torch.full((len(nodes), 1), answer.weight, dtype=torch.float64)
        found.append((nodes, answer.output[nodes].double(), weights))

    answers(visit)
    nodes, outputs, weights = (torch.cat(parts) for parts in zip(*found, strict=True))
    if not len(nodes):
        return 1.0
    known, place = nodes.unique(return_inverse=True)
    total = torch.zeros(len(known), 1, dtype=torch.float64).index_add_(0, place, weights)
    shares = weights / total[place]

    def loss(log: float) -> float:
        own = shares * task.answers(outputs, {}, math.exp(log))
        mean = torch.zeros(len(known), task.outputs, dtype=torch.float64).index_add_(0, place, own)
        return len(known) * float(task.mean_loss(mean, known)) + CAUTION * log**2

    best = minimize_scalar(loss, bounds=(math.log(COLDEST), math.log(HOTTEST)), method="bounded")
    return float(math.exp(best.x)) if best.fun < loss(0.0) else 1.0


def joined(parts: Iterable[Answers]) -> Answers:
    """The answers of several configurations, one after the other."""
    listed = list(parts)

    def together(visit: Visit) -> None:
        for part in listed:
            part(visit)

    return together
