"""NumPy and SciPy arrays from a user's .npy and .npz files, checked; pickles are never opened."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from graphdiffusion.errors import DataError


def load_arrays(path: Path) -> dict[str, NDArray]:
    """All arrays of an .npz file; pickled objects are refused."""
    try:
        with np.load(path, allow_pickle=False) as content:
            if not isinstance(content, np.lib.npyio.NpzFile):
                raise DataError(f"{path.name} holds one bare array; name it .npy")
            return {key: content[key] for key in content.files}
    except DataError:
        raise
    except Exception as error:  # a damaged zip raises BadZipFile, zlib.error, EOFError, ...
        raise DataError(f"{path.name} cannot be read as NumPy arrays ({error})") from error


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


def scipy_edges(path: Path) -> tuple[NDArray, NDArray | None, int]:
    """edge_index, weights (None if all are one) and node count of a square scipy matrix."""
    matrix = _load_scipy(path)
    if matrix.shape[0] != matrix.shape[1]:
        raise DataError(f"{path.name}: an adjacency matrix must be square, got {matrix.shape}")
    adjacency = sp.csr_matrix(matrix)
    adjacency.sum_duplicates()
    adjacency.eliminate_zeros()
    coo = adjacency.tocoo()
    weight = None if (coo.data == 1).all() else coo.data
    return np.stack([coo.row, coo.col]), weight, matrix.shape[0]


def _load_scipy(path: Path) -> Any:
    try:
        return sp.load_npz(path)
    except Exception as error:
        raise DataError(f"{path.name} is not a matrix of scipy.sparse.save_npz ({error})") from error


def feature_array(path: Path, suffix: str) -> Any:
    """The one matrix, dense or sparse, of an .npy or .npz file, as it is stored."""
    if suffix == ".npy":
        try:
            return np.load(path, allow_pickle=False)
        except Exception as error:
            raise DataError(f"{path.name} cannot be read as a NumPy array ({error})") from error
    arrays = load_arrays(path)
    if "format" in arrays:
        return _load_scipy(path)
    for key in ("x", "features"):
        if key in arrays:
            return arrays[key]
    if len(arrays) == 1:
        return next(iter(arrays.values()))
    raise DataError(
        f"{path.name} holds {', '.join(sorted(arrays)) or 'nothing'}; expected one array, "
        "or one named x or features, or a matrix saved by scipy.sparse.save_npz"
    )
