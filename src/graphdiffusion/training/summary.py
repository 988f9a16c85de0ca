"""What a run found, in figures."""

from __future__ import annotations

import math
import platform
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import torch
import torch_geometric
from scipy.stats import t as student

from .config import Config
from .problem import Problem, build_model

if TYPE_CHECKING:
    from .trainer import Result


def interval(values: Sequence[float]) -> dict[str, float]:
    """Mean, standard deviation, and half the width of a 95% interval of the mean (Student's t)."""
    count = len(values)
    deviation = statistics.stdev(values) if count > 1 else 0.0
    half = float(student.ppf(0.975, count - 1)) * deviation / math.sqrt(count) if count > 1 else math.nan
    return {"mean": statistics.fmean(values), "std": deviation, "ci95": half}


def summarise(
    problem: Problem, config: Config, results: Sequence[Result], started: float
) -> dict[str, Any]:
    """The content of ``summary.json``: accuracies in percent, sizes, time and versions."""
    model = build_model(config, problem.in_channels, problem.classes, 0)
    loops = int((problem.graph.row == problem.graph.col).sum())
    return {
        "data": config.data,
        "variant": config.variant,
        "members": len(results),
        "test": {k: _finite(100 * v) for k, v in interval([r.test for r in results]).items()},
        "val": {k: _finite(100 * v) for k, v in interval([r.val for r in results]).items()},
        "nodes": problem.graph.num_nodes,
        "edges_given": problem.edges_before,
        "edges_used": problem.graph.num_edges - loops,
        "self_loops": loops,
        "features": problem.in_channels,
        "classes": problem.classes,
        "parameters": sum(p.numel() for p in model.parameters() if p.requires_grad),
        "seconds": time.monotonic() - started,
        "device": device_name(problem.y.device),
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "torch_geometric": torch_geometric.__version__,
        },
        "results": [asdict(r) for r in results],
    }


def device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"CPU, {torch.get_num_threads()} threads"


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
