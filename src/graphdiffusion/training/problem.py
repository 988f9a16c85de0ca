"""From a configuration to what a training needs: data, graph, splits, members and models."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from os import PathLike
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch_geometric.data import Data

from ..data import (
    DatasetInfo,
    Split,
    authors_split,
    check_data,
    dataset_info,
    default_development,
    given_split,
    is_dataset,
    number_of_splits,
    open_data,
    random_split,
    stack_splits,
)
from ..data.shares import FOLDS, has_few_labels, share_split, whole_split
from ..data.targets import task_of
from ..errors import ConfigError, DataError
from ..graph import Graph
from ..nn import Model, as_features
from ..nn.modules import Features
from ..nn.scaling import Scaling
from ..partition.part import Part
from ..partition.store import holds_parts
from ..rewiring import Rewire
from .choices import RANDOM_SPLITS
from .config import Config
from .tasks import Task, make_task
from .template import structure

T = TypeVar("T")

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
    x: Features  # scaled
    task: Task
    graph: Graph
    scaling: Scaling
    edges_before: int  # edges of the graph as given, before rewiring; self-loops apart
    loops: int  # self-loops of the whole graph

    _prepared: dict[Hashable, Any] = field(default_factory=dict, repr=False)

    @property
    def in_channels(self) -> int:
        """Width of the input features."""
        return self.x.shape[-1]

    @property
    def out_channels(self) -> int:
        """Number of classes or targets."""
        return self.task.outputs

    @property
    def y(self) -> Tensor:
        """Labels or targets of the nodes."""
        return self.task.y

    @property
    def num_nodes(self) -> int:
        """Number of nodes; of the whole graph, where this is a part of it."""
        return self.graph.all_nodes if isinstance(self.graph, Part) else self.graph.num_nodes

    @property
    def num_edges(self) -> int:
        """Number of edges likewise, self-loops included."""
        return self.graph.all_edges if isinstance(self.graph, Part) else self.graph.num_edges

    @property
    def whole_task(self) -> Task:
        """The task of all nodes of the whole graph."""
        return make_task(self.data) if isinstance(self.graph, Part) else self.task

    def own_split(self, split: Split) -> Split:
        """Masks ``(P, n)`` of the whole graph as those of the own nodes."""
        if not isinstance(self.graph, Part):
            return split
        nodes = self.graph.nodes.to(split.train.device)
        return Split(*(mask.index_select(-1, nodes) for mask in (split.train, split.val, split.test)))

    def to(self, device: torch.device | str) -> Problem:
        """The same on another device."""
        return Problem(
            self.data, self.x.to(device), self.task.to(device), self.graph.to(device), self.scaling,
            self.edges_before, self.loops,
        )  # fmt: skip

    def prepared(self, config: Config, model: Model) -> Any:
        """What a model computes from the graph alone, once for all members and chunks."""
        return self.once(config.model_key, lambda: model.prepare(self.graph))

    @torch.no_grad()
    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """What ``make`` gives, computed once for all members and chunks."""
        if key not in self._prepared:
            self._prepared[key] = make()
        return self._prepared[key]


def read_data(config: Config, root: str | PathLike[str] | None = None) -> Data:
    """The data of a configuration; ``root`` as in :func:`~graphdiffusion.data.load_data`."""
    if not is_dataset(config.data) and holds_parts(config.data):
        raise DataError(
            f"{config.data} holds a graph in parts, which grand train alone reads: give the whole graph "
            "(grand predict: --data GRAPH)."
        )
    return open_data(config.data, root=root, lcc=config.lcc, directed=config.directed, task=config.task)


def load_problem(
    config: Config, data: Data | None = None, root: str | PathLike[str] | None = None
) -> Problem:
    """Read the data of a configuration (or take the given ``data``), rewire, and build the graph."""
    data = check_data(read_data(config, root) if data is None else data)
    task = make_task(data)
    edges = int(data.edge_index.shape[1])
    graph = build_graph(config, data)
    x = as_features(data.x)
    scaling = Scaling.fit(x, config.scaling)
    return Problem(data, scaling(x), task, graph, scaling, edges, int((graph.row == graph.col).sum()))


class Problems:
    """The data made ready for several configurations, each form of it once.

    Args:
        data: The graph.
        device: Where to compute.
    """

    def __init__(self, data: Data, device: torch.device) -> None:
        self.data, self.device = data, device
        self._known: dict[tuple[object, ...], Problem] = {}

    def of(self, config: Config) -> Problem:
        """The problem of a configuration; they differ in self-loops, scaling and rewiring."""
        key: tuple[object, ...] = (config.self_loops, config.scaling, config.rewire)
        if config.rewire != "none":
            key += (config.rewire_alpha, config.rewire_t, config.rewire_k)
        if key not in self._known:
            self._known[key] = load_problem(config, self.data).to(self.device)
        return self._known[key]


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
    """The graph of the models of a configuration: rewired if it is configured, with self-loops."""
    if config.rewire != "none":
        how: dict[str, Any] = {"method": config.rewire, "top_k": config.rewire_k}
        how |= {"alpha": config.rewire_alpha} if config.rewire == "ppr" else {"t": config.rewire_t}
        data = Rewire(**how)(data)
    return Graph.from_data(data, self_loops=config.self_loops)


FIXED = ("planetoid", "authors", "given")  # splits whose test nodes do not depend on the seed


def split_kind(config: Config, data: Data) -> str:
    """How the labels are split: ``config.split``, with ``auto`` settled by the data.

    A data set of the paper is split as there, by its masks where the paper does so. A user's own graph is
    split by its masks if it has some, else by shares of its labels; few labels are cross-validated.
    """
    if config.split != "auto":
        return config.split
    info = _published(config, data)
    if info is not None and info.development > 0:
        return "random"
    if number_of_splits(data) > 0:
        return "given"
    return "folds" if has_few_labels(data.y) else "shares"


def splits_of(config: Config, data: Data) -> int:
    """Number of splits."""
    kind = split_kind(config, data)
    if kind in ("planetoid", "authors", "all"):
        return 1
    if kind == "given":
        carried = number_of_splits(data)
        if config.splits > carried > 0:
            raise DataError(f"splits is {config.splits}, but the data has {carried}: take fewer.")
        return config.splits or max(1, carried)
    several = {"random": RANDOM_SPLITS, "shares": FOLDS["apart"], "folds": FOLDS["turns"]}
    return config.splits or several[kind]


def _published(config: Config, data: Data) -> DatasetInfo | None:
    """What is known of the data; nothing of a user's graph, even if its folder is called cora."""
    info = dataset_info(config.data) if is_dataset(config.data) else None
    return info if info is not None and data.get("name") == info.name else None


def protocol(config: Config, data: Data) -> list[Member]:
    """The members of a configuration: every split with every initialisation."""
    return [
        Member(s * config.inits + i, config.seed + s, (config.seed + s) * 1000 + i)
        for s in range(splits_of(config, data))
        for i in range(config.inits)
    ]


def member_splits(config: Config, data: Data, members: Sequence[Member]) -> Split:
    """Masks ``(P, n)`` of the members."""
    kind = split_kind(config, data)
    found: dict[int, Split] = {}
    for member in members:
        if member.split not in found:
            found[member.split] = _split(config, data, kind, member.split)
    return stack_splits([found[member.split] for member in members])


def _split(config: Config, data: Data, kind: str, seed: int) -> Split:
    """One split; of a series of splits that belong together, the one with the number seed − config.seed."""
    if kind in ("random", "authors"):
        return _random_split(config, data, None if kind == "authors" else seed)
    if kind == "all":
        return whole_split(data.y)
    number = seed - config.seed
    if kind in ("shares", "folds"):
        return share_split(data.y, number, config.seed, test="apart" if kind == "shares" else "turns")
    return _with_validation(given_split(data, number if kind == "given" else 0), data, seed)


def _with_validation(split: Split, data: Data, seed: int) -> Split:
    """A given split; where it has no validation nodes, a fifth of its training nodes validates."""
    if not bool(split.train.any()):
        raise DataError(
            "the split given with the data has no node in 'train': put some there, or take split shares."
        )
    if bool(split.val.any()):
        return split
    hidden = data.y.masked_fill(
        ~split.train if data.y.dim() == 1 else ~split.train.unsqueeze(-1),
        torch.nan if data.y.is_floating_point() else -1,
    )
    own = share_split(hidden, 0, seed, test="none")
    return Split(own.train, own.val, split.test)


def _random_split(config: Config, data: Data, seed: int | None) -> Split:
    """A split as in the paper; without a seed the one of the authors' code."""
    if task_of(data) != "classification":
        raise DataError(
            f"split {config.split} needs classes, and the task is {task_of(data)}: take split shares."
        )
    development, per_class = config.development, config.per_class
    info, labels = _published(config, data), data.y[data.y >= 0]
    if per_class == 0:
        per_class = PER_CLASS if info is not None else default_per_class(labels)
    if development == 0:
        known = info is not None and info.development > 0
        development = info.development if info and known else default_development(labels.numel())
    if seed is None:
        return authors_split(data.y, development=development, per_class=per_class)
    return random_split(data.y, seed, development=development, per_class=per_class)


def default_per_class(labels: Tensor) -> int:
    """The paper's 20, but at most half of the smallest class: some are left to validate and test."""
    smallest = int(labels.bincount()[labels.unique()].min())
    return max(1, min(PER_CLASS, smallest // 2))


def pick_device(name: str) -> torch.device:
    """``auto`` is CUDA where there is one."""
    if name == "mps":
        raise ConfigError(
            "device mps has no float64, which times and the coefficients of the closed form need: take "
            "device cpu."
        )
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise ConfigError("device is cuda, but torch finds no GPU here: take device cpu or auto.")
    return torch.device(name)
