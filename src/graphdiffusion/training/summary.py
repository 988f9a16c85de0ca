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

from .config import Config
from .problem import Member, Problem, member_splits
from .template import model_template


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
    time: float | None  # T of the kept model, where it has one
    options: dict[str, Any]

    @classmethod
    def parse(cls, entry: Mapping[str, Any]) -> Result:
        """From JSON; TypeError or ValueError where it is not a result."""
        timeless = isinstance(entry, Mapping) and entry.get("time", 0) is None  # of a model that has no T
        _check_kinds(entry, _RESULT | ({"time": type(None)} if timeless else {}), "a result")
        for name in ("val", "test"):
            if not 0 <= entry[name] <= 1:
                raise ValueError(f"{name} of a result is {entry[name]}")
        return cls(**entry)

    @property
    def member(self) -> Member:
        return Member(self.number, self.split, self.init, self.options)


def accuracies(config: Config, problem: Problem, results: Sequence[Result]) -> dict[str, dict[str, Any]]:
    """Test and validation accuracy of some members in percent, each as :func:`spread` gives it."""
    masks = member_splits(config, problem.data, [results[0].member])
    # whatever the seeds say, a split that is given with the data is one
    splits = [r.split if config.split == "random" else 0 for r in results]
    return {
        "test": spread([r.test for r in results], splits, int(masks.test.sum()), "test nodes"),
        "val": spread([r.val for r in results], splits, int(masks.val.sum()), "validation nodes"),
    }


def spread(values: Sequence[float], splits: Sequence[int], nodes: int, part: str) -> dict[str, Any]:
    """Mean, standard deviation and a 95% interval of accuracies in [0, 1], all in percent.

    Trainings on one split are not independent: they share its nodes. So the interval is that of the means
    of the splits (Student's t), which says how the mean varies with the split. For a single split, and for
    splits that do not differ at all, it is the binomial error of its nodes (Wilson).

    Args:
        values: An accuracy for each training.
        splits: The split of each training.
        nodes: Number of nodes that one accuracy is over.
        part: What these nodes are, such as ``"test nodes"``.

    Returns:
        ``mean``, ``std`` over all trainings, ``ci95`` (low and high end), ``interval`` (``"splits"`` or
        ``part``), and the numbers of ``trainings``, ``splits`` and ``nodes``.
    """
    groups: dict[int, list[float]] = defaultdict(list)
    for split, value in zip(splits, values, strict=True):
        groups[split].append(value)
    means = [statistics.fmean(own) for own in groups.values()]
    mean = statistics.fmean(means)
    if max(means) - min(means) > 1e-12:
        kind = "splits"
        half = student.ppf(0.975, len(means) - 1) * statistics.stdev(means) / math.sqrt(len(means))
        low, high = mean - half, mean + half
    else:
        kind = part
        low, high = wilson(mean, nodes)
    low, high = min(low, mean), max(high, mean)  # whatever rounding does to the ends at 0 and 1
    return {
        "mean": 100 * mean,
        "std": 100 * (statistics.stdev(values) if len(values) > 1 else 0.0),
        "ci95": [float(100 * max(low, 0.0)), float(100 * min(high, 1.0))],
        "interval": kind,
        "trainings": len(values),
        "splits": len(means),
        "nodes": nodes,
    }


def describe(score: Mapping[str, Any]) -> str:
    """``83.24 ± 1.10% (95% interval 82.14 to 84.34, over 5 splits)`` from what :func:`spread` gives."""
    mean = f"{score['mean']:.2f}" + (f" ± {score['std']:.2f}" if score["trainings"] > 1 else "")
    low, high = score["ci95"]
    if score["interval"] == "splits":
        source = f"over {score['splits']} splits"
    else:
        source = f"binomial error of {score['nodes']} {score['interval']}"
    return f"{mean}% (95% interval {low:.2f} to {high:.2f}, {source})"


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
    model = model_template(config, problem.in_channels, problem.classes)
    loops = int((problem.graph.row == problem.graph.col).sum())
    return {
        "data": config.data,
        "model": config.title,
        "row": config.row,
        "members": len(results),
        **accuracies(config, problem, results),
        "nodes": problem.graph.num_nodes,
        "edges_given": problem.edges_before,
        "edges_used": problem.graph.num_edges - loops,
        "self_loops": loops,
        "features": problem.in_channels,
        "classes": problem.classes,
        "parameters": sum(p.numel() for p in model.parameters() if p.requires_grad),
        "seconds": seconds,
        "device": device_name(problem.y.device),
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "torch_geometric": torch_geometric.__version__,
        },
        "results": [asdict(r) for r in results],
    }


# what readers of a summary rely on, and the kind of each entry
_SUMMARY: dict[Any, type] = {
    "data": str, "model": str, "row": str, "members": int, "test": dict, "val": dict, "nodes": int,
    "edges_given": int, "edges_used": int, "self_loops": int, "features": int, "classes": int,
    "parameters": int, "seconds": float, "device": str, "versions": dict, "results": list, "metrics": str,
}  # fmt: skip
_SCORE: dict[Any, type] = {
    "mean": float, "std": float, "ci95": list, "interval": str, "trainings": int, "splits": int,
    "nodes": int,
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
        _check_kinds(found[name], _SCORE, f"the {name} accuracy")
        ends = dict(enumerate(found[name]["ci95"]))
        _check_kinds(ends, {0: float, 1: float}, f"the interval of the {name} accuracy")
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


def device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"CPU, {torch.get_num_threads()} threads"
