"""What other libraries hand over: their error messages, and sparse matrices built from a file's numbers."""

from collections.abc import Iterable
from typing import Any

import scipy.sparse as sp
from numpy.typing import NDArray


def reason(error: Exception) -> str:
    """The first line of an error message; some libraries write whole paragraphs."""
    return next(iter(str(error).splitlines()), "") or type(error).__name__


def csr_matrix(parts: Iterable[NDArray], shape: tuple[int, ...]) -> sp.csr_matrix:
    """A CSR matrix of data, indices and indptr, which are checked; ValueError or the like if wrong."""
    matrix = sp.csr_matrix(tuple(parts), shape=shape)
    check_compressed(matrix)
    return matrix


def check_compressed(matrix: Any) -> None:
    """Refuse a matrix (CSR, CSC, BSR) whose indices lie outside; scipy would follow them anywhere."""
    matrix.check_format(full_check=True)
    if (matrix.indptr[1:] < matrix.indptr[:-1]).any():  # not checked by scipy if the last one is 0
        raise ValueError("its row pointers decrease")
