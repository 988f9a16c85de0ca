"""What the training harness needs of a model, and the registry of models."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from ..errors import DtypeError, ShapeError, SolverError
from ..graph import SELF_LOOPS, Graph, as_graph
from ..registry import Registry
from ..solvers import Room
from ..subclasses import Declares
from .modules import Features, SparseFeatures, as_features, reset_children


@dataclass(frozen=True)
class Output:
    """What :meth:`Model.run` gives.

    Attributes:
        logits: ``(..., n, classes)``; with a sweep ``(m, ..., n, classes)``.
        penalty: Added to the loss, ``(...)``; ``None`` is 0.
        evaluations: What the forward pass cost, for the records.
        failures: What could not be computed, each with the mask of the failed members; their logits are
            NaN. The list grows in the backward pass where something fails there.
    """

    logits: Tensor
    penalty: Tensor | None = None
    evaluations: int = 0
    failures: list[SolverError] = field(default_factory=list)


class Model(Declares, nn.Module):
    """Base of models for node classification, as the training harness uses them.

    A subclass is registered under a name, takes ``in_channels`` and ``out_channels`` and its options as
    keyword arguments, and gives :meth:`run`. Everything else has a default.

    Attributes:
        members: Whether parameters and results may have leading member dimensions, and all randomness comes
            from ``key``. ``None``: the harness compares two members together with each alone on first use.
            Where they differ, members are run one by one.
        capturable: Whether a training step may be captured in a CUDA graph: it never reads from the device.
        takes_sparse: Whether features may be :class:`~graphdiffusion.nn.SparseFeatures`.
        takes_labels: Whether labels of training nodes can be given as features.
        needs_observed: Whether :meth:`run` uses ``observed``.
        takes_parts: Whether :meth:`run` works on one part of a graph: all that it reads of other nodes, it
            reads by the verbs of :mod:`graphdiffusion.ops`.
        takes_sweep: Whether results can be read out at several times (:meth:`run`, :meth:`at_fraction`).
        per_member: Options that are kept in parameters or buffers, so that members may differ in them.
        self_loops: Weight of the self-loops that an ``edge_index`` is given; the harness gives graphs that
            have theirs.
    """

    group = "model"
    name: ClassVar[str]
    members: bool | None = None
    capturable = False
    takes_sparse = False
    takes_labels = False
    needs_observed = False
    takes_parts = False
    takes_sweep = False
    per_member: ClassVar[tuple[str, ...]] = ()
    self_loops: float | None = SELF_LOOPS

    def run(
        self,
        x: Features,
        graph: Graph,
        *,
        prepared: Any = None,
        labels: Tensor | None = None,
        observed: Tensor | None = None,
        key: Tensor | None = None,
        sweep: Sequence[float] | None = None,
        check: bool = True,
    ) -> Output:
        """Class scores of all nodes, and what belongs to them.

        Args:
            x: Features ``(..., n, in_channels)``.
            graph: The graph.
            prepared: What :meth:`prepare` gave; ``None``: not known yet.
            labels: One-hot labels given as features, ``(..., n, classes)``.
            observed: One-hot labels of the training nodes, for terms of an equation that use them.
            key: Source of the random numbers of dropout, int64, one for each member; ``None``: drawn from
                torch's generator in training.
            sweep: Fractions of the model's time at which results are read out.
            check: Look for errors that can only be seen by reading from the device.
        """
        raise NotImplementedError

    def forward(
        self,
        x: Features,
        edge_index: Tensor | Graph,
        edge_weight: Tensor | None = None,
        edge_attr: Tensor | None = None,
        **more: Any,
    ) -> Tensor:
        """Class scores ``(..., n, classes)``.

        Args:
            x: Features ``(..., n, in_channels)``, dense or torch sparse.
            edge_index: ``(2, E)``, or a :class:`~graphdiffusion.graph.Graph` (taken as it is).
            edge_weight: ``(E,)``.
            edge_attr: ``(E, k)``.
            more: As in :meth:`run`.
        """
        x = self.features(x)
        graph = as_graph(edge_index, x.shape[-2], edge_weight, self.self_loops, edge_attr)
        return self.run(x, graph, **more).logits

    def features(self, x: Features) -> Features:
        """Features as :meth:`run` takes them."""
        x = as_features(x)
        return x.dense() if isinstance(x, SparseFeatures) and not self.takes_sparse else x

    def reset_parameters(self) -> None:
        """Initialise all parameters anew."""
        reset_children(self)

    def prepare(self, graph: Graph) -> Any:
        """What follows from the graph alone; computed once and shared by all members.

        It lies on the device of the graph. In the harness the model's own tensors may lie elsewhere.
        """
        return None

    def decay(self, name: str) -> float:
        """Factor of the weight decay for a parameter."""
        return 1.0

    def after_step(self, parameters: Mapping[str, Tensor]) -> None:
        """Change parameters in place after an update, for example to keep them in bounds."""

    def capacity(self, reach: Tensor, furthest: float = 1.0) -> Room | None:
        """Bound of what a captured step must have room for after an update; ``None``: nothing varies.

        Args:
            reach: How far one update can move an entry of a parameter, ``(P,)``.
            furthest: The largest fraction of the model's time that is read out.
        """
        return None

    def learns_capacity(self) -> bool:
        """Whether :meth:`capacity` changes in training."""
        return False

    def with_capacity(self, room: Room) -> Self:
        """The model with that much room. It shares all tensors."""
        return self

    def memory(self, nodes: int, edges: int, entries: int) -> int:
        """Estimate of what one member holds during a training step, in bytes.

        Args:
            nodes: Of the graph.
            edges: Likewise.
            entries: Numbers in the features.
        """
        widths = [p.shape[0] for p in self.parameters() if p.dim() > 1] or [1]
        weights = sum(p.numel() for p in self.parameters())
        # each map keeps some states for the backward pass, and the widest is at work
        states = 4 * sum(widths) + 12 * max(widths)
        return 4 * (6 * weights + 3 * entries + nodes * states + 4 * edges)

    def at_fraction(self, state: Mapping[str, Tensor], fraction: Tensor) -> dict[str, Tensor]:
        """A state that gives at its own time what ``state`` gives at a fraction of it, ``(P,)``."""
        return dict(state)

    def work(self, nodes: int, edges: int, entries: int) -> float:
        """Multiplications of a forward pass, roughly, for plans that are counted in work.

        Args:
            nodes: Of the graph.
            edges: Likewise.
            entries: Numbers in the features.
        """
        wide = [p.shape for p in self.parameters() if p.dim() > 1]
        first = wide[0][0] if wide else 1
        later = sum(math.prod(shape) for shape in wide[1:])
        return float(entries * first + nodes * later + edges * sum(shape[0] for shape in wide))

    def time_of(self, state: Mapping[str, Tensor]) -> float | None:
        """T in the state of one member, for models that have one."""
        return None

    def warnings(self) -> list[str]:
        """Sentences about options that are allowed but not wise."""
        return []

    @classmethod
    def row(cls, options: Mapping[str, Any]) -> str:
        """The name under which presets and tables know the model with these options."""
        return cls.name

    @classmethod
    def title(cls, options: Mapping[str, Any]) -> str:
        """The name that is shown."""
        return cls.name.upper()


MODELS: Registry[Model] = Registry("model", "graphdiffusion.nn")


def checked(x: Features, weight: Tensor) -> Features:
    """The features; refused unless width and dtype are those of a first weight ``(..., out, in)``."""
    x = as_features(x)
    if x.shape[-1] != weight.shape[-1]:
        raise ShapeError(
            f"x must have {weight.shape[-1]} features a node, as the model has, got {x.shape[-1]}."
        )
    values = x.values if isinstance(x, SparseFeatures) else x
    if values.dtype != weight.dtype and not torch.is_autocast_enabled(values.device.type):
        raise DtypeError(f"x must be {weight.dtype}, as the model is, got {values.dtype}: convert one.")
    return x


def drawn_key(x: Features, training: bool, like: Tensor) -> Tensor:
    """A key for each member, from torch's generator; without dropout the generator is left alone."""
    lead = x.shape[:-2]
    key = torch.randint(2**62, lead) if training else torch.zeros(lead, dtype=torch.int64)
    return key.to(like.device)
