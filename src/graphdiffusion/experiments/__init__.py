"""Experiments: hyperparameter search, presets, and the paper's tables measured.

The search itself is :func:`graphdiffusion.experiments.search.search`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .presets import preset_config
    from .record import Leaderboard, Plan
    from .space import Range, Space, Trial, read_space
    from .tables import reproduce

__all__ = [
    "Leaderboard",
    "Plan",
    "Range",
    "Space",
    "Trial",
    "preset_config",
    "read_space",
    "reproduce",
]

# The command line reads names from here without wanting torch at once.
_HOMES = {
    "presets": ("preset_config",),
    "record": ("Leaderboard", "Plan"),
    "space": ("Range", "Space", "Trial", "read_space"),
    "tables": ("reproduce",),
}


def __getattr__(name: str) -> Any:
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f".{module}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
