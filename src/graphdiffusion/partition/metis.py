"""A cut by METIS, for graphs that fit in memory."""

from __future__ import annotations

import numpy as np
import scipy.sparse

from ..errors import ArgumentError
from .neighbours import Array, Neighbours


def metis(lists: Neighbours, parts: int, seed: int) -> Array:
    """METIS (Karypis and Kumar, 1998), through pymetis.

    It cuts A + Aᵀ without self-loops; the weight of a node is its number of edges.

    In memory: about 75 bytes an entry of A + Aᵀ at the peak.
    """
    try:
        import pymetis
    except ImportError:
        raise ArgumentError(
            "the method metis needs pymetis, which is not installed: pip install 'graphdiffusion[parts]', "
            "or take the method ldg."
        ) from None
    n = lists.num_nodes
    if parts == 1:  # METIS divides by zero there
        return np.zeros(n, dtype=np.int64)
    col = np.asarray(lists.col[:])
    matrix = scipy.sparse.csr_array((np.ones(len(col), np.int64), col, lists.rowptr), (n, n)).tocoo()
    apart = matrix.row != matrix.col
    ends = (matrix.row[apart], matrix.col[apart])
    matrix = scipy.sparse.csr_array((matrix.data[apart], ends), (n, n))  # a neighbour once, with its count
    kind = pymetis.zero_copy_dtype()
    equal = len(matrix.data) == 0 or matrix.data.min() == matrix.data.max()
    _, found = pymetis.part_graph(
        parts,
        pymetis.CSRAdjacency(matrix.indptr.astype(kind), matrix.indices.astype(kind)),
        vweights=lists.edges.astype(kind),
        eweights=None if equal else matrix.data.astype(kind),
        options=pymetis.Options(seed=seed % 2**31),
    )
    return np.asarray(found, dtype=np.int64)
