"""Files written as a whole: a kill at any moment leaves the old content or the new one."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

from .errors import StorageError

_PREFIX, _SUFFIX = ".grand-", ".part"


def write_bytes(path: Path, content: bytes) -> None:
    """Replace a file as a whole; it keeps its mode. Symbolic links stay; pipes and devices are written to.

    The content is written beside the file, under a short name that no other file has, and moved.
    """
    with naming(path):
        target = _destination(path)
        if target is None:
            with open(path, "ab") as file:  # without truncation: standard output may be a file with content
                file.write(content)
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_name(f"{_PREFIX}{secrets.token_hex(8)}{_SUFFIX}")
        try:
            with open(part, "xb") as file:
                with contextlib.suppress(FileNotFoundError):  # a new file
                    shutil.copymode(target, part)
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(part, target)
        except BaseException:
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)
            raise


def is_part(path: Path) -> bool:
    """Whether a kill has left this file in the middle of :func:`write_bytes`."""
    return path.name.startswith(_PREFIX) and path.name.endswith(_SUFFIX)


def _destination(path: Path) -> Path | None:
    """The regular file, present or future, that a path leads to; ``None`` if it is a pipe or a device."""
    for _ in range(40):  # as many links as the kernel follows
        folder = Path(os.path.realpath(path.parent))
        path = folder / path.name
        if folder.parts[1:2] == ("proc",):  # an open file, such as standard output
            return None
        if not path.is_symlink():
            return None if path.exists() and not path.is_file() else path
        path = folder / os.readlink(path)
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Name the file in an error of the operating system; most such errors of writing do not."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror or error}.") from None
