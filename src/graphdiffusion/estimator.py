"""GRAND with the habits of scikit-learn: ``GRANDClassifier().fit(data).predict(data)``."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted
from torch import Tensor
from torch_geometric.data import Data

from .data import Split, check_data, default_development, random_split, stack_splits
from .errors import ConfigError, DataError
from .nn import as_features
from .training.choices import default
from .training.config import Config
from .training.population import Population
from .training.problem import Member, build_graph, default_per_class, load_problem, pick_device
from .training.runs import unlabelled
from .training.summary import Result
from .training.template import build_model

_NOT_HERE = ("data", "root", "lcc", "split", "splits", "inits", "development")


class GRANDClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Classifies the nodes of a graph; options mean what they mean in
    :class:`~graphdiffusion.training.Config`. Nothing is written to disk.

    Args:
        variant: ``"linear"``, ``"nonlinear"`` or ``"nonlinear-rewired"``.
        hidden: Channels of the diffused state.
        time: T, the depth of the model.
        heads, attention_dim: Number of attention heads, and width of all of them together.
        input_dropout, dropout: Of the features, and before the decoder.
        solver: ``"auto"`` is the closed form for the linear variant, else Dormand-Prince.
        rate, decay: Learning rate and weight decay.
        epochs, patience: Most epochs; stop after so many without improvement, 0: never.
        per_class: Training nodes of each class, where a random split is made.
        seed: Of split, weights and dropout.
        device: ``"auto"``, ``"cpu"`` or ``"cuda"``.
        config: Further options of the configuration by name.

    Attributes:
        classes_: The classes, 0 to C − 1, as in ``data.y``.
        n_features_in_: Features a node.
        model_: The trained :class:`~graphdiffusion.nn.GRAND`, at its best validation epoch.
        result_: What it reached, a :class:`~graphdiffusion.training.Result`; ``test`` is over
            ``test_mask``, else over the labelled nodes that fit has not used.

    Example:
        >>> classifier = GRANDClassifier(epochs=50).fit(data)
        >>> classifier.predict(data)
    """

    def __init__(
        self,
        variant: str = default("variant"),
        hidden: int = default("hidden"),
        time: float = default("time"),
        heads: int = default("heads"),
        attention_dim: int = default("attention_dim"),
        input_dropout: float = default("input_dropout"),
        dropout: float = default("dropout"),
        solver: str = default("solver"),
        rate: float = default("rate"),
        decay: float = default("decay"),
        epochs: int = default("epochs"),
        patience: int = default("patience"),
        per_class: int = default("per_class"),
        seed: int = default("seed"),
        device: str = default("device"),
        config: dict[str, Any] | None = None,
    ) -> None:
        self.variant = variant
        self.hidden = hidden
        self.time = time
        self.heads = heads
        self.attention_dim = attention_dim
        self.input_dropout = input_dropout
        self.dropout = dropout
        self.solver = solver
        self.rate = rate
        self.decay = decay
        self.epochs = epochs
        self.patience = patience
        self.per_class = per_class
        self.seed = seed
        self.device = device
        self.config = config

    def fit(self, data: Data, mask: Tensor | None = None) -> GRANDClassifier:
        """Train on a graph, with early stopping on validation nodes.

        Args:
            data: ``x``, ``edge_index``, ``y`` with −1 where unlabelled. Its ``train_mask`` and
                ``val_mask`` are used if present; otherwise the labelled nodes are split at random.
            mask: Training nodes ``(n,)`` in place of ``train_mask``.

        Where there are training but no validation nodes, a fifth of the former is set aside. An integration
        that fails in the first epoch is an error; later it ends the training, with a warning.
        """
        config = self._config()
        problem = load_problem(config, data).to(pick_device(config.device))
        split = self._split(problem.data, mask)
        member = Member(0, config.seed, config.seed * 1000)
        population = Population(problem, config, [member], stack_splits([split]))
        if population.stack.model.needs_observed:
            raise ConfigError("a term that uses labels needs them at prediction: train with grand train.")
        while population.epochs_done < config.epochs and not bool(population.finished().any()):
            failure = population.step()
            if failure is not None:
                if population.epochs_done == 1:
                    raise failure
                text = f"the training ends after {population.epochs_done - 1} epochs: {failure}"
                warnings.warn(text, ConvergenceWarning, stacklevel=2)
                break
        state, val, test = population.final()
        own = population.saved(state, 0)
        self.model_ = build_model(config, problem.in_channels, problem.out_channels, member.init)
        self.model_.load_state_dict(own)
        self.model_.to(problem.y.device).eval()
        self.result_ = Result(
            0, member.split, member.init, val.item(), test.item() if bool(split.test.any()) else math.nan,
            int(population.best_epoch), int(population.epoch), population.stack.model.time_of(own), {},
        )  # fmt: skip
        self.classes_ = np.arange(problem.out_channels)
        self.n_features_in_ = problem.in_channels
        return self

    @torch.no_grad()
    def predict_proba(self, data: Data) -> NDArray[np.float32]:
        """Probabilities ``(n, classes)`` of every node of a graph, the one of the training or another."""
        check_is_fitted(self)
        data, device = unlabelled(data), next(self.model_.parameters()).device
        if data.x.shape[1] != self.n_features_in_:
            raise DataError(
                f"data.x must have {self.n_features_in_} features, as in fit, got {data.x.shape[1]}."
            )
        graph = build_graph(self._config(), data).to(device)
        return self.model_(as_features(data.x).to(device), graph).softmax(-1).cpu().numpy()

    def predict(self, data: Data) -> NDArray[np.int64]:
        """The class of every node ``(n,)``."""
        return self.predict_proba(data).argmax(-1)

    def score(self, data: Data, mask: Tensor | None = None) -> float:
        """Share of right answers among the nodes of ``mask``; by default ``test_mask``, else all."""
        if mask is None:
            mask = data.get("test_mask")
        labelled = check_data(data).y >= 0
        nodes = labelled if mask is None else labelled & _checked(mask, labelled)
        if not bool(nodes.any()):
            raise DataError("there is no labelled node to score on.")
        right = torch.from_numpy(self.predict(data)) == data.y.cpu()
        return float(right[nodes.cpu()].double().mean())

    def _config(self) -> Config:
        options = self.get_params()
        extra = options.pop("config") or {}
        if not isinstance(extra, dict):
            raise ConfigError(f"config must be a dictionary of options, got {extra!r}.")
        for name in extra:
            if name in options:
                raise ConfigError(f"{name} is an argument of its own: take it out of config.")
            if name in _NOT_HERE:
                raise ConfigError(f"{name} has no meaning here: the data is given to fit.")
            if name == "label_rate":
                raise ConfigError("label_rate needs labels at prediction: train with grand train.")
        return Config.from_dict({**options, **extra, "split": "given"})

    def _split(self, data: Data, mask: Tensor | None) -> Split:
        """Who trains, validates and tests."""
        y, labelled = data.y, data.y >= 0
        train = data.get("train_mask") if mask is None else mask
        if train is None:
            size = default_development(int(labelled.sum()))
            per_class = self.per_class or default_per_class(y[labelled])
            return random_split(y, self.seed, development=size, per_class=per_class)
        train = labelled & _checked(train, labelled)
        val = data.get("val_mask")
        val = val & ~train if val is not None else torch.zeros_like(train)
        if not bool(val.any()):
            val = self._set_aside(y, train)
            train = train & ~val
        if not bool(train.any() and val.any()):
            raise DataError(
                f"{int((train | val).sum())} labelled training nodes are too few: some are needed to "
                "train and some to validate."
            )
        test = data.get("test_mask")
        return Split(train, val, ~train & ~val & (labelled if test is None else test))

    def _set_aside(self, y: Tensor, train: Tensor) -> Tensor:
        """A fifth of the training nodes of each class that has two or more."""
        generator = torch.Generator().manual_seed(self.seed)
        val = torch.zeros_like(train)
        for k in y[train].unique().tolist():
            nodes = (train & (y == k)).nonzero().flatten()
            order = nodes[torch.randperm(len(nodes), generator=generator)]
            val[order[: max(len(nodes) // 5, int(len(nodes) > 1))]] = True
        return val


def _checked(mask: Any, like: Tensor) -> Tensor:
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool or mask.shape != like.shape:
        raise DataError(f"a mask must be a bool tensor of shape {tuple(like.shape)}, got {mask!r}.")
    return mask
