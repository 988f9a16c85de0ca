r"""Diffusion matrices by local push: sparse from end to end, no ``n × n`` array at any time.

A row of :math:`S = \sum_k \theta_k T^k` is a walk that starts at its node. Mass *arrives* at nodes and
is *pushed* on along their edges. Mass too small to matter is not pushed: what stays behind at node k
is at most :math:`\varepsilon w_k` with :math:`w_k = d_k / \bar d`, so that the walk explores a
neighbourhood of its source, whatever the size of the graph. (Andersen, Chung and Lang 2006 for
PageRank, Kloster and Gleich 2014 for heat.)

**Error bound.** The result P is never too large, and off by little:

.. math:: 0 \le S_{ij} - P_{ij} \le \varepsilon u_j, \qquad u_j = \max_{k \ge 0} (w^\top T^k)_j.

On an undirected graph :math:`w^\top T = w^\top`, hence :math:`u_j = w_j = d_j / \bar d`: an average node
is off by at most ε. This is for the random walk T = D⁻¹A. Symmetric normalisation is
:math:`D^{1/2} S D^{-1/2}`, and its bound :math:`\varepsilon u_j \sqrt{d_i / d_j}`.

All sources of a block advance together. One product of sparse matrices is one step of them all, which
is what makes this fast without compiled code of our own.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

import numpy as np
from rich.console import Console
from rich.progress import track
from scipy import sparse

_BLOCK_ENTRIES = 10_000_000  # a block of sources × n nodes; two such float64 arrays are held


def pagerank_blocks(
    walk: sparse.csr_array, degree: np.ndarray, alpha: float, tolerance: float
) -> Iterator[sparse.csr_array]:
    r"""Personalised PageRank :math:`S = \alpha \sum_k (1-\alpha)^k T^k`, in blocks of rows ``(b, n)``.

    Args:
        walk: The random walk T = D⁻¹A, ``n × n``.
        degree: d, ``(n,)``.
        tolerance: ε of the bound.

    Proof of the bound: a push takes mass r from the residual R, keeps α r in P₀ and passes the rest on,
    so :math:`S = P_0 + R S` holds after every push. We return :math:`P = P_0 + \alpha R`, which is α
    times all that arrived. :math:`S - P = R (S - \alpha I)` is not negative, and at most
    :math:`\varepsilon w^\top S \le \varepsilon u`, since pushes end when :math:`R \le \varepsilon w`.
    """
    limit = tolerance * degree / degree.mean()
    for block in _blocks(walk.shape[0], "personalised PageRank"):
        front = block.sources(1.0)
        block.arrive(front, alpha * front.data)
        while front.nnz:
            step = front @ walk
            mass = (1 - alpha) * step.data
            place = block.arrive(step, alpha * mass)
            mass += block.residual[place]
            pushed = mass > limit[step.indices]
            front = _select(step, mass, pushed)
            mass[pushed] = 0.0
            block.residual[place] = mass
        yield block.rows()


def heat_blocks(
    walk: sparse.csr_array, degree: np.ndarray, t: float, tolerance: float
) -> Iterator[sparse.csr_array]:
    r"""Heat kernel :math:`S = e^{-t} \sum_{k \le N} \frac{t^k}{k!} T^k`, in blocks of rows ``(b, n)``.

    Args as in :func:`pagerank_blocks`, with time t.

    Proof of the bound: ε/10 is for the series beyond N, whose :math:`T^k_{ij}` are at most 1 and whose
    coefficients :math:`\theta_k = e^{-t} t^k / k!` sum to at most :math:`\tfrac{\varepsilon}{10} \min w`.
    Mass :math:`\delta_k \le \varepsilon_k w` left behind in term k would have brought
    :math:`\delta_k \sum_{m \ge 1} \frac{k!\,t^m}{(k+m)!} T^m \le \varepsilon_k \psi_k u`, with
    :math:`\psi_k = \sum_{m \ge 1} k!\,t^m / (k+m)!`, and we share :math:`\sum_k \varepsilon_k \psi_k =
    \tfrac{9}{10} \varepsilon` out in proportion to :math:`\sqrt{\theta_k \psi_k}`, the root of the mass
    that passes through term k, because this leaves the fewest edges to walk along.
    """
    weight = degree / degree.mean()
    terms = heat_terms(t, 0.1 * tolerance * weight.min())
    rest = np.array([_heat_rest(t, k) for k in range(terms)])
    theta = np.exp(-t) * np.cumprod(np.append(1.0, t / np.arange(1, terms)))
    share = np.sqrt(theta * rest)
    limit = 0.9 * tolerance * share / share.sum() / rest
    for block in _blocks(walk.shape[0], "heat kernel"):
        front = block.sources(np.exp(-t))
        block.arrive(front, front.data)
        for k in range(1, terms + 1):
            step = front @ walk
            mass = t / k * step.data
            block.arrive(step, mass)
            if k < terms:
                front = _select(step, mass, mass > limit[k] * weight[step.indices])
        yield block.rows()


class _Block:
    """What has arrived from a block of sources, and what is still to be pushed.

    ``estimate`` and ``residual`` are flat ``(b * n,)`` arrays that pass from block to block: the places
    in use are cleared at the end, which is cheaper than new arrays because they are few.
    """

    def __init__(self, source: np.ndarray, n: int, estimate: np.ndarray, residual: np.ndarray) -> None:
        self.source, self.shape = source, (len(source), n)
        self.estimate, self.residual = estimate, residual
        self._offset = np.arange(len(source)) * n
        self._found: list[np.ndarray] = []

    def sources(self, mass: float) -> sparse.csr_array:
        """The start of the walks: ``mass`` at every source."""
        b = len(self.source)
        return sparse.csr_array((np.full(b, mass), self.source, np.arange(b + 1)), shape=self.shape)

    def arrive(self, step: sparse.csr_array, mass: np.ndarray) -> np.ndarray:
        """Add ``mass`` at the entries of ``step``; returns their places in the flat arrays."""
        place = np.repeat(self._offset, np.diff(step.indptr)) + step.indices
        before = self.estimate[place]
        self._found.append(place[before == 0])
        self.estimate[place] = before + mass  # a product of CSR matrices holds no entry twice
        return place

    def rows(self) -> sparse.csr_array:
        """All that arrived, as rows ``(b, n)`` with sorted columns; clears the flat arrays."""
        place = np.concatenate(self._found)
        place.sort()
        place = place[np.diff(place, prepend=-1) > 0]  # mass that underflows to 0 can arrive first twice
        values = self.estimate[place]
        self.estimate[place] = self.residual[place] = 0.0
        pointer = np.searchsorted(place, np.append(self._offset, self.shape[0] * self.shape[1]))
        column = (place % self.shape[1]).astype(np.int32 if self.shape[1] < 2**31 else np.int64)
        return sparse.csr_array((values, column, pointer), shape=self.shape)


def _blocks(n: int, name: str) -> Iterator[_Block]:
    size = max(1, min(n, _BLOCK_ENTRIES // n, 1024))
    estimate, residual = np.zeros(size * n), np.zeros(size * n)
    for first in _progress(range(0, n, size), name):
        yield _Block(np.arange(first, min(first + size, n)), n, estimate, residual)


def _select(step: sparse.csr_array, mass: np.ndarray, chosen: np.ndarray) -> sparse.csr_array:
    pointer = np.append(0, np.cumsum(chosen))[step.indptr]
    return sparse.csr_array((mass[chosen], step.indices[chosen], pointer), shape=step.shape)


def _heat_rest(t: float, k: int) -> float:
    r""":math:`\psi_k = \sum_{m \ge 1} k!\,t^m / (k+m)!`."""
    total, term, m = 0.0, 1.0, 0
    while m < t or term > 1e-17 * total:
        m += 1
        term *= t / (k + m)
        total += term
    return total


def heat_terms(t: float, tail: float) -> int:
    r"""Smallest N ≥ 1 with :math:`e^{-t} \sum_{k > N} t^k / k! \le` ``tail``."""
    coefficient, k = np.exp(-t), 0
    while k < 1 or coefficient * _heat_rest(t, k) > tail:
        k += 1
        coefficient *= t / k
    return k


def _progress(blocks: range, name: str) -> Iterable[int]:
    """A bar on a terminal, and nothing elsewhere."""
    console = Console(stderr=True)
    return track(blocks, f"{name}:", console=console, transient=True, disable=not sys.stderr.isatty())
