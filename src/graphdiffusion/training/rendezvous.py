"""How the processes of one attempt find each other, where an earlier attempt has left its addresses."""

from __future__ import annotations

import secrets
import time
from datetime import timedelta

import torch.distributed as dist

from ..errors import WorkerError


def fresh_store(store: dist.Store, number: int, size: int, patience: timedelta) -> dist.Store:
    """The part of a store that belongs to this attempt alone.

    The agent behind torchrun keeps one store for all attempts. It holds the addresses of processes that are
    gone, and gloo may read one of them before the new process has written its own. The number of the
    attempt does not tell them apart: agents of several machines count differently. So the first process
    makes a name, and each of the others asks for it under a name of its own, until all have answered.

    Args:
        store: That all processes see.
        number: Of this process, from 0.
        size: How many processes there are.
        patience: For the slowest of them.
    """
    own = secrets.token_hex(8)
    if number > 0:
        store.set(f"grand/asks/{number}", own)
        store.wait([f"grand/name/{own}"], patience)
        name = store.get(f"grand/name/{own}").decode()
        store.set(f"grand/knows/{own}", name)
        return dist.PrefixStore(name, store)
    left, deadline = set(range(1, size)), time.monotonic() + patience.total_seconds()
    while left:
        left = {other for other in left if not _knows(store, other, own)}
        if left and time.monotonic() > deadline:
            raise WorkerError(f"the processes {sorted(left)} of {size} have not joined in {patience}.")
        time.sleep(0.01 if left else 0)
    return dist.PrefixStore(own, store)


def _knows(store: dist.Store, other: int, name: str) -> bool:
    """Tell another process the name, if it asks; whether it knows it. One that is gone never does."""
    if not store.check([f"grand/asks/{other}"]):
        return False
    theirs = store.get(f"grand/asks/{other}").decode()
    store.set(f"grand/name/{theirs}", name)
    answer = f"grand/knows/{theirs}"
    return store.check([answer]) and store.get(answer).decode() == name
