"""From a configuration to results: members in chunks, with checkpoints, and a folder for each run.

A run folder holds ``config.toml``, ``metrics.jsonl`` (a line for each epoch and for each member that has
finished), ``model.safetensors`` (the best state of every member), ``summary.json`` and ``log.txt``; while
it is unfinished also ``checkpoint.safetensors`` and ``chunks/``.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from ..errors import ConfigError, SolverError
from .config import Config
from .folder import clear_leftovers
from .memory import chunk_size
from .population import Population
from .problem import Member, Problem
from .storage import append_line, read_lines, read_tensors, write_bytes, write_json, write_tensors
from .summary import summarise

CHECKPOINT_SECONDS = 20.0  # between checkpoints; $GRAND_CHECKPOINT_SECONDS in its place

log = logging.getLogger("graphdiffusion")


@dataclass(frozen=True)
class Result:
    """What one member reached. Accuracies in [0, 1]; ``test`` was read once, at the best validation."""

    number: int
    split: int
    init: int
    val: float
    test: float
    best_epoch: int
    epochs: int
    time: float  # T of the kept model
    options: dict[str, Any]


class Watcher(Protocol):
    """Someone who watches a training."""

    def epoch(self, done: int, total: int, population: Population) -> None: ...

    def finished(self, results: Sequence[Result]) -> None: ...


class Trainer:
    """Trains members in chunks that fit in memory.

    Args:
        problem: Data, on the device that is to compute.
        config: Shared options.
        members: Who is to be trained.
        folder: Where to keep everything; ``None`` keeps nothing and cannot resume.
        watcher: Is told of every epoch and every finished chunk.
        chunk: Members trained together; by default as many as fit in memory.
    """

    def __init__(
        self,
        problem: Problem,
        config: Config,
        members: Sequence[Member],
        folder: Path | None = None,
        watcher: Watcher | None = None,
        chunk: int | None = None,
    ) -> None:
        self.problem, self.config, self.members = problem, config, list(members)
        self.folder, self.watcher = folder, watcher
        # what has been finished in chunks of one size must not be repeated because memory has changed
        self.chunk = chunk or self._stored_size() or chunk_size(problem, config, len(self.members))
        self.started = time.monotonic()
        self.saved = self.started
        self.pause = _checkpoint_seconds()
        self.results: list[Result] = []  # of chunks that are done

    def run(self) -> list[Result]:
        """Train everybody, going on from whatever the folder holds.

        A member whose integration fails ends with its best state, or as it began if it has none. Where
        not even the first members get through their first epoch, the error is raised.
        """
        self.results = []
        for number, members in enumerate(self._chunks()):
            found = self._stored(number, members)
            if found is None:
                found = self._train(number, members)
            self.results += found
        if self.folder is not None:
            self._conclude(self.results)
        return self.results

    def _chunks(self) -> Iterator[list[Member]]:
        for first in range(0, len(self.members), self.chunk):
            yield self.members[first : first + self.chunk]

    def _train(self, number: int, members: list[Member]) -> list[Result]:
        population = Population(self.problem, self.config, members)
        done: dict[int, tuple[Result, dict[str, Tensor]]] = {}
        self._restore(number, population, done)
        every = 1 if population.loss.device.type == "cpu" else 10
        while len(population) and (epoch := population.epochs_done) < self.config.epochs:
            try:
                population.step()
            except SolverError as error:
                self._release(population, self._failed(population, error), done)
                continue
            if (epoch + 1) % every == 0:  # looking at the figures waits for the device
                self._note_epoch(number, epoch, population)
                self._release(population, population.finished(), done)
            self._checkpoint(number, population, done)
        if len(population):
            self._release(population, torch.ones(len(population), dtype=torch.bool), done)
        return self._store(number, members, done)

    def _failed(self, population: Population, error: SolverError) -> Tensor:
        """Who has to end; the others repeat the epoch without them."""
        failed, epoch = population.failed(error), population.epochs_done
        # nobody has been trained so far: rather the options are wrong than the luck was bad
        if epoch == 0 and bool(failed.all()) and all(r.best_epoch < 0 for r in self.results):
            raise error
        log.warning("members %s end at epoch %d: %s", population.numbers(failed), epoch, error)
        return failed

    def _release(
        self, population: Population, leaving: Tensor, done: dict[int, tuple[Result, dict[str, Tensor]]]
    ) -> None:
        """Take the results of members that have finished, and let them go."""
        leaving = leaving.cpu()
        if not bool(leaving.any()):
            return
        state, val, test = population.final()
        values = [v.tolist() for v in (val, test, population.best_epoch)]
        epochs = population.epochs_done
        for k in leaving.nonzero().flatten().tolist():
            member = population.members[k]
            own = {name.removeprefix("model."): value[k].cpu() for name, value in state.items()}
            reached = float(own["diffusion.time"])
            result = Result(
                member.number, member.split, member.init, values[0][k], values[1][k], values[2][k],
                epochs, reached, member.options,
            )  # fmt: skip
            done[member.number] = (result, own)
        population.select((~leaving).nonzero().flatten().to(population.loss.device))

    def _note_epoch(self, number: int, epoch: int, population: Population) -> None:
        if self.watcher is not None:
            first = number * self.chunk
            steps = first * self.config.epochs + (epoch + 1) * min(self.chunk, len(self.members) - first)
            self.watcher.epoch(steps, len(self.members) * self.config.epochs, population)
        if self.folder is not None:
            line = {
                "kind": "epoch",
                "chunk": number,
                "epoch": epoch,
                "members": len(population),
                "loss": float(population.loss.mean()),
                "val": float(population.score.mean()),
                "evaluations": population.evaluations,
            }
            append_line(self.folder / "metrics.jsonl", line)

    # what a folder remembers

    def _checkpoint(
        self, number: int, population: Population, done: dict[int, tuple[Result, dict[str, Tensor]]]
    ) -> None:
        # an empty population is about to be stored for good
        if self.folder is None or not len(population) or time.monotonic() - self.saved < self.pause:
            return
        tensors = population.state()
        for key, (_, state) in done.items():
            tensors |= {f"done/{key}/{name}": value for name, value in state.items()}
        note = {
            "chunk": number,
            "size": self.chunk,
            "numbers": [m.number for m in population.members],
            "done": [asdict(result) for result, _ in done.values()],
        }
        write_tensors(self.folder / "checkpoint.safetensors", tensors, note)
        self.saved = time.monotonic()

    def _restore(
        self, number: int, population: Population, done: dict[int, tuple[Result, dict[str, Tensor]]]
    ) -> None:
        if self.folder is None:
            return
        path = self.folder / "checkpoint.safetensors"
        epoch = 0
        if path.exists():
            tensors, note = read_tensors(path)
            if note["chunk"] == number and note["size"] == self.chunk:
                for entry in note["done"]:
                    result = Result(**entry)
                    prefix = f"done/{result.number}/"
                    own = {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
                    done[result.number] = (result, own)
                left = [k for k, m in enumerate(population.members) if m.number in note["numbers"]]
                population.select(torch.tensor(left, device=population.loss.device))
                population.load(tensors)
                epoch = population.epochs_done
                log.info("resumed chunk %d at epoch %d", number, epoch)
        self._trim_metrics(number, epoch)

    def _trim_metrics(self, number: int, epoch: int) -> None:
        """Forget the lines of epochs that will be repeated."""
        assert self.folder is not None
        path = self.folder / "metrics.jsonl"
        lines = read_lines(path)
        kept = [
            line
            for line in lines
            if line["chunk"] < number
            or (line["chunk"] == number and line["kind"] == "epoch" and line["epoch"] < epoch)
        ]
        if len(kept) < len(lines) or not path.exists() or not path.read_bytes().endswith(b"\n"):
            text = "".join(f"{json.dumps(line)}\n" for line in kept)
            write_bytes(path, text.encode())

    def _store(
        self, number: int, members: list[Member], done: dict[int, tuple[Result, dict[str, Tensor]]]
    ) -> list[Result]:
        results = [done[m.number][0] for m in members]
        if self.folder is not None:
            states = [done[m.number][1] for m in members]
            stacked = {name: torch.stack([s[name] for s in states]) for name in states[0]}
            note = {"size": self.chunk, "results": [asdict(r) for r in results]}
            # the lines first: a chunk without its file is repeated, and its lines are forgotten
            for result in results:
                line = {"kind": "member", "chunk": number, **asdict(result)}
                append_line(self.folder / "metrics.jsonl", line)
            write_tensors(self._chunk_path(number), stacked, note)
        self._tell(number, results)
        return results

    def _stored(self, number: int, members: list[Member]) -> list[Result] | None:
        """Results of a chunk that an earlier attempt has finished."""
        if self.folder is None or not self._chunk_path(number).exists():
            return None
        _, note = read_tensors(self._chunk_path(number))
        if note["size"] != self.chunk or [r["number"] for r in note["results"]] != [
            m.number for m in members
        ]:
            return None
        results = [Result(**entry) for entry in note["results"]]
        self._tell(number, results)
        return results

    def _stored_size(self) -> int | None:
        """Members of a chunk in the attempt that the folder holds."""
        if self.folder is None:
            return None
        chunks = sorted((self.folder / "chunks").glob("*.safetensors"))
        for path in (*chunks, self.folder / "checkpoint.safetensors"):
            if path.exists():
                return int(read_tensors(path)[1]["size"])
        return None

    def _tell(self, number: int, results: list[Result]) -> None:
        for r in results:
            log.info(
                "member %d: split %d, init %d, validation %.4f, test %.4f, best epoch %d",
                r.number, r.split, r.init, r.val, r.test, r.best_epoch,
            )  # fmt: skip
        if self.watcher is not None:
            self.watcher.finished(results)

    def _chunk_path(self, number: int) -> Path:
        assert self.folder is not None
        return self.folder / "chunks" / f"{number:05d}.safetensors"

    def _conclude(self, results: list[Result]) -> None:
        """Put the chunks together into one model file, and clear away what is no longer needed."""
        assert self.folder is not None
        parts = [read_tensors(self._chunk_path(k))[0] for k, _ in enumerate(self._chunks())]
        together = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
        note = {
            "in_channels": self.problem.in_channels,
            "classes": self.problem.classes,
            "class_names": self.problem.data.get("class_names"),
            "members": [asdict(r) for r in results],
        }
        write_tensors(self.folder / "model.safetensors", together, note)
        write_json(
            self.folder / "summary.json", summarise(self.problem, self.config, results, self.started)
        )
        clear_leftovers(self.folder)


def _checkpoint_seconds() -> float:
    text = os.environ.get("GRAND_CHECKPOINT_SECONDS", "")
    try:
        return float(text) if text else CHECKPOINT_SECONDS
    except ValueError:
        raise ConfigError(f"GRAND_CHECKPOINT_SECONDS must be a number, got {text!r}.") from None
