"""NumPy and SciPy arrays from .npy and .npz files, checked before and after; pickles are never opened."""

import math
import zipfile
from collections.abc import Callable, Container
from pathlib import Path
from typing import IO, Any

import numpy as np
import scipy.sparse as sp
from numpy.lib import format as npy
from numpy.typing import NDArray

from graphdiffusion.data.foreign import check_compressed, reason
from graphdiffusion.data.limits import ZIP_METHODS, check_claim, check_graph, check_memory
from graphdiffusion.errors import DataError

_HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}


def load_arrays(
    path: Path, wanted: Container[str] | None = None, limit: int | None = None
) -> dict[str, NDArray]:
    """The arrays of an .npz file, all of them or those that are `wanted`; pickled objects are refused.

    The sizes of all arrays are known from the archive's directory, and are checked before one is read;
    zipfile reads no more than these. They must fit into memory, and into `limit` bytes if it is given.
    """
    try:
        check_memory(path.stat().st_size, path.name)
        with path.open("rb") as file:
            if file.read(len(npy.MAGIC_PREFIX)) == npy.MAGIC_PREFIX:
                raise DataError(f"{path.name} holds one bare array; name it .npy")
            with zipfile.ZipFile(file) as archive:
                chosen = _members(archive, path.name, wanted)
                size = sum(info.file_size for info in chosen.values())
                check_memory(size, f"{path.name}: its content")
                if limit is not None and size > limit:
                    raise DataError(f"{path.name} unpacks to {size:,} bytes, more than {limit:,}")
                return {key: _read_member(archive, info, path.name) for key, info in chosen.items()}
    except DataError:
        raise
    except Exception as error:  # a damaged zip raises BadZipFile, zlib.error, EOFError, ...
        raise DataError(f"{path.name} cannot be read as NumPy arrays ({reason(error)})") from error


def load_array(path: Path) -> NDArray:
    """The array of an .npy file; pickled objects are refused."""
    try:
        check_memory(path.stat().st_size, path.name)
        with path.open("rb") as file:
            _check_header(file, path.stat().st_size, path.name)
            file.seek(0)
            return npy.read_array(file, allow_pickle=False)
    except DataError:
        raise
    except Exception as error:
        raise DataError(f"{path.name} cannot be read as a NumPy array ({reason(error)})") from error


def _members(
    archive: zipfile.ZipFile, file: str, wanted: Container[str] | None
) -> dict[str, zipfile.ZipInfo]:
    members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
    if len(members) != len(archive.infolist()):
        raise DataError(f"{file} cannot be read as NumPy arrays: two of its arrays have the same name")
    return {key: info for key, info in members.items() if wanted is None or key in wanted}


def _read_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, file: str) -> NDArray:
    if info.compress_type not in ZIP_METHODS:
        raise DataError(
            f"{file} cannot be read as NumPy arrays: {info.filename} is compressed by a method that "
            "numpy.savez does not use; save it again with numpy.savez_compressed"
        )
    with archive.open(info) as member:
        _check_header(member, info.file_size, f"{file} cannot be read as NumPy arrays: {info.filename}")
    with archive.open(info) as member:
        return npy.read_array(member, allow_pickle=False)


def _check_header(file: IO[bytes], size: int, what: str) -> None:
    """Check the header of an array of `size` bytes: shape and type are those of the bytes that follow."""
    version = npy.read_magic(file)
    if version not in _HEADERS:
        raise DataError(f"{what} has the version {version} of the format .npy; save it with numpy.save")
    shape, _, dtype = _HEADERS[version](file)
    if dtype.hasobject:
        raise DataError(f"{what} holds Python objects, which only a pickle can store; save numbers instead")
    if dtype.kind not in "biufcSU" or dtype.itemsize == 0:
        raise DataError(f"{what} holds {dtype}; numbers are expected")
    claimed, held = math.prod(shape) * dtype.itemsize, size - file.tell()
    if claimed != held:
        raise DataError(
            f"{what} has a header for {dtype} of shape {shape}, which is {claimed:,} bytes, but {held:,} "
            "follow; the file is damaged: save it again"
        )


def check_edge_array(edge_index: NDArray, weight: NDArray | None, file: str) -> None:
    """Integers of shape (2, E), not negative; weights (E,), finite and positive."""
    if edge_index.ndim != 2 or edge_index.shape[0] != 2 or edge_index.dtype.kind not in "iu":
        raise DataError(
            f"{file}: edges must be integers of shape (2, E), "
            f"got {edge_index.dtype} of shape {edge_index.shape}"
        )
    if edge_index.size and edge_index.min() < 0:
        k = int(np.argwhere(edge_index < 0)[0][1])
        raise DataError(f"{file}, edge {k}: negative node number {edge_index[:, k].min()}")
    if weight is not None:
        if weight.shape != edge_index.shape[1:] or weight.dtype.kind not in "fiub":
            raise DataError(
                f"{file}: weights must be numbers of shape ({edge_index.shape[1]},), one per edge, "
                f"got {weight.dtype} of shape {weight.shape}"
            )
        check_weights(weight, lambda i: f"{file}, edge {i}")


def check_features(x: Any, file: str) -> NDArray[np.float32] | sp.csr_matrix:
    """A dense or sparse matrix of finite numbers as float32."""
    if x.ndim != 2 or x.dtype.kind not in "fiub" or 0 in x.shape:
        raise DataError(
            f"{file}: features must be numbers of shape (nodes, features), neither of them zero, "
            f"got {x.dtype} of shape {x.shape}"
        )
    if not sp.issparse(x):
        check_memory(2 * 4 * x.size, f"{file}: float32 features of shape {x.shape}")
    with np.errstate(over="ignore"):
        result = sp.csr_matrix(x, dtype=np.float32) if sp.issparse(x) else x.astype(np.float32)
    if sp.issparse(result):
        coo = result.tocoo()
        wrong = coo.row[~np.isfinite(coo.data)]
    else:
        wrong = np.flatnonzero(~np.isfinite(result).all(axis=1))
    if wrong.size:
        row = int(wrong.min())
        raise DataError(f"{file}, node {row}: a feature is NaN, infinite or too large for float32")
    return result


def check_weights(weight: NDArray, where: Callable[[int], str]) -> None:
    """Positive and finite as float32, each of them; `where(i)` names the place of a bad one."""
    with np.errstate(over="ignore", under="ignore"):
        stored = weight.astype(np.float32)
    wrong = np.flatnonzero(~(np.isfinite(stored) & (stored > 0)))
    if wrong.size:
        i = int(wrong[0])
        raise DataError(
            f"{where(i)}: the weight {weight[i]:g} is not a positive finite float32 number; "
            "leave out edges that should not count"
        )


def adjacency_edges(matrix: Any, file: str) -> tuple[NDArray, NDArray | None, int]:
    """edge_index, weights (None if all are one) and node count of a square scipy matrix."""
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise DataError(f"{file}: an adjacency matrix must be square, got {matrix.shape}")
    if matrix.dtype.kind not in "fiub":
        raise DataError(f"{file}: an adjacency matrix must hold numbers, got {matrix.dtype}")
    check_graph(matrix.shape[0], matrix.nnz, file)
    # a copy; duplicates of small integers would overflow when they are added up
    adjacency = sp.csr_matrix(matrix, dtype=bool if matrix.dtype == bool else np.float64, copy=True)
    adjacency.sum_duplicates()
    adjacency.eliminate_zeros()
    coo = adjacency.tocoo()
    weight = None if (coo.data == 1).all() else coo.data
    return np.stack([coo.row, coo.col]), weight, matrix.shape[0]


def scipy_matrix(path: Path, arrays: dict[str, NDArray]) -> Any:
    """The matrix of a file whose `arrays` have been read: so their sizes are known to be right."""
    try:
        matrix = sp.load_npz(path)
        if matrix.format in ("csr", "csc", "bsr"):
            check_compressed(matrix)
    except Exception as error:
        raise DataError(
            f"{path.name} is not a matrix of scipy.sparse.save_npz ({reason(error)})"
        ) from error
    if matrix.ndim != 2 or matrix.dtype.kind not in "fiub":
        raise DataError(
            f"{path.name}: expected a matrix of numbers, got {matrix.dtype} of shape {matrix.shape}"
        )
    entries = sum(array.size for array in arrays.values())
    check_claim(max(matrix.shape), entries, f"{path.name} holds a matrix of the shape {matrix.shape}")
    # scipy has no float16, and duplicates of small integers overflow when they are added up
    return matrix if matrix.dtype == bool else matrix.astype(np.float64)


def feature_array(path: Path, suffix: str) -> tuple[Any, NDArray | None]:
    """The one matrix, dense or sparse, of an .npy or .npz file, as it is stored, and its feature_names."""
    if suffix == ".npy":
        return load_array(path), None
    arrays = load_arrays(path)
    names = arrays.pop("feature_names", None)
    if "format" in arrays:
        return scipy_matrix(path, arrays), names
    for key in ("x", "features"):
        if key in arrays:
            return arrays[key], names
    if len(arrays) == 1:
        return next(iter(arrays.values())), names
    raise DataError(
        f"{path.name} holds {', '.join(sorted(arrays)) or 'nothing'}; expected one array, "
        "or one named x or features, or a matrix saved by scipy.sparse.save_npz"
    )


def names_array(names: NDArray | None, key: str, count: int | None, file: str) -> list[str] | None:
    """The array `key` of a file as a list of texts, `count` of them if it is given, none of them twice."""
    if names is None:
        return None
    if names.dtype.kind != "U" or names.ndim != 1 or (count is not None and names.size != count):
        shape = "(k,)" if count is None else f"({count},)"
        raise DataError(
            f"{file}: {key} must be texts of shape {shape}, got {names.dtype} of shape {names.shape}"
        )
    texts = [str(name) for name in names]
    if len(set(texts)) != len(texts):
        twice = next(name for k, name in enumerate(texts) if name in texts[:k])
        raise DataError(f"{file}: {key} holds {twice!r} twice; rename one of them")
    return texts
