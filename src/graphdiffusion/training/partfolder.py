"""What a process of a training on parts loads: its own rows, from a folder of memory-mapped files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from ..data import MASKS
from ..data.check import check_labels
from ..errors import ConfigError, DataError
from ..nn import SparseFeatures
from ..nn.modules import Features
from ..nn.scaling import PREFIX, Scaling
from ..partition.cut import chosen, cut
from ..partition.fields import Field, SparseRows
from ..partition.store import About, holds_parts, read_about, read_part, write_parts
from .config import Config
from .fingerprint import data_digests
from .problem import Problem
from .tasks import TASKS, make_task

__all__ = ["check_stored", "holds_parts", "holds_problem", "read_problem", "write_problem"]

_NAMED = ("name", "task", "class_names", "target_names", "feature_names")  # of the data, noted as they are
_MADE = ("scaling", "self_loops", "rewire", "rewire_alpha", "rewire_t", "rewire_k")  # data to graph and x
_AGAIN = "write the parts again"


def write_problem(
    folder: Path, problem: Problem, parts: int, method: str = "auto", config: Config | None = None
) -> About:
    """Cut the graph of a problem, and write its parts with features, labels and split masks.

    Args:
        folder: To be made.
        problem: Of the whole graph, on a CPU.
        parts: Their number.
        method: Of the cut, as in :func:`~graphdiffusion.partition.cut`.
        config: What the problem was made with, noted for :func:`holds_problem`.
    """
    data, x = problem.data, problem.x
    fields: dict[str, Any] = {"x": _rows(x) if isinstance(x, SparseFeatures) else x, "y": data.y}
    fields |= {key: data[key] for key in MASKS if data.get(key) is not None}
    scaling = {k.removeprefix(PREFIX): v.tolist() for k, v in problem.scaling.tensors().items()}
    about = {
        **{key: data.get(key) for key in _NAMED},
        "edges_before": problem.edges_before,
        "self_loops": problem.loops,
        "scaling": {"kind": problem.scaling.kind, **scaling},
        "digests": data_digests(data),
        "options": None if config is None else _made(config),
    }
    name = chosen(method)
    assignment = cut(problem.graph, parts, name)
    return write_parts(folder, problem.graph, assignment, fields, method=name, about=about)


def _made(config: Config) -> dict[str, Any]:
    return {name: value for name, value in config.to_dict().items() if name in _MADE}


def holds_problem(folder: Path, problem: Problem, parts: int, method: str, config: Config) -> bool:
    """Whether a folder holds what :func:`write_problem` would write; ``auto`` is any method."""
    try:
        about = read_about(folder)
    except DataError:
        return False
    wanted = {"digests": data_digests(problem.data), "options": _made(config)}
    same = {key: about.about.get(key) for key in wanted} == wanted
    return same and about.parts == parts and method in ("auto", about.method)


def _rows(x: SparseFeatures) -> SparseRows:
    pattern = x.pattern
    pointer = pattern.rowptr.long()
    return SparseRows(pointer, pattern.col, x.values, pattern.cols, pointer[:-1], pattern.num_edges)


def read_problem(folder: Path, number: int, task: str = "auto") -> tuple[Problem, dict[str, Any] | None]:
    """The problem of one part, and the digests of the data it was made from.

    Features and edges are memory maps of the part's own files. Labels and masks are read of all parts,
    because splits are drawn from all nodes.

    Args:
        folder: From :func:`write_problem`, or a graph that was cut on disk, with the fields x and y.
        number: Of the part.
        task: What the labels are, where the folder does not say it; ``auto`` decides by their form.
    """
    about = read_about(folder)
    note, data = about.about, _labels(folder, about, task)
    part, fields = read_part(folder, number)
    whole = make_task(data)
    own = fields["y"]
    assert isinstance(own, Tensor)
    x = _features(fields["x"])
    if not bool(torch.isfinite(x.values if isinstance(x, SparseFeatures) else x).all()):
        raise DataError(f"x in {folder} holds NaN or infinity: replace them, and {_AGAIN}.")
    stored = dict(note.get("scaling") or {"kind": "none"})
    kind, width = stored.pop("kind"), x.shape[-1]
    scaling = Scaling.from_tensors(
        kind, {f"{PREFIX}{k}": torch.tensor(v) for k, v in stored.items()}, width
    )
    loops = int(note.get("self_loops", 0))
    edges = int(note.get("edges_before", about.edges - loops))
    problem = Problem(data, x, TASKS[whole.name](own, whole.names), part, scaling, edges, loops)
    return problem, note.get("digests")


def _labels(folder: Path, about: About, task: str) -> Data:
    """Labels, masks and names of all nodes, checked."""
    if missing := [name for name in ("x", "y") if name not in about.fields]:
        raise DataError(
            f"{folder} has no field {' and '.join(missing)}: {_AGAIN} with features x and labels y."
        )
    named = {key: about.about[key] for key in _NAMED if about.about.get(key) is not None}
    if task != "auto" and named.setdefault("task", task) != task:
        raise ConfigError(f"the task of {folder} is {named['task']}: leave out --task {task}.")
    data = Data(num_nodes=about.nodes, **named)
    for key in ("y", *MASKS):
        if key in about.fields:
            data[key] = _whole_field(folder, about, key)
    try:
        check_labels(data, about.nodes)
    except DataError as error:
        raise DataError(f"{folder}: {error}, and {_AGAIN}.") from None
    return data


def _features(field: Field) -> Features:
    if not isinstance(field, SparseRows):
        return field
    return SparseFeatures(field.pattern, field.values, field.places)


def _whole_field(folder: Path, about: About, name: str) -> Tensor:
    """A field of all nodes, put together from its parts."""
    whole: Tensor | None = None
    for number in range(about.parts):
        part, fields = read_part(folder, number, verify=False)
        own = fields[name]
        assert isinstance(own, Tensor)
        if whole is None:
            whole = own.new_empty(about.nodes, *own.shape[1:])
        whole[part.nodes] = own
    assert whole is not None
    return whole


def check_stored(config: Config, about: About) -> None:
    """Refuse fields that cannot be trained on, and options that a graph in parts cannot have.

    It was rewired and given its self-loops before.
    """
    folder = Path(config.data)
    _labels(folder, about, config.task)
    x = _features(read_part(folder, 0, verify=False)[1]["x"])
    kind = (x.values if isinstance(x, SparseFeatures) else x).dtype
    if kind != torch.float32 or len(x.shape) != 2:
        raise DataError(
            f"x in {folder} must be float32 of shape ({about.nodes}, F), got {kind} of shape "
            f"({about.nodes}, {', '.join(map(str, x.shape[1:]))}): convert it, and {_AGAIN}."
        )
    if config.rewire != "none":
        raise ConfigError(
            f"the graph in {config.data} is cut already: rewire it before, and leave out --rewire."
        )
    if config.scaling not in ("auto", "none"):
        raise ConfigError(
            f"the features in {config.data} are taken as they are stored: scale them before, and leave out "
            "--scaling."
        )
