"""What a claim is: points to measure, and what follows from them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, ClassVar, Literal

from scipy.stats import t as student

from ...training.summary import half_interval
from .laboratory import Laboratory, Settings

Word = Literal["holds", "holds in part", "does not hold", "is not shown"]
Points = Sequence[Mapping[str, Any]]


@dataclass
class Panel:
    """A small picture of a claim, as data: lines or bars.

    Attributes:
        title: What is drawn.
        x, y: Labels of the axes.
        kind: ``"lines"``, or ``"bars"`` in groups; places of bars on the x axis are words.
        log: Axes with a logarithmic scale: ``""``, ``"x"``, ``"y"`` or ``"xy"``.
        series: Each with ``label``, ``x`` and ``y``, lists of one length; ``half``, half of an interval.
        level: A value of y with a dotted line, such as "no difference".
    """

    title: str
    x: str
    y: str
    kind: Literal["lines", "bars"] = "lines"
    log: str = ""
    series: list[dict[str, Any]] = field(default_factory=list)
    level: float | None = None

    def add(self, label: str, x: Sequence[Any], y: Sequence[Any], half: Sequence[float] = ()) -> None:
        self.series.append({"label": label, "x": list(x), "y": list(y), "half": list(half)})


@dataclass(frozen=True)
class Finding:
    """What the points of a claim say.

    Attributes:
        word: The verdict.
        measured: The figures that it stands on, in a sentence or two.
        criterion: What had to be found for "holds".
        panel: Its picture.
        figures: All figures by case.
    """

    word: Word
    measured: str
    criterion: str
    panel: Panel
    figures: list[dict[str, Any]]


class Claim(ABC):
    """A claim of the paper. A further one is one file in this folder with such a class.

    Attributes:
        name: On the command line.
        section: Where the paper makes it.
        says: The claim, in a short phrase.
        cases: Keys of a point: where they are equal, points belong together. A claim is judged on the
            cases whose points are all measured.
    """

    name: ClassVar[str]
    section: ClassVar[str]
    says: ClassVar[str]
    cases: ClassVar[tuple[str, ...]] = ("data",)

    @abstractmethod
    def points(self, settings: Settings) -> list[dict[str, Any]]:
        """What identifies each point that is measured."""

    @abstractmethod
    def measure(self, point: Mapping[str, Any], lab: Laboratory) -> dict[str, Any]:
        """The figures of a point."""

    @abstractmethod
    def conclude(self, points: Points) -> Finding:
        """What all points together say."""


@dataclass(frozen=True)
class Difference:
    """Mean difference of pairs, with a 95% interval by Student's t.

    Attributes:
        mean, half: Mean, and half of the interval.
        chance: How often pairs that differ by chance alone have a mean as far from 0.
    """

    mean: float
    half: float
    chance: float

    @classmethod
    def of(cls, first: Sequence[float], second: Sequence[float]) -> Difference:
        """First minus second, pair by pair."""
        each = [a - b for a, b in zip(first, second, strict=True)]
        mean, half = fmean(each), half_interval(each)
        if half == 0:  # all pairs differ by the same
            return cls(mean, half, float(mean == 0))
        rest = len(each) - 1
        far = abs(mean) / half * student.ppf(0.975, max(rest, 1))
        return cls(mean, half, float(2 * student.sf(far, max(rest, 1))))

    @property
    def above(self) -> bool:
        return self.mean - self.half > 0

    @property
    def below(self) -> bool:
        return self.mean + self.half < 0

    def __str__(self) -> str:
        return f"{self.mean:+.2f} ± {self.half:.2f}"


def superior(found: Sequence[Difference]) -> Word:
    """The verdict on "always better", of differences that should all be positive.

    Of many intervals one excludes 0 by chance: a part of them counts if it does so at 5% for all of them
    together (Bonferroni).
    """
    if found and all(d.above for d in found):
        return "holds"
    clear = [d for d in found if d.chance * len(found) < 0.05]
    if any(d.above for d in clear):
        return "holds in part"
    return "does not hold" if clear else "is not shown"


def graded(whole: bool, part: bool) -> Word:
    """The verdict on a statement that is true as a whole, in part, or not."""
    return "holds" if whole else "holds in part" if part else "does not hold"


def share_of(flags: Sequence[bool]) -> Word:
    """The verdict on a statement that should be true in all cases."""
    return graded(any(flags) and all(flags), any(flags))


def by(points: Points, *keys: str) -> dict[tuple[Any, ...], Mapping[str, Any]]:
    """Points by the values of some keys."""
    return {tuple(p[key] for key in keys): p for p in points}


def distinct(points: Points, key: str) -> list[Any]:
    """The values of a key, in the order of the points."""
    return list(dict.fromkeys(p[key] for p in points))
