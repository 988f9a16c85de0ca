"""From a configuration to what a training needs: data, graph, splits, members and models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from os import PathLike
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from ..data import (
    MASKS,
    DatasetInfo,
    Split,
    check_data,
    dataset_info,
    default_development,
    is_dataset,
    open_data,
    planetoid_split,
    random_split,
    stack_splits,
)
from ..errors import ConfigError, DataError
from ..graph import Graph
from ..nn import GRAND, as_features
from ..nn.modules import Features
from ..rewiring import Rewire
from ..solvers import (
    RK4,
    AdamsBashforth4,
    AdamsMoulton4,
    Adjoint,
    BogackiShampine,
    DormandPrince,
    Euler,
    Exponential,
    Heun,
    HeunEuler,
    Midpoint,
    SemiImplicitEuler,
    Solver,
)
from .config import Config

# options that may differ between members of one population: none of them changes a shape
PER_MEMBER = ("rate", "decay", "input_dropout", "dropout", "time", "alpha", "label_rate", "rtol", "atol")


# values of these options at which the model has other parameters, so that members must agree on them
STRUCTURAL: dict[str, tuple[Callable[[Any], bool], str]] = {
    "alpha": (lambda value: value == 1, "α is fixed at 1 or learnt"),
    "label_rate": (lambda value: value > 0, "labels are features (above 0) or not (0)"),
}

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

    @property
    def in_channels(self) -> int:
        return self.x.shape[-1]

    def to(self, device: torch.device | str) -> Problem:
        return Problem(
            self.data, self.x.to(device), self.y.to(device), self.graph.to(device), self.classes,
            self.edges_before,
        )  # fmt: skip


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


def structure(config: Config) -> tuple[bool, ...]:
    """What members of one population must have in common, of the options that may differ."""
    return tuple(holds(getattr(config, name)) for name, (holds, _) in STRUCTURAL.items())


def member_configs(config: Config, members: Sequence[Member]) -> list[Config]:
    """The configuration of each member, all of one structure."""
    found = []
    for member in members:
        for name in member.options:
            if name not in PER_MEMBER:
                raise ConfigError(
                    f"{name} cannot differ between members of one population; those that can: "
                    f"{', '.join(PER_MEMBER)}."
                )
        own = config.but(**member.options)
        for name, (holds, meaning) in STRUCTURAL.items():
            value, shared = getattr(own, name), getattr(config, name)
            if holds(value) != holds(shared):
                raise ConfigError(
                    f"{name} of member {member.number} is {value:g}, but {shared:g} in the configuration: "
                    f"{meaning} for all members of a population. Train them in two populations."
                )
        found.append(own)
    return found


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
        fixed = planetoid_split(data)
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


def build_model(config: Config, in_channels: int, classes: int, seed: int) -> GRAND:
    """The model of a configuration with the weights of a seed; torch's own generator is left alone."""
    rule = {}
    if config.variant == "nonlinear-rewired":
        others = {"threshold": config.threshold, "mass": config.mass}
        rule = {name: value for name, value in others.items() if value} or {"keep": config.keep}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return GRAND(
            in_channels,
            config.hidden,
            classes,
            config.time,
            input_dropout=config.input_dropout,
            dropout=config.dropout,
            mlp=config.mlp,
            batch_norm=config.batch_norm,
            augment=config.augment,
            relu=config.relu,
            label_channels=classes if config.label_rate > 0 else 0,
            kinetic=config.kinetic,
            jacobian=config.jacobian,
            variant=config.variant,
            diffusivity=config.diffusivity,
            heads=config.heads,
            attention_dim=config.attention_dim,
            scale=config.scale,
            normaliser=config.normaliser,
            over=config.over,
            reweight=config.reweight,
            alpha=None if config.alpha == 1 else config.alpha,
            source=config.source,
            detach_source=config.detach_source,
            **rule,
            learn_time=config.learn_time,
            solver=build_solver(config),
            gradient=(
                Adjoint(DormandPrince(config.adjoint_rtol, config.adjoint_atol))
                if config.gradient == "adjoint"
                else config.gradient
            ),
            self_loops=config.self_loops,
        )


def model_template(config: Config, in_channels: int, classes: int) -> GRAND:
    """The model without memory for its tensors: their names, shapes and dtypes alone."""
    plain = config.but(solver="euler", gradient="backprop")  # others look at their tolerances
    with torch.device("meta"):
        return build_model(plain, in_channels, classes, 0)


def stacked_template(
    config: Config, in_channels: int, classes: int, members: Sequence[Member]
) -> dict[str, Tensor]:
    """The stacked states of some members, without memory."""
    model = model_template(config.but(**members[0].options), in_channels, classes)
    return {
        name: torch.empty((len(members), *value.shape), dtype=value.dtype, device="meta")
        for name, value in model.state_dict().items()
    }


def build_solver(
    config: Config, rtol: float | Tensor | None = None, atol: float | Tensor | None = None
) -> Solver | Exponential:
    """The scheme of a configuration; tolerances may be given for each member."""
    rtol, atol = config.rtol if rtol is None else rtol, config.atol if atol is None else atol
    name = config.solver
    if name == "auto":
        name = "exponential" if config.variant == "linear" else "dopri5"
    adaptive = {"dopri5": DormandPrince, "bosh3": BogackiShampine, "heun21": HeunEuler}
    fixed = {
        "euler": Euler, "midpoint": Midpoint, "heun": Heun, "rk4": RK4, "adams-bashforth": AdamsBashforth4,
    }  # fmt: skip
    most = config.max_evaluations
    if name == "exponential":
        return Exponential(max_evaluations=most)
    if name in adaptive:
        return adaptive[name](rtol, atol, max_evaluations=most)
    if name in fixed:
        return fixed[name](config.step_size, max_evaluations=most)
    if name == "adams-moulton":
        return AdamsMoulton4(config.step_size, rtol=config.rtol, atol=config.atol, max_evaluations=most)
    if name == "semi-implicit":
        return SemiImplicitEuler(config.step_size, max_evaluations=most)
    raise ConfigError(f"unknown solver {name!r}.")


def pick_device(name: str) -> torch.device:
    """``auto`` is CUDA where there is one."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise ConfigError("device cuda was asked for, but torch sees no GPU; take device cpu or auto.")
    return torch.device(name)
