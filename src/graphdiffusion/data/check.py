"""`check_data`: does a PyG `Data` of whatever origin hold what the rest of the library expects?"""

import torch
from torch_geometric.data import Data

from graphdiffusion.data.structure import MASKS
from graphdiffusion.data.targets import labelled, only_zero_and_one, task_of
from graphdiffusion.errors import DataError


def check_data(data: Data) -> Data:
    """Return `data` unchanged if it can be trained on, otherwise say what is wrong with it.

    Expected: `x` (n, F) float32, finite, dense or sparse (CSR, COO); `edge_index` (2, E) int64 with
    entries in 0..n-1; the targets `y`; optionally `edge_weight` (E,) floating point, finite and
    positive, `feature_names` (F), and disjoint masks of labelled nodes, (n,) bool, or (n, S) for S splits.

    The targets are classes, int64 (n,) with -1 where unlabelled; numbers, floating point (n,) or (n, k);
    or several labels, floating point 0 and 1, or bool, (n, k). The row of an unlabelled node is NaN.
    `task`, if there is one, says which of them; see `task_of`.

    Raises:
        DataError: with the field, what it holds and how to mend it.
    """
    if not isinstance(data, Data):
        raise DataError(f"expected a torch_geometric.data.Data, got {type(data).__name__}")
    n = _check_features(data)
    _check_edges(data, n)
    check_labels(data, n)
    return data


def check_labels(data: Data, n: int) -> None:
    """The same of targets and masks alone, where features and edges of the `n` nodes lie elsewhere."""
    _check_targets(data, n)
    _check_masks(data, n)


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
        raise DataError(
            f"data.feature_names must have {x.size(1)} entries, one for each feature, got {len(names)}"
        )
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


def _check_targets(data: Data, n: int) -> None:
    y = _tensor(data, "y", "without labels use torch.full((n,), -1)")
    if data.get("task") is None:
        _check_form(y, n)
    task = task_of(data)
    if task == "classification":
        _check_classes(data, y, n)
    else:
        _check_numbers(data, y, n, task)
    ids = data.get("node_ids")
    if ids is not None and len(ids) != n:
        raise DataError(f"data.node_ids must have {n} entries, one for each node, got {len(ids)}")


def _check_form(y: torch.Tensor, n: int) -> None:
    """Refuse a form of `y` that says no task."""
    classes = y.dtype == torch.int64 and y.dim() == 1
    numbers = y.is_floating_point() and y.dim() in (1, 2)
    labels = y.dtype == torch.bool and y.dim() == 2
    if y.shape[:1] != (n,) or not (classes or numbers or labels):
        raise DataError(
            f"data.y must be int64 of shape ({n},) for classes, or floating point of shape ({n}, k) for "
            f"numbers or several labels, got {_is(y)}"
        )


def _check_classes(data: Data, y: torch.Tensor, n: int) -> None:
    if y.shape != (n,) or y.dtype != torch.int64:
        raise DataError(f"data.y must be int64 of shape ({n},) for classification, got {_is(y)}")
    if int(y.min()) < -1:
        raise DataError(f"data.y must be -1 (unlabelled) or a class from 0, got {int(y.min())}")
    names = data.get("class_names")
    if names is not None and int(y.max()) >= len(names):
        raise DataError(f"data.y holds class {int(y.max())}, but there are {len(names)} class_names")


def _check_numbers(data: Data, y: torch.Tensor, n: int, task: str) -> None:
    boolean = task == "multilabel" and y.dtype == torch.bool
    shaped = y.shape[:1] == (n,) and (y.dim() == 2 or (y.dim() == 1 and task == "regression")) and y.numel()
    if not shaped or not (y.is_floating_point() or boolean):
        raise DataError(
            f"data.y must be floating point of shape ({n}, k) for {task}, got {_is(y)}; use data.y.double()"
        )
    columns = 1 if y.dim() == 1 else y.size(1)
    names = data.get("target_names")
    if names is not None and len(names) != columns:
        raise DataError(
            f"data.target_names must have {columns} entries, one for each target, got {len(names)}"
        )
    if boolean:
        return
    if bool(y.float().isinf().any()):
        raise DataError(
            "data.y holds infinity; targets must be finite as float32, and NaN where a node has none"
        )
    unknown = y.isnan().reshape(n, columns)
    partly = (unknown.any(dim=1) & ~unknown.all(dim=1)).nonzero()
    if partly.numel():
        raise DataError(
            f"data.y has NaN for some targets of node {int(partly[0])} and not for others; "
            "a node has all of its targets or none"
        )
    if task == "multilabel" and not only_zero_and_one(y):
        raise DataError("data.y must be 0 or 1 for several labels, and NaN in the rows of unlabelled nodes")


def _check_masks(data: Data, n: int) -> None:
    masks = {
        key: _tensor(data, key, "it must be a bool mask") for key in MASKS if data.get(key) is not None
    }
    known = labelled(data)
    taken = torch.zeros(n, 1, dtype=torch.bool, device=known.device)
    for key, mask in masks.items():
        if mask.dtype != torch.bool or mask.shape[:1] != (n,) or mask.dim() > 2 or mask.numel() == 0:
            raise DataError(
                f"data.{key} must be bool of shape ({n},), or ({n}, S) for S splits, got {_is(mask)}"
            )
        columns = mask.reshape(n, -1)
        if columns.size(1) != taken.size(1) and 1 not in (columns.size(1), taken.size(1)):
            raise DataError(f"data.{key} has {columns.size(1)} splits, but another mask {taken.size(1)}")
        if bool((columns & ~known.unsqueeze(1)).any()):
            among = "labelled(data)" if mask.dim() == 1 else "labelled(data)[:, None]"
            raise DataError(
                f"data.{key} holds unlabelled nodes; use data.{key} & {among} of graphdiffusion.data"
            )
        if bool((columns & taken).any()):
            raise DataError(f"data.{key} shares nodes with another mask; masks must be disjoint")
        taken = taken | columns
