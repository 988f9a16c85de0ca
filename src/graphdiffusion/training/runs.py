"""A finished run, read back from its folder: its models, their accuracies and their predictions."""

from __future__ import annotations

import math
import reprlib
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from ..data import Split, check_data
from ..data.matching import match_features
from ..errors import ArgumentError, DataError, FeaturesWarning
from ..nn import Model, as_features
from ..nn.continuous import Continuous
from ..nn.scaling import PREFIX, Scaling
from ..nn.trajectory import ModelTrajectory, trajectory
from ..solvers import Solver
from .answers import COLDEST, HOTTEST
from .chunks import check_run, reading
from .config import Config
from .fingerprint import Fingerprint
from .folder import holds_run, read_config, require_finished, require_place
from .population import Population
from .problem import (
    Problem,
    build_graph,
    load_problem,
    member_splits,
    pick_device,
    read_data,
)
from .storage import check_finite, check_tensors, read_json, read_tensors
from .summary import Result, check_summary
from .tasks import TASKS, Classification, Statistics, Task
from .template import TASK, build_model, stacked_template


@dataclass(frozen=True, eq=False)
class Run:
    """What a finished training left behind.

    Attributes:
        folder: Where it lies.
        root: Folder with raw data files, as in :func:`~graphdiffusion.data.load_data`.
        config: The options that it was started with.
        fingerprint: Options and data that it began with.
        results: What each member reached.
        states: Parameters and constants of all members, stacked.
        in_channels: Features a node.
        task: What was learnt: its class.
        names: Of the classes or targets, one for each output.
        temperature: Outputs are divided by it before they become probabilities.
        scaling: Of the features.
        feature_names: One for each feature, where the data of the training has them.
        summary: The content of ``summary.json``.
    """

    folder: Path
    root: str | PathLike[str] | None
    config: Config
    fingerprint: Fingerprint
    results: list[Result]
    states: dict[str, Tensor]
    in_channels: int
    task: type[Task]
    names: list[str]
    temperature: float
    scaling: Scaling
    feature_names: list[str] | None
    summary: dict[str, Any]

    @cached_property
    def data(self) -> Data:
        """The data that the run was trained on, read again; refused if it has changed since."""
        require_place(self.config)
        data = read_data(self.config, self.root)
        self.fingerprint.check_data(data, data.get("name") or self.config.data)
        return data

    @cached_property
    def problem(self) -> Problem:
        """The data made ready, on the device."""
        return load_problem(self.config, self.data).to(self._device)

    def remember(self, data: Data, problem: Problem | None = None) -> None:
        """Take the graph of the run, and what is made of it, from the caller: neither is read again."""
        self.__dict__["data"] = data
        if problem is not None:
            self.__dict__["problem"] = problem

    def __getstate__(self) -> dict[str, Any]:
        """A copy or a pickle makes the problem again: it may lie on a device that is not there."""
        return {name: value for name, value in self.__dict__.items() if name != "problem"}

    @property
    def best(self) -> int:
        """The member with the highest validation score, the first among equals."""
        return max(self.results, key=lambda r: -math.inf if r.val is None else r.val).number

    def model(self, member: int | None = None) -> Model:
        """The model of a member (by default the best) in evaluation mode."""
        result = self._result(member)
        config = self.config.replace(**result.options)
        sizes = (self.in_channels, len(self.names), result.init, self.summary["nodes"])
        model = build_model(config, *sizes)
        own = {name: value for name, value in self._state(result).items() if not name.startswith(TASK)}
        model.load_state_dict(own, strict=True)
        return model.to(self._device).eval()

    @property
    def solver(self) -> Solver | None:
        """The scheme of its models; ``None`` where they have no integral."""
        model = self.model()
        return model.diffusion.solver if isinstance(model, Continuous) else None

    def evaluate(self, member: int) -> tuple[float | None, float | None]:
        """Validation and test score of a member, computed anew, as the training computes them."""
        result = self._result(member)
        population = Population(self.problem, self.config, [result.member])
        state, known = self._state(result), population.stack.saved
        saved = {known[n]: v[None].to(self._device) for n, v in state.items() if not n.startswith(TASK)}
        found = population.accuracies(population.stack.tensors | saved)
        val, test = (None if score.isnan() else score.item() for score in found)
        return val, test

    @torch.no_grad()
    def predict(self, data: Data | None = None, member: int | None = None) -> Tensor:
        """Probabilities ``(n, classes)`` of every node of a graph, or the numbers that are predicted.

        Probabilities are float32, numbers float64.

        Args:
            data: Any graph with the features of the training; where both name them they are found by their
                names, see :meth:`matched`. Labels are not used. By default the graph of the run, where a
                model that was trained with label features takes those of its training nodes; elsewhere it
                takes none.
            member: One member; by default the mean over all of them.
        """
        if data is None:
            bare = unlabelled(self.data)
        else:
            bare, notes = self.matched(data)
            for note in notes:
                warnings.warn(note, FeaturesWarning, stacklevel=3)  # of no_grad, too
        graph = build_graph(self.config, bare).to(self._device)
        x = self.scaling(as_features(bare.x)).to(self._device)
        chosen = self.results if member is None else [self._result(member)]
        total = torch.zeros(x.shape[-2], len(self.names), dtype=torch.float64, device=self._device)
        for result in chosen:
            model, statistics = self.model(result.number), self._statistics(result)
            output = model(x, graph, **self._labels(result, model, None if data is None else x.shape[-2]))
            total += self._task.answers(output, statistics, self.temperature)
        return (total / len(chosen)).to(self.task.dtype).cpu()

    def trajectory(self, fractions: Sequence[float], member: int | None = None) -> ModelTrajectory:
        """The states of the nodes on their way through the model of a member, by default the best.

        Args:
            fractions: Of the model's time T, rising from 0 to 1.
            member: Which.
        """
        result, problem = self._result(member), self.problem
        model = self.model(result.number)
        return trajectory(model, problem.x, problem.graph, fractions, **self._labels(result, model, None))

    def answers(self, outputs: Tensor, member: int | None = None) -> Tensor:
        """Probabilities or numbers ``(..., outputs)`` of the outputs of the model of a member."""
        return self._task.answers(outputs, self._statistics(self._result(member)), self.temperature)

    def split(self, member: int | None = None) -> Split:
        """The nodes that the model of a member has learnt from, and those that validate and test it."""
        found = member_splits(self.config, self.problem.data, [self._result(member).member])
        return Split(*(getattr(found, part)[0] for part in ("train", "val", "test")))

    def shown_labels(self, member: int | None = None) -> dict[str, Tensor]:
        """The labels of training nodes that the model of a member takes as inputs, by argument."""
        result = self._result(member)
        return self._labels(result, self.model(result.number), None)

    def matched(self, data: Data) -> tuple[Data, list[str]]:
        """A graph alone, with the features of the training in their order, and notes on what differs.

        Where both graphs name their features, they are found by their names: others are left out, and a
        missing one is refused, or zero where the graph lists only what is not zero (the long format).
        """
        bare = unlabelled(data)
        if self.feature_names is not None and bare.get("feature_names") is not None:
            bare.x, notes = match_features(bare, self.feature_names)
            bare.feature_names = self.feature_names
            return bare, notes
        if bare.x.shape[1] != self.in_channels:
            name = data.get("name") or "the graph"
            raise DataError(
                f"the models take {self.in_channels} features a node, but {name} has {bare.x.shape[1]}: "
                "predict on a graph with the features of the training."
            )
        return bare, []

    @property
    def _task(self) -> Task:
        """The task without targets: another graph has none."""
        return self.task(torch.zeros(0, len(self.names)), self.names)

    def _statistics(self, result: Result) -> Statistics:
        """Statistics of the task that were stored with a member."""
        own = self._state(result)
        return {
            name.removeprefix(TASK): value.to(self._device)
            for name, value in own.items()
            if name.startswith(TASK)
        }

    def _labels(self, result: Result, model: Model, nodes: int | None) -> dict[str, Tensor]:
        """The labels that a model uses, in the forms it uses; none of another graph, of ``nodes`` nodes."""
        if nodes is not None:
            width = len(self.names) + (self.task is not Classification)
            none = torch.zeros(nodes, width, device=self._device)
            return {"observed": none} if model.needs_observed else {}
        task, train = self.problem.task, self.split(result.number).train[None].to(self._device)
        each = {name: value[None] for name, value in self._statistics(result).items()}
        wanted = {"labels": (task.shown, self.config.label_rate > 0)}
        wanted["observed"] = (task.observed, model.needs_observed)
        return {name: make(train, each)[0].float() for name, (make, used) in wanted.items() if used}

    def _state(self, result: Result) -> dict[str, Tensor]:
        place = self.results.index(result)
        return {name: value[place] for name, value in self.states.items()}

    def _result(self, member: int | None) -> Result:
        number = self.best if member is None else member
        for result in self.results:
            if result.number == number:
                return result
        raise ArgumentError(
            f"{self.folder} has the members 0 to {len(self.results) - 1}, and no member {number}."
        )

    @property
    def _device(self) -> torch.device:
        # a run from a machine with a GPU is as good here
        wanted = self.config.device
        return pick_device("auto" if wanted == "cuda" else wanted)


def load_run(folder: str | PathLike[str], root: str | PathLike[str] | None = None) -> Run:
    """Read a finished run: every file complete and unchanged, or an error. Nothing is unpickled.

    Args:
        folder: The folder of the run.
        root: Folder with raw data files, as in :func:`~graphdiffusion.data.load_data`.
    """
    folder = Path(folder)
    if not holds_run(folder):
        raise DataError(f"{folder} holds no run: name a folder that grand train has made.")
    config, fingerprint = read_config(folder)
    require_finished(folder)
    summary = read_summary(folder)
    path = folder / "model.safetensors"
    states, note = read_tensors(path, "model", _mend(folder))
    check_run(path, note, fingerprint.run)
    with reading(path, _mend(folder)):
        results = [Result.parse(entry) for entry in note["members"]]
        if [asdict(result) for result in results] != summary["results"]:
            raise ValueError("its members are not those of summary.json")
        if len({result.number for result in results}) < len(results):
            raise ValueError("two of its members have the same number")
        features, outputs = (_count(note[name]) for name in ("in_channels", "outputs"))
        task, temperature = TASKS[note["task"]], float(note["temperature"])
        if not COLDEST <= temperature <= HOTTEST:
            raise ValueError(f"a temperature is {temperature}")
        if temperature != summary["figures"].get("temperature", 1.0):
            raise ValueError("its temperature is not that of summary.json")
        scales = {name: states.pop(name) for name in list(states) if name.startswith(PREFIX)}
        try:  # without memory, whatever the counts are
            own = [r.member for r in results]
            wanted = stacked_template(config, features, task, outputs, summary["nodes"], own)
        except RuntimeError:
            raise ValueError("its tensors would be too large") from None
    check_tensors(path, states, wanted)
    check_finite(path, states)
    with reading(path, _mend(folder)):
        # only now: it takes memory for as many features as the note claims
        scaling = Scaling.from_tensors(config.scaling, scales, features)
        check_tensors(path, scales, {})  # what it has not taken
        parts = ("class", "target", "feature")
        class_names, target_names, feature_names = (_names(note, fingerprint, part) for part in parts)
        given = class_names if task is Classification else target_names
        named = given[:outputs] if given else [str(k) for k in range(outputs)]
        if len(named) < outputs:
            raise ValueError(f"{len(named)} names for {outputs} outputs")
    return Run(
        folder, root, config, fingerprint, results, states, features, task, named, temperature, scaling,
        feature_names, summary,
    )  # fmt: skip


def read_summary(folder: Path) -> dict[str, Any]:
    """The content of ``summary.json``, of this run and no other."""
    path = folder / "summary.json"
    summary, fingerprint = read_json(path, "summary", _mend(folder)), Fingerprint.read(folder)
    check_run(path, summary, fingerprint.run)
    with reading(path, _mend(folder)):
        check_summary(summary, fingerprint.options)
    return summary


def _count(value: Any) -> int:
    if type(value) is not int or not 0 < value < 2**31:
        raise ValueError(f"a number of features or classes is {reprlib.repr(value)}")
    return value


def _names(note: dict[str, Any], fingerprint: Fingerprint, part: str) -> list[str] | None:
    """Names of the classes or features, which must be those that the run began with."""
    names = note.get(f"{part}_names")
    if not fingerprint.has_names(f"{part} names", names):
        raise ValueError(f"its {part} names are not those that the run began with")
    return names and [str(name) for name in names]


def _mend(folder: Path) -> str:
    """The way out where a file of a finished run is damaged or gone."""
    return (
        "put the original back, or train again: grand train --config "
        f"{folder / 'config.toml'} --out NEW-FOLDER"
    )


def unlabelled(data: Data) -> Data:
    """The graph alone, checked: features, edges, weights, ids and names, without labels and masks."""
    if not isinstance(data, Data):
        raise DataError(f"expected a torch_geometric.data.Data, got {type(data).__name__}")
    kept = (
        "x", "feature_names", "absent_is_zero", "edge_index", "edge_weight", "edge_attr", "node_ids",
        "name",
    )  # fmt: skip
    bare = Data(**{key: data[key] for key in kept if data.get(key) is not None})
    if isinstance(bare.get("x"), Tensor):
        bare.y = torch.full((bare.x.shape[0],), -1)
    return check_data(bare)
