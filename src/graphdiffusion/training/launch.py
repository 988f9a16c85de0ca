"""Starting the processes of a training on parts, and starting them again where one is lost.

One process for each part: on this machine through torch's elastic agent, the one behind torchrun, or on a
cluster through Ray Train. Where a process dies, all are started anew and the run goes on from its last
checkpoint.
"""

from __future__ import annotations

import importlib
import logging
import os
import signal
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ..errors import ConfigError, GraphDiffusionError, WorkerError
from ..plugins import load_plugin
from .chunks import PARTS
from .config import Config
from .folder import holds_run, is_finished
from .trainer import Watcher
from .worker import joined, restarted, train_part

log = logging.getLogger("graphdiffusion")

RESTARTS = 3  # of all processes, after one of them is lost

# a process that fails by itself says so here, since it would fail again: those started anew end at once
_FAILED = "failed.txt"
_LOST = ("gloo", "nccl", "connection", "timed out")  # in an error of a process that has lost another


@dataclass(frozen=True)
class Order:
    """What a launcher gives to every process; it is pickled.

    Attributes:
        options: Of the configuration.
        plugins: Files with classes of their own.
        out: Folder of the run, from anywhere: a worker may have another working directory.
        folder: The parts, likewise.
        resume: Go on with the run in ``out``.
        watching: A function of a module: from the number of members to what watches them.
        notes_failure: A process that fails by itself notes why, and those started anew end at once. Not
            under torchrun, where the note would not be read and would end the next attempt.
        again: The command that goes on with the run.
    """

    options: dict[str, Any]
    plugins: tuple[str, ...]
    out: Path
    folder: Path
    resume: bool
    watching: Callable[[int], AbstractContextManager[Watcher | None]] = nullcontext  # type: ignore[assignment]
    notes_failure: bool = True
    again: str = ""

    @property
    def failed(self) -> Path:
        """Where a process notes why it fails."""
        return self.out / PARTS / _FAILED


def work(order: Order) -> None:
    """What each process does, once a launcher has set its place."""
    noted = order.notes_failure and order.failed.exists()
    if is_finished(order.out) or noted:  # lost and started again at the very end
        return
    try:
        for path in order.plugins:
            load_plugin(path)
        config = Config(**order.options)
        resume = order.resume or restarted(order.out)
        with joined(config.device) as device:
            train_part(config, order.out, order.folder, device, resume=resume, watching=order.watching)
    except Exception as error:
        lost = not isinstance(error, GraphDiffusionError)  # whatever a path in its sentence says
        lost = lost and any(word in str(error).lower() for word in _LOST)
        if lost:  # what matters is why the other process ended
            log.warning("process %s has lost another one (%s)", os.environ.get("RANK", "0"), error)
        elif not isinstance(error, GraphDiffusionError):
            traceback.print_exc()
        if order.notes_failure and not lost:
            _note(order, f"{type(error).__name__}: {error}")
        raise


def _note(order: Order, reason: str) -> None:
    """Note why a process fails; where the disk is full, the note is empty and the screen has the reason."""
    try:
        order.failed.parent.mkdir(parents=True, exist_ok=True)
        order.failed.write_text(reason)
    except OSError:
        log.error("%s", reason)


def work_here(order: Order) -> None:
    """The same work in a process of this machine, which a Ctrl-C reaches twice: from the terminal, and from
    the agent. The second one would interrupt the end of the process, and leave a traceback.
    """

    def interrupted(*_: Any) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupted)
    work(order)


def launch_here(order: Order, parts: int) -> None:
    """Train in ``parts`` processes on this machine, each with a GPU of its own or all on the CPU.

    Raises:
        WorkerError: a process was lost more than ``RESTARTS`` times, or failed by itself, or a
            signal ended this one.
        KeyboardInterrupt: it was interrupted.
    """
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    gpus = torch.cuda.device_count()
    if order.options.get("device") != "cpu" and 0 < gpus < parts:
        raise ConfigError(
            f"{parts} parts need as many GPUs, and this machine has {gpus}: take --parts {gpus}, "
            "--device cpu, or several machines (torchrun)."
        )
    for name in list(logging.root.manager.loggerDict):  # they repeat what is raised here
        if name.startswith(("torch.distributed", "torch.multiprocessing")):
            logging.getLogger(name).setLevel(logging.CRITICAL)
    how = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=parts,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        max_restarts=RESTARTS,
        run_id=str(os.getpid()),
    )
    order.failed.unlink(missing_ok=True)
    try:
        elastic_launch(how, entrypoint=work_here)(order)
    except ChildFailedError as error:
        number, failure = error.get_first_failure()
        reason = f"signal {-failure.exitcode}" if failure.exitcode < 0 else f"exit code {failure.exitcode}"
        raise WorkerError(
            f"the process of part {number} was lost {RESTARTS + 1} times ({reason}).{_again(order)}"
        ) from None
    except SignalException as error:  # what the agent makes of a signal, after it has ended the processes
        if error.sigval == signal.SIGINT:
            raise KeyboardInterrupt from None
        raise WorkerError(f"ended by {error.sigval.name}.{_again(order)}") from None
    raise_failure(order)


def raise_failure(order: Order) -> None:
    """Raise what a process has noted before it failed."""
    if order.failed.exists():
        reason = order.failed.read_text()
        order.failed.unlink()
        reason = reason or f"its reason stands above: {order.failed} could not be written"
        raise WorkerError(f"a process has failed ({reason}).{_again(order)}")


def _again(order: Order) -> str:
    """How to go on with a run, as a sentence; nothing where it has not begun."""
    return f" Go on with: {order.again}" if holds_run(order.out) else ""


def require_ray() -> None:
    """Refuse the engine ray where Ray Train cannot be imported."""
    try:
        importlib.import_module("ray.train.torch")
    except ImportError as error:
        raise ConfigError(
            f"--engine ray needs Ray, which cannot be imported ({error}): pip install "
            "'graphdiffusion[cluster]'."
        ) from None


def launch_ray(order: Order, parts: int) -> None:
    """Train on a Ray cluster, a worker for each part, by Ray Train.

    The folder of the run and the parts must lie where all machines see them. Ray's own state is kept in
    ``<out>/parts/ray``; the checkpoints are those of the run.
    """
    require_ray()
    from ray.exceptions import RayError
    from ray.train import FailureConfig, RunConfig, ScalingConfig, TrainingFailedError
    from ray.train.torch import TorchTrainer

    gpu = order.options.get("device") != "cpu" and torch.cuda.is_available()
    trainer = TorchTrainer(
        _ray_work,
        train_loop_config={"order": order},
        scaling_config=ScalingConfig(num_workers=parts, use_gpu=gpu),
        run_config=RunConfig(
            name="ray",
            storage_path=str(order.out / PARTS),
            failure_config=FailureConfig(max_failures=RESTARTS),
        ),
    )
    order.failed.unlink(missing_ok=True)
    # workers import torch first, perhaps from a disk that all machines share; Ray gives them a minute
    os.environ.setdefault("RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S", "600")
    try:
        trainer.fit()
    except SystemExit:  # what Ray makes of Ctrl-C, after it has ended the workers
        raise KeyboardInterrupt from None
    except (TrainingFailedError, RayError) as error:
        last = str(error).strip().splitlines()[-1]
        raise WorkerError(f"the workers of Ray were lost ({last}).{_again(order)}") from None
    raise_failure(order)


def _ray_work(given: dict[str, Any]) -> None:
    """The same work in a worker of Ray, which has joined the others already."""
    import ray.train

    order: Order = given["order"]
    place = ray.train.get_context()
    os.environ |= {
        "LOCAL_RANK": str(place.get_local_rank()),
        "LOCAL_WORLD_SIZE": str(place.get_local_world_size()),
    }
    # Ray calls a worker again after a failure: what the folder holds is of the same run
    work(Order(**{**order.__dict__, "resume": order.resume or holds_run(order.out)}))
