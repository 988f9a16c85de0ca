"""Diffusion matrices by dense linear algebra, for graphs of some thousand nodes (section 4; GDC)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy import linalg, sparse
from threadpoolctl import threadpool_limits

from .push import heat_terms
from .sparsify import RESOLUTION

_BLOCK = 512


def pagerank(matrix: sparse.csr_array, alpha: float) -> np.ndarray:
    r"""Personalised PageRank :math:`S = \alpha (I - (1-\alpha) T)^{-1}`, ``(n, n)``.

    Threads of a linear algebra library add in an order of their own. One thread gives the same digits
    whatever number is set for the process, and is fast enough.
    """
    system = matrix.toarray()
    system *= alpha - 1
    system.flat[:: len(system) + 1] += 1
    with threadpool_limits(1, "blas"):
        inverse = linalg.inv(system, overwrite_a=True, check_finite=False)
    inverse *= alpha
    return inverse


def heat(matrix: sparse.csr_array, t: float) -> np.ndarray:
    r"""Heat kernel :math:`S = e^{-t(I - T)} = e^{-t} \sum_k \frac{t^k}{k!} T^k`, ``(n, n)``.

    The closed form of the linear model. No term is negative, so that the series loses no digits, and its
    products with a sparse T cost far less than the dense products of a general matrix exponential.
    """
    term = np.exp(-t) * np.eye(matrix.shape[0])
    total = term.copy()
    for k in range(1, heat_terms(t, 1e-18) + 1):
        term = matrix @ term
        term *= t / k
        total += term
    return total


def row_blocks(dense: np.ndarray) -> Iterator[sparse.csr_array]:
    """The rows of a dense matrix, some hundred at a time, without the zeros."""
    for start in range(0, len(dense), _BLOCK):
        block = dense[start : start + _BLOCK]
        yield sparse.csr_array(np.where(block > RESOLUTION, block, 0.0))
