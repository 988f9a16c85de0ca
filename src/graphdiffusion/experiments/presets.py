"""From a preset to a configuration, and from a configuration to a preset."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from ..configs import NOT_IN_PRESETS, find_preset, presets, read_preset
from ..errors import ConfigError
from ..training.choices import applicable
from ..training.config import Config
from .paper import GRAND

# Where a search of GRAND starts beside the paper's settings: what the published code does where the text
# differs, and schemes whose error does not show in the accuracy: the closed form, and for GRAND-nl the
# two-step exponential scheme with τα up to about 1.5, and at least three steps. Epochs are those of all
# other models.
_START: dict[str, Any] = {
    "scale": "sqrt", "normaliser": "squareplus", "over": "columns", "alpha": 0.5, "terms": "source",
    "relu": True, "augment": 0, "solver": "auto", "epochs": 200, "patience": 50,
}  # fmt: skip
_LONGEST, _FEWEST = 3.0, 3  # step, and steps
_REWIRED: dict[str, Any] = {"reweight": True, "self_loops": 0.0}  # the weights of PageRank matter


def preset_name(data: str, row: str, preset: str = "auto", split: str = "random") -> str:
    """The preset for a data set and a model, as :func:`~graphdiffusion.configs.find_preset` finds it.

    ``preset="start"`` is what a search of the tables starts from: of GRAND the paper's settings, with the
    choices of the published code and a cheaper scheme; of other models their usual settings. Planetoid's
    split gets it by ``"auto"`` as long as no search has been made for that split: settings chosen on random
    splits have seen labels of its test nodes.
    """
    if _kind(data, row, preset, split) == "start":
        known = presets()
        name = next((p for p in (f"{data}-{row}-paper", f"own-{row}") if p in known), None)
    else:
        name = find_preset(data, row, preset, split)
    if name is None:
        raise ConfigError(f"there is no preset for {data} and the model {row}: search one first.")
    return name


def preset_config(
    data: str, row: str, preset: str = "auto", *, split: str = "random", **more: Any
) -> Config:
    """The configuration of a preset on a data set; ``more`` are options of data and device."""
    values = read_preset(preset_name(data, row, preset, split))
    if _kind(data, row, preset, split) == "start" and row in GRAND:
        values |= _START
        if row != "linear":
            values |= {
                "solver": "exponential-two-step",
                "step_size": min(_LONGEST, values["time"] / _FEWEST),
            }
        values |= _REWIRED if row == "nonlinear-rewired" else {}
    return Config.from_dict({"data": data, "split": split} | more, values)


def _kind(data: str, row: str, preset: str, split: str) -> str:
    """The kind of preset: ``"start"`` for ``"auto"`` where Planetoid's split has no search of its own."""
    if preset != "auto" or split not in ("planetoid", "authors"):
        return preset
    found = find_preset(data, row, preset, split)
    return preset if found is not None and found.endswith("-planetoid") else "start"


def preset_text(config: Config, named: Collection[str], header: str) -> str:
    """A preset as TOML: what differs from the defaults, and the options ``named``, under a comment.

    Options of data and device are left out: they are not for a preset to say.
    """
    lines = [f"# {line}".rstrip() for line in header.splitlines()]
    values = config.to_dict()
    wanted = {name for name, option in applicable(values).items() if values[name] != option.default}
    wanted |= {"model", "variant", *named}
    for line in config.to_toml().splitlines():
        name = line.partition(" = ")[0]
        if name in wanted and name not in NOT_IN_PRESETS:
            lines.append(line)
    return "\n".join(lines) + "\n"
