"""What the estimators share: parameters, fit, and predictions for nodes or whole graphs."""

from __future__ import annotations

import warnings
from copy import copy
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted
from torch import Tensor
from torch_geometric.data import Data

from ..data import MASKS, check_data, labelled
from ..ensemble import Ensemble
from ..errors import ConfigError, DataError, TrainedNodesWarning, TrainingWarning
from ..training.choices import all_options
from ..training.config import check_names
from ..training.fingerprint import data_digests
from ..training.problem import member_splits
from ..training.runs import unlabelled
from .fitting import AUTO, configured, train
from .nodes import as_graph, found_again, is_graph, positions, without_repeats

# parts of the data that make two graphs the same for a model
_PARTS = ("edges", "edge weights", "edge attributes", "features", "feature names")


class NodeEstimator(BaseEstimator):  # type: ignore[misc]
    """Base of the estimators.

    Parameters are the arguments of the constructor and every option that was given: scikit-learn's
    ``get_params``, ``set_params``, ``clone`` and searches know both.
    """

    def __init__(
        self,
        graph: Any = None,
        *,
        model: str = AUTO,
        refit: bool | None = None,
        budget: float | None = None,
        random_state: int = 0,
        device: str = "auto",
        verbose: int = 0,
        **options: Any,
    ) -> None:
        check_names(options)
        self.graph = graph
        self.model = model
        self.refit = refit
        self.budget = budget
        self.random_state = random_state
        self.device = device
        self.verbose = verbose
        self.__dict__.update(options)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Arguments of the constructor, and the options that were given."""
        own = super().get_params(deep)
        known = all_options()
        return own | {name: value for name, value in vars(self).items() if name in known}

    def set_params(self, **params: Any) -> Self:
        """Change arguments of the constructor, or any option of the configuration."""
        own = super().get_params(deep=False)
        check_names(name for name in params if name not in own)
        self.__dict__.update(params)
        return self

    def __sklearn_clone__(self) -> Self:
        """The same estimator before it was fitted; the graph is shared, as it is only read."""
        found = copy(self)
        for name in [name for name in vars(found) if name.endswith("_")]:
            delattr(found, name)
        return found

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.one_d_array = True
        tags.input_tags.categorical = True
        tags.input_tags.positive_only = True
        tags.input_tags.string = True
        return tags

    def fit(self, X: Any, y: Any = None) -> Self:
        """Train on some nodes of ``graph``, or on a whole graph.

        Args:
            X: Nodes ``(m,)`` or ``(m, 1)``: integers are positions, texts are ``node_ids``. Or a graph, a
                ``Data`` or a path: its own labels are learnt, by the split that its masks give.
            y: The label of each node; nothing for a whole graph.
        """
        own = super().get_params(deep=False)
        options = {name: value for name, value in self.get_params(deep=False).items() if name not in own}
        config = configured(self.model, options, self.random_state, self.device)
        data = self._whole(X, y) if is_graph(X) else self._labelled_nodes(X, y)
        self.ensemble_, sentences = train(
            config, data, auto=self.model == AUTO, refit=self.refit, budget=self.budget,
            verbose=bool(self.verbose),
        )  # fmt: skip
        for text in sentences:
            warnings.warn(text, TrainingWarning, stacklevel=2)
        self.answers_ = self.ensemble_.predict().numpy()
        self.trained_nodes_ = _used(self.ensemble_, self.ensemble_.data)
        self.summary_ = self.ensemble_.summary
        self.n_iter_ = max(result.epochs for run in self.ensemble_.runs for result in run.results)
        self.n_features_in_ = 1
        return self

    def predict(self, X: Any) -> NDArray:
        """The label of each node that is given, or of every node of a graph.

        Args:
            X: Nodes as in ``fit``, or a graph: that of the training or another with the same features.
        """
        return self._decoded(self._answers(X))

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """How good the predictions are.

        Args:
            X: Nodes as in ``fit``; those that fit has used are counted with a warning. Or a graph: of its
                labelled nodes those count that fit has not used, and of these those in ``test_mask`` if it
                has one. In another graph a node is the same if its id and features are, or without ids its
                position and features.
            y: The label of each node; nothing for a graph.
            sample_weight: Weight of each node.
        """
        check_is_fitted(self)
        if is_graph(X):
            y, found = self._unseen(X, y)
        else:
            nodes = positions(X, self._data)
            found = self._decoded(self.answers_[nodes])
            if seen := int(np.isin(nodes, self.trained_nodes_).sum()):
                text = f"{seen} of {len(nodes)} nodes were used by fit: the score says little about others."
                warnings.warn(text, TrainedNodesWarning, stacklevel=2)
        return self._measured(y, found, sample_weight)

    @property
    def _data(self) -> Data:
        """The graph of the training with its labels."""
        return self.ensemble_.runs[0].data

    def _answers(self, X: Any) -> NDArray:
        """Probabilities or numbers for nodes, or for all nodes of a graph."""
        check_is_fitted(self)
        if not is_graph(X):
            return self.answers_[positions(X, self._data)]
        data = unlabelled(as_graph(X))
        before, now = self.ensemble_.runs[0].fingerprint.data, data_digests(data)
        same = all(before[part] == now[part] for part in _PARTS)
        return self.answers_ if same else self.ensemble_.predict(data).numpy()

    def _unseen(self, X: Any, y: Any) -> tuple[NDArray, NDArray]:
        """Labels and predictions of the nodes of a graph that can be scored."""
        data = self._checked(X, y, "score")
        scored = labelled(data).cpu()
        if (test := data.get("test_mask")) is not None:
            scored = scored & test.cpu().reshape(len(test), -1).any(dim=1)
        known = found_again(self.trained_nodes_, self._data, self.ensemble_.runs[0].matched(data)[0])
        nodes = np.setdiff1d(scored.nonzero().flatten().numpy(), known)
        if not len(nodes):
            raise DataError(
                "there is no labelled node that fit has not used: put some into test_mask, or read "
                "summary_['figures'], which fit measured on nodes that it kept apart."
            )
        return self._labels(data)[nodes], self.predict(data)[nodes]

    def _checked(self, X: Any, y: Any, where: str) -> Data:
        """A graph with labels of the kind that is predicted here."""
        if y is not None:
            raise DataError(
                f"{where} of a whole graph takes the labels in data.y, and no y: to give labels, give the "
                f"graph to {type(self).__name__}(graph=...) and nodes as X."
            )
        return check_data(as_graph(X))

    def _whole(self, X: Any, y: Any) -> Data:
        """A graph whose own labels are learnt."""
        if self.graph is not None:
            raise ConfigError(
                "a graph is given to the constructor and to fit: give nodes to fit, or leave graph out."
            )
        source = self._checked(X, y, "fit")
        nodes = labelled(source).nonzero().flatten().cpu().numpy()
        if not len(nodes):
            raise DataError("the data has no labels: give some nodes a label to learn from.")
        labels, names = self._labels(source)[nodes], source.get("target_names")
        data = self._with_targets(unlabelled(source), nodes, labels, names)
        for name in MASKS:
            if source.get(name) is not None:
                data[name] = source[name]
        return data

    def _labelled_nodes(self, X: Any, y: Any) -> Data:
        """The graph of the constructor with labels for some nodes; its own labels are not looked at."""
        if self.graph is None:
            raise ConfigError(
                f"{type(self).__name__} learns from nodes of a graph: give the graph to the constructor "
                f"and nodes to fit, or a whole graph to fit; got {type(X).__name__} and no graph."
            )
        graph = unlabelled(as_graph(self.graph))
        nodes = positions(X, graph)
        return self._with_targets(graph, *without_repeats(nodes, self._read(y, nodes)))

    def _with_targets(
        self, graph: Data, nodes: NDArray[np.int64], labels: NDArray, names: list[str] | None = None
    ) -> Data:
        """A graph with targets for some nodes, which are encoded as a training takes them."""
        targets, about = self._encoded(labels, names)
        unknown = torch.nan if targets.is_floating_point() else -1
        y = torch.full((graph.x.shape[0], *targets.shape[1:]), unknown, dtype=targets.dtype)
        y[torch.from_numpy(nodes)] = targets
        graph.y = y
        graph.update({name: value for name, value in about.items() if value is not None})
        return graph

    def _read(self, y: Any, nodes: NDArray[np.int64]) -> NDArray:
        """The labels that are given to fit, checked."""
        raise NotImplementedError

    def _labels(self, data: Data) -> NDArray:
        """The labels in a graph, in the form in which they would be given to fit."""
        raise NotImplementedError

    def _encoded(self, labels: NDArray, names: list[str] | None) -> tuple[Tensor, dict[str, Any]]:
        """Labels as targets of a training, and what else it must know: the task, and names.

        Args:
            names: Of the columns of labels, where they have names.
        """
        raise NotImplementedError

    def _decoded(self, answers: NDArray) -> NDArray:
        """Labels from probabilities or numbers."""
        raise NotImplementedError

    def _measured(self, wanted: Any, found: NDArray, sample_weight: Any) -> float:
        """The score of predictions."""
        raise NotImplementedError


def _used(ensemble: Ensemble, data: Data) -> NDArray[np.int64]:
    """The nodes whose labels the models have learnt from or were chosen by."""
    used = torch.zeros(len(data.y), dtype=torch.bool)
    for run in ensemble.runs:
        split = member_splits(run.config, data, [result.member for result in run.results])
        used |= (split.train | split.val).any(0).cpu()
    return used.nonzero().flatten().numpy()
