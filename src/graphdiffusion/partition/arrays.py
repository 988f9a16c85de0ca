"""Arrays in ``.npy`` files: written piece by piece, read as memory maps, each with a checksum."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import DataError, DtypeError
from ..files import naming, write_bytes
from .neighbours import Array

MEND = "write the parts again, into another folder"
_PIECE = 2**26  # bytes that a checksum reads at once


class ArrayFile:
    """An array that is written from its first row to its last, some rows at a time.

    Nothing is held open between the pieces: there may be more parts than files that may be open.

    Args:
        path: Of the file.
        dtype: Of the array.
        shape: Of the whole array.
    """

    def __init__(self, path: Path, dtype: Any, shape: tuple[int, ...]) -> None:
        self.path, self.dtype, self.shape = path, np.dtype(dtype), tuple(int(size) for size in shape)
        if self.dtype.hasobject:
            raise DtypeError(f"{path.stem} holds Python objects: only numbers can be written, as they are.")
        self._crc = self._bytes = 0
        head = {
            "descr": np.lib.format.dtype_to_descr(self.dtype),
            "fortran_order": False,
            "shape": self.shape,
        }
        with naming(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with open(path, "xb") as file:
                np.lib.format.write_array_header_1_0(file, head)

    def append(self, rows: Array) -> None:
        """Write the next rows."""
        view = np.ascontiguousarray(rows, dtype=self.dtype).reshape(-1).view(np.uint8).data
        self._crc = zlib.crc32(view, self._crc)
        self._bytes += view.nbytes
        with naming(self.path), open(self.path, "ab") as file:
            file.write(view)

    def close(self) -> dict[str, Any]:
        """What :func:`load` checks the file by. All rows must be there, and are on the disk then."""
        wanted = self.dtype.itemsize * int(np.prod(self.shape, dtype=np.int64))
        assert self._bytes == wanted, f"{self.path}: {self._bytes} bytes of {wanted}"
        with naming(self.path), open(self.path, "rb") as file:
            os.fsync(file.fileno())
        return {"dtype": self.dtype.str, "shape": list(self.shape), "crc32": self._crc}


def save(path: Path, array: Array) -> dict[str, Any]:
    """Write an array as a whole."""
    file = ArrayFile(path, array.dtype, array.shape)
    file.append(array)
    return file.close()


def load(path: Path, wanted: Mapping[str, Any], verify: bool) -> Tensor:
    """The array of a file as a tensor on a memory map; DataError if it is not what was written.

    A map of the kind "copy on write": who writes to the tensor changes a copy of the page, never the file.

    Args:
        path: Of the file.
        wanted: What :meth:`ArrayFile.close` gave.
        verify: Read the whole file, and compare its checksum; otherwise dtype, shape and size alone.
    """
    try:
        found = np.load(path, mmap_mode="c", allow_pickle=False)
    except FileNotFoundError:
        raise DataError(f"{path} is missing: {MEND}.") from None
    except (OSError, ValueError, EOFError, SyntaxError) as error:
        raise DataError(f"{path} cannot be read as an array ({error}): {MEND}.") from None
    form = (wanted["dtype"], tuple(wanted["shape"]))
    if (found.dtype.str, found.shape) != form or not found.flags.c_contiguous:
        raise DataError(
            f"{path} holds {found.dtype.str} of shape {found.shape}, where {form[0]} of shape {form[1]} "
            f"was written: {MEND}."
        )
    if verify and _checksum(found) != wanted["crc32"]:
        raise DataError(f"{path} was changed or damaged after it was written: {MEND}.")
    return torch.from_numpy(found)


def _checksum(array: Array) -> int:
    flat, crc = array.reshape(-1).view(np.uint8), 0
    for start in range(0, len(flat), _PIECE):
        crc = zlib.crc32(flat[start : start + _PIECE].data, crc)
    return crc


def write_note(path: Path, content: Mapping[str, Any]) -> None:
    """A JSON file with a checksum."""
    body = json.loads(json.dumps(content, allow_nan=False))
    write_bytes(path, (json.dumps({**body, "checksum": _digest(body)}, indent=1) + "\n").encode())


def read_note(path: Path, kind: str, version: int) -> dict[str, Any]:
    """What :func:`write_note` wrote; DataError if it is something else, or of another version."""
    try:
        body = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"cannot read {path} ({error.strerror}): {MEND}.") from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is not valid JSON ({error}): {MEND}.") from None
    if not isinstance(body, dict) or body.get("kind") != kind:
        raise DataError(f"{path} does not describe {kind}: {MEND}.")
    if body.get("format") != version:
        raise DataError(
            f"{path} has format {body.get('format')!r}, and this version of graphdiffusion reads format "
            f"{version}: {MEND}."
        )
    if body.pop("checksum", None) != _digest(body):
        raise DataError(f"{path} was changed or damaged after it was written: {MEND}.")
    return body


def _digest(body: Mapping[str, Any]) -> int:
    return zlib.crc32(json.dumps(body, sort_keys=True).encode())
