"""A training step as a CUDA graph: one launch instead of thousands."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from ..graph import Graph
from ..nn.diffusion import SHORTEST
from ..ops import torch_backend
from ..ops.backends import backend
from ..solvers import Exponential, FixedStep
from ..solvers.exponential import default_tolerance, number_of_terms
from .optimisers import REACH

if TYPE_CHECKING:
    from .config import Config
    from .population import Population

GROWTH = 2  # terms or steps to spare once they have grown beyond a capture
COST = 6.0  # epochs that a new capture costs, roughly: smaller ones must pay for themselves

# Shapes of steps that have run on a graph: their kernels are compiled and its work lists are made.
_seen: WeakKeyDictionary[Graph, set[tuple[Config, int]]] = WeakKeyDictionary()


def can_capture(population: Population) -> bool:
    """On CUDA with our kernels, for solvers whose shape of computation does not depend on the state."""
    solver = population.face.model.diffusion.solver
    gradient = population.face.model.diffusion.gradient
    on_gpu = population.loss.device.type == "cuda" and backend(population.loss) is not torch_backend
    # the corrector of an implicit scheme asks the device whether it has converged
    fixed = isinstance(solver, FixedStep) and solver.explicit
    known = fixed or isinstance(solver, Exponential)
    return on_gpu and gradient == "backprop" and known and has_bound(population)


def has_bound(population: Population) -> bool:
    """Whether it is known before an update how much room the solver needs after it."""
    return math.isfinite(REACH[population.config.optimiser]) or not learns_room(population)


def learns_room(population: Population) -> bool:
    """Whether training changes how much room the solver needs."""
    learnt = {"model.diffusion.time"}
    if isinstance(population.face.model.diffusion.solver, Exponential):
        learnt.add("model.diffusion.equation.alpha.raw")
    return not learnt.isdisjoint(population.parameters)


class CapturedStep:
    """Replays :meth:`Population.compute`; captured anew when the solver needs more room, or much less."""

    def __init__(self, population: Population) -> None:
        self.population = population
        self.graph: torch.cuda.CUDAGraph | None = None
        self.room = -1
        self.spare = 0  # once more was needed than there was room for, more may be needed again

    def replay(self) -> None:
        seen = _seen.setdefault(self.population.problem.graph, set())
        shape = (self.population.config, len(self.population))
        if shape not in seen:  # what a first step prepares can be no part of a capture
            self.population.compute()
            seen.add(shape)
            return
        if self.graph is None or learns_room(self.population):
            needed = self._needed()
            left = self.population.config.epochs - self.population.epochs_done
            if self.graph is not None and needed > self.room:
                self.spare = GROWTH
            unused = self.room - needed - self.spare
            if self.graph is None or needed > self.room or unused * left > COST * self.room:
                self._capture(needed + self.spare)
        assert self.graph is not None
        self.graph.replay()

    def _needed(self) -> int:
        """Products or steps of the member that needs most, in this step.

        It trains with the parameters of now and validates with the next: they may grow by one update.
        """
        layer = self.population.face.model.diffusion
        optimiser = self.population.optimiser
        reach = REACH[self.population.config.optimiser] * optimiser.rate.double()
        time = self._grown("model.diffusion.time", reach).clamp_min(SHORTEST)
        longest = time * max(self.population.fractions or [1.0])
        if isinstance(layer.solver, Exponential):
            alpha = self._grown("model.diffusion.equation.alpha.raw", reach)
            alpha = torch.sigmoid(alpha) if layer.equation.alpha.bounded else alpha
            tolerance = default_tolerance(torch.float32)
            return number_of_terms(alpha * longest, tolerance, layer.solver.max_evaluations)
        assert isinstance(layer.solver, FixedStep)
        return layer.solver.longest(layer.solver.steps(longest))

    def _grown(self, name: str, reach: Tensor) -> Tensor:
        """A number of each member, ``(P,)``, as large as one update can make it if it is learnt."""
        learnt = self.population.parameters.get(name)
        value = self.population.constants[name] if learnt is None else learnt
        value = value.detach().double().flatten()
        return value if learnt is None else value + reach

    def _capture(self, room: int) -> None:
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
def with_capacity(population: Population, room: int) -> Iterator[None]:
    """Inside, the solver takes so many steps or products, whatever T is."""
    layer = population.face.model.diffusion
    plain, fixed = layer.solver, copy.copy(layer.solver)
    if isinstance(fixed, Exponential):
        fixed.terms = room
    else:
        assert isinstance(fixed, FixedStep)
        fixed.max_steps = room
    layer.solver = fixed
    try:
        yield
    finally:
        layer.solver = plain
