"""The members of a run spread over the machines of a Ray cluster, some of them in each task.

Every task is a run of its own in ``<out>/spread``: it keeps checkpoints, and one that was lost goes on
from them. What has finished is never trained again, also when the driver itself was stopped.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch_geometric.data import Data

from ..errors import ConfigError, WorkerError
from ..plugins import load_plugin
from .chunks import SPREAD, RunFolder
from .config import Config
from .folder import holds_run, is_finished, open_folder
from .journal import read_lines
from .problem import Member, Problem, load_problem, pick_device
from .runs import load_run
from .summary import Result
from .trainer import Trainer, Watcher

RETRIES = 3  # of a task whose process was lost


class SpreadTrainer(Trainer):
    """A :class:`Trainer` whose members train in the tasks of a Ray cluster.

    Args:
        problem, config, members, folder, watcher: As in :class:`Trainer`; a folder is needed.
        each: Members of one task.
        plugins: Files with classes of one's own.
        say: Called with a sentence now and then.
        again: The command that goes on with the run.
    """

    def __init__(
        self,
        problem: Problem,
        config: Config,
        members: Sequence[Member],
        folder: RunFolder,
        watcher: Watcher | None = None,
        *,
        each: int,
        plugins: Sequence[str] = (),
        say: Callable[[str], None] = lambda sentence: None,
        again: str = "",
    ) -> None:
        super().__init__(problem, config, members, folder, watcher)
        self.each, self.plugins, self.own = max(1, each), tuple(plugins), folder
        self.say, self.again = say, again

    def run(self) -> list[Result]:
        try:
            import ray
            from ray.exceptions import RayError
        except ImportError as error:
            raise ConfigError(
                f"--engine ray needs Ray, which cannot be imported ({error}): pip install "
                "'graphdiffusion[cluster]'."
            ) from None
        self.results = []
        for results in self.own.finished(self.problem, self.config, self.members):
            self._report(results)
        rest = self.members[len(self.results) :]
        place = (self.own.path / SPREAD).resolve()
        groups = _groups(rest, self.each, place)
        gpu = 1 if pick_device(self.config.device).type == "cuda" else 0
        task = ray.remote(num_cpus=1, num_gpus=gpu, max_retries=RETRIES)(_train_group)
        data = ray.put(self.problem.data)
        self.say(f"{len(rest)} trainings in {len(groups)} tasks of Ray, {self.each} in each.")
        waiting = {
            task.remote(self.config.to_dict(), self.plugins, data, group, _place(place, group))
            for group in groups
        }
        while waiting:
            done, left = ray.wait(list(waiting))
            waiting = set(left)
            try:
                ray.get(done)
            except RayError as error:
                for other in waiting:
                    ray.cancel(other)
                reason = str(error).strip().splitlines()[-1]
                raise WorkerError(f"a task of Ray has ended ({reason}). Go on with: {self.again}") from None
            self.say(f"{len(groups) - len(waiting)} of {len(groups)} tasks have finished.")
        for group in groups:
            self._take(group, _place(place, group))
        shutil.rmtree(place, ignore_errors=True)
        self.own.conclude(self.problem, self.config, self.results)
        return self.results

    def _take(self, group: Sequence[Member], folder: Path) -> None:
        """Keep the results of a task as those of a chunk of this run."""
        run = load_run(folder)
        done = {
            result.number: (result, {name: value[k] for name, value in run.states.items()})
            for k, result in enumerate(run.results)
        }
        first = len(self.results)
        self.own.settle()
        for line in read_lines(folder / "metrics.jsonl"):
            if line.pop("kind") == "epoch":
                body = {name: value for name, value in line.items() if name != "checksum"}
                self.own.note({"kind": "epoch", **body, "chunk": first + line["chunk"]})
        self._report(self.own.store(first, list(group), done))


def _groups(members: list[Member], each: int, place: Path) -> list[list[Member]]:
    """The members of every task: at most ``each``, and those that a task has begun with together.

    How many fit in a task may be another number than when the driver was stopped. What has begun, or has
    finished, keeps its members.
    """
    folders = sorted(place.glob("*-*"), key=is_finished)  # of two that begin with one member, the finished
    begun = {int(f.name.split("-")[0]): int(f.name.split("-")[1]) for f in folders if holds_run(f)}
    groups: list[list[Member]] = []
    first = 0
    while first < len(members):
        size = begun.get(members[first].number, 0)
        if not size:
            nearest = (k for k, member in enumerate(members) if k > first and member.number in begun)
            size = min(each, next(nearest, len(members)) - first)
        groups.append(members[first : first + size])
        first += size
    return groups


def _place(folder: Path, group: Sequence[Member]) -> Path:
    """Where a task trains these members; other members are another run."""
    return folder / f"{group[0].number:05d}-{len(group)}"


def _train_group(
    options: dict[str, Any], plugins: Sequence[str], data: Data, members: list[Member], folder: Path
) -> None:
    """What a task does: train some members in a folder of their own."""
    for path in plugins:
        load_plugin(path)
    if is_finished(folder):
        return
    config = Config(**options)
    device = (
        torch.device("cuda")
        if torch.cuda.is_available() and config.device != "cpu"
        else torch.device("cpu")
    )
    problem = load_problem(config, data).to(device)
    with open_folder(folder, config, problem.data, resume=holds_run(folder)) as own:
        Trainer(problem, config, members, own).run()
