"""Processes that have joined one group of torch.distributed, for tests: each call runs in all of them."""

from __future__ import annotations

import tempfile
import traceback
from datetime import timedelta

import pytest
from commands import PROCESSES

PATIENCE = 120  # seconds for one call


class Group:
    """``size`` processes; made once, because importing torch takes longer than most tests."""

    def __init__(self, size):
        self.size = size
        self.store = tempfile.mkdtemp()
        pairs = [PROCESSES.Pipe() for _ in range(size)]
        self.pipes = [own for own, _ in pairs]
        self.workers = [
            PROCESSES.Process(target=_serve, args=(rank, size, f"{self.store}/store", pipe), daemon=True)
            for rank, (_, pipe) in enumerate(pairs)
        ]
        for worker in self.workers:
            worker.start()

    def run(self, function, *args):
        """What ``function(rank, size, *args)`` gives in each process."""
        for pipe in self.pipes:
            pipe.send((function, args))
        found = []
        for rank, pipe in enumerate(self.pipes):
            if not pipe.poll(PATIENCE):
                self.close()
                pytest.fail(f"process {rank} of {self.size} gave no answer in {PATIENCE} s")
            found.append(pipe.recv())
        errors = [f"process {k}: {error}" for k, (error, _) in enumerate(found) if error]
        if errors:
            self.close()  # the others may wait for one that has failed
            pytest.fail("\n".join(errors))
        return [value for _, value in found]

    @property
    def alive(self):
        return all(worker.is_alive() for worker in self.workers)

    def close(self):
        for worker in self.workers:
            worker.kill()
            worker.join()


def _serve(rank, size, store, pipe):
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{store}",
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=PATIENCE / 2),
    )
    while True:
        function, args = pipe.recv()
        try:
            pipe.send((None, function(rank, size, *args)))
        except BaseException:
            pipe.send((traceback.format_exc(), None))


_groups: dict[int, Group] = {}


def group(size):
    """A group of ``size`` processes, started on first use."""
    if size not in _groups or not _groups[size].alive:
        _groups[size] = Group(size)
    return _groups[size]
