"""Graph neural diffusion: the numerics, the models, their training, and a command line, ``grand``.

After "GRAND: Graph Neural Diffusion" (https://arxiv.org/abs/2106.10934).
"""

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from .errors import GraphDiffusionError as GraphDiffusionError

if TYPE_CHECKING:
    from .data import from_igraph as from_igraph
    from .data import from_networkx as from_networkx
    from .data import load_data as load_data
    from .data import open_data as open_data
    from .data import read_graph as read_graph
    from .estimator import GRANDClassifier as GRANDClassifier
    from .estimator import GRANDRegressor as GRANDRegressor
    from .graph import Graph as Graph
    from .nn.diffusion import GraphDiffusion as GraphDiffusion
    from .rewiring import Rewire as Rewire
    from .rewiring import knn_graph as knn_graph
    from .solvers import Adjoint as Adjoint
    from .solvers import integrate as integrate
    from .training import Config as Config
    from .training import load_run as load_run

try:
    __version__ = version("graphdiffusion")
except PackageNotFoundError:  # a checkout that was not installed
    __version__ = "0+unknown"

# A name is imported when it is first used: torch and PyG take seconds, `grand --help` should not.
# Beside these, every registered class can be imported from here.
_HOMES = {
    "data": ("from_igraph", "from_networkx", "load_data", "open_data", "read_graph"),
    "diffusivity": ("Diffusivity", "TimeVarying"),
    "equation": ("Coefficient", "Equation", "Term"),
    "estimator": ("GRANDClassifier", "GRANDRegressor"),
    "graph": ("Graph",),
    "nn": ("GraphDiffusion", "Model"),
    "rewiring": ("Rewire", "knn_graph"),
    "solvers": ("Adjoint", "Solver", "integrate"),
    "training": ("Config", "load_run"),
}


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return __dir__()
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f".{module}", __name__), name)
    if name[:1].isupper():  # a class: submodules are looked up here first too
        from .registry import registries

        for registry in registries().values():
            try:
                return registry.exported(name)
            except AttributeError:
                continue
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    from .registry import registries

    classes = {cls.__name__ for registry in registries().values() for cls in registry.classes().values()}
    own = {name for names in _HOMES.values() for name in names}
    return sorted(own | classes | {"GraphDiffusionError", "__version__"})
