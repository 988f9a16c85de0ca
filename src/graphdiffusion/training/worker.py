"""One process of a training on parts: it joins the others, loads its part and trains."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from ..errors import ConfigError
from ..partition import use_part
from ..partition.whole import total
from .config import Config
from .folder import holds_run, open_folder
from .partfolder import read_problem
from .parts import SharedFolder
from .problem import Problem, pick_device, protocol
from .rendezvous import fresh_store
from .summary import Result
from .trainer import Trainer, Watcher

PATIENCE = timedelta(minutes=30)  # for the slowest process: the first one may have to cut the graph

Watching = Callable[[int], AbstractContextManager[Watcher | None]]


@contextmanager
def joined(device: str) -> Iterator[torch.device]:
    """Join the processes that torchrun, Ray or another launcher has started; gives the device of this one.

    The launcher has set ``RANK``, ``WORLD_SIZE``, ``MASTER_ADDR`` and ``MASTER_PORT``, and ``LOCAL_RANK``
    where a machine has several GPUs.
    """
    wanted = pick_device(device)
    if wanted.type == "cuda":
        wanted = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
        torch.cuda.set_device(wanted)
    else:
        local = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        torch.set_num_threads(max(1, _cores() // local))
    alone = not dist.is_initialized()  # Ray has joined them already
    if alone:
        store, number, size = next(dist.rendezvous("env://", timeout=PATIENCE))
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if wanted.type == "cuda" else "gloo",
            store=fresh_store(store, number, size, PATIENCE),
            rank=number,
            world_size=size,
            timeout=PATIENCE,
        )
    try:
        yield wanted
    finally:
        if alone:
            dist.destroy_process_group()


def _cores() -> int:
    """Cores that this process may use: a queue such as Slurm's gives a job some of those of a machine."""
    bound = {"OMP_PROC_BIND", "OMP_PLACES"} & os.environ.keys()  # OpenMP has left this thread one core
    if hasattr(os, "sched_getaffinity") and not bound:
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def train_part(
    config: Config,
    out: Path,
    folder: Path,
    device: torch.device,
    *,
    resume: bool,
    watching: Watching = lambda members: nullcontext(),
) -> list[Result]:
    """Train on the part of this process, with all others; the results of all members.

    Args:
        config: Options of the run.
        out: Folder of the run; the first process alone reads and writes it.
        folder: The parts, as :func:`~graphdiffusion.training.partfolder.read_problem` takes them.
        device: Of this process.
        resume: Go on with the run in ``out``.
        watching: From the number of members to what watches their training, in the first process.
    """
    number, size = dist.get_rank(), dist.get_world_size()
    problem, digests = read_problem(folder, number, config.task)
    dist.barrier()  # no run is begun where another process cannot read its part
    if (parts := getattr(problem.graph, "parts", 1)) != size:
        raise ConfigError(f"{folder} holds {parts} parts, and {size} processes have joined: start {parts}.")
    problem = problem.to(device)
    members = protocol(config, problem.data)
    first = number == 0
    # without a fingerprint of the data it came from, a graph that was cut on disk is known by its labels
    kept: Any = open_folder(out, config, problem.data, resume, digests) if first else nullcontext()
    watched = watching(len(members)) if first else nullcontext()
    with use_part(problem.graph), kept as own, watched as watcher:  # type: ignore[arg-type]
        if digests is None:
            problem = _with_loops(problem)
        return Trainer(problem, config, members, SharedFolder(own), watcher).run()


def _with_loops(problem: Problem) -> Problem:
    """A graph that was cut on disk does not note its self-loops: they are counted, on all parts."""
    loops = int(total((problem.graph.row == problem.graph.col).sum()))
    return replace(problem, edges_before=problem.num_edges - loops, loops=loops)


def restarted(out: Path) -> bool:
    """Whether the launcher has started the processes anew after a failure, and the run goes on."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0 and holds_run(out)
