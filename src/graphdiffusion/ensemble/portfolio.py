"""The configurations that are tried on a graph of one's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from ..training.config import Config, parse_toml

EPOCHS, PATIENCE = 200, 50


@dataclass(frozen=True)
class Candidate:
    """A configuration with a name."""

    name: str
    options: Mapping[str, Any]

    def config(self, base: Config) -> Config:
        """The candidate on the data of ``base``."""
        below = {k: v for k, v in base.to_dict().items() if k in KEPT}
        above = {"scaling": base.scaling} if base.scaling != "none" else {}  # of the user's choice
        return Config.from_dict({**below, "epochs": EPOCHS, "patience": PATIENCE, **self.options, **above})


# options of the user's configuration that all candidates share
KEPT = (
    "data", "lcc", "task", "split", "splits", "inits", "seed", "development", "per_class", "directed",
    "scaling", "class_weights", "device",
)  # fmt: skip


# those with which alone the model is chosen automatically
SHARED = frozenset(KEPT) - {"inits", "development", "per_class"}


def portfolio() -> list[Candidate]:
    """All candidates, the most promising first."""
    content = files(__package__).joinpath("portfolio.toml").read_text(encoding="utf-8")
    found = parse_toml(content, "portfolio.toml")
    return [Candidate(name, options) for name, options in found.items()]
