"""How many members fit in memory at once, and what is done when they do not: half as many."""

from __future__ import annotations

import gc
import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import torch

from ..errors import NotEnoughMemory
from ..nn import Model, SparseFeatures
from ..partition.whole import active_part, smallest
from .config import Config
from .problem import Member, Problem
from .template import model_template

ADVICE = "take a smaller hidden or attention_dim, fewer heads, or gradient checkpoint"

SHARE = 0.7  # of what is free, for members together
EVALUATION = 24  # states at once in a pass without gradients, measured: 7 to 22

# how torch says it on a CPU, and where a size is beyond any memory
_SAYS = (
    "DefaultCPUAllocator", "not enough memory", "out of memory", "ALLOC_FAILED",
    "Storage size calculation overflowed",
)  # fmt: skip

Done = TypeVar("Done")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory has run out, on a GPU or on a CPU."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    return isinstance(error, RuntimeError) and any(text in str(error) for text in _SAYS)


def in_chunks(members: Sequence[Member], size: int, work: Callable[[list[Member]], Done]) -> list[Done]:
    """``work`` on chunks of ``size`` members; where memory runs out, on chunks half as large from there on.

    Returns the result of each chunk, in the order of the members.

    Raises:
        NotEnoughMemory: not even one member fits.
    """
    place, done = 0, []
    while place < len(members):
        chunk = list(members[place : place + size])
        try:
            done.append(work(chunk))
            place += len(chunk)
            continue
        except Exception as error:
            # the other parts of a graph would wait for this one
            if not is_out_of_memory(error) or active_part() is not None:
                raise
            if len(chunk) == 1:
                raise NotEnoughMemory(f"one training does not fit in memory: {ADVICE}.") from None
        free_memory()  # here, where no error holds the tensors any more
        size = (len(chunk) + 1) // 2
    return done


def free_memory() -> None:
    """Give back the memory of earlier populations, which refer to themselves in circles."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def require_room(problem: Problem, config: Config) -> None:
    """Refuse a model that cannot be trained in the memory of the device, before anything is allocated.

    The bound is a low one: the parameters four times (gradient, moments, best state), and one state.
    """
    device = problem.y.device
    try:
        model = model_template(config, problem.in_channels, problem.out_channels, problem.num_nodes)
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        raise NotEnoughMemory(
            f"the model has more parameters than any memory can hold: {ADVICE}."
        ) from None
    size = 4 * sum(p.numel() * p.element_size() for p in model.parameters())
    size += (
        4
        * problem.graph.num_nodes
        * max((p.shape[0] for p in model.parameters() if p.dim() > 1), default=1)
    )
    if size > total_bytes(device):
        raise NotEnoughMemory(
            f"training one model takes more than {size / 1e9:,.0f} GB, and {device} has "
            f"{total_bytes(device) / 1e9:,.0f} GB of memory: {ADVICE}."
        )


def member_bytes(problem: Problem, config: Config) -> int:
    """Estimate of what one member holds during a training step, in bytes."""
    if config.batches <= 1:
        return bytes_of(problem, config)
    share = 1 / config.batches
    return max(bytes_of(problem, config, share, share), _evaluation(problem, config))


def bytes_of(problem: Problem, config: Config, nodes: float = 1.0, edges: float = 1.0) -> int:
    """The estimate for a subgraph with these shares of the nodes and edges."""
    model = _template(problem, config)
    own, held = problem.graph.num_nodes, problem.graph.num_edges  # of the part that is held here
    own, held = math.ceil(nodes * own), math.ceil(edges * held)
    entries = math.ceil(nodes * feature_entries(problem, model))
    sweep = 4 * own * problem.out_channels * config.sweep_points if config.sweep else 0
    return model.memory(own, held, entries) + sweep


def _evaluation(problem: Problem, config: Config) -> int:
    """Estimate of what a pass over the whole graph takes without gradients."""
    model = _template(problem, config)
    widest = max((p.shape[0] for p in model.parameters() if p.dim() > 1), default=1)
    return 4 * (feature_entries(problem, model) + EVALUATION * problem.graph.num_nodes * widest)


def _template(problem: Problem, config: Config) -> Model:
    return model_template(config, problem.in_channels, problem.out_channels, problem.num_nodes)


def feature_bytes(problem: Problem) -> int:
    """What the features of a problem take."""
    x = problem.x
    return 12 * x.values.numel() if isinstance(x, SparseFeatures) else x.numel() * x.element_size()


def feature_entries(problem: Problem, model: Model) -> int:
    """Numbers in the features, as the model takes them."""
    if isinstance(problem.x, SparseFeatures) and model.takes_sparse:
        return problem.x.values.numel()
    return problem.graph.num_nodes * problem.in_channels


def free_bytes(device: torch.device) -> int:
    """Memory that can be taken now; on a CPU what the system can give back, such as cached files, too."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return 1024 * int(next(line for line in lines if line.startswith("MemAvailable")).split()[1])
    except (OSError, StopIteration, ValueError):
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def total_bytes(device: torch.device) -> int:
    """All memory of a device."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[1]
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def chunk_size(problem: Problem, config: Config, members: int) -> int:
    """Members to train together: on a CPU one at a time, which stays in cache; on a GPU what fits."""
    device = problem.y.device
    if device.type == "cpu":
        return 1
    free_memory()
    fit = int(SHARE * free_bytes(device) / member_bytes(problem, config))
    return int(smallest(torch.tensor(max(1, min(members, fit)), device=device)))
