"""Typed exceptions: each says what was wrong, with the offending value, and the way out."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


class GraphDiffusionError(Exception):
    """Base of every error that this library raises on purpose."""


class GraphError(GraphDiffusionError, ValueError):
    """An edge index, a weight or a node count does not describe a graph."""


class ArgumentError(GraphDiffusionError, ValueError):
    """An argument has a value that makes no sense."""


class ShapeError(GraphDiffusionError, ValueError):
    """A tensor has a shape that does not fit the graph or the other tensors."""


class DtypeError(GraphDiffusionError, TypeError):
    """A tensor has a dtype that the operation does not take."""


class DataError(GraphDiffusionError, ValueError):
    """A data set or a user's file cannot be used as it is."""


class ConfigError(GraphDiffusionError, ValueError):
    """A configuration names an unknown option or an impossible value."""


class StorageError(GraphDiffusionError, OSError):
    """A file cannot be written."""


class FolderInUse(GraphDiffusionError, RuntimeError):
    """Another process is writing in the folder."""


class NotEnoughMemory(GraphDiffusionError, MemoryError):
    """A single training does not fit in memory."""


class WorkerError(GraphDiffusionError, RuntimeError):
    """A process of a training on parts has ended before its time."""


class SolverError(GraphDiffusionError, ArithmeticError):
    """An integration could not be carried out.

    Attributes:
        members: Boolean mask of the failed members, of the leading dimensions of the state; ``None`` where
            there is only one.
    """

    def __init__(self, message: str, members: Tensor | None = None) -> None:
        super().__init__(message)
        self.members = members


class NonFiniteError(SolverError):
    """NaN or infinity in an input or in the state."""


class StepSizeUnderflow(SolverError):
    """The adaptive step size fell below what the precision can resolve."""


class TooManyEvaluations(SolverError):
    """The right-hand side was evaluated more often than allowed."""


class NotConverged(SolverError):
    """An inner iteration (linear solve or corrector) did not reach its tolerance."""


class StabilityWarning(UserWarning):
    """A step size lies beyond the bound of the paper's theorem 1."""


class FeaturesWarning(UserWarning):
    """A graph to predict on has not just the features of the training."""


class TrainedNodesWarning(UserWarning):
    """A score counts nodes that the model was trained on."""


class TrainingWarning(UserWarning):
    """A training came to its end, but not as it was planned."""
