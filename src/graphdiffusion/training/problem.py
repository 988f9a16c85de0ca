"""From a configuration to what a training needs: data, graph, splits, members and models."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from os import PathLike
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import one_hot
from torch_geometric.data import Data

from ..data import (
    MASKS,
    DatasetInfo,
    Split,
    check_data,
    dataset_info,
    default_development,
    given_split,
    is_dataset,
    open_data,
    random_split,
    stack_splits,
)
from ..errors import ConfigError, DataError
from ..graph import Graph
from ..nn import Model, as_features
from ..nn.modules import Features
from ..rewiring import Rewire
from .config import Config
from .template import structure

PER_CLASS = 20  # training nodes of a class in the paper's random splits


@dataclass(frozen=True)
class Member:
    """One training: a split, an initialisation, and options in place of the configuration's."""

    number: int
    split: int  # seed of the split
    init: int  # seed of weights and dropout
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Problem:
    """Data made ready for training."""

    data: Data
    x: Features
    y: Tensor  # (n,), −1 where unlabelled
    graph: Graph
    classes: int
    edges_before: int  # edges of the graph as given, before rewiring; self-loops apart

    _prepared: dict[Hashable, Any] = field(default_factory=dict, repr=False)

    @property
    def in_channels(self) -> int:
        return self.x.shape[-1]

    def to(self, device: torch.device | str) -> Problem:
        return Problem(
            self.data, self.x.to(device), self.y.to(device), self.graph.to(device), self.classes,
            self.edges_before,
        )  # fmt: skip

    def prepared(self, config: Config, model: Model) -> Any:
        """What a model computes from the graph alone, once for all members and chunks."""
        key = config.model_key
        if key not in self._prepared:
            with torch.no_grad():
                self._prepared[key] = model.prepare(self.graph)
        return self._prepared[key]

    def one_hot(self, shown: Tensor) -> Tensor:
        """Labels of the nodes in masks ``(..., n)``, zero for the others: int64 ``(..., n, classes)``."""
        return one_hot(self.y.clamp_min(0), self.classes) * shown.unsqueeze(-1)


def read_data(config: Config, root: str | PathLike[str] | None = None) -> Data:
    """The data of a configuration; ``root`` as in :func:`~graphdiffusion.data.load_data`."""
    return open_data(config.data, root=root, lcc=config.lcc, directed=config.directed)


def load_problem(
    config: Config, data: Data | None = None, root: str | PathLike[str] | None = None
) -> Problem:
    """Read the data of a configuration (or take the given ``data``), rewire, and build the graph."""
    data = check_data(read_data(config, root) if data is None else data)
    if int((data.y >= 0).sum()) == 0:
        raise DataError("the data has no labels: give some nodes a class to learn from.")
    edges = int(data.edge_index.shape[1])
    graph = build_graph(config, data)
    return Problem(data, as_features(data.x), data.y, graph, int(data.y.max()) + 1, edges)


def member_configs(config: Config, members: Sequence[Member]) -> list[Config]:
    """The configuration of each member, all of one structure."""
    return [_member_config(config, member) for member in members]


def _member_config(config: Config, member: Member) -> Config:
    for name in member.options:
        if name not in config.per_member:
            raise ConfigError(
                f"{name} cannot differ between members of one population; those that can: "
                f"{', '.join(config.per_member)}."
            )
    own = config.replace(**member.options)
    if member.options and structure(own) != structure(config):
        for name, value in member.options.items():
            if structure(config.replace(**{name: value})) != structure(config):
                raise ConfigError(
                    f"{name} of member {member.number} is {value:g}, but {getattr(config, name):g} in the "
                    "configuration: between the two the parameters of the model differ. Train them in two "
                    "populations."
                )
    return own


def build_graph(config: Config, data: Data) -> Graph:
    """The graph that a model of this configuration works on: rewired if so wished, with self-loops."""
    if config.rewire != "none":
        how: dict[str, Any] = {"method": config.rewire, "top_k": config.rewire_k}
        how |= {"alpha": config.rewire_alpha} if config.rewire == "ppr" else {"t": config.rewire_t}
        data = Rewire(**how)(data)
    return Graph.from_data(data, self_loops=config.self_loops)


def has_fixed_split(config: Config, data: Data) -> bool:
    """Whether the masks that the data carries are the split to use unless another is asked for.

    So it is for a user's own graph, and for data sets that the paper does not split at random.
    """
    info = _published(config, data)
    return all(data.get(key) is not None for key in MASKS) and (info is None or info.development == 0)


def _published(config: Config, data: Data) -> DatasetInfo | None:
    """What is known of the data; nothing of a user's graph, even if its folder is called cora."""
    info = dataset_info(config.data) if is_dataset(config.data) else None
    return info if info is not None and data.get("name") == info.name else None


def protocol(config: Config) -> list[Member]:
    """The members of a configuration: every split with every initialisation."""
    splits = config.splits if config.split == "random" else 1
    return [
        Member(s * config.inits + i, config.seed + s, (config.seed + s) * 1000 + i)
        for s in range(splits)
        for i in range(config.inits)
    ]


def member_splits(config: Config, data: Data, members: Sequence[Member]) -> Split:
    """Masks ``(P, n)`` of the members."""
    if config.split != "random":
        fixed = given_split(data)
        for part, mask in (("train", fixed.train), ("val", fixed.val), ("test", fixed.test)):
            if not bool(mask.any()):
                raise DataError(
                    f"the split given with the data has no node in {part!r}: put some there, or take "
                    "split random."
                )
        return stack_splits([fixed] * len(members))
    development, per_class = config.development, config.per_class
    info, labels = _published(config, data), data.y[data.y >= 0]
    if per_class == 0:
        per_class = PER_CLASS if info is not None else default_per_class(labels)
    if development == 0:
        known = info is not None and info.development > 0
        development = info.development if info and known else default_development(labels.numel())
    found: dict[int, Split] = {}
    for member in members:
        if member.split not in found:
            found[member.split] = random_split(
                data.y, member.split, development=development, per_class=per_class
            )
    return stack_splits([found[member.split] for member in members])


def default_per_class(labels: Tensor) -> int:
    """The paper's 20, but at most half of the smallest class: some are left to validate and test."""
    smallest = int(labels.bincount()[labels.unique()].min())
    return max(1, min(PER_CLASS, smallest // 2))


def pick_device(name: str) -> torch.device:
    """``auto`` is CUDA where there is one."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise ConfigError("device cuda was asked for, but torch sees no GPU; take device cpu or auto.")
    return torch.device(name)
