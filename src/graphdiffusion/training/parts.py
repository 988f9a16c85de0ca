"""A training on the parts of a graph: every process trains, and the first one keeps the folder.

Parameters, optimiser, losses and scores are the same in all processes. So a checkpoint is that of a
training in one process, and a run may go on with another number of parts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ..nn.modules import own_rows
from ..partition.part import Part
from ..partition.whole import from_first, use_part
from .assess import assess
from .chunks import Done, RunFolder
from .config import Config
from .population import Population
from .problem import Member, Problem
from .summary import Result


def on_part(problem: Problem, part: Part) -> Problem:
    """The problem of a whole graph as the process of one part has it."""
    task = type(problem.task)(problem.y[part.nodes.to(problem.y.device)], problem.task.names)
    return replace(problem, x=own_rows(problem.x, part.nodes), task=task, graph=part, _prepared={})


class SharedFolder:
    """A :class:`RunFolder` for the processes of all parts: the first one reads and writes.

    Args:
        folder: The folder, in the first process; ``None`` in the others, or where nothing is kept.
    """

    def __init__(self, folder: RunFolder | None) -> None:
        self.folder = folder
        self.size: int | None = None

    def finished(self, problem: Problem, config: Config, members: Sequence[Member]) -> list[list[Result]]:
        """As in :class:`RunFolder`, in all processes."""
        found: Any = None
        if self.folder is not None:
            found = self.folder.finished(problem, config, members), self.folder.size
        results, self.size = from_first(found)
        return results

    def restore(self, first: int, population: Population) -> Done:
        """As in :class:`RunFolder`, in all processes."""
        found: Any = None
        if self.folder is not None:
            with use_part(None):  # nothing is exchanged while the others wait for the first process
                done = self.folder.restore(first, population)
            numbers = [member.number for member in population.members]
            found = numbers, _plain(population.state()), done
        numbers, state, done = from_first(found)
        left = [k for k, member in enumerate(population.members) if member.number in numbers]
        population.select(torch.tensor(left, device=population.loss.device))
        population.load({name: v.to(population.loss.device) for name, v in state.items()})
        return done

    def note(self, line: Mapping[str, Any]) -> None:
        if self.folder is not None:
            self.folder.note(line)

    def checkpoint(self, first: int, members: Sequence[Member], population: Population, done: Done) -> None:
        if self.folder is not None:
            self.folder.checkpoint(first, members, population, done)

    def store(self, first: int, members: Sequence[Member], done: Done) -> list[Result]:
        if self.folder is not None:
            return self.folder.store(first, members, done)
        return [done[member.number][0] for member in members]

    def conclude(self, problem: Problem, config: Config, results: Sequence[Result]) -> None:
        """As in :class:`RunFolder`: all processes compute the answers, the first one writes."""
        states = from_first(None if self.folder is None else self.folder.states(len(results)))
        found = assess(problem, config, results, states)
        if self.folder is not None:
            with use_part(None):
                self.folder.finish(problem, config, results, states, found)


def _plain(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.detach().cpu() for name, value in state.items()}
