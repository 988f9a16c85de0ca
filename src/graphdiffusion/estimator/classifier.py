"""``GRANDClassifier``."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import column_or_1d
from torch import Tensor
from torch_geometric.data import Data

from ..data import task_of
from ..errors import DataError
from .base import NodeEstimator
from .nodes import check_labels, refusing, shown


class GRANDClassifier(NodeEstimator, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Classifies the nodes of a graph: one class for each, or any of several labels.

    The graph is given first, and nodes are the samples: cross-validation and searches split nodes. Features
    and edges of all nodes are seen in training, labels only of those that are given to ``fit``:

        >>> classifier = GRANDClassifier(graph=data).fit([0, 5, ...], ["reader", "writer", ...])
        >>> classifier.predict([1, 2])

    Or a whole graph is given to ``fit``, with labels and perhaps masks of its own:

        >>> GRANDClassifier().fit(data).predict(data)

    Nothing is kept on disk.

    Args:
        graph: A ``torch_geometric.data.Data``, or the path of a graph. Labels that it carries are not used.
        model: ``"auto"`` tries several configurations on validation nodes and keeps an ensemble of the
            best, as ``grand train`` does. The name of a model trains one configuration, with early stopping
            on a fifth of the nodes.
        refit: Train on all labels at last, for as many epochs as validation found best. By default the
            automatic choice does, unless a whole graph with masks is given; one configuration does not.
        budget: Seconds that may cut the plan of the automatic choice.
        random_state: Seed of splits, weights and dropout: a whole number, of which the remainder by 500 000
            counts.
        device: ``"auto"``, ``"cpu"`` or ``"cuda"``.
        verbose: 1 prints lines of progress.
        options: With the name of a model, any option of :class:`~graphdiffusion.training.Config`, such as
            ``hidden=32``; what is not given has the value that ``grand train`` takes for a graph of one's
            own. With ``"auto"`` only ``split``, ``splits`` and ``class_weights``. ``set_params`` and
            searches take them all by their names.

    Attributes:
        classes_: The classes, sorted; of several labels ``target_names``, or 0, 1, ...
        ensemble_: The trained models, a :class:`~graphdiffusion.ensemble.Ensemble`.
        summary_: What the training found: the content of its ``summary.json``.
        trained_nodes_: Positions of the nodes that trained or validated.
        answers_: Probabilities of all nodes of the graph of the training.
        n_iter_: Most epochs of a model.
        n_features_in_: 1, the node.
    """

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags

    def predict_proba(self, X: Any) -> NDArray[np.float32]:
        """Probabilities ``(m, classes)`` for nodes, or for all nodes of a graph.

        Those of several labels are independent, and do not add up to 1.

        Args:
            X: Nodes as in ``fit``, or a graph.
        """
        return self._answers(X)

    def _read(self, y: Any, nodes: NDArray[np.int64]) -> NDArray:
        labels = check_labels(y, nodes, numeric=False)
        with refusing():
            check_classification_targets(labels)
            kind = type_of_target(labels, input_name="y")
            if kind == "multilabel-indicator":
                return labels
            if kind not in ("binary", "multiclass"):
                raise DataError(f"y must be (m,), or hold 0 and 1 for several labels; it is {kind}.")
            return column_or_1d(labels, warn=True)

    def _labels(self, data: Data) -> NDArray:
        task = task_of(data)
        if task == "regression":
            raise DataError("the labels of the graph are numbers, not classes: take GRANDRegressor.")
        y = data.y.cpu().numpy()
        if task == "multilabel":
            return np.nan_to_num(y).astype(np.int64)
        names = data.get("class_names")
        return y if names is None else np.asarray(names)[y]

    def _encoded(self, labels: NDArray, names: list[str] | None) -> tuple[Tensor, dict[str, Any]]:
        if labels.ndim == 2:
            self.classes_ = np.arange(labels.shape[1]) if names is None else np.asarray(names)
            about = {"task": "multilabel", "target_names": names}
            return torch.from_numpy(labels.astype(np.float32)), about
        self.classes_, codes = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise DataError(f"y holds one class alone, {shown(self.classes_[0])}: at least two are needed.")
        about = {"task": "classification", "class_names": [str(name) for name in self.classes_]}
        return torch.from_numpy(codes.astype(np.int64)), about

    def _decoded(self, answers: NDArray) -> NDArray:
        if self._data.task == "multilabel":
            return (answers > 0.5).astype(np.int64)
        return self.classes_[answers.argmax(axis=1)]

    def _measured(self, wanted: Any, found: NDArray, sample_weight: Any) -> float:
        """Share of right answers; of several labels all must be right."""
        with refusing():
            return float(accuracy_score(wanted, found, sample_weight=sample_weight))
