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
from ..files import naming

LOCK = "lock"
ATTEMPTS = 100  # to make a folder that others remove


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
        with contextlib.suppress(OSError):  # a file that stays does no harm
            if _is_at(handle, path):  # otherwise the folder was removed, and the file is another process's
                path.unlink()  # before the lock is released: no other process can hold this file
        os.close(handle)
        if made:
            with contextlib.suppress(OSError):  # there is something in it
                folder.rmdir()


@contextlib.contextmanager
def holding(name: Path) -> Iterator[None]:
    """Hold a name, by a folder that is there for the lock alone and ends with the last process that has it.

    Raises:
        FolderInUse: another process holds it.
    """
    try:
        with writing(name):
            yield
    finally:
        with contextlib.suppress(OSError):  # another process holds it
            name.rmdir()


def require_idle(folder: Path) -> None:
    """Refuse a folder in which another process is writing; nothing is made or held."""
    path = folder / LOCK
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:  # there is no lock, or what is there cannot be one
        return
    try:
        _lock(handle, path, shared=True)
    finally:
        os.close(handle)


def _acquire(path: Path, wait: bool) -> int:
    attempts = 0
    while True:
        attempts += 1
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # a link would lead out of the folder
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        except (FileNotFoundError, FileExistsError):  # the folder was removed meanwhile
            if attempts > ATTEMPTS:  # or it cannot be made
                raise
            continue
        try:
            _lock(handle, path, wait=wait)
            if _is_at(handle, path):
                _sign(handle)
                return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)  # the process before has removed the file: take a new one


def _lock(handle: int, path: Path, shared: bool = False, wait: bool = False) -> None:
    import fcntl  # not on Windows, where runs can be read all the same

    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    try:
        fcntl.flock(handle, kind | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        raise FolderInUse(
            f"{_holder(path)} in {path.parent}: wait until it ends, or name another folder."
        ) from None


def _is_at(handle: int, path: Path) -> bool:
    """Whether a path still leads to an open file."""
    try:
        return os.path.samestat(os.fstat(handle), os.lstat(path))
    except FileNotFoundError:
        return False


def _sign(handle: int) -> None:
    since = time.strftime("%Y-%m-%d %H:%M:%S")
    text = json.dumps({"process": os.getpid(), "host": socket.gethostname(), "since": since})
    os.ftruncate(handle, 0)
    os.write(handle, text.encode())


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # of another user
        return True
    return True


def _holder(path: Path) -> str:
    """The process that holds the lock, as the file says; it may not have written its name yet."""
    for _ in range(50):
        try:
            found = json.loads(path.read_bytes())
            if found["host"] == socket.gethostname() and not _is_running(int(found["process"])):
                raise ValueError("the name of a process that was killed")
            return f"process {found['process']} on {found['host']} has been writing since {found['since']}"
        except (OSError, ValueError, KeyError, TypeError):
            time.sleep(0.01)
    return "another process is writing"
