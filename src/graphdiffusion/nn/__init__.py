"""Neural layers and the model: :class:`GraphDiffusion` and :class:`GRAND`."""

from .diffusion import DIFFUSIVITIES, GraphDiffusion, Trajectory, Variant
from .model import GRAND, Output
from .modules import SparseFeatures, as_features

__all__ = [
    "DIFFUSIVITIES",
    "GRAND",
    "GraphDiffusion",
    "Output",
    "SparseFeatures",
    "Trajectory",
    "Variant",
    "as_features",
]
