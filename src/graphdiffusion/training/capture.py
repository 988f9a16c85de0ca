"""One CUDA graph for a whole epoch: nothing is read from the device between two of its kernels."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import torch

from ..errors import SolverError
from ..graph import Graph
from ..ops import torch as torch_backend
from ..ops.backends import backend
from ..partition.part import Part
from ..solvers import Room
from .optimisers import REACH

if TYPE_CHECKING:
    from .config import Config
    from .population import Population

GROWTH = 2  # terms or steps to spare once they have grown beyond a capture
COST = 6.0  # epochs that a new capture costs, roughly: smaller ones must pay for themselves

# Shapes of steps that have run on a graph: their kernels are compiled and its work lists are made.
_seen: WeakKeyDictionary[Graph, set[tuple[Config, int]]] = WeakKeyDictionary()


def can_capture(population: Population) -> bool:
    """On CUDA with our kernels, for models that say that a step may be captured."""
    stack = population.stack
    on_gpu = population.loss.device.type == "cuda" and backend(population.loss) is not torch_backend
    on_gpu = on_gpu and not isinstance(population.problem.graph, Part)  # exchanges are not captured
    on_gpu = on_gpu and population.batches is None  # other subgraphs in every epoch
    return on_gpu and stack.model.capturable and bool(stack.takes_members()) and has_bound(population)


def has_bound(population: Population) -> bool:
    """Whether it is known before an update how much room the model needs after it."""
    learns = population.stack.model.learns_capacity()
    return math.isfinite(REACH[population.config.optimiser]) or not learns


def needed_room(population: Population) -> Room | None:
    """Products or steps of the members that need most, in this step; ``None`` where nothing varies.

    It trains with the parameters of now and validates with the next: they may grow by one update.

    Raises:
        SolverError: a member needs more than it may take.
    """
    optimiser = population.optimiser
    reach = REACH[population.config.optimiser] if population.stack.model.learns_capacity() else 0.0
    furthest = max(population.fractions or [1.0])
    return population.stack.call(
        "capacity", population.stack.tensors, reach * optimiser.rate.double(), furthest
    )


class CapturedStep:
    """Replays :meth:`Population.compute`; captured anew when the model needs more room, or much less."""

    def __init__(self, population: Population) -> None:
        self.population = population
        self.graph: torch.cuda.CUDAGraph | None = None
        self.room: Room | None = None
        self.spare: dict[int, int] = {}  # where more was needed than there was room for, more may be again

    def replay(self) -> bool:
        """Take a step; False if it cannot be captured this time, and nothing was done."""
        seen = _seen.setdefault(self.population.problem.graph, set())
        shape = (self.population.config, len(self.population))
        if shape not in seen:  # what a first step prepares can be no part of a capture
            seen.add(shape)
            return False
        if self.graph is None or self.population.stack.model.learns_capacity():
            try:
                needed = needed_room(self.population)
            except SolverError:  # the step itself finds the members
                return False
            if self._recapture(needed):
                self._capture(None if needed is None else self._with_spare(needed))
        assert self.graph is not None
        self.graph.replay()
        return True

    def _recapture(self, needed: Room | None) -> bool:
        if self.graph is None or needed is None or self.room is None:
            return self.graph is None
        outgrown = [k for k, (now, room) in enumerate(zip(needed, self.room, strict=True)) if now > room]
        if outgrown:
            self.spare |= dict.fromkeys(outgrown, GROWTH)
            return True
        left = self.population.config.epochs - self.population.epochs_done
        cost = math.prod(self.room)
        return (cost - math.prod(self._with_spare(needed))) * left > COST * cost

    def _with_spare(self, needed: Room) -> Room:
        return tuple(room + self.spare.get(k, 0) for k, room in enumerate(needed))

    def _capture(self, room: Room | None) -> None:
        self.room = room
        self.graph = None  # its memory can be used again
        graph = torch.cuda.CUDAGraph()
        # relaxed: a number of terms may need a kernel that is loaded only now
        with (
            with_capacity(self.population, room),
            torch.cuda.graph(graph, capture_error_mode="relaxed"),
        ):
            self.population.compute()
        self.graph = graph


@contextmanager
def with_capacity(population: Population, room: Room | None) -> Iterator[None]:
    """Inside, the model has so much room for steps or products, whatever T is."""
    face = population.stack.face
    plain = face.model
    if room is not None:
        face.model = plain.with_capacity(room)
    try:
        yield
    finally:
        face.model = plain
