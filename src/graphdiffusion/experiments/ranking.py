"""Ranks of the rows of a table, and paired differences over the same splits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from ..training.summary import half_interval
from . import paper

Column = tuple[str, str]  # a data set, and a reading


@dataclass(frozen=True)
class Difference:
    """Of two rows of a column, in points: mean over the splits, and half of its 95% interval."""

    first: str
    second: str
    mean: float
    half: float

    def __str__(self) -> str:
        return (
            f"{paper.TITLES[self.first]} − {paper.TITLES[self.second]}: {self.mean:+.2f} ± {self.half:.2f}"
        )


def columns(cells: Sequence[Mapping[str, Any]]) -> dict[Column, dict[str, Mapping[str, Any]]]:
    """The cells of a table by column and row."""
    found: dict[Column, dict[str, Mapping[str, Any]]] = {}
    for cell in cells:
        found.setdefault((cell["data"], cell.get("reading", "")), {})[cell["row"]] = cell
    return found


def ranks(column: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
    """The place of each row by its mean, 1 the best; equal means share a place."""
    means = {row: cell["mean"] for row, cell in column.items()}
    return {row: 1 + sum(other > mean for other in means.values()) for row, mean in means.items()}


def paired(first: Mapping[str, Any], second: Mapping[str, Any]) -> Difference | None:
    """The difference of two cells that were measured on the same splits; nothing without two of these."""
    ours, theirs = first.get("per_split", {}), second.get("per_split", {})
    common = [split for split in ours if split in theirs]
    if len(common) < 2:
        return None
    each = [ours[split] - theirs[split] for split in common]
    return Difference(first["row"], second["row"], fmean(each), half_interval(each))


def grand_and_rival(column: Mapping[str, Mapping[str, Any]]) -> Difference | None:
    """The best row of GRAND and the best of all others."""
    own = [cell for row, cell in column.items() if row in paper.GRAND]
    others = [cell for row, cell in column.items() if row not in paper.GRAND]
    if not own or not others:
        return None
    best = (max(cells, key=lambda cell: cell["mean"]) for cells in (own, others))
    return paired(*best)
