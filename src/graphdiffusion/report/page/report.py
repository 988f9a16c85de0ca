"""``report.html``: what a training did, made from the files in its folder."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor
from torch_geometric.data import Data

from ...ensemble.automatic import answers_of_runs
from ...ensemble.folder import FITS, holds_choice
from ...ensemble.result import Ensemble, crossed_runs, load_ensemble
from ...errors import ConfigError
from ...files import write_bytes
from ...nn.continuous import Continuous
from ...training.answers import mean_answer
from ...training.runs import Run
from ..nodes import Course, course
from . import parts
from .diffusion import nodes_data
from .html import element, page

NAME = "report.html"


@dataclass(frozen=True, eq=False)
class Report:
    """What the parts of a report are made of.

    Attributes:
        folder: Of the training.
        summary: The content of its ``summary.json``.
        ensemble: All of its models.
        runs: Those of its runs that the figures come from.
        nodes: Nodes with an answer of models that have not learnt from them, ``(m,)``.
        answers: These answers, ``(m, outputs)``.
        shown: The run whose best model is shown along t.
        course: What is shown of it.
    """

    folder: Path
    summary: dict[str, Any]
    ensemble: Ensemble
    runs: list[Run]
    nodes: Tensor
    answers: Tensor
    shown: Run
    course: Course

    @property
    def choice(self) -> bool:
        """Whether it was an automatic choice of several configurations."""
        return holds_choice(self.folder)

    @property
    def task(self) -> str:
        return self.runs[0].task.name

    @property
    def truth(self) -> Tensor:
        """Class, numbers or labels of the nodes that have an answer, ``(m, ...)``."""
        return self.runs[0].problem.task.y.cpu()[self.nodes]

    @property
    def part(self) -> str:
        """What these nodes are."""
        return "test" if self.summary["figures"].get("part") == "test" else "validation"

    def id(self, place: int) -> str:
        """Of the node that has an answer at a place."""
        return str(self.ids[int(self.nodes[place])])

    @property
    def ids(self) -> Sequence[Any]:
        """Of all nodes."""
        return self.runs[0].data.get("node_ids") or range(self.summary["nodes"])

    @property
    def journals(self) -> Mapping[str, list[Path]]:
        """The folders with the curves of each configuration."""
        if not self.choice:
            return {self.runs[0].config.title: [self.folder]}
        names = {name: name.rsplit("-", 1)[0] for name in self.summary["crossed"]}
        found: dict[str, list[Path]] = {}
        for name, configuration in names.items():
            found.setdefault(configuration, []).append(self.folder / FITS / name)
        return found


def write_report(
    folder: str | os.PathLike[str],
    path: str | os.PathLike[str] | None = None,
    *,
    root: str | os.PathLike[str] | None = None,
    data: Data | None = None,
) -> Path:
    """Write the report of a finished training as one HTML file, by default ``report.html`` in its folder.

    Args:
        folder: Of a run, or of an automatic choice.
        path: The file.
        root: Folder with raw data files, as in :func:`~graphdiffusion.data.load_data`.
        data: The graph of the training, where it is at hand; otherwise it is read again.
    """
    path = Path(folder) / NAME if path is None else Path(path)
    if path.is_dir():
        raise ConfigError(f"{path} is a folder: name a file to write.")
    report = read_report(Path(folder), root, data)
    made = [part for part in (make(report) for make in parts.PARTS) if part is not None]
    links = [element("li", element("a", title, href=f"#{name}")) for name, title, _ in made]
    content = [
        *parts.heading(report),
        element("nav", element("ul", *links), aria_label="Parts of this page"),
        *(body for _, _, body in made),
        parts.footer(report),
    ]
    text = page(parts.title(report), content, {"nodes": nodes_data(report)})
    write_bytes(path, text.encode())
    return path


def read_report(
    folder: Path, root: str | os.PathLike[str] | None = None, data: Data | None = None
) -> Report:
    """Read what a training left, and compute what a report shows besides."""
    ensemble = load_ensemble(folder, root)
    runs, weights = crossed_runs(folder, root) if holds_choice(folder) else (ensemble.runs, [1.0])
    graph = ensemble.data if data is None else data
    for run in {id(own): own for own in (*runs, *ensemble.runs)}.values():
        run.remember(graph)
    answers = answers_of_runs(runs, weights)
    task, temperature = runs[0].problem.task, ensemble.runs[0].temperature
    part = ensemble.summary["figures"].get("part", "test")
    nodes, mean = mean_answer(task, answers, part, temperature)
    shown = shown_run(runs, weights)
    return Report(folder, ensemble.summary, ensemble, runs, nodes, mean, shown, course(shown))


def shown_run(runs: list[Run], weights: list[float]) -> Run:
    """The run of the greatest weight whose model has an integral in time; without one, of all.

    A configuration has several runs of the same weight: the one with the best training by validation.
    """
    scores = [max((-math.inf if r.val is None else r.val) for r in run.results) for run in runs]
    heaviest = sorted(range(len(runs)), key=lambda k: (-weights[k], -scores[k]))
    for k in heaviest:
        if isinstance(runs[k].model(), Continuous):
            return runs[k]
    return runs[heaviest[0]]
