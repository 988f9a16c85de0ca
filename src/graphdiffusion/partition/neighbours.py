"""What a cut looks at: the neighbours of each node, in both directions, and its number of edges."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..graph import Graph

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, eq=False)
class Neighbours:
    """Lists of neighbours in CSR form: the non-zeros of A + Aᵀ.

    A neighbour in both directions may stand twice in a list: a cut between the two nodes then counts twice,
    as often as a row is exchanged for it. Lists that were sorted on disk have it once. Self-loops may stand
    in the lists; a method leaves them out.

    Attributes:
        rowptr: ``(n+1,)``: the neighbours of node i are ``col[rowptr[i]:rowptr[i+1]]``.
        col: ``(M,)``, an array, perhaps memory-mapped, or anything else that gives one for a slice.
        edges: Edges that lead to each node, ``(n,)``: its weight in the balance of the parts.
    """

    rowptr: Array
    col: Any
    edges: Array

    @property
    def num_nodes(self) -> int:
        return len(self.edges)

    @classmethod
    def of(cls, graph: Graph) -> Neighbours:
        """The lists of a graph. Those of a symmetric one are its rows, without a copy."""
        rowptr, row, col = (_array(own) for own in (graph.rowptr, graph.row, graph.col))
        edges = np.diff(rowptr)
        if graph.is_symmetric:
            return cls(rowptr, col, edges)
        row, col = np.concatenate([row, col]), np.concatenate([col, row])
        rowptr = np.concatenate([[0], np.bincount(row, minlength=len(edges)).cumsum()])
        return cls(rowptr, col[np.argsort(row, kind="stable")], edges)


def _array(tensor: Any) -> Array:
    return tensor.detach().cpu().numpy()
