"""Neural layers and models: :class:`GraphDiffusion`, ``GRAND`` and its rivals.

Every registered model can be imported from here.
"""

from typing import Any

from .base import MODELS, Model, Output
from .diffusion import GraphDiffusion, Trajectory, Variant
from .modules import SparseFeatures, as_features

__all__ = [
    "MODELS",
    "GraphDiffusion",
    "Model",
    "Output",
    "SparseFeatures",
    "Trajectory",
    "Variant",
    "as_features",
]


def __getattr__(name: str) -> Any:
    return MODELS.exported(name)
