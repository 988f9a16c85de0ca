"""From a preset to a configuration, and from a configuration to a preset."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from ..configs import NOT_IN_PRESETS, find_preset, presets, read_preset
from ..errors import ConfigError
from ..training.choices import applicable
from ..training.config import Config


def preset_name(data: str, row: str, preset: str = "auto", split: str = "random") -> str:
    """The preset for a data set and a model, as :func:`~graphdiffusion.configs.find_preset` finds it.

    ``preset="start"`` is what a search of the tables starts from: the paper's settings of GRAND, the usual
    settings of other models.
    """
    if preset == "start":
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
    return Config.from_dict({"data": data, "split": split} | more, values)


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
