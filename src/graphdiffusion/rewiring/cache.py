"""Matrices on disk under the hash of what they were computed from."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import warnings
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from scipy import sparse

_VERSION = 1  # raise it when the same input gives another result


def folder(choice: str | Path | None) -> Path:
    """``choice``, or ``$GRAND_CACHE/rewire``, or ``~/.cache/graphdiffusion/rewire``."""
    if choice is not None:
        return Path(choice)
    root = os.environ.get("GRAND_CACHE")
    return (Path(root) if root else Path.home() / ".cache" / "graphdiffusion") / "rewire"


def content_hash(matrix: sparse.csr_array, parameters: Mapping[str, object]) -> str:
    """SHA-256 of the edges and weights, the number of nodes, the parameters and the version."""
    header = {"version": _VERSION, "shape": list(matrix.shape), **parameters}
    digest = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    for array, dtype in ((matrix.indptr, "<i8"), (matrix.indices, "<i8"), (matrix.data, "<f8")):
        digest.update(np.ascontiguousarray(array, dtype=dtype).tobytes())
    return digest.hexdigest()


def cached(path: Path, compute: Callable[[], sparse.csr_array]) -> sparse.csr_array:
    """The matrix stored at ``path``; if there is none, or a damaged one, compute and store it."""
    matrix = _read(path)
    if matrix is None:
        matrix = compute()
        try:
            _write(path, matrix)
        except OSError as error:
            warnings.warn(f"the rewired graph was not cached: {error}", stacklevel=2)
    return matrix


def _read(path: Path) -> sparse.csr_array | None:
    try:
        with np.load(path, allow_pickle=False) as file:
            parts = (file["data"], file["indices"], file["indptr"])
            matrix = sparse.csr_array(parts, shape=tuple(file["shape"].tolist()))
            matrix.check_format(full_check=True)
            return matrix
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error):
        return None


def _write(path: Path, matrix: sparse.csr_array) -> None:
    """Write beside the target and rename: a reader sees a whole file or none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            parts = {"data": matrix.data, "indices": matrix.indices, "indptr": matrix.indptr}
            np.savez(file, shape=np.array(matrix.shape), **parts)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
