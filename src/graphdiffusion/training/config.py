"""One configuration describes a training: it drives the library, TOML files and the command line.

Its options are those of data, rewiring and training (``choices.py``), those of the model that is chosen,
and those of the classes that the model's options name, which stand beside these classes.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ..errors import ArgumentError, ConfigError
from ..nn import MODELS, Model
from ..options import components, nearest, options_of
from ..plugins import used_plugins
from .choices import MOST_SEEDS, RANDOM_SPLITS, all_options, applicable, not_chosen

# options of the training in which the members of a population may differ, whatever the model
PER_MEMBER = ("rate", "decay", "label_rate")


class Config:
    """Everything that determines a training. Defaults are the best settings we know for Cora.

    Options are attributes. An option that the chosen classes do not have is refused.
    """

    def __init__(self, **options: Any) -> None:
        self._settle({}, options)

    def _settle(self, inherited: Mapping[str, Any], given: Mapping[str, Any]) -> None:
        check_names(given)
        try:
            chosen = {**inherited, **given}
            known = applicable(chosen)
            for name in given:
                if name not in known:
                    raise ArgumentError(not_chosen(name))
            values = {name: o.check(chosen.get(name, o.default)) for name, o in known.items()}
        except ArgumentError as error:
            raise ConfigError(str(error)) from None
        self.__dict__.update(values)
        self._check_together()

    def _check_together(self) -> None:
        count = 1 if self.split in ("planetoid", "authors", "all") else self.splits or RANDOM_SPLITS
        if self.seed + count > MOST_SEEDS:
            raise ConfigError(
                f"seed + splits must be at most {MOST_SEEDS}, got {self.seed} + {count}: larger "
                "seeds belong to searches."
            )
        model = MODELS[self.model]
        for option, able, verb in (
            ("label_rate", model.takes_labels, "take labels as features"),
            ("sweep", model.takes_sweep, "give results at several times"),
        ):
            if getattr(self, option) and not able:
                raise ConfigError(
                    f"{option} is {getattr(self, option):g}, but the model {self.model} does not {verb}: "
                    f"leave {option} out."
                )
        self._check_model()

    def _check_model(self) -> None:
        """Meet now what the classes refuse for a combination of options."""
        from .template import model_template

        try:
            model_template(self, 1, 1)
        except ArgumentError as error:
            raise ConfigError(str(error)) from None

    @classmethod
    def from_dict(cls, given: Mapping[str, Any], inherited: Mapping[str, Any] | None = None) -> Config:
        """From names and values.

        Args:
            given: Options; one that the chosen classes do not have is refused.
            inherited: Options below them, for example of a preset; those that the chosen classes do not
                have are left out.
        """
        config = cls.__new__(cls)
        check_names(inherited or {})
        config._settle(inherited or {}, given)
        return config

    @classmethod
    def from_toml(cls, path: str | Path) -> Config:
        """The configuration that a TOML file describes."""
        return cls.from_dict(read_toml(path))

    def to_toml(self) -> str:
        """All options as TOML, under the headings of their groups (as comments)."""
        lines: list[str] = []
        group = ""
        for name, option in applicable(self.to_dict()).items():
            if option.group != group:
                group = option.group
                lines.append(f"\n# {group}" if lines else f"# {group}")
            lines.append(f"{name} = {_toml(getattr(self, name))}")
        return "\n".join(lines) + "\n"

    def to_dict(self) -> dict[str, Any]:
        """All options by name."""
        return dict(self.__dict__)

    def replace(self, **changes: Any) -> Config:
        """A copy with some options changed; those that the classes chosen now do not have are left out."""
        return Config.from_dict(changes, self.to_dict())

    @property
    def model_class(self) -> type[Model]:
        """The class of the model."""
        return MODELS[self.model]

    @property
    def model_options(self) -> dict[str, Any]:
        """The options of the model and of the classes that they name."""
        values = self.to_dict()
        own = {n for part in components(self.model_class, values) for n in options_of(part)}
        return {name: value for name, value in values.items() if name in own}

    @property
    def model_key(self) -> tuple[Any, ...]:
        """Class and options of the model. What was found out about one holds for its like."""
        return (self.model_class, *self.model_options.items())

    @property
    def per_member(self) -> tuple[str, ...]:
        """Options in which the members of a population may differ."""
        parts = components(self.model_class, self.to_dict())
        names = [name for part in parts for name in getattr(part, "per_member", ())]
        return (*PER_MEMBER, *dict.fromkeys(name for name in names if name in self.__dict__))

    @property
    def plugins(self) -> list[dict[str, str]]:
        """Name and SHA-256 of the plug-ins that the chosen classes come from."""
        return used_plugins(components(self.model_class, self.to_dict()))

    @property
    def row(self) -> str:
        """The name under which presets and tables know the model with its options."""
        return self.model_class.row(self.to_dict())

    @property
    def title(self) -> str:
        """The name of the model that is shown."""
        return self.model_class.title(self.to_dict())

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"this configuration has no option {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"a configuration does not change: take replace({name}=...)")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Config) and self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        return hash(tuple(self.__dict__.items()))

    def __repr__(self) -> str:
        defaults = {name: o.default for name, o in applicable(self.to_dict()).items()}
        changed = (f"{k}={v!r}" for k, v in self.__dict__.items() if v != defaults[k])
        return f"Config({', '.join(changed)})"


def read_toml(path: str | Path) -> dict[str, Any]:
    """The options in a TOML file, unchecked but for their syntax."""
    try:
        content = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read the configuration {path}: {error.strerror}.") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}.") from None
    return parse_toml(content, str(path))


def parse_toml(content: str, origin: str) -> dict[str, Any]:
    """Options from TOML text; ``origin`` names it in messages."""
    try:
        return tomllib.loads(content)
    except (ValueError, RecursionError) as error:  # also numbers too long, and tables in tables without end
        raise ConfigError(f"{origin} is not valid TOML: {error}.") from None


def check_names(names: Iterable[str]) -> None:
    """Refuse names that are no option of any class."""
    known = all_options()
    for name in names:
        if name == "root":
            raise ConfigError(
                "root is no option of a configuration, which must not depend on one machine: "
                "give --root, or set GRAND_DATA."
            )
        if name not in known:
            near = nearest(name, known)
            hint = f"did{near.removeprefix(' Did')}" if near else f"known: {', '.join(known)}."
            raise ConfigError(f"unknown option {name!r}: {hint}")


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        # a JSON string is a TOML string, but for the character DEL
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return repr(value)
