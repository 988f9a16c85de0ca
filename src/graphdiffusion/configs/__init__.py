"""Presets: the best settings known for a data set and a model, one TOML file each.

``cora-linear.toml`` is taken for ``grand train cora --variant linear``, and for the embedded Cora;
``own-linear.toml`` for a graph without settings of its own, and ``own-graphcon.toml`` for one that is
trained with ``--equation graphcon``;
``cora-linear-paper.toml`` if ``--preset paper`` asks for it. A preset holds options of model, solver and
training; which data to take, how to split it and where to compute is not for a preset to say.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

from ..data import dataset_info, is_dataset
from ..errors import ConfigError
from ..options import split_names
from ..training.config import check_names, parse_toml

FOLDER: Traversable = files(__name__)

NOT_IN_PRESETS = (
    "data", "lcc", "split", "splits", "inits", "seed", "development", "per_class", "device",
)  # fmt: skip


def presets() -> list[str]:
    """Names of all presets."""
    return sorted(f.name.removesuffix(".toml") for f in FOLDER.iterdir() if f.name.endswith(".toml"))


def find_preset(
    data: str, row: str, name: str = "auto", split: str = "random", parts: Sequence[str] = ()
) -> str | None:
    """The preset to use.

    Args:
        data: Name of a data set, or a path; a graph without settings of its own takes ``own-<row>``, or
            that of the model without its variant: ``own-gat`` for the row ``gat-rewired``.
        row: Name of the model, such as ``linear`` for the linear variant of GRAND.
        name: ``"auto"`` is the one for data and model, if there is one; ``"none"`` none; another name
            is that of a preset, or its ending, such as ``"paper"``, or ``"graphcon"`` for ``own-graphcon``.
        split: Settings chosen on random splits have seen labels of Planetoid's test nodes. So Planetoid's
            split, and that of the authors' code, take ``<data>-<row>-planetoid``, chosen without labels of
            the test nodes of either, where there is one.
        parts: Names of equation, terms and solver of the model: a graph without settings of its own takes
            those of the first that has some, such as ``own-graphcon``.
    """
    if name == "none":
        return None
    known = presets()
    own = f"{dataset_info(data).name.removesuffix('-embedded') if is_dataset(data) else 'own'}-{row}"
    if name == "auto":
        ending = "planetoid" if split == "authors" else split
        published = [f"{own}-{ending}", own] if is_dataset(data) else []
        usual = [f"own-{part}" for part in (*parts, row, row.partition("-")[0])]
        return next((p for p in (*published, *usual) if p in known), None)
    for candidate in (name, f"{own}-{name}", f"own-{name}"):
        if candidate in known:
            return candidate
    near = difflib.get_close_matches(name, known, 1)
    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(['auto', 'none', *known])}."
    raise ConfigError(f"there is no preset {name!r} for {data} and the model {row}: {hint}")


def parts_of(options: Mapping[str, Any]) -> list[str]:
    """Names of the equation, the terms and the solver of GRAND, as ``find_preset`` takes them.

    The rewired variant has settings of its own, whatever its equation is.
    """
    if options.get("model") != "grand" or options.get("variant") == "nonlinear-rewired":
        return []
    terms = split_names(str(options.get("terms", "")))
    return [str(options.get("equation", "")), *reversed(terms), str(options.get("solver", ""))]


def read_preset(name: str) -> dict[str, Any]:
    """The options of a preset."""
    content = FOLDER.joinpath(f"{name}.toml").read_text(encoding="utf-8")
    values = parse_toml(content, f"preset {name}")
    check_names(values)
    for key in NOT_IN_PRESETS:
        if key in values:
            raise ConfigError(f"preset {name} must not set {key}: give it on the command line.")
    return values
