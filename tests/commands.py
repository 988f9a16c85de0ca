"""``grand`` in processes that start at once: forked from one that has imported torch and PyG."""

from __future__ import annotations

import functools
import multiprocessing
import os
import signal
import sys
from pathlib import Path

import torch

# one for all tests: what its server has imported is settled when the first process starts
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(
    [
        "graphdiffusion.training.launch",
        "graphdiffusion.training.runs",
        "graphdiffusion.experiments.trained",
        "graphdiffusion.configs",
        "torch.distributed.launcher.api",
    ]
)
HANDLED = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)  # by the agent that starts the parts


def _live(words: tuple[str, ...], said: str, environment: dict[str, str]) -> None:
    """The life of a command; what it and its processes say goes into a file."""
    from torch.distributed.launcher import api

    from graphdiffusion.cli import main

    os.setsid()
    output = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(output, stream)
    os.environ |= {"OMP_NUM_THREADS": "1", **environment}
    torch.set_num_threads(1)
    # the processes of parts are forked too, and begin with the signals of a process that was spawned
    os.register_at_fork(after_in_child=_as_spawned)
    api.LaunchConfig = functools.partial(api.LaunchConfig, start_method="fork")  # type: ignore[misc]
    sys.exit(main(list(words)))


def _as_spawned() -> None:
    for number in HANDLED:
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)


class Grand:
    """A command that was started, in a session of its own."""

    def __init__(self, *words: str, said: Path, **environment: str) -> None:
        said.touch()
        self._said = said
        self._process = PROCESSES.Process(target=_live, args=(words, str(said), environment))
        self._process.start()
        self.pid: int = self._process.pid or 0

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, patience: float) -> int | None:
        """The exit status; None where the command is still at work after so many seconds."""
        self._process.join(patience)
        return self._process.exitcode

    def kill(self) -> None:
        self._process.kill()

    @property
    def said(self) -> str:
        return self._said.read_text()
