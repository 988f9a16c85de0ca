"""Options: the keyword arguments of a registered class, read from its signature.

A class says what can be chosen by its constructor alone: a keyword argument with a plain type and a default
is an option, and the line of the docstring below ``Args:`` is its help. The command line, TOML files,
presets and searches take names, types, defaults and bounds from there.
"""

from __future__ import annotations

import contextlib
import difflib
import inspect
import math
import numbers
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from .docstrings import help_texts
from .errors import ArgumentError

if TYPE_CHECKING:
    from .registry import Registry

# Bounds of numbers that have no others: products of whole numbers fit in 64 bits, numbers in float32.
_LARGEST = {int: 2**31 - 1, float: 3.4e38}
_PLAIN = (bool, int, float, str)
_FITS: dict[type, Any] = {bool: bool, int: int, float: (int, float), str: str}

T = TypeVar("T")


@dataclass(frozen=True)
class Bounds:
    """Marks a number: ``Annotated[int, Bounds(1)]`` is at least 1, ``Bounds(0, 1)`` lies in [0, 1].

    ``above`` excludes the lower bound.
    """

    low: float | None = None
    high: float | None = None
    above: bool = False


@dataclass(frozen=True)
class Named:
    """Marks a text that names a registered class; the options of that class then count too.

    Args:
        registry: Where it is looked up.
        automatic: What ``"auto"`` may stand for; its options count where ``"auto"`` is chosen.
        several: Names with commas between them, perhaps none.
    """

    registry: Registry[Any]
    automatic: tuple[str, ...] = ()
    several: bool = False

    @property
    def choices(self) -> list[str]:
        """The names that can be chosen."""
        return ["auto"] * bool(self.automatic) + self.registry.names()

    def classes(self, value: str) -> list[type]:
        """The classes that a value of the option stands for."""
        if value == "auto" and self.automatic:
            return [self.registry[name] for name in self.automatic]
        return [self.registry[name] for name in (split_names(value) if self.several else [value])]


@dataclass(frozen=True)
class Option:
    """A choice that a class offers.

    Attributes:
        name: Of the keyword argument.
        kind: ``bool``, ``int``, ``float`` or ``str``.
        default: Its value where none is given.
        help: One sentence.
        group: Heading in listings.
        bounds: Of a number.
        choices: Of a text, if it is one of a few.
        named: If it names registered classes.
    """

    name: str
    kind: type
    default: Any
    help: str = ""
    group: str = ""
    bounds: Bounds = Bounds()
    choices: tuple[str, ...] = ()
    named: Named | None = None

    def values(self) -> list[str]:
        """All choices there are now."""
        return list(self.choices) if self.named is None else self.named.choices

    def check(self, value: Any) -> Any:
        """The value in its type; ArgumentError if it is none of this option's."""
        if not isinstance(value, bool):  # numbers of NumPy are numbers too
            if self.kind is float and isinstance(value, numbers.Real):
                value = _float(value)
            elif self.kind is int and isinstance(value, numbers.Integral):
                value = int(value)
        if self.choices or self.named is not None:
            self._check_choice(value)
        elif type(value) is not self.kind:
            raise ArgumentError(f"{self.name} must be {_ARTICLE[self.kind]}, got {shown(value)}.")
        if self.kind is str:
            _check_text(self.name, value)
        elif self.kind is not bool:
            self._check_bounds(value)
        return value

    def _check_choice(self, value: Any) -> None:
        choices = self.values()
        several = self.named is not None and self.named.several
        given = split_names(value) if several and isinstance(value, str) else [value]
        for one in given:
            if isinstance(one, str) and one in choices:
                continue
            what = f"names out of {', '.join(choices)}" if several else f"one of {', '.join(choices)}"
            hint = self._elsewhere(one) or nearest(one, choices)
            raise ArgumentError(f"{self.name} must be {what}, got {shown(one, 40)}.{hint}")
        if twice := [one for place, one in enumerate(given) if one in given[:place]]:
            raise ArgumentError(f"{self.name} has {twice[0]!r} twice: name it once.")

    def _elsewhere(self, name: Any) -> str:
        """`` 'fisher' is a term: give it to terms.``, where it is a name of another kind."""
        from .registry import registries  # which imports this module

        if self.named is None or not isinstance(name, str):
            return ""
        for kind, registry in registries().items():
            if name in registry.names():
                option = "terms" if kind == "term" else kind
                return f" {name!r} is {'an' if kind[0] in 'aeiou' else 'a'} {kind}: give it to {option}."
        return ""

    def _check_bounds(self, value: float) -> None:
        low, high = self.bounds.low, self.bounds.high
        if isinstance(value, float) and not math.isfinite(value):
            raise ArgumentError(f"{self.name} must be finite, got {value}.")
        outside = (low is not None and value < low) or (high is not None and value > high)
        if outside or (self.bounds.above and value == low):
            least = f"greater than {low}" if self.bounds.above else f"at least {low}"
            bounds = least if high is None else f"between {low} and {high}"
            if self.bounds.above and high is not None:
                bounds = f"{least} and at most {high}"
            raise ArgumentError(f"{self.name} must be {bounds}, got {shown(value)}.")
        if value > _LARGEST[self.kind]:
            raise ArgumentError(f"{self.name} must be at most {_LARGEST[self.kind]}, got {shown(value)}.")


_ARTICLE = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}


def options_of(cls: Any) -> dict[str, Option]:
    """The options of a class, by name.

    Where a constructor passes ``**options`` on, those of the base classes count too, and of the class that
    the attribute ``delegate`` names. Arguments in the attribute ``given`` are left out: the code that
    builds the object gives them.
    """
    return _options_of(cls)


@cache
def _options_of(cls: Any) -> dict[str, Option]:
    found: dict[str, Option] = {}
    helps: dict[str, str] = {}
    for base in cls.__mro__:  # a base class may document the arguments of its subclasses
        helps = help_texts(base) | helps
    for base in _constructors(cls):
        hints = _hints(vars(base)["__init__"])
        for p in inspect.signature(vars(base)["__init__"]).parameters.values():
            option = _option(p, hints.get(p.name), helps.get(p.name, ""), getattr(cls, "group", ""))
            if option is not None and p.name not in getattr(cls, "given", ()):
                found.setdefault(p.name, option)
    if (delegate := getattr(cls, "delegate", None)) is not None:
        found = found | {name: o for name, o in options_of(delegate).items() if name not in found}
    return found


def components(cls: type, chosen: Mapping[str, Any]) -> list[type]:
    """A class and those that its options name, and theirs, for the values ``chosen`` or the defaults."""
    found = [cls]
    for option in options_of(cls).values():
        if option.named is not None:
            for named in option.named.classes(option.check(chosen.get(option.name, option.default))):
                found += components(named, chosen)
    return found


def check_arguments(cls: type, given: Mapping[str, Any]) -> None:
    """ArgumentError for the first argument of a constructor that its option does not take.

    Args:
        given: ``locals()`` of the constructor. Objects that stand where a name may stand are left alone.
    """
    for name, option in options_of(cls).items():
        if name in given and type(given[name]) in _PLAIN:
            option.check(given[name])


def create(cls: type[T], options: Mapping[str, Any], **available: Any) -> T:
    """An object of the class: with those of the options that it has, and what its constructor names.

    Args:
        options: Values by name; those that are no options of the class are left alone.
        available: Arguments that are no options, such as ``channels``.
    """
    own = options_of(cls)
    taken = {name: own[name].check(value) for name, value in options.items() if name in own}
    named = arguments_of(cls)
    return cls(**taken, **{name: value for name, value in available.items() if name in named})


def arguments_of(cls: Any) -> frozenset[str]:
    """Names of the constructor's arguments, with those that it passes on to its base classes."""
    return frozenset(
        name for base in _constructors(cls) for name in inspect.signature(vars(base)["__init__"]).parameters
    )


def _constructors(cls: type) -> list[Any]:
    """The class and those of its bases that its ``**options`` reach; not torch's and PyG's."""
    found: list[Any] = []
    for base in cls.__mro__:
        if base is object or base.__module__.partition(".")[0] in ("torch", "torch_geometric"):
            break
        if "__init__" in vars(base):
            found.append(base)
            parameters = inspect.signature(vars(base)["__init__"]).parameters.values()
            if not any(p.kind is p.VAR_KEYWORD for p in parameters):
                break
    return found


def refuse_unknown(given: Collection[str], known: Collection[str], owner: str) -> None:
    """ArgumentError for the first name that is not known, with the nearest one that is."""
    for name in given:
        if name not in known:
            raise ArgumentError(f"{owner} has no option {name!r}.{nearest(name, known)}")


def split_names(text: str) -> list[str]:
    """Names with commas between them.

    Raises:
        ArgumentError: there are commas alone.
    """
    found = [name.strip() for name in text.split(",") if name.strip()]
    if text.strip() and not found:
        raise ArgumentError(f"{text!r} has no name: give names with commas between them, or nothing.")
    return found


def nearest(name: Any, known: Collection[str]) -> str:
    """`` Did you mean 'x'?``, or nothing."""
    near = difflib.get_close_matches(name if isinstance(name, str) else "", list(known), 1)
    return f" Did you mean {near[0]!r}?" if near else ""


def shown(value: Any, width: int = 80) -> str:
    """A value for a message, cut where it is long."""
    try:
        text = repr(value)
    except ValueError:  # whole numbers of thousands of digits have no decimal form
        text = f"a number of {value.bit_length()} bits"
    return text if len(text) <= width else f"{text[: width - 3]}..."


def _hints(function: Any) -> dict[str, Any]:
    """The annotations of a function; those that are names of type checkers only are left out."""
    try:
        return get_type_hints(function, include_extras=True)
    except NameError:
        found = {}
        for name, hint in function.__annotations__.items():
            with contextlib.suppress(NameError):
                found[name] = eval(hint, function.__globals__) if isinstance(hint, str) else hint
        return found


def _option(parameter: inspect.Parameter, hint: Any, help: str, group: str) -> Option | None:
    """The option of a keyword argument; ``None`` if it has no default or no plain type."""
    if parameter.default is parameter.empty or hint is None:
        return None
    marks: tuple[Any, ...] = ()
    if get_origin(hint) is Annotated:
        hint, *rest = get_args(hint)
        marks = tuple(rest)
    choices: tuple[str, ...] = ()
    plain = [part for part in (get_args(hint) or (hint,)) if part in _PLAIN]
    literal = next((part for part in (hint, *get_args(hint)) if get_origin(part) is Literal), None)
    if literal is not None:
        choices, kind = get_args(literal), str
        if not all(isinstance(choice, str) for choice in choices):
            raise ArgumentError(f"the choices of {parameter.name} must be texts, got {choices}.")
    elif len(plain) == 1 and isinstance(parameter.default, _FITS[plain[0]]):
        kind = plain[0]
    else:
        return None
    bounds = next((m for m in marks if isinstance(m, Bounds)), Bounds())
    named = next((m for m in marks if isinstance(m, Named)), None)
    return Option(parameter.name, kind, parameter.default, help, group, bounds, choices, named)


def _float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _check_text(name: str, value: str) -> None:
    try:
        value.encode()
    except UnicodeEncodeError:  # a path of other bytes, which no configuration file can hold
        raise ArgumentError(f"{name} must be text in UTF-8, got {value!r}.") from None
