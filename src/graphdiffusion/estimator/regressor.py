"""``GRANDRegressor``."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.metrics import r2_score
from torch import Tensor
from torch_geometric.data import Data

from ..data import task_of
from ..errors import DataError
from .base import NodeEstimator
from .nodes import check_labels, refusing


class GRANDRegressor(NodeEstimator, RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Predicts a number, or several, for the nodes of a graph.

    The graph is given first, and nodes are the samples; or a whole graph is given to ``fit``. Arguments and
    attributes are those of :class:`GRANDClassifier`, ``classes_`` apart. ``score`` is R².

    Example:
        >>> regressor = GRANDRegressor(graph=data).fit([0, 5, 9, ...], [1.5, 0.2, 3.1, ...])
        >>> regressor.predict([1, 2])
    """

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _read(self, y: Any, nodes: NDArray[np.int64]) -> NDArray:
        labels = check_labels(y, nodes, numeric=True)
        if labels.dtype.kind not in "iufb":
            raise DataError(f"y must hold real numbers, got {labels.dtype}.")
        return labels

    def _labels(self, data: Data) -> NDArray:
        if (task := task_of(data)) != "regression":
            what = "classes" if task == "classification" else "several labels"
            raise DataError(
                f"the labels of the graph are {what}, not numbers: take GRANDClassifier, or set "
                "data.task = 'regression' with data.y of floating point."
            )
        return data.y.cpu().numpy()

    def _encoded(self, labels: NDArray, names: list[str] | None) -> tuple[Tensor, dict[str, Any]]:
        largest = np.abs(labels.astype(np.float64)).max()
        if largest > np.finfo(np.float32).max:
            raise DataError(f"y must be finite in float32, got {largest:g}: give it in other units.")
        return torch.from_numpy(labels.astype(np.float64)), {"task": "regression", "target_names": names}

    def _decoded(self, answers: NDArray) -> NDArray:
        found = answers.astype(np.float64)
        return found[:, 0] if self._data.y.dim() == 1 else found

    def _measured(self, wanted: Any, found: NDArray, sample_weight: Any) -> float:
        with refusing():
            return float(r2_score(wanted, found, sample_weight=sample_weight))
