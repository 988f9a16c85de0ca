"""The options of a command: from defaults, preset, file and command line, or from a run that goes on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ..errors import ConfigError
from .messages import say
from .options import flag

if TYPE_CHECKING:
    from ..training import Config


@dataclass(frozen=True)
class Settled:
    """The options of a command, and where they come from."""

    config: Config
    preset: str | None
    candidate: str = ""  # the configuration of the portfolio that it is
    given: frozenset[str] = frozenset()  # options from the command line and from a file

    @property
    def shown(self) -> str:
        """The name of what is trained, for messages."""
        return self.candidate or self.config.title

    @property
    def published(self) -> bool:
        """Whether there are settings for this very data set."""
        return self.preset is not None and not self.preset.startswith("own-")

    def tell(self) -> None:
        if self.preset is not None:
            say(f"using the preset {self.preset}.")


def settle(flags: dict[str, Any], file: Path | None, preset: str) -> Settled:
    """Options from defaults, preset, file and command line, each over those before."""
    from ..configs import find_preset, parts_of, read_preset
    from ..nn import MODELS
    from ..training.choices import default
    from ..training.config import Config, check_names, read_toml

    values = read_toml(file) if file is not None else {}
    check_names(values)
    values = _absolute(values | flags)
    data, split = (str(values.get(key, default(key))) for key in ("data", "split"))
    chosen = _chosen(values)
    row = MODELS[chosen["model"]].row(chosen)
    name = find_preset(data, row, preset, split, parts_of(chosen))
    below = {} if name is None else read_preset(name)
    return Settled(Config.from_dict(values, below), name, given=frozenset(values))


def _chosen(values: dict[str, Any]) -> dict[str, Any]:
    """These options, checked, and the defaults of the others that the model has."""
    from ..errors import ArgumentError
    from ..training.choices import applicable

    try:
        known = applicable(values)
        return {name: option.check(values.get(name, option.default)) for name, option in known.items()}
    except ArgumentError as error:
        raise ConfigError(str(error)) from None


def resumed(folder: Path, flags: dict[str, Any], file: Path | None, ctx: typer.Context) -> Config:
    """The options of the run in a folder, which those given now must not contradict."""
    from ..training.config import check_names, read_toml
    from ..training.folder import holds_run, read_config

    if not holds_run(folder):
        raise ConfigError(f"{folder} holds no run to go on with: leave out --resume to start one.")
    stored, _ = read_config(folder)
    source = ctx.get_parameter_source("preset")
    if source is not None and source.name == "COMMANDLINE":
        raise ConfigError(f"a resumed run keeps the options in {folder}: leave out --preset.")
    values = read_toml(file) if file is not None else {}
    check_names(values)
    values = _absolute(values | flags)
    for name, value in stored.replace(**values).to_dict().items():
        if name in values and value != getattr(stored, name):
            written = "DATA" if name == "data" else flag(name)
            raise ConfigError(
                f"the run in {folder} was started with {written} {getattr(stored, name)}, not {value}: "
                "leave the option out, or start another run."
            )
    return stored


def planned(folder: Path, flags: dict[str, Any]) -> Config:
    """The options of the automatic choice in a folder, which those given now must not contradict."""
    from ..ensemble.folder import read_plan
    from ..training.folder import require_place

    stored, plan, _ = read_plan(folder)
    require_place(stored)
    known = stored.to_dict()
    if len(plan.candidates) == 1:
        known |= plan.candidates[0].options
    for name, value in _absolute(flags).items():
        if known.get(name) != value and (name, value) != ("split", "auto"):
            raise ConfigError(
                f"the run in {folder} was started without {flag(name)} {value}: leave the option out, or "
                "start another run."
            )
    return stored


def _absolute(values: dict[str, Any]) -> dict[str, Any]:
    """Paths as they are from anywhere, so that a run finds its data again."""
    from ..data import is_dataset

    found = dict(values)
    if isinstance(data := found.get("data"), str) and not is_dataset(data):
        path = Path(data).expanduser()
        if path.exists():  # otherwise it is a name with a typo, and no path
            found["data"] = str(path.resolve())
    return found
