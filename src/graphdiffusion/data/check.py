"""`check_data`: does a PyG `Data` of whatever origin hold what the rest of the library expects?"""

import torch
from torch_geometric.data import Data

from graphdiffusion.data.structure import MASKS
from graphdiffusion.errors import DataError


def check_data(data: Data) -> Data:
    """Return `data` unchanged if it can be trained on, otherwise say what is wrong with it.

    Expected: `x` (n, F) float32, finite, dense or sparse (CSR, COO); `edge_index` (2, E) int64 with
    entries in 0..n-1; `y` (n,) int64, -1 where unlabelled; optionally `edge_weight` (E,) floating
    point, finite and positive, `feature_names` (F), and disjoint masks (n,) bool of labelled nodes.

    Raises:
        DataError: with the field, what it holds and how to mend it.
    """
    if not isinstance(data, Data):
        raise DataError(f"expected a torch_geometric.data.Data, got {type(data).__name__}")
    n = _check_features(data)
    _check_edges(data, n)
    _check_labels(data, n)
    return data


def _tensor(data: Data, key: str, mend: str) -> torch.Tensor:
    value = data.get(key)
    if not isinstance(value, torch.Tensor):
        raise DataError(f"data.{key} must be a tensor, got {type(value).__name__}; {mend}")
    return value


def _is(value: torch.Tensor) -> str:
    return f"{value.dtype} of shape {tuple(value.shape)}"


def _check_features(data: Data) -> int:
    x = _tensor(data, "x", "a graph without features can take a sparse identity matrix")
    if x.layout not in (torch.strided, torch.sparse_csr, torch.sparse_coo):
        raise DataError(f"data.x has the layout {x.layout}; use data.x.to_sparse_csr()")
    if x.dim() != 2 or 0 in x.shape:
        raise DataError(f"data.x must be of shape (n, F), neither of them zero, got {_is(x)}")
    if x.dtype != torch.float32:
        raise DataError(f"data.x must be float32, got {x.dtype}; use data.x.float()")
    values = x if x.layout == torch.strided else (x.coalesce() if x.is_sparse else x).values()
    if not bool(torch.isfinite(values).all()):
        raise DataError("data.x holds NaN or infinity; replace them, for instance by nan_to_num")
    names = data.get("feature_names")
    if names is not None and len(names) != x.size(1):
        raise DataError(f"data.feature_names has {len(names)} entries for {x.size(1)} features")
    return x.size(0)


def _check_edges(data: Data, n: int) -> None:
    edges = _tensor(data, "edge_index", "it must be int64 of shape (2, E)")
    if edges.dtype != torch.int64 or edges.dim() != 2 or edges.size(0) != 2:
        raise DataError(f"data.edge_index must be int64 of shape (2, E), got {_is(edges)}")
    if edges.numel() and (int(edges.min()) < 0 or int(edges.max()) >= n):
        raise DataError(
            f"data.edge_index holds {int(edges.min())} to {int(edges.max())}, but data.x has {n} "
            f"rows, so nodes are 0 to {n - 1}"
        )
    if data.get("edge_weight") is None:
        return
    weight = _tensor(data, "edge_weight", "it must hold a number for each edge")
    if weight.shape != edges.shape[1:] or not weight.is_floating_point():
        raise DataError(
            f"data.edge_weight must be floating point of shape ({edges.size(1)},), got {_is(weight)}"
        )
    if not bool((torch.isfinite(weight) & (weight > 0)).all()):
        raise DataError("data.edge_weight must be positive and finite; drop edges of weight zero")


def _check_labels(data: Data, n: int) -> None:
    y = _tensor(data, "y", "without labels use torch.full((n,), -1)")
    if y.shape != (n,) or y.dtype != torch.int64:
        raise DataError(f"data.y must be int64 of shape ({n},), got {_is(y)}")
    if int(y.min()) < -1:
        raise DataError(f"data.y must be -1 (unlabelled) or a class from 0, got {int(y.min())}")
    names = data.get("class_names")
    if names is not None and int(y.max()) >= len(names):
        raise DataError(f"data.y holds class {int(y.max())}, but there are {len(names)} class_names")
    ids = data.get("node_ids")
    if ids is not None and len(ids) != n:
        raise DataError(f"data.node_ids has {len(ids)} entries for {n} nodes")
    taken = torch.zeros_like(y, dtype=torch.bool)
    for key in MASKS:
        if data.get(key) is None:
            continue
        mask = _tensor(data, key, "it must be a bool mask")
        if mask.dtype != torch.bool or mask.shape != (n,):
            raise DataError(
                f"data.{key} must be bool of shape ({n},), got {_is(mask)}; "
                "of several splits choose one column"
            )
        if bool((mask & (y < 0)).any()):
            raise DataError(f"data.{key} holds unlabelled nodes; use data.{key} & (data.y >= 0)")
        if bool((mask & taken).any()):
            raise DataError(f"data.{key} shares nodes with another mask; masks must be disjoint")
        taken |= mask
