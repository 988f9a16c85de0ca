"""Trainings with a clock, in which a failure is a result."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

import torch

from ..solvers import Solver
from ..training.config import Config
from ..training.memory import chunk_size, in_chunks
from ..training.population import Population
from ..training.problem import Member, Problem
from .clock import seconds
from .results import Tick
from .scheme_errors import exact_end, integrated, model_of, start

TIMED = 2  # epochs before the clock starts: they compile kernels, and capture


class Trainings:
    """Trains members as the :class:`~graphdiffusion.training.Trainer`, with a clock and reasons of failure.

    Args:
        solver: In place of the one in the configuration; ``None``: as it is.
        limit: Seconds after which members that are trained together are stopped.

    Attributes:
        runs: What each member reached, by its number: ``test`` in percent at the best validation, or
            ``None``; ``epochs``; ``reason``, why it ended early.
        first: Of the trained equation of the first member the error of x(T), and counts of its integral.
        evaluations: Of the forward pass, in each epoch.
    """

    def __init__(
        self, problem: Problem, config: Config, solver: Solver | None, limit: float, tick: Tick
    ) -> None:
        self.problem, self.config, self.solver, self.limit, self.tick = problem, config, solver, limit, tick
        self.runs: dict[int, dict[str, Any]] = {}
        self.first: dict[str, Any] = {}
        self.evaluations: list[int] = []
        self.clocks: list[list[float]] = []  # seconds of the epochs of each chunk
        self.together = self.members = 0

    @property
    def epoch_seconds(self) -> float | None:
        """Mean over chunks and epochs, without the first epochs; ``None`` where there are no others."""
        means = [fmean(own[TIMED:]) for own in self.clocks if len(own) > TIMED]
        return fmean(means) if means else None

    def run(self, members: Sequence[Member]) -> None:
        self.members = len(members)
        in_chunks(members, chunk_size(self.problem, self.config, len(members)), self._train)

    def _train(self, members: list[Member]) -> None:
        population = Population(self.problem, self.config, members)
        if self.solver is not None:
            population.stack.model.diffusion.solver = self.solver  # type: ignore[union-attr]
        self.together = max(self.together, len(members))
        clock: list[float] = []
        while len(population) and population.epochs_done < self.config.epochs:
            device = population.loss.device
            began = seconds(device)
            failure = population.step()
            clock.append(seconds(device) - began)
            diverged = ~torch.isfinite(population.loss).cpu()
            self.evaluations.append(population.evaluations)
            if failure is not None and failure.members is not None:
                failed = failure.members.cpu()
                self._release(population, failed, type(failure).__name__)
                diverged = diverged[~failed]
            if len(population):
                self._release(population, diverged, "NonFiniteError")
            done = len(self.runs) + len(population) * population.epochs_done / self.config.epochs
            self.tick(done / self.members)
            if sum(clock) > self.limit and population.epochs_done < self.config.epochs:
                self._release(population, torch.ones(len(population), dtype=torch.bool), "TimeLimit")
        self._release(population, torch.ones(len(population), dtype=torch.bool), "")
        self.clocks.append(clock)

    def _release(self, population: Population, ended: torch.Tensor, reason: str) -> None:
        """Take what members have reached that end here; the others go on."""
        if not bool(ended.any()):
            return
        state, _, test = population.final()
        for k in ended.nonzero().flatten().tolist():
            member, kept = population.members[k], int(population.best_epoch[k]) >= 0
            score = float(test[k])
            self.runs[member.number] = {
                "test": 100 * score if kept and math.isfinite(score) else None,
                "epochs": population.epochs_done,
                "reason": reason,
            }
            if member.number == 0:
                self.first = self._measured(population.saved(state, k), member)
        population.select((~ended).nonzero().flatten().to(population.loss.device))

    @torch.no_grad()
    def _measured(self, state: Mapping[str, torch.Tensor], member: Member) -> dict[str, Any]:
        model = model_of(self.problem, self.config, state, member)
        solver = model.diffusion.solver if self.solver is None else self.solver
        x, before = start(model, self.problem), getattr(solver, "unconverged", 0)
        exact = exact_end(model, self.problem, x)
        flow = model.diffusion.bind(x, self.problem.graph)
        found = integrated(flow, x, self.config.time, solver, exact, gradient=False)
        found["alpha"] = float(model.diffusion.equation.rate().max())
        found["unconverged"] = getattr(solver, "unconverged", 0) - before
        return {key: value for key, value in found.items() if key not in ("cost", "evaluations")} | {
            "end_evaluations": found["evaluations"]
        }
