"""What every loader shares: tidy edges, features dense or sparse, the largest connected component."""

import copy
import warnings
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components
from torch import Tensor
from torch_geometric.data import Data

# Below this share of nonzeros a sparse matrix is smaller and its product faster than the dense one.
SPARSE_BELOW = 0.1

MASKS = ("train_mask", "val_mask", "test_mask")


def tidy_edges(
    edge_index: NDArray[np.int64],
    num_nodes: int,
    weight: NDArray[np.float64] | None = None,
    *,
    directed: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Sort by (source, target), drop self-loops and duplicates, add the other direction.

    Args:
        edge_index: (2, E) integers below `num_nodes`.
        weight: (E,); of duplicates the first one counts.
        directed: if true, no directions are added.

    Returns:
        edge_index (2, E') int64 and weight (E',) float32 or None.
    """
    source, target = edge_index.astype(np.int64)
    if not directed:
        source, target = np.concatenate([source, target]), np.concatenate([target, source])
        weight = None if weight is None else np.concatenate([weight, weight])
    proper = source != target
    keys = (source * num_nodes + target)[proper]
    if weight is None:
        keys.sort()  # several times faster than np.unique
        keys = keys[np.diff(keys, prepend=-1) > 0]
    else:
        keys, first = np.unique(keys, return_index=True)
        weight = weight[proper][first].astype(np.float32)
    edges = torch.from_numpy(np.stack(np.divmod(keys, max(1, num_nodes))))
    return edges, None if weight is None else torch.from_numpy(weight)


def feature_tensor(x: Any) -> Tensor:
    """A NumPy or SciPy matrix (n, F) as float32: sparse CSR if under a tenth is nonzero, else dense."""
    nonzeros = x.count_nonzero() if sp.issparse(x) else np.count_nonzero(x)
    if nonzeros >= SPARSE_BELOW * x.shape[0] * x.shape[1]:
        dense = x.toarray() if sp.issparse(x) else x
        return torch.from_numpy(np.ascontiguousarray(dense, dtype=np.float32))
    matrix = sp.csr_matrix(x, dtype=np.float32)
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    return csr_tensor(matrix)


def csr_tensor(matrix: sp.csr_matrix) -> Tensor:
    """A scipy CSR matrix as a torch sparse CSR tensor with int64 indices."""
    with warnings.catch_warnings():
        # torch warns once in each process that CSR is in beta; a user can do nothing about it.
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        return torch.sparse_csr_tensor(
            # copies: `from_numpy` gives an empty array the stride 0, which torch refuses as indices
            torch.tensor(matrix.indptr, dtype=torch.int64),
            torch.tensor(matrix.indices, dtype=torch.int64),
            torch.tensor(matrix.data),
            size=matrix.shape,
            check_invariants=True,
        )


def select_rows(x: Tensor, rows: NDArray[np.int64]) -> Tensor:
    """`x[rows]` for a dense tensor or a sparse CSR one, for which torch has no such indexing."""
    if x.layout == torch.strided:
        return x[torch.from_numpy(rows)]
    parts = (x.values().numpy(), x.col_indices().numpy(), x.crow_indices().numpy())
    return csr_tensor(sp.csr_matrix(parts, shape=tuple(x.shape))[rows])


def select_columns(x: Tensor, columns: list[int]) -> Tensor:
    """`x[:, columns]` for a dense tensor or a sparse one, which becomes CSR; zeros where a column is -1."""
    if x.layout == torch.strided:
        found = x[:, columns]
        found[:, torch.tensor(columns, device=x.device) < 0] = 0
        return found
    rows = (x if x.layout == torch.sparse_csr else x.coalesce().to_sparse_csr()).cpu()
    parts = (rows.values().numpy(), rows.col_indices().numpy(), rows.crow_indices().numpy())
    # one column more, which is empty: it is the last one, so that -1 names it
    chosen = sp.csr_matrix(parts, shape=(x.shape[0], x.shape[1] + 1))[:, columns]
    chosen.sort_indices()
    return csr_tensor(chosen)


def largest_component(data: Data) -> Data:
    """The largest (weakly) connected component, nodes in their old order; `data` itself if connected.

    Edges, features, labels, masks and node ids are restricted; class names stay as they are. Nodes
    without ids get their old numbers as ids.
    """
    n = int(data.num_nodes or 0)
    source, target = data.edge_index.numpy()
    adjacency = sp.coo_matrix((np.ones(source.size, dtype=np.int8), (source, target)), shape=(n, n))
    count, component = connected_components(adjacency, directed=False)
    if count <= 1:
        return data
    inside = component == np.bincount(component).argmax()
    rows = np.flatnonzero(inside)
    position = np.cumsum(inside) - 1
    kept = inside[source]  # both ends of an edge lie in the same component
    result = copy.copy(data)
    if "num_nodes" in data:
        result.num_nodes = rows.size
    result.edge_index = torch.from_numpy(position[data.edge_index.numpy()[:, kept]])
    if data.get("edge_weight") is not None:
        result.edge_weight = data.edge_weight[torch.from_numpy(kept)]
    if data.x is not None:
        result.x = select_rows(data.x, rows)
    for key in ("y", *MASKS):
        if data.get(key) is not None:
            result[key] = data[key][torch.from_numpy(rows)]
    old = data.node_ids if "node_ids" in data else range(n)
    result.node_ids = [str(old[i]) for i in rows.tolist()]
    return result
