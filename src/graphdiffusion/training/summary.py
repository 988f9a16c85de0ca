"""What a run found, in figures."""

from __future__ import annotations

import math
import platform
import reprlib
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch_geometric
from scipy.stats import norm
from scipy.stats import t as student
from torch import Tensor
from torch_geometric.data import Data

from ..data import Split
from .config import Config
from .problem import Member, Problem, member_splits, split_kind
from .tasks import Classification, Task
from .template import model_template

# the figure that is the score of a task, by its metric
FIGURES = {"accuracy": "accuracy", "R²": "r2", "micro-F1": "micro_f1"}


@dataclass(frozen=True)
class Result:
    """What one member reached: the score of its task, at most 1; ``test`` was read once, at the best
    validation.
    """

    number: int
    split: int
    init: int
    val: float | None  # None where there is no such node
    test: float | None
    best_epoch: int
    epochs: int
    time: float | None  # T of the kept model, where it has one
    options: dict[str, Any]

    @classmethod
    def parse(cls, entry: Mapping[str, Any]) -> Result:
        """From JSON; TypeError or ValueError where it is not a result."""
        # a model may have no T, a split no validation or test nodes
        absent = [
            k for k in ("time", "val", "test") if isinstance(entry, Mapping) and entry.get(k, 0) is None
        ]
        _check_kinds(entry, _RESULT | dict.fromkeys(absent, type(None)), "a result")
        for name in ("val", "test"):
            if entry[name] is not None and entry[name] > 1:
                raise ValueError(f"{name} of a result is {entry[name]}")
        return cls(**entry)

    @property
    def member(self) -> Member:
        """The member that this result is of."""
        return Member(self.number, self.split, self.init, self.options)


def scores(config: Config, problem: Problem, results: Sequence[Result]) -> dict[str, dict[str, Any] | None]:
    """Test and validation score of some members, as :func:`spread` gives them, ``None`` without nodes."""
    masks = member_splits(config, problem.data, [results[0].member])
    found: dict[str, dict[str, Any] | None] = {"test": None, "val": None}
    for name, mask, part in (("test", masks.test, "test nodes"), ("val", masks.val, "validation nodes")):
        own = [(value, r.split) for r in results if (value := getattr(r, name)) is not None]
        if own:
            values, splits = zip(*own, strict=True)
            found[name] = spread(values, splits, int(mask.sum()), part, problem.task)
    return found


def spread(
    values: Sequence[float],
    splits: Sequence[int],
    nodes: int,
    part: str,
    task: type[Task] | Task = Classification,
) -> dict[str, Any]:
    """Mean, standard deviation and a 95% interval of scores; shares are given in percent.

    Trainings on one split are not independent: they share its nodes. So the interval is that of the means
    of the splits (Student's t), which says how the mean varies with the split. For a single split, and for
    splits that do not differ at all, it is the binomial error of its nodes (Wilson) if the score is an
    accuracy; for another score there is none.

    Args:
        values: A score for each training.
        splits: The split of each training.
        nodes: Number of nodes that one score is over.
        part: What these nodes are, such as ``"test nodes"``.
        task: Says what the score is.

    Returns:
        ``metric``, ``unit`` (``"%"`` or empty), ``mean``, ``std`` over all trainings, ``ci95`` (low and
        high end, or ``None``), ``interval`` (``"splits"`` or ``part``), and the numbers of ``trainings``,
        ``splits`` and ``nodes``.
    """
    factor, accuracy = (100.0 if task.percent else 1.0), task.metric == Classification.metric
    groups: dict[int, list[float]] = defaultdict(list)
    for split, value in zip(splits, values, strict=True):
        groups[split].append(value)
    means = [statistics.fmean(own) for own in groups.values()]
    mean = statistics.fmean(means)
    if max(means) - min(means) > 1e-12:
        kind = "splits"
        half = half_interval(means)
        low, high = mean - half, mean + half
    else:
        kind = part
        low, high = wilson(mean, nodes) if accuracy else (mean, mean)
    # whatever rounding does to the ends
    low, high = max(min(low, mean), 0.0 if task.percent else -math.inf), min(max(high, mean), 1.0)
    return {
        "metric": task.metric,
        "unit": "%" if task.percent else "",
        "mean": factor * mean,
        "std": factor * (statistics.stdev(values) if len(values) > 1 else 0.0),
        "ci95": [float(factor * low), float(factor * high)] if accuracy or kind == "splits" else None,
        "interval": kind,
        "trainings": len(values),
        "splits": len(means),
        "nodes": nodes,
    }


def describe(score: Mapping[str, Any]) -> str:
    """``83.24 ± 1.10% (95% interval 82.14 to 84.34, over 5 splits)`` from what :func:`spread` gives."""
    digits = 2 if score["unit"] else 4
    mean = f"{score['mean']:z.{digits}f}"
    if score["trainings"] > 1:
        mean += f" ± {score['std']:.{digits}f}"
    if score["ci95"] is None:
        return f"{mean}{score['unit']} ({score['nodes']} {score['interval']})"
    low, high = (f"{end:z.{digits}f}" for end in score["ci95"])
    if score["interval"] == "splits":
        source = f"over {score['splits']} splits"
    else:
        source = f"binomial error of {score['nodes']} {score['interval']}"
    return f"{mean}{score['unit']} (95% interval {low} to {high}, {source})"


def half_interval(values: Sequence[float]) -> float:
    """Half of the 95% interval of a mean, by Student's t; infinite for one value."""
    count = len(values)
    if count < 2:
        return math.inf
    return float(student.ppf(0.975, count - 1)) * statistics.stdev(values) / math.sqrt(count)


def wilson(share: float, count: int) -> tuple[float, float]:
    """Wilson's 95% interval of a share of ``count`` independent answers."""
    z = float(norm.ppf(0.975))
    middle = share + z**2 / (2 * count)
    half = z * math.sqrt(share * (1 - share) / count + z**2 / (4 * count**2))
    return (middle - half) / (1 + z**2 / count), (middle + half) / (1 + z**2 / count)


def summarise(
    problem: Problem, config: Config, results: Sequence[Result], seconds: float
) -> dict[str, Any]:
    """The content of ``summary.json``: accuracies in percent, sizes, time and versions."""
    model = model_template(config, problem.in_channels, problem.out_channels, problem.num_nodes)
    return {
        "data": config.data,
        "model": config.title,
        "row": config.row,
        "members": len(results),
        **scores(config, problem, results),
        "task": problem.task.name,
        "split": describe_split(config, problem, results),
        "nodes": problem.num_nodes,
        "directed": config.directed,
        "edges_given": problem.edges_before,
        "edges_used": problem.num_edges - problem.loops,
        "self_loops": problem.loops,
        "features": problem.in_channels,
        "outputs": problem.out_channels,
        "names": problem.task.names,
        "parameters": sum(p.numel() for p in model.parameters() if p.requires_grad),
        "seconds": seconds,
        "device": device_name(problem.y.device),
        "versions": versions(),
        "results": [asdict(r) for r in results],
    }


def describe_split(config: Config, problem: Problem, results: Sequence[Result]) -> dict[str, Any]:
    """Kind of the splits; of the first one sizes of the parts and, of each class, its nodes in each part;
    the sizes in all of them.
    """
    members = list({r.split: r.member for r in results}.values())
    sizes = part_sizes(config, problem.data, members)
    task = problem.whole_task
    found: dict[str, Any] = {
        "kind": split_kind(config, problem.data),
        "splits": len(members),
        "labelled": int(task.labelled.sum()),
        **{part: own[0] for part, own in sizes.items()},
        "sizes": sizes,
    }
    if task.name == "classification":
        masks = member_splits(config, problem.data, members[:1])
        found["classes"] = class_counts(masks, task.y.cpu(), task.names)
    return found


PARTS = {"train": "train", "val": "validate", "test": "test"}  # of a split, and what they are for


def part_sizes(config: Config, data: Data, members: Sequence[Member]) -> dict[str, list[int]]:
    """Nodes in each part of the split of every member."""
    sizes: dict[str, list[int]] = {part: [] for part in PARTS}
    for member in members:  # one at a time: the masks of many splits are large
        masks = member_splits(config, data, [member])
        for part, own in sizes.items():
            own.append(int(getattr(masks, part).sum()))
    return sizes


def class_counts(masks: Split, y: Tensor, names: Sequence[str]) -> dict[str, dict[str, int]]:
    """Nodes of each class in each part of the first split."""
    each = {
        part: torch.bincount(y[getattr(masks, part)[0].cpu()], minlength=len(names)).tolist()
        for part in PARTS
    }
    return {name: {part: each[part][k] for part in PARTS} for k, name in enumerate(names)}


def describe_sizes(kind: str, sizes: Mapping[str, Sequence[int]]) -> str:
    """``folds: 84 to 85 train, 28 validate, 28 test (5 splits take turns)``, from all sizes."""
    parts = [f"{_range(sizes[part])} {what}" for part, what in PARTS.items()]
    count = len(sizes["train"])
    turns = " take turns" if kind in ("shares", "folds") else ""
    return f"{kind}: {', '.join(parts)}" + (f" ({count} splits{turns})" if count > 1 else "")


def describe_parts(split: Mapping[str, Any]) -> str:
    """The same from the entry ``split`` of a summary; earlier versions noted the first split alone."""
    sizes = split.get("sizes") or {part: [split[part]] for part in PARTS}
    return describe_sizes(split["kind"], sizes)


def _range(values: Sequence[int]) -> str:
    low, high = min(values), max(values)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


# what readers of a summary rely on, and the kind of each entry
_SUMMARY: dict[Any, type] = {
    "data": str, "model": str, "row": str, "members": int, "nodes": int,
    "edges_given": int, "edges_used": int, "self_loops": int, "features": int, "outputs": int,
    "task": str, "split": dict, "names": list, "figures": dict,
    "parameters": int, "seconds": float, "device": str, "versions": dict, "results": list, "metrics": str,
}  # fmt: skip
_SCORE: dict[Any, type] = {
    "metric": str, "unit": str, "mean": float, "std": float, "interval": str, "trainings": int,
    "splits": int, "nodes": int,
}  # fmt: skip
_RESULT: dict[Any, type] = {
    "number": int, "split": int, "init": int, "val": float, "test": float, "best_epoch": int,
    "epochs": int, "time": float, "options": dict,
}  # fmt: skip


def check_summary(found: Mapping[str, Any], options: Mapping[str, Any]) -> list[Result]:
    """The results in a summary; TypeError or ValueError where it is not one of a run with these options."""
    _check_kinds(found, _SUMMARY, "a summary")
    results = [Result.parse(entry) for entry in found["results"]]
    if not results or found["members"] != len(results):
        raise ValueError(f"it has {len(results)} results for {found['members']} members")
    if found["data"] != options.get("data"):
        raise ValueError(f"its data is {found['data']!r}, where the run has {options.get('data')!r}")
    for name in ("test", "val"):
        if found[name] is None:
            continue
        _check_kinds(found[name], _SCORE, f"the {name} score")
        if found[name]["ci95"] is not None:
            ends = dict(enumerate(found[name]["ci95"]))
            _check_kinds(ends, {0: float, 1: float}, f"the interval of the {name} score")
    return results


def _check_kinds(found: Any, kinds: Mapping[Any, type], what: str) -> None:
    """Refuse entries of another kind than a training writes; numbers are finite and fit in 64 bits."""
    for name, kind in kinds.items():
        value = found.get(name) if isinstance(found, Mapping) else None
        if kind is float and isinstance(value, float):
            good = math.isfinite(value)
        elif kind in (int, float):
            good = type(value) is int and -(2**63) <= value < 2**63
        else:
            good = isinstance(value, kind)
        if not good:
            raise TypeError(f"{name} of {what} is {reprlib.repr(value)}")


def shown(score: float, percent: bool) -> str:
    """A score as text: ``83.24%`` or ``0.8324``."""
    return f"{100 * score:.2f}%" if percent else f"{score:z.4f}"


def counted(number: int, noun: str) -> str:
    """A number with its noun: 1 model, 2 models."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def duration(seconds: float) -> str:
    """``45 s``, ``7 min`` or ``2.5 h``."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def versions() -> dict[str, str]:
    """Of Python and the libraries that compute."""
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "torch_geometric": torch_geometric.__version__,
    }


def device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    threads = torch.get_num_threads()
    return f"CPU, {threads} thread{'s' * (threads > 1)}"
