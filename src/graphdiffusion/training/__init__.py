"""Training: configuration, population, trainer, and the files of a run."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .config import Config

if TYPE_CHECKING:
    from .chunks import RunFolder
    from .folder import open_folder
    from .population import Population
    from .problem import Member, Problem, load_problem, pick_device, protocol
    from .runs import Run, load_run
    from .summary import Result
    from .template import build_model
    from .trainer import Trainer, Watcher

__all__ = [
    "Config",
    "Member",
    "Population",
    "Problem",
    "Result",
    "Run",
    "RunFolder",
    "Trainer",
    "Watcher",
    "build_model",
    "load_problem",
    "load_run",
    "open_folder",
    "pick_device",
    "protocol",
]

# The configuration is wanted at once, by the command line; the rest brings torch and PyG along.
_HOMES = {
    "chunks": ("RunFolder",),
    "folder": ("open_folder",),
    "population": ("Population",),
    "problem": ("Member", "Problem", "load_problem", "pick_device", "protocol"),
    "runs": ("Run", "load_run"),
    "summary": ("Result",),
    "template": ("build_model",),
    "trainer": ("Trainer", "Watcher"),
}


def __getattr__(name: str) -> Any:
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f".{module}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
