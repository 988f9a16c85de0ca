"""Keep the entries of a diffusion matrix that matter; a node never loses its last incoming edge."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from scipy import sparse

# Entries of a diffusion matrix are probabilities, known to about 1e-15. Entries that differ by less than
# this are equal, and smaller ones are zero: what is kept must not depend on the last digits, which are
# those of a processor and of a library.
RESOLUTION = 1e-12


def sparsify(
    blocks: Iterable[sparse.csr_array],
    *,
    top_k: int | None = None,
    eps: float | None = None,
    avg_degree: float | None = None,
) -> sparse.csr_array:
    """Sparse ``n × n`` matrix from its rows, which come in blocks ``(b, n)`` and may be freed at once.

    Exactly one rule is given. Every rule keeps the largest entry of each row (the edges that enter a
    node). Ties, which are entries within ``RESOLUTION`` of the smallest one to keep, go to the smaller
    row, then to the smaller column.

    Args:
        top_k: Keep the K largest entries of each row; all of them where there are fewer.
        eps: Keep the entries ≥ ε.
        avg_degree: Keep the ``avg_degree * n`` largest entries of the whole matrix.
    """
    if top_k is not None:
        kept: Iterable[sparse.csr_array] = (_masked(b, _largest_in_rows(b, top_k)) for b in blocks)
    elif eps is not None:
        kept = (_masked(b, (b.data >= eps - RESOLUTION) | _largest_in_rows(b, 1)) for b in blocks)
    else:
        assert avg_degree is not None
        kept = _largest_of_all(blocks, avg_degree)
    return sparse.csr_array(sparse.vstack(list(kept), format="csr"))


def _largest_in_rows(block: sparse.csr_array, count: int) -> np.ndarray:
    """Mask ``(nnz,)`` of the ``count`` largest entries in each row."""
    length = np.diff(block.indptr)
    last = np.full(len(length), -np.inf)  # the smallest value to keep
    for i in np.flatnonzero(length > count):
        row = block.data[block.indptr[i] : block.indptr[i + 1]]
        last[i] = np.partition(row, len(row) - count)[len(row) - count]
    last = np.repeat(last, length)
    above, level = _compared(block.data, last)
    sums = np.append(0, np.cumsum(above)), np.append(0, np.cumsum(level))
    room = count - (sums[0][block.indptr[1:]] - sums[0][block.indptr[:-1]])
    place = sums[1][1:] - np.repeat(sums[1][block.indptr[:-1]], length)  # among the level ones, from 1
    return above | (level & (place <= np.repeat(room, length)))


def _largest_of_all(blocks: Iterable[sparse.csr_array], avg_degree: float) -> list[sparse.csr_array]:
    """The largest entries of all rows, by way of a pool that is cut whenever it is twice as large.

    Rows that are still to come can only push entries out, so what is cut would not have stayed.
    """
    pool: list[sparse.csr_array] = []
    rank: list[np.ndarray] = []  # the entries' values, ∞ for the largest of each row
    count = 0
    for block in blocks:
        count = round(avg_degree * block.shape[1])
        pool.append(block)
        rank.append(np.where(_largest_in_rows(block, 1), np.inf, block.data))
        if sum(map(len, rank)) > 2 * count:
            pool, rank = _cut(pool, rank, count)
    return _cut(pool, rank, count)[0]


def _cut(
    pool: list[sparse.csr_array], rank: list[np.ndarray], count: int
) -> tuple[list[sparse.csr_array], list[np.ndarray]]:
    """The ``count`` entries of the highest rank."""
    block, score = sparse.csr_array(sparse.vstack(pool, format="csr")), np.concatenate(rank)
    if len(score) <= count:
        return [block], [score]
    last = np.partition(score, len(score) - count)[len(score) - count]
    above, level = _compared(score, last)
    keep = above | (level & (np.cumsum(level) <= count - above.sum()))
    return [_masked(block, keep)], [score[keep]]


def _compared(values: np.ndarray, last: np.ndarray | float) -> tuple[np.ndarray, np.ndarray]:
    """Masks of the values above ``last`` and of those equal to it."""
    above = values > last + RESOLUTION
    return above, ~above & (values >= last - RESOLUTION)


def _masked(block: sparse.csr_array, keep: np.ndarray) -> sparse.csr_array:
    pointer = np.append(0, np.cumsum(keep))[block.indptr]
    return sparse.csr_array((block.data[keep], block.indices[keep], pointer), shape=block.shape)
