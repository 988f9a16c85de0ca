"""A graph where none is given: the k nearest neighbours in feature space (section 4 of the paper)."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from scipy import sparse
from sklearn.neighbors import NearestNeighbors
from threadpoolctl import threadpool_limits
from torch import Tensor

from ..errors import ArgumentError, DataError, ShapeError

Metric = Literal["euclidean", "cosine"]


def knn_graph(
    x: Tensor | np.ndarray | sparse.sparray,
    k: int,
    *,
    metric: Metric = "euclidean",
    approximate: bool = False,
) -> tuple[Tensor, Tensor]:
    r"""Undirected graph that joins each node to its k nearest neighbours, and those it is nearest to.

    The weight of an edge falls with its length δ, measured by the distance :math:`\sigma_i` from a node
    to its k-th neighbour (`self-tuning <https://papers.nips.cc/paper/2619>`_), which makes it
    independent of scale and density:

    .. math:: w_{ij} = e^{-\delta_{ij}^2 / (\sigma_i \sigma_j)}.

    Args:
        x: Features ``(n, d)``; dense, or sparse (scipy, or a sparse torch tensor).
        k: Neighbours of each node, from 1 to n - 1; the node itself is not one.
        metric: ``"euclidean"``, or ``"cosine"`` (1 - cosine of the angle).
        approximate: Use nearest neighbour descent from ``pynndescent`` (an extra) in place of the exact
            search of scikit-learn. It compiles for about a minute at the first call of a process, and
            pays from some hundred thousand nodes on.

    Returns:
        ``edge_index (2, E)`` int64, sorted and with both directions, and ``edge_weight (E,)`` in torch's
        default dtype: ready for ``Graph.from_edge_index`` or a PyG ``Data``. The exact search gives the
        same graph whatever the number of threads; it uses one.
    """
    features = _features(x)
    n = features.shape[0]
    if metric not in ("euclidean", "cosine"):
        raise ArgumentError(f"metric must be euclidean or cosine, got {metric!r}.")
    if not 1 <= k < n:
        raise ArgumentError(f"k must lie between 1 and {n - 1} for {n} nodes, got {k}.")
    neighbour, distance = (_approximate if approximate else _exact)(features, k, metric)
    node = np.repeat(np.arange(n), neighbour.shape[1])
    found = neighbour.ravel() >= 0  # the approximate search marks what it did not find by -1
    scale = np.max(distance, axis=1, where=neighbour >= 0, initial=0.0)
    node, other, length = node[found], neighbour.ravel()[found], distance.ravel()[found]
    width = scale[node] * scale[other]
    # Among copies of a point the scale is 0: the copies have weight 1, all others are infinitely far.
    far = np.divide(length**2, width, out=np.where(length > 0, np.inf, 0.0), where=width > 0)
    weight = np.maximum(np.exp(-far), np.finfo(np.float32).tiny)  # 0 would be no edge
    directed = sparse.csr_array((weight, (node, other)), shape=(n, n))
    union = directed.maximum(directed.T).tocoo()
    edge_index = torch.from_numpy(np.stack([union.row, union.col]).astype(np.int64))
    return edge_index, torch.from_numpy(union.data).to(torch.get_default_dtype())


def _features(x: Tensor | np.ndarray | sparse.sparray) -> np.ndarray | sparse.csr_array:
    if isinstance(x, Tensor):
        x = x.detach().cpu()
        if x.layout != torch.strided:
            csr = x.to_sparse_csr()
            parts = (csr.values(), csr.col_indices(), csr.crow_indices())
            x = sparse.csr_array(tuple(part.numpy() for part in parts), shape=tuple(x.shape))
        else:
            x = x.numpy()
    if x.ndim != 2:
        raise ShapeError(f"x must have shape (n, d), got {tuple(x.shape)}.")
    out = sparse.csr_array(x) if sparse.issparse(x) else np.ascontiguousarray(x)
    if not np.isfinite(out.data if sparse.issparse(out) else out).all():
        raise DataError("x holds NaN or infinity: distances to such a node have no meaning.")
    return out


def _exact(
    features: np.ndarray | sparse.csr_array, k: int, metric: Metric
) -> tuple[np.ndarray, np.ndarray]:
    search = NearestNeighbors(n_neighbors=k, metric=metric).fit(features)
    with threadpool_limits(1):  # of nodes equally near, several threads take now these and now those
        distance, neighbour = search.kneighbors()  # without an argument a node is not its own neighbour
    return neighbour, distance


def _approximate(
    features: np.ndarray | sparse.csr_array, k: int, metric: Metric
) -> tuple[np.ndarray, np.ndarray]:
    try:
        from pynndescent import NNDescent
    except ImportError as error:
        raise ImportError(
            "approximate=True needs pynndescent: pip install pynndescent, or leave approximate out."
        ) from error
    n = features.shape[0]
    search = NNDescent(features, metric=metric, n_neighbors=k + 1, random_state=0)
    neighbour, distance = search.neighbor_graph
    # Nodes are near themselves, but among coinciding points not always nearest: move each to the end.
    last = np.argsort(neighbour == np.arange(n)[:, None], axis=1, kind="stable")[:, :k]
    return np.take_along_axis(neighbour, last, 1), np.take_along_axis(distance, last, 1).astype(np.float64)
