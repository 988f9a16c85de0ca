"""How many members fit in memory at once."""

from __future__ import annotations

import os
import sys

import torch

from ..nn import SparseFeatures
from ..solvers.exponential import default_tolerance, number_of_terms
from .config import Config
from .problem import Problem


def member_bytes(problem: Problem, config: Config) -> int:
    """Estimate of what one member holds during a training step, in bytes."""
    nodes, edges = problem.graph.num_nodes, problem.graph.num_edges
    state = 4 * nodes * (config.hidden + config.augment)
    if config.variant == "linear" and config.solver in ("auto", "exponential"):
        longest = torch.tensor(config.time)
        tensors = number_of_terms(longest, default_tolerance(torch.float32), most=sys.maxsize) + 8
        saved = tensors * state + 4 * edges * (2 * config.heads + 4)
    else:
        # every evaluation keeps the state, queries and keys, and the mean attention
        evaluations = 12 * max(config.time / min(config.step_size, 2.0), 4)
        saved = int(evaluations) * (2 * state + 8 * nodes * config.attention_dim + 4 * edges * 3)
    if isinstance(problem.x, SparseFeatures):
        inputs = 3 * 4 * problem.x.values.numel()
    else:
        inputs = 3 * 4 * nodes * problem.in_channels
    weights = 6 * 4 * (problem.in_channels + 2 * config.attention_dim + config.hidden) * config.hidden
    sweep = state * config.sweep_points if config.sweep else 0
    return int(saved + inputs + weights + sweep)


def free_bytes(device: torch.device) -> int:
    """Memory that can be taken now."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def chunk_size(problem: Problem, config: Config, members: int) -> int:
    """Members to train together: on a CPU one at a time, which stays in cache; on a GPU what fits."""
    device = problem.y.device
    if device.type == "cpu":
        return 1
    fit = int(0.7 * free_bytes(device) / member_bytes(problem, config))
    return max(1, min(members, fit))
