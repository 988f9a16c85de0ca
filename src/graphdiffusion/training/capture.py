"""A training step as a CUDA graph: one launch instead of thousands."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import torch

from ..solvers import Exponential, FixedStep
from ..solvers.exponential import default_tolerance, number_of_terms

if TYPE_CHECKING:
    from .population import Population

REVIEW = 10  # steps between two looks at how many terms or steps the solver needs
MARGIN = 1.08  # room for α and T to grow in the meantime
SLACK = 4  # terms or steps too many that are worth a new capture


def can_capture(population: Population) -> bool:
    """On CUDA, for solvers whose shape of computation does not depend on the state."""
    solver = population.face.model.diffusion.solver
    gradient = population.face.model.diffusion.gradient
    on_gpu = population.loss.device.type == "cuda"
    # the corrector of an implicit scheme asks the device whether it has converged
    fixed = isinstance(solver, FixedStep) and solver.explicit
    return on_gpu and gradient == "backprop" and (fixed or isinstance(solver, Exponential))


class CapturedStep:
    """Replays :meth:`Population.compute`; captured anew when the solver needs more room."""

    def __init__(self, population: Population) -> None:
        self.population = population
        self.graph: torch.cuda.CUDAGraph | None = None
        self.room = -1
        self.replays = 0

    def replay(self) -> None:
        learnt = "model.diffusion.time" in self.population.parameters  # T may grow fast
        if learnt or self.replays % REVIEW == 0:
            needed = self._needed(MARGIN)
            if not needed <= self.room < needed + SLACK:
                self._capture(needed)
        assert self.graph is not None
        self.graph.replay()
        self.replays += 1

    def _needed(self, margin: float) -> int:
        """Products or steps of the member that needs most, with room for what is learnt to grow."""
        layer = self.population.face.model.diffusion
        state = self.population.parameters | self.population.constants
        time = state["model.diffusion.time"].detach().double()
        if "model.diffusion.time" in self.population.parameters:
            time = time * margin
        longest = time * max(self.population.fractions or [1.0])
        if isinstance(layer.solver, Exponential):
            raw = state["model.diffusion.equation.alpha.raw"].detach().double().flatten()
            alpha = torch.sigmoid(raw).mul(margin).clamp_max(1.0) if layer.equation.alpha.bounded else raw
            return number_of_terms(alpha * longest, default_tolerance(torch.float32))
        assert isinstance(layer.solver, FixedStep)
        return int(torch.ceil(longest / layer.solver.step_size).nan_to_num(0.0).max())

    def _capture(self, room: int) -> None:
        population = self.population
        self.room = room
        layer = population.face.model.diffusion
        plain, fixed = layer.solver, copy.copy(layer.solver)
        if isinstance(fixed, Exponential):
            fixed.terms = room
        else:
            assert isinstance(fixed, FixedStep)
            fixed.max_steps = room
        before = {name: value.clone() for name, value in population.state().items()}
        done = population.epochs_done
        layer.solver = fixed
        try:
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):  # kernels are compiled and work lists made before the capture
                population.compute()
                population.load(before)
            torch.cuda.current_stream().wait_stream(stream)
            self.graph = None  # its memory can be used again
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                population.compute()
            self.graph = graph
        finally:
            layer.solver = plain  # what is computed outside the graph finds its own number of terms
        population.epochs_done = done
