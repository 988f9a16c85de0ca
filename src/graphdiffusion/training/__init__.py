"""Training: configuration, population, trainer, and what a run leaves behind."""

from .config import Config
from .population import Population
from .problem import Member, Problem, build_model, load_problem, pick_device, protocol
from .trainer import Result, Trainer, Watcher, open_folder

__all__ = [
    "Config",
    "Member",
    "Population",
    "Problem",
    "Result",
    "Trainer",
    "Watcher",
    "build_model",
    "load_problem",
    "open_folder",
    "pick_device",
    "protocol",
]
