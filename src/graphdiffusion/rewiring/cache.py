"""Matrices on disk under the hash of what they were computed from."""

from __future__ import annotations

import hashlib
import io
import json
import os
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from scipy import sparse

from ..data.arrays import load_arrays
from ..data.foreign import check_compressed, reason
from ..errors import DataError
from ..files import write_bytes

_VERSION = 2  # raise it when the same input gives another result
_PARTS = ("data", "indices", "indptr", "sum")
_OVERHEAD = 4096  # bytes of the headers and of the checksum


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


def cached(path: Path, n: int, most: int, compute: Callable[[], sparse.csr_array]) -> sparse.csr_array:
    """The matrix stored at ``path``; if there is none, or a damaged one, compute and store it.

    Args:
        path: Its stem is the hash of what the matrix was computed from.
        n: Rows and columns of the matrix.
        most: The largest number of entries that it can have.
    """
    matrix = _read(path, n, most)
    if matrix is None:
        matrix = compute()
        try:
            _write(path, matrix)
        except OSError as error:
            warnings.warn(f"the rewired graph was not cached: {error}", stacklevel=2)
    return matrix


def _read(path: Path, n: int, most: int) -> sparse.csr_array | None:
    if not path.is_file():
        return None
    try:
        arrays = load_arrays(path, _PARTS, limit=16 * most + 8 * n + _OVERHEAD)
        return _checked(arrays, path.stem, n, most)
    except Exception as error:  # damage shows in many ways, and the matrix can be computed again
        warnings.warn(
            f"the rewired graph cached in {path} is damaged ({reason(error)}); it is computed again",
            stacklevel=4,
        )
        return None


def _checked(arrays: dict[str, np.ndarray], key: str, n: int, most: int) -> sparse.csr_array:
    missing = [part for part in _PARTS if part not in arrays]
    if missing:
        raise DataError(f"it lacks {', '.join(missing)}")
    data, indices, indptr = (arrays[part] for part in _PARTS[:3])
    if (data.dtype, indices.dtype.kind, indptr.dtype.kind) != (np.float64, "i", "i"):
        raise DataError(f"it holds {data.dtype}, {indices.dtype} and {indptr.dtype}")
    matrix = sparse.csr_array((data, indices, indptr), shape=(n, n))
    check_compressed(matrix)
    if matrix.nnz > most or not (np.isfinite(data).all() and (data >= 0).all()):
        raise DataError(f"it holds {matrix.nnz} entries, of which at most {most} ≥ 0 are possible")
    if str(arrays["sum"]) != content_hash(matrix, {"key": key}):
        raise DataError("its checksum is not that of its content")
    return matrix


def _write(path: Path, matrix: sparse.csr_array) -> None:
    content = io.BytesIO()
    parts = {part: getattr(matrix, part) for part in _PARTS[:3]}
    np.savez(content, sum=np.array(content_hash(matrix, {"key": path.stem})), **parts)
    write_bytes(path, content.getvalue())
