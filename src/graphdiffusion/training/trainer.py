"""From a configuration to results: members in chunks that fit in memory, with checkpoints."""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from ..errors import ConfigError, SolverError
from .chunks import Done, RunFolder
from .config import Config
from .memory import chunk_size, in_chunks
from .parts import SharedFolder
from .population import Population
from .problem import Member, Problem
from .summary import Result, device_name

CHECKPOINT_SECONDS = 20.0  # between checkpoints; $GRAND_CHECKPOINT_SECONDS in its place

log = logging.getLogger("graphdiffusion")


class Watcher(Protocol):
    """Callbacks of a training."""

    def epoch(self, done: int, total: int, population: Population) -> None:
        """Called after every epoch of a chunk of members."""

    def finished(self, results: Sequence[Result]) -> None:
        """Called with the results of a chunk that has finished."""


class Trainer:
    """Trains members in chunks that fit in memory; where one does not, in smaller ones.

    Args:
        problem: Data, on the device that is to compute.
        config: Shared options.
        members: The trainings.
        folder: Where to keep everything, from ``open_folder``; ``None`` keeps nothing and cannot resume.
        watcher: Called at every epoch and for every finished chunk.
        chunk: Members trained together; by default as many as fit in memory.
    """

    def __init__(
        self,
        problem: Problem,
        config: Config,
        members: Sequence[Member],
        folder: RunFolder | SharedFolder | None = None,
        watcher: Watcher | None = None,
        chunk: int | None = None,
    ) -> None:
        self.problem, self.config, self.members = problem, config, list(members)
        self.folder, self.watcher = folder, watcher
        self.chunk = chunk
        self.saved = time.monotonic()
        self.pause = _checkpoint_seconds()
        self.results: list[Result] = []  # of chunks that are done

    def run(self) -> list[Result]:
        """Train all members, going on from what the folder holds.

        Where an integration fails, the member ends with its best state, or as it began if it has none.
        Where not even the first members get through their first epoch, the error is raised.
        """
        self.results = []
        if self.folder is not None:
            for results in self.folder.finished(self.problem, self.config, self.members):
                self._report(results)
        size = self.chunk or (self.folder.size if self.folder is not None else None)
        size = size or chunk_size(self.problem, self.config, len(self.members))
        device = device_name(self.problem.y.device)
        log.info("%d members on %s, %d at a time", len(self.members), device, size)
        in_chunks(self.members[len(self.results) :], size, self._train)
        if self.folder is not None:
            self.folder.conclude(self.problem, self.config, self.results)
        return self.results

    def _train(self, members: list[Member]) -> None:
        """Train a chunk: these members together."""
        first = len(self.results)
        population = Population(self.problem, self.config, members)
        done: Done = self.folder.restore(first, population) if self.folder is not None else {}
        every = 1 if population.loss.device.type == "cpu" else 10
        while len(population) and (epoch := population.epochs_done) < self.config.epochs:
            failure = population.step()
            if failure is not None:
                self._release(population, self._failed(population, failure), done, epoch)
            if len(population) and (epoch + 1) % every == 0:  # to read the figures is to synchronise
                self._note_epoch(first, len(members), epoch, population)
                self._release(population, population.finished(), done)
            self._checkpoint(first, members, population, done)
        if len(population):
            self._release(population, torch.ones(len(population), dtype=torch.bool), done)
        if self.folder is not None:
            self._report(self.folder.store(first, members, done))
        else:
            self._report([done[m.number][0] for m in members])

    def _failed(self, population: Population, error: SolverError) -> Tensor:
        """The members that end; the others have taken the step."""
        failed, epoch = error.members, population.epochs_done - 1
        assert failed is not None
        # no member has been trained so far: the options are wrong rather than the seeds unlucky
        if epoch == 0 and bool(failed.all()) and all(r.best_epoch < 0 for r in self.results):
            raise error
        log.warning("members %s end at epoch %d: %s", population.numbers(failed), epoch, error)
        return failed

    def _release(
        self, population: Population, ended: Tensor, done: Done, epochs: int | None = None
    ) -> None:
        """Take the results of members that have finished after so many epochs; the others go on."""
        ended = ended.cpu()
        if not bool(ended.any()):
            return
        state, val, test = population.final()
        values = [v.tolist() for v in (val, test, population.best_epoch)]
        epochs = population.epochs_done if epochs is None else epochs
        for k in ended.nonzero().flatten().tolist():
            member = population.members[k]
            own = population.saved(state, k)
            reached_val, reached_test = (None if math.isnan(v[k]) else v[k] for v in values[:2])
            reached = population.stack.model.time_of(own)
            result = Result(
                member.number, member.split, member.init, reached_val, reached_test, values[2][k],
                epochs, reached, member.options,
            )  # fmt: skip
            done[member.number] = (result, own)
        population.select((~ended).nonzero().flatten().to(population.loss.device))

    def _note_epoch(self, first: int, size: int, epoch: int, population: Population) -> None:
        if self.watcher is not None:
            steps = first * self.config.epochs + (epoch + 1) * size
            self.watcher.epoch(steps, len(self.members) * self.config.epochs, population)
        if self.folder is not None:
            loss, score = population.loss.cpu(), population.score.cpu()
            line = {
                "kind": "epoch",
                "chunk": first,
                "epoch": epoch,
                "members": len(population),
                "loss": float(loss.mean()),
                "val": float(score.nanmean()),
                "evaluations": population.evaluations,
            }
            if size > 1:  # also of the last one that is left: it is known by its number
                number = [member.number for member in population.members]
                each = {"number": number, "loss": _short(loss), "val": _short(score)}
                line["each"] = each
            self.folder.note(line)

    def _checkpoint(self, first: int, members: list[Member], population: Population, done: Done) -> None:
        # an empty population is about to be stored for good
        if self.folder is None or not len(population) or time.monotonic() - self.saved < self.pause:
            return
        self.folder.checkpoint(first, members, population, done)
        self.saved = time.monotonic()

    def _report(self, results: list[Result]) -> None:
        self.results += results
        for r in results:
            log.info(
                "member %d: split %d, init %d, validation %s, test %s, best epoch %d",
                r.number, r.split, r.init, _shown(r.val), _shown(r.test), r.best_epoch,
            )  # fmt: skip
        if self.watcher is not None:
            self.watcher.finished(results)


def _shown(score: float | None) -> str:
    return "none" if score is None else f"{score:.4f}"


def _checkpoint_seconds() -> float:
    text = os.environ.get("GRAND_CHECKPOINT_SECONDS", "")
    try:
        return float(text) if text else CHECKPOINT_SECONDS
    except ValueError:
        raise ConfigError(f"GRAND_CHECKPOINT_SECONDS must be a number, got {text!r}.") from None


def _short(values: Tensor) -> list[float | None]:
    """Numbers of the members with five digits, ``None`` where one is not finite."""
    return [float(f"{v:.5g}") if math.isfinite(v) else None for v in values.tolist()]
