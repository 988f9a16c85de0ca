"""One writer for a folder: a run, a search or a table of results."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from ..errors import FolderInUse
from .storage import naming

LOCK = "lock"


@contextlib.contextmanager
def writing(folder: Path, wait: bool = False) -> Iterator[None]:
    """Hold a folder for writing; make it where it does not exist.

    The kernel releases the lock when the process ends, however it ends, so a lock cannot be stale. The file
    names the process, for the message of another one that is refused, and is removed at the end.

    Args:
        wait: Wait for a process that holds the folder, in place of an error.

    Raises:
        FolderInUse: another process is writing in the folder.
    """
    path = folder / LOCK
    made = not folder.exists()
    with naming(path):
        handle = _acquire(path, wait)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)  # before the lock is released: it is still the file of this process
        os.close(handle)
        if made:
            with contextlib.suppress(OSError):  # there is something in it
                folder.rmdir()


def _acquire(path: Path, wait: bool) -> int:
    import fcntl  # not on Windows, where runs can be read all the same

    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except FileNotFoundError:  # the folder was removed in between
            continue
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            if os.fstat(handle).st_nlink:
                _sign(handle)
                return handle
        except BlockingIOError:
            os.close(handle)
            raise FolderInUse(
                f"{_holder(path)} in {path.parent}: wait until it ends, or name another folder."
            ) from None
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)  # the process before has removed the file: take a new one


def _sign(handle: int) -> None:
    since = time.strftime("%Y-%m-%d %H:%M:%S")
    text = json.dumps({"process": os.getpid(), "host": socket.gethostname(), "since": since})
    os.ftruncate(handle, 0)
    os.write(handle, text.encode())


def _holder(path: Path) -> str:
    """The process that holds the lock, as the file says; it may not have written its name yet."""
    for _ in range(50):
        try:
            found = json.loads(path.read_bytes())
            return f"process {found['process']} on {found['host']} has been writing since {found['since']}"
        except (OSError, ValueError, KeyError, TypeError):
            time.sleep(0.01)
    return "another process is writing"
