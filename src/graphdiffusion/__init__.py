"""Graph neural diffusion: the numerics, the model, its training, and a command line, ``grand``.

After "GRAND: Graph Neural Diffusion" (https://arxiv.org/abs/2106.10934).
"""

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from .errors import GraphDiffusionError

if TYPE_CHECKING:
    from .data import load_data, open_data, read_graph
    from .diffusivity import (
        Bahdanau,
        ConstantLaplacian,
        Cosine,
        Diffusivity,
        ExponentialKernel,
        Pearson,
        ScaledDotProduct,
    )
    from .dynamics import Diffusion
    from .estimator import GRANDClassifier
    from .graph import Graph
    from .nn import GRAND, GraphDiffusion
    from .rewiring import Rewire, knn_graph
    from .solvers import (
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
        integrate,
    )
    from .timevarying import TimeVarying
    from .training import Config, load_run

__all__ = [
    "GRAND",
    "RK4",
    "AdamsBashforth4",
    "AdamsMoulton4",
    "Adjoint",
    "Bahdanau",
    "BogackiShampine",
    "Config",
    "ConstantLaplacian",
    "Cosine",
    "Diffusion",
    "Diffusivity",
    "DormandPrince",
    "Euler",
    "Exponential",
    "ExponentialKernel",
    "GRANDClassifier",
    "Graph",
    "GraphDiffusion",
    "GraphDiffusionError",
    "Heun",
    "HeunEuler",
    "Midpoint",
    "Pearson",
    "Rewire",
    "ScaledDotProduct",
    "SemiImplicitEuler",
    "TimeVarying",
    "__version__",
    "integrate",
    "knn_graph",
    "load_data",
    "load_run",
    "open_data",
    "read_graph",
]

try:
    __version__ = version("graphdiffusion")
except PackageNotFoundError:  # a checkout that was not installed
    __version__ = "0+unknown"

# A name is imported when it is first used: torch and PyG take seconds, `grand --help` should not.
_HOMES = {
    "data": ("load_data", "open_data", "read_graph"),
    "diffusivity": (
        "Bahdanau", "ConstantLaplacian", "Cosine", "Diffusivity", "ExponentialKernel", "Pearson",
        "ScaledDotProduct",
    ),
    "dynamics": ("Diffusion",),
    "estimator": ("GRANDClassifier",),
    "graph": ("Graph",),
    "nn": ("GRAND", "GraphDiffusion"),
    "rewiring": ("Rewire", "knn_graph"),
    "solvers": (
        "RK4", "AdamsBashforth4", "AdamsMoulton4", "Adjoint", "BogackiShampine", "DormandPrince", "Euler",
        "Exponential", "Heun", "HeunEuler", "Midpoint", "SemiImplicitEuler", "integrate",
    ),
    "timevarying": ("TimeVarying",),
    "training": ("Config", "load_run"),
}  # fmt: skip


def __getattr__(name: str) -> Any:
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f".{module}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
