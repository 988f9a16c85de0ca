"""Diffusion matrices by dense linear algebra, for graphs of some thousand nodes (section 4; GDC)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from scipy import sparse

from .push import heat_terms

_ROUNDOFF = 1e-15  # below this a float64 solve cannot tell an entry from zero
_BLOCK = 512


def pagerank(matrix: sparse.csr_array, alpha: float) -> np.ndarray:
    r"""Personalised PageRank :math:`S = \alpha (I - (1-\alpha) T)^{-1}`, ``(n, n)``."""
    dense = torch.from_numpy(matrix.toarray())
    eye = torch.eye(len(dense), dtype=dense.dtype)
    return (alpha * torch.linalg.inv(eye - (1 - alpha) * dense)).numpy()


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
        yield sparse.csr_array(np.where(block > _ROUNDOFF, block, 0.0))
