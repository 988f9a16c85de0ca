"""What a training keeps in its folder, and finds again when it is taken up after a kill."""

from __future__ import annotations

import logging
import re
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..errors import DataError, GraphDiffusionError
from ..files import is_part
from .assess import assess
from .config import Config
from .journal import Journal
from .population import Population
from .problem import Member, Problem
from .storage import MEND, check_finite, check_tensors, read_tensors, write_json, write_tensors
from .summary import Result, summarise
from .template import TASK, stacked_template

CHECKPOINT, CHUNKS = "checkpoint.safetensors", "chunks"
PARTS, SPREAD = "parts", "spread"  # while a run trains: its graph in parts, the runs of its tasks

# results and best states of members that have finished, by number
Done = dict[int, tuple[Result, dict[str, Tensor]]]

_MEND_CHECKPOINT = "delete it, and the run goes on from its last finished chunk, or from the start"
_MEND_CHUNK = "delete it, and the run trains its members again"

log = logging.getLogger("graphdiffusion")


class RunFolder:
    """Checkpoints, finished chunks, metrics and results of a run; made by ``open_folder``.

    A chunk is known by the place of its first member: chunks of different sizes may follow each other.

    Attributes:
        path: The folder.
        size: Members of the chunk that was in training last; ``None`` where no chunk was.
        before: Seconds that earlier attempts have spent, known after :meth:`finished`.
    """

    def __init__(self, path: Path, run: str) -> None:
        self.path, self.run = path, run
        self.size: int | None = None
        self._metrics = Journal(path / "metrics.jsonl")
        self._settled = ""  # checksum of the last line of metrics that belongs to a finished chunk
        self.before, self._started = 0.0, time.monotonic()

    @property
    def seconds(self) -> float:
        """Time spent so far, in all attempts."""
        return self.before + time.monotonic() - self._started

    def finished(self, problem: Problem, config: Config, members: Sequence[Member]) -> list[list[Result]]:
        """Results of the chunks that earlier attempts have finished, from the first member up to a gap."""
        found: list[list[Result]] = []
        place = 0
        while (path := self._chunk(place)).exists():
            states, note = self._read(path, "chunk", _MEND_CHUNK)
            with reading(path, _MEND_CHUNK):
                results = [Result.parse(entry) for entry in note["results"]]
                self._settled = str(note["metrics"])
                self.before = max(self.before, float(note["seconds"]))
            own = [r.member for r in results]
            if not own or own != list(members[place : place + len(own)]):
                raise DataError(f"{path} holds other members than those of this run: {_MEND_CHUNK}.")
            sizes = (problem.in_channels, type(problem.task), problem.out_channels, problem.num_nodes)
            wanted = stacked_template(config, *sizes, own)
            check_tensors(path, states, wanted, _MEND_CHUNK)
            check_finite(path, states, _MEND_CHUNK)
            found.append(results)
            self.size = len(own)
            place += self.size
        self._drop_chunks(place)
        if (path := self.path / CHECKPOINT).exists():
            _, note = self._read(path, "checkpoint", _MEND_CHECKPOINT)
            with reading(path, _MEND_CHECKPOINT):
                self.before = max(self.before, float(note["seconds"]))
                if note["first"] == place:
                    self.size = len(note["members"])
        return found

    def _drop_chunks(self, place: int) -> None:
        """Remove chunks behind a gap: their metrics do not follow on those before it."""
        for path in _chunk_files(self.path):
            if int(path.stem) >= place:
                log.warning("%s is removed: the chunk before it is missing", path)
                path.unlink()

    def restore(self, first: int, population: Population) -> Done:
        """Take up a chunk at its checkpoint, if there is one; later lines of metrics are dropped.

        Args:
            first: Place of the chunk's first member.
            population: The members as they begin; brought to the state of the checkpoint.

        Returns the members of the chunk that have finished.
        """
        done: Done = {}
        path, until = self.path / CHECKPOINT, self._settled
        if path.exists():
            tensors, note = self._read(path, "checkpoint", _MEND_CHECKPOINT)
            with reading(path, _MEND_CHECKPOINT):
                if note["first"] == first and note["members"] == [asdict(m) for m in population.members]:
                    _load(path, population, tensors, note, done)
                    until = str(note["metrics"])
                    log.info("resumed chunk %d at epoch %d", first, population.epochs_done)
                else:
                    path.unlink()  # of another chunk: the metrics that it refers to are dropped now
        self._metrics.cut(until)
        return done

    def settle(self) -> None:
        """Drop lines of metrics that belong to no finished chunk."""
        self._metrics.cut(self._settled)

    def note(self, line: Mapping[str, Any]) -> None:
        """One line of metrics."""
        self._metrics.append(line)

    def checkpoint(self, first: int, members: Sequence[Member], population: Population, done: Done) -> None:
        """Keep a chunk in training: ``members`` are all of it, ``population`` those that go on."""
        tensors = population.state()
        for key, (_, state) in done.items():
            tensors |= {f"done/{key}/{name}": value for name, value in state.items()}
        note = {
            "members": [asdict(m) for m in members],
            "left": [m.number for m in population.members],
            "done": [asdict(result) for result, _ in done.values()],
        }
        self._write(self.path / CHECKPOINT, "checkpoint", tensors, note | {"first": first})

    def store(self, first: int, members: Sequence[Member], done: Done) -> list[Result]:
        """Keep a chunk that has finished, and give its results."""
        results = [done[m.number][0] for m in members]
        states = [done[m.number][1] for m in members]
        stacked = {name: torch.stack([s[name] for s in states]) for name in states[0]}
        # the lines first: a chunk without its file is repeated, and its lines are dropped
        for result in results:
            self.note({"kind": "member", "chunk": first, **asdict(result)})
        self._write(self._chunk(first), "chunk", stacked, {"results": [asdict(r) for r in results]})
        self._settled = self._metrics.last or ""
        return results

    def conclude(self, problem: Problem, config: Config, results: Sequence[Result]) -> None:
        """Put the chunks together into one model file, sum up, and remove what is no longer needed."""
        states = self.states(len(results))
        self.finish(problem, config, results, states, assess(problem, config, results, states))

    def states(self, count: int) -> dict[str, Tensor]:
        """The best states of the first members, stacked, from the chunks."""
        parts, place = [], 0
        while place < count:
            tensors, note = self._read(self._chunk(place), "chunk", _MEND_CHUNK)
            parts.append(tensors)
            place += len(note["results"])
        return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}

    def finish(
        self,
        problem: Problem,
        config: Config,
        results: Sequence[Result],
        states: dict[str, Tensor],
        assessed: tuple[float, dict[str, Any]],
    ) -> None:
        """Write the model file and the summary; ``assessed`` is what :func:`assess` gives."""
        self.settle()
        note = {
            "run": self.run,
            "in_channels": problem.in_channels,
            "task": problem.task.name,
            "outputs": problem.out_channels,
            "class_names": problem.data.get("class_names"),
            "target_names": problem.data.get("target_names"),
            "feature_names": problem.data.get("feature_names"),
            "members": [asdict(r) for r in results],
        }
        note["temperature"], found = assessed
        write_tensors(self.path / "model.safetensors", "model", states | problem.scaling.tensors(), note)
        about = {"run": self.run, "metrics": self._settled}
        summary = summarise(problem, config, results, self.seconds) | {"figures": found}
        write_json(self.path / "summary.json", "summary", about | summary)
        clear_leftovers(self.path)

    def _chunk(self, first: int) -> Path:
        return self.path / CHUNKS / f"{first:05d}.safetensors"

    def _write(self, path: Path, kind: str, tensors: dict[str, Tensor], note: dict[str, Any]) -> None:
        self._metrics.flush()  # the note says how far the metrics go
        about = {"run": self.run, "seconds": self.seconds, "metrics": self._metrics.last}
        write_tensors(path, kind, tensors, about | note)

    def _read(self, path: Path, kind: str, mend: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
        tensors, note = read_tensors(path, kind, mend)
        check_run(path, note, self.run, mend)
        return tensors, note


def _load(
    path: Path, population: Population, tensors: dict[str, Tensor], note: dict[str, Any], done: Done
) -> None:
    """Bring a population to the state of a checkpoint; members that have finished are added to ``done``."""
    members = population.members
    tensors_of = population.stack.tensors
    own = {name: tensors_of[known][0] for name, known in population.stack.saved.items()}
    own |= {f"{TASK}{name}": value[0] for name, value in population.statistics.items()}
    wanted: dict[str, Tensor] = {}
    for entry in note["done"]:
        result = Result.parse(entry)
        prefix = f"done/{result.number}/"
        wanted |= {prefix + name: value for name, value in own.items()}
        state = {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
        done[result.number] = (result, state)
    left = [k for k, m in enumerate(members) if m.number in note["left"]]
    if sorted([*done, *(members[k].number for k in left)]) != sorted(m.number for m in members):
        raise ValueError("its members are not those of the chunk")
    population.select(torch.tensor(left, device=population.loss.device))
    check_tensors(path, tensors, population.state() | wanted, _MEND_CHECKPOINT)
    kept = {name: v for name, v in tensors.items() if name.startswith(("best/", "done/"))}
    check_finite(path, kept, _MEND_CHECKPOINT)
    population.load(tensors)


def check_run(path: Path, note: Mapping[str, Any], run: str, mend: str = MEND) -> None:
    """Refuse a file of another run."""
    if note.get("run") != run:
        raise DataError(f"{path} belongs to another run: {mend}.")


@contextmanager
def reading(path: Path, mend: str) -> Iterator[None]:
    """Refuse a note that is not as a training writes it."""
    try:
        yield
    except GraphDiffusionError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise DataError(f"{path} was not written by a training ({error}): {mend}.") from None


def _chunk_files(folder: Path) -> list[Path]:
    """Files in the folder of chunks that have the name of a chunk; a user may have put others there."""
    found = sorted((folder / CHUNKS).glob("*.safetensors"))
    return [p for p in found if re.fullmatch("[0-9]+", p.stem) and p.is_file() and not p.is_symlink()]


def leftovers(folder: Path) -> list[Path]:
    """What a finished run no longer needs: files, then the folder of chunks if nothing else is in it."""
    chunks = folder / CHUNKS
    inside = list(chunks.iterdir()) if chunks.is_dir() else []
    parts = [p for p in (*folder.iterdir(), *inside) if is_part(p)]
    files = [p for p in (folder / CHECKPOINT, *_chunk_files(folder), *parts) if p.is_file()]
    if chunks.is_dir() and set(inside) <= set(files):
        files.append(chunks)
    own = [folder / name for name in (PARTS, SPREAD)] + parts  # also parts that a kill left half written
    return [*files, *(path for path in own if path.is_dir() and not path.is_symlink())]


def clear_leftovers(folder: Path) -> None:
    for path in leftovers(folder):
        if path.name in (PARTS, SPREAD) or (path.is_dir() and is_part(path)):
            shutil.rmtree(path)
        elif path.is_dir():
            path.rmdir()
        else:
            path.unlink()
