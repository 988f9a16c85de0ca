"""The space of a search: which options may take which values, and how trials are drawn from it."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..configs import FOLDER
from ..errors import ArgumentError, ConfigError
from ..options import components
from ..plugins import used_plugins
from ..training.choices import all_options
from ..training.config import Config, check_names, parse_toml, read_toml
from ..training.template import structure
from .presets import NOT_IN_PRESETS

# A family keeps an option of the configuration with this probability. The number of families that a
# GPU can afford is small, and a structure drawn wholly at random is seldom a good one.
STAY = 0.6
_DRAWS = 1000  # before giving up on an admissible combination


@dataclass(frozen=True)
class Range:
    """Numbers between two bounds.

    Args:
        low, high: The bounds.
        log: Uniform in the logarithm.
        integer: Whole numbers.
        relative: The bounds are multiples of the configuration's own value.
    """

    low: float
    high: float
    log: bool = False
    integer: bool = False
    relative: bool = False

    def draw(self, rng: random.Random, own: float) -> float | int:
        """A value; a relative range is one around ``own``."""
        low, high = self.bounds(own)
        place = rng.random()
        value = low * (high / low) ** place if self.log else low + (high - low) * place
        # four digits: finer differences mean nothing, and presets stay readable
        return round(value) if self.integer else float(f"{value:.4g}")

    def bounds(self, own: float) -> tuple[float, float]:
        """The least and the largest value."""
        return (self.low * own, self.high * own) if self.relative else (self.low, self.high)


Space = Mapping[str, Sequence[Any] | Range]


@dataclass(frozen=True)
class Trial:
    """One point of the space."""

    number: int
    config: Config

    @property
    def family(self) -> tuple[Any, ...]:
        """What members of one population must have in common."""
        own = self.config.per_member
        shared = tuple(entry for entry in self.config.to_dict().items() if entry[0] not in own)
        return (*shared, *structure(self.config))


def has_space(name: str) -> bool:
    """Whether a space of this name comes with the library."""
    return FOLDER.joinpath("search", f"{name}.toml").is_file()


def read_space(source: str | Path) -> Space:
    """A space from a TOML file, or one that comes with the library by its name, such as ``linear``."""
    text = str(source)
    own = FOLDER.joinpath("search", f"{text}.toml")
    if own.is_file():
        values = parse_toml(own.read_text(encoding="utf-8"), f"space {text}")
    else:
        values = read_toml(source)
    return parse_space(values)


def parse_space(values: Mapping[str, Any]) -> Space:
    """Check names, bounds and choices."""
    check_names(values)
    space: dict[str, Sequence[Any] | Range] = {}
    for name, value in values.items():
        if name in NOT_IN_PRESETS or name in ("model", "variant"):
            raise ConfigError(f"a search does not choose {name}: give it on the command line.")
        if isinstance(value, Mapping):
            space[name] = _range(name, value)
        elif isinstance(value, list) and value:
            for choice in value:
                _accepts(name, choice)
            space[name] = value
        else:
            raise ConfigError(
                f"{name}: a space holds a list of choices, or {{ low, high, log, integer, relative }}; "
                f"got {value!r}."
            )
    return space


def _range(name: str, value: Mapping[str, Any]) -> Range:
    try:
        found = Range(**value)
        orderly = 0 <= found.low <= found.high < math.inf and (found.low > 0 or not found.log)
    except TypeError:
        raise ConfigError(
            f"{name}: a range has low and high, and may have log, integer, relative; got {dict(value)}."
        ) from None
    if not orderly:
        raise ConfigError(
            f"{name}: low must be at most high, and not negative (with log, greater than 0); "
            f"got {dict(value)}."
        )
    if all_options()[name].kind not in (int, float):
        raise ConfigError(f"{name} is no number: give a list of choices, not a range.")
    if not found.relative:
        for end in (found.low, found.high):
            _accepts(name, round(end) if found.integer else end)
    return found


def _accepts(name: str, value: Any) -> None:
    """Check a value of one option; what depends on other options is checked when trials are drawn."""
    try:
        all_options()[name].check(value)
    except ArgumentError as error:
        raise ConfigError(str(error)) from None


def space_plugins(config: Config, space: Space) -> list[dict[str, str]]:
    """Name and SHA-256 of the plug-ins that a configuration and the choices of a space come from."""
    classes = components(config.model_class, config.to_dict())
    for name, choices in space.items():
        named = all_options()[name].named
        if named is not None and not isinstance(choices, Range):
            classes += [cls for choice in choices for cls in named.classes(choice)]
    return used_plugins(classes)


def draw_trials(
    config: Config, space: Space, trials: int, families: int, seed: int, stay: float = STAY
) -> list[Trial]:
    """Trials in families: the structure is drawn for each family, the rest for each trial.

    Each option of the structure stays as it is with the probability ``stay``. Trial 0 is the configuration
    itself, so that a search never ends below where it began. Trials do not depend on how many are asked
    for: a search can be enlarged.
    """
    structural = {name: s for name, s in space.items() if name not in config.per_member}
    free = {name: s for name, s in space.items() if name in config.per_member}
    bases = [config]
    for k in range(1, families if structural else 1):
        bases.append(draw(config, structural, random.Random(f"family {seed} {k}"), stay))
    found = [Trial(0, config)]
    for number in range(1, trials):
        base = bases[number % len(bases)]
        found.append(Trial(number, draw(base, free, random.Random(f"trial {seed} {number}"), 0.0)))
    return found


def draw(config: Config, space: Space, rng: random.Random, stay: float) -> Config:
    """A point of a space; each option is left as it is with the probability ``stay``.

    Options that the classes drawn do not have are left out.
    """
    error: ConfigError | None = None
    for _ in range(_DRAWS):
        changes: dict[str, Any] = {}
        for name, choices in space.items():
            if stay and rng.random() < stay:
                continue
            own = getattr(config, name, all_options()[name].default)
            changes[name] = choices.draw(rng, own) if isinstance(choices, Range) else rng.choice(choices)
        try:
            return Config.from_dict({}, config.to_dict() | changes)
        except ConfigError as refused:  # for example heads that do not divide attention_dim
            error = refused
    raise ConfigError(f"the space holds no admissible combination: {error}")
