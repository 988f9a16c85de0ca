"""What the claims share: data, settings, and trainings with what they cost."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from ...equation import Flow
from ...errors import SolverError
from ...nn.grand import GRAND
from ...training.config import Config
from ...training.folder import is_finished
from ...training.journal import read_lines
from ...training.problem import Problem, load_problem, protocol, read_data
from ...training.runs import Run
from ...training.summary import Result, device_name, versions
from ...training.trainer import Trainer
from ..presets import preset_config
from ..results import Tick
from ..trained import trained

FEW = 5  # splits of claims that one core is to measure with the published settings of Cora
LARGE = ("pubmed", "coauthor-cs", "computers", "photo")
LIMIT = 2000  # evaluations in one integral; a training that needs more has failed


@dataclass(frozen=True)
class Settings:
    """What the figures of all claims depend on; what one claim varies stands in its file.

    Attributes:
        data: Data sets.
        every: Data sets of claims on all of them.
        splits: Random splits of the paper's kind, one training on each.
        large: Of these at most, on large graphs.
        epochs: At most so many where an adaptive scheme is trained with.
        options: In place of those of the presets.
        small: Whether claims vary less.
    """

    data: tuple[str, ...] = ("cora", "citeseer", "pubmed")
    every: tuple[str, ...] = ("cora", "citeseer", "pubmed", "coauthor-cs", "computers", "photo")
    splits: int = 20
    large: int = 5
    epochs: int = 100
    options: dict[str, Any] = field(default_factory=dict)
    small: bool = False


FULL = Settings()
SMALL = replace(
    FULL,
    data=("cora-embedded",),
    every=("cora-embedded",),
    splits=3,
    epochs=20,
    options={"hidden": 16, "heads": 2, "attention_dim": 16, "time": 4.0, "epochs": 20},
    small=True,
)


class Laboratory:
    """Trains models for the claims.

    Args:
        settings: What all claims share.
        folder: Where runs are kept.
        root: Folder with raw data files.
        device: Where to compute.

    Attributes:
        tick: Called with the share of a training that is done.
    """

    def __init__(self, settings: Settings, folder: Path, root: str | None, device: torch.device) -> None:
        self.settings, self.folder, self.root, self.device = settings, folder, root, device
        self._graphs: dict[str, Data] = {}
        self._warm: set[tuple[str, str]] = set()
        self.tick: Tick = lambda share: None

    def data(self, name: str) -> Data:
        if name not in self._graphs:
            self._graphs[name] = read_data(self.config(name, "linear"), self.root)
        return self._graphs[name]

    def config(self, data: str, row: str, preset: str = "start", **options: Any) -> Config:
        """A preset with the options of the settings and then others in place of its own.

        The preset ``start`` has the published settings of each data set, with what the published code does
        where the text differs; ``paper`` is the text. The Cora that comes with the library takes Cora's.
        """
        published = preset_config(data.removesuffix("-embedded"), row, preset, device=self.device.type)
        most = self.settings.large if data in LARGE else self.settings.splits
        config = published.replace(
            data=data, splits=min(most, self.settings.splits), **self.settings.options
        )
        return config.replace(**options)

    def published(self, data: str, row: str, preset: str = "start", **options: Any) -> Config:
        """Published settings as they are, on few splits."""
        return self.config(data, row, preset, **options).replace(splits=min(FEW, self.settings.splits))

    def adaptive(self, data: str, solver: str = "dopri5", preset: str = "start", **options: Any) -> Config:
        """GRAND-nl with an adaptive scheme."""
        config = self.config(data, "nonlinear", preset, solver=solver, max_evaluations=LIMIT, **options)
        return config.replace(epochs=min(config.epochs, self.settings.epochs))

    def problem(self, config: Config) -> Problem:
        return load_problem(config, self.data(config.data)).to(self.device)

    def run(self, config: Config, name: str) -> Run:
        """The run of a configuration, trained to its end in the folder of this name if it is not yet."""
        folder, kind = self.folder / "runs" / name, (config.data, config.solver)
        if self.device.type == "cuda" and kind not in self._warm and not is_finished(folder):
            # what is compiled at the first call does not count as time of training
            short = config.replace(epochs=2)
            problem = self.problem(short)
            Trainer(problem, short, protocol(short, problem.data)).run()
            self._warm.add(kind)
        return trained(config, folder, self.data(config.data), self.tick)

    def train(self, config: Config, name: str) -> dict[str, Any]:
        """What the trainings of a configuration reached and cost.

        Returns:
            ``test`` and ``val``, in percent, one for each split; ``evaluations`` of the right-hand side in
            a forward pass of each trained model alone, ``in_training`` their mean over the epochs, for all
            members together; ``seconds_each``, of one training; ``failed``, the number of trainings that
            ended before the last epoch, other than by patience; and the ``options``. Where no training
            comes through its first epoch, the lists are empty.
        """
        about = {"options": config.to_dict(), "device": device_name(self.device), "versions": versions()}
        try:
            run = self.run(config, name)
        except SolverError as error:
            return about | {
                "test": [], "val": [], "evaluations": [], "in_training": None, "seconds_each": None,
                "failed": config.splits, "reason": str(error),
            }  # fmt: skip
        lines = read_lines(run.folder / "metrics.jsonl", run.summary["metrics"])
        during = [line["evaluations"] for line in lines if line["kind"] == "epoch"]
        return about | {
            "test": [100 * (r.test or 0.0) for r in run.results],
            "val": [100 * (r.val or 0.0) for r in run.results],
            "evaluations": [self._evaluations(run, r.number) for r in run.results],
            "in_training": fmean(during) if during else None,
            "seconds_each": run.summary["seconds"] / len(run.results),
            "failed": sum(has_failed(r, config) for r in run.results),
        }

    @torch.no_grad()
    def _evaluations(self, run: Run, member: int) -> int:
        output = run.model(member).run(run.problem.x, run.problem.graph, check=False)
        return int(output.evaluations)


def has_failed(result: Result, config: Config) -> bool:
    """Whether a training ended before its last epoch, other than by patience."""
    waited = result.epochs - 1 - result.best_epoch
    return result.epochs < config.epochs and not (config.patience and waited >= config.patience)


@torch.no_grad()
def bound(model: GRAND, problem: Problem) -> tuple[Flow, Tensor, float]:
    """The equation of a model in evaluation mode, x(0) and T."""
    x = model.encode(problem.x)
    return model.diffusion.bind(x, problem.graph), x, float(model.diffusion.span)
