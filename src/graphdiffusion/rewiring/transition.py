"""From edges to a transition matrix. Row i holds the edges that enter node i, as in ``Graph``."""

from __future__ import annotations

from typing import Literal

import numpy as np
from scipy import sparse
from torch import Tensor

from ..edges import check_weight, checked_edges
from ..errors import ArgumentError

Normalisation = Literal["sym", "rw"]


def adjacency(
    edge_index: Tensor, num_nodes: int | None, edge_weight: Tensor | None, self_loops: float
) -> sparse.csr_array:
    """Weights as an ``n × n`` float64 matrix: entry (i, j) is the edge from j to i.

    Args:
        edge_index: PyG's ``(2, E)``: row 0 holds sources, row 1 targets.
        edge_weight: Non-negative ``(E,)``. Edges that occur twice add up; without weights they are one.
        self_loops: Weight added to the self-loop of every node. A node that no edge enters even then
            is given a self-loop of weight 1, for a stochastic matrix has no empty row.
    """
    edge_index, n = checked_edges(edge_index, num_nodes)
    check_weight(edge_weight, edge_index)
    if not 0 <= self_loops < float("inf"):
        raise ArgumentError(f"self_loops must be a finite weight ≥ 0, got {self_loops}.")
    source, target = edge_index.cpu().numpy()
    values = np.ones(len(source)) if edge_weight is None else edge_weight.detach().cpu().double().numpy()
    matrix = sparse.csr_array((values, (target, source)), shape=(n, n))  # duplicates add up
    if edge_weight is None:
        matrix.data[:] = 1.0
    loops = np.full(n, float(self_loops))
    loops[(matrix.sum(1) + loops) == 0] = 1.0
    matrix = (matrix + sparse.diags_array(loops)).tocsr()
    matrix.eliminate_zeros()
    matrix.sort_indices()
    return matrix


def transition(matrix: sparse.csr_array, kind: Normalisation) -> sparse.csr_array:
    r"""Transition matrix T of the weights A, with :math:`d_i = \sum_j a_{ij}`.

    ``"rw"``: random walk :math:`D^{-1} A`, whose rows sum to 1 (GDC's ``"col"``: PyG writes targets in
    columns). ``"sym"``: :math:`D^{-1/2} A D^{-1/2}`. The two are similar matrices, and so are their
    functions: :math:`f(T_{sym}) = D^{1/2} f(T_{rw}) D^{-1/2}`, on a directed graph as well.
    """
    degree = matrix.sum(1)
    left, right = (1 / degree, np.ones_like(degree)) if kind == "rw" else (degree**-0.5,) * 2
    out = matrix.copy()
    out.data *= np.repeat(left, np.diff(out.indptr)) * right[out.indices]
    return out
