"""What can be chosen for a training: options of data, rewiring and training, and those of the classes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from ..errors import ArgumentError
from ..graph import SELF_LOOPS
from ..nn import MODELS
from ..options import Bounds, Named, Option, components, options_of
from ..registry import registries

# A split has its own seed, below MOST_SEEDS, and MOST_INITS seeds for its initialisations: no two trainings
# of a run share one, and those of a search, which begin at MOST_SEEDS, are others.
MOST_SEEDS, MOST_INITS = 1_000_000, 1_000

RANDOM_SPLITS = 5  # where no number is given


@dataclass
class DataOptions:
    """Which graph, and how it is split.

    Args:
        data: Data set by name, or path of a folder or .npz file.
        lcc: Keep only the largest connected component of a named data set.
        task: What the labels of one's own graph are: auto decides by their form.
        split: How labels are split. random: as in the paper; given, planetoid: by the masks of the data;
            authors: the one random split of the authors' code; shares: 60, 20 and 20 percent of the labels,
            with validation in turns; folds: likewise, with the test in turns, too; all: every label trains.
            auto: the paper's for its data sets; the masks of one's own graph, else shares, or folds if
            labels are few.
        splits: Number of splits; 0: five random ones, each share or fold once, all that are given.
        inits: Initialisations for each split.
        seed: First seed of splits and initialisations.
        development: Nodes for training and validation; 0: the paper's.
        per_class: Training nodes of each class in a random split; 0: the paper's 20, fewer on a small
            graph.
        directed: Keep the directions of the edges of one's own graph.
        scaling: How features are scaled. rows: to a sum of 1; columns: to mean 0 and deviation 1, sparse
            ones by their root mean square alone; auto: columns where features have different units, which
            graphs without settings of their own take.
        self_loops: Weight of the self-loop of every node, in place of those of the graph; 0: no loops.
    """

    group: ClassVar[str] = "data"
    data: str = "cora-embedded"
    lcc: bool = True
    task: Literal["auto", "classification", "regression", "multilabel"] = "auto"
    split: Literal["auto", "random", "planetoid", "authors", "given", "shares", "folds", "all"] = "auto"
    splits: Annotated[int, Bounds(0)] = 0
    inits: Annotated[int, Bounds(1, MOST_INITS)] = 1
    seed: Annotated[int, Bounds(0, MOST_SEEDS - 1)] = 0
    development: Annotated[int, Bounds(0)] = 0
    per_class: Annotated[int, Bounds(0)] = 0
    directed: bool = False
    scaling: Literal["none", "rows", "columns", "auto"] = "none"
    self_loops: Annotated[float, Bounds(0)] = SELF_LOOPS


@dataclass
class RewiringOptions:
    """How the graph is densified before training.

    Args:
        rewire: Densify the graph by diffusion first.
        rewire_alpha: Teleport probability of personalised PageRank.
        rewire_t: Time of the heat kernel.
        rewire_k: Entries kept for each node.
    """

    group: ClassVar[str] = "rewiring"
    rewire: Literal["none", "ppr", "heat"] = "none"
    rewire_alpha: Annotated[float, Bounds(0, 1)] = 0.15
    rewire_t: Annotated[float, Bounds(0)] = 3.0
    rewire_k: Annotated[int, Bounds(1)] = 32


@dataclass
class ModelOptions:
    """Which model.

    Args:
        model: Model by name.
    """

    group: ClassVar[str] = "model"
    model: Annotated[str, Named(MODELS)] = "grand"


@dataclass
class TrainingOptions:
    """How it is trained.

    Args:
        optimiser: Optimiser.
        rate: Learning rate.
        decay: Weight decay.
        epochs: Most epochs.
        patience: Stop after so many epochs without improvement; 0: never.
        class_weights: Weights of the classes in the loss. balanced: all the same, whatever their size.
        label_rate: Share of training labels given as input features; 0: none.
        sweep: Evaluate at times up to this multiple of T and keep the best by validation; 0: only at T.
        sweep_points: Number of times in the sweep.
        batches: Updates in an epoch, each on a random group of parts of the graph, without the edges to
            other groups: an approximation for graphs too large for memory. Validation and test are exact,
            on the whole graph. 0: one update on the whole graph.
        batch_parts: Parts that the graph is cut into for batches; 0: four for each group.
        batch_cut: How it is cut. metis: the fewest edges between parts; ldg: a streaming method; random:
            nodes in a random order; auto: metis where it is installed, otherwise ldg.
        device: Where to compute; mps (Apple) lacks float64 and is refused.
    """

    group: ClassVar[str] = "training"
    optimiser: Literal["adam", "adamax", "rmsprop", "sgd"] = "adamax"
    rate: Annotated[float, Bounds(0, above=True)] = 0.02
    decay: Annotated[float, Bounds(0)] = 0.005
    epochs: Annotated[int, Bounds(1)] = 100
    patience: Annotated[int, Bounds(0)] = 0
    class_weights: Literal["none", "balanced"] = "none"
    label_rate: Annotated[float, Bounds(0, 0.999)] = 0.0
    sweep: Annotated[float, Bounds(0)] = 0.0
    sweep_points: Annotated[int, Bounds(2, 1000)] = 12
    batches: Annotated[int, Bounds(0)] = 0
    batch_parts: Annotated[int, Bounds(0)] = 0
    batch_cut: Literal["auto", "metis", "ldg", "random"] = "auto"
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"


BEFORE, AFTER = (DataOptions, RewiringOptions, ModelOptions), (TrainingOptions,)


def applicable(chosen: Mapping[str, Any]) -> dict[str, Option]:
    """The options that a training with these choices has, by name."""
    option = options_of(ModelOptions)["model"]
    parts = components(MODELS[option.check(chosen.get("model", option.default))], chosen)
    core = {n for part in (*BEFORE, *AFTER) for n in options_of(part)}
    for part in parts:
        for name in options_of(part):
            if name in core:
                raise ArgumentError(
                    f"{part.__name__} has an option {name!r}, which every training has: rename it."
                )
    return _together(*BEFORE, *parts, *AFTER)


def all_options() -> dict[str, Option]:
    """Every option of every registered class, by name; where several classes share one, of the first."""
    parts = [*BEFORE, *components(MODELS[ModelOptions.model], {})]  # their defaults are shown
    for registry in registries().values():
        parts += registry.classes().values()
    return _together(*parts, *AFTER)


def _together(*parts: type) -> dict[str, Option]:
    """The options of several classes, by name; where they share one, of the first."""
    found: dict[str, Option] = {}
    for part in parts:
        for name, option in options_of(part).items():
            found.setdefault(name, option)
    return found


def default(name: str) -> Any:
    """The default of an option."""
    return all_options()[name].default


def not_chosen(name: str) -> str:
    """Why an option that is known somewhere does not count."""
    owners = [
        f"{kind} {label}"
        for kind, registry in registries().items()
        for label, cls in registry.classes().items()
        if name in options_of(cls)
    ]
    more = f" and {len(owners) - 4} more" if len(owners) > 4 else ""
    own = f"{', '.join(owners[:4])}{more}"
    return f"{name} is an option of {own}, and none of them is chosen: choose one, or leave it out."
