"""The paper's smaller claims, each measured: one file of this folder for a claim.

Section 4, section 5.1 and appendices B, F and G.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from ...errors import ConfigError
from ...options import nearest
from ...training.summary import counted
from ..results import Note, Results, Tick, open_results
from .base import Claim
from .laboratory import FULL, SMALL, Laboratory, Settings


def claims() -> dict[str, Claim]:
    """All claims by name, in the order of the paper."""
    for module in pkgutil.iter_modules(__path__, f"{__name__}."):
        import_module(module.name)
    known = [kind() for kind in Claim.__subclasses__() if kind.__module__.startswith(__name__)]
    return {claim.name: claim for claim in sorted(known, key=lambda c: (c.section, c.name))}


def reproduce(
    out: Path,
    *,
    small: bool,
    root: str | None,
    device: torch.device,
    note: Note,
    only: Sequence[str] = (),
) -> Path:
    """Measure claims in ``<out>/claims``, or ``claims-small``; the path of the results file.

    Args:
        only: Names of claims; all by default. Others that the file holds keep their figures.
    """
    settings = SMALL if small else FULL
    known = claims()
    for name in only:
        if name not in known:
            raise ConfigError(
                f"there is no claim {name!r}.{nearest(name, known)} Known are {', '.join(known)}."
            )
    folder = out / ("claims-small" if small else "claims")
    lab = Laboratory(settings, folder, root, device)
    with open_results(folder, asdict(settings), note) as results:

        def compute(point: Mapping[str, Any], tick: Tick) -> dict[str, Any]:
            return known[point["claim"]].measure({k: v for k, v in point.items() if k != "claim"}, lab)

        results.measure([p for name in only or known for p in wanted(known[name], settings)], compute)
        found = concluded(results, known, settings)
        results.conclude(figures=found, verdict=_summary(found))
    return results.path


def wanted(claim: Claim, settings: Settings) -> list[dict[str, Any]]:
    """The points of a claim, with its name."""
    return [{"claim": claim.name, **point} for point in claim.points(settings)]


def concluded(results: Results, known: Mapping[str, Claim], settings: Settings) -> list[dict[str, Any]]:
    """Findings of the claims whose points are all measured."""
    found = []
    for claim in known.values():
        own = [p for p in results.points if p["claim"] == claim.name]
        if len(own) == len(claim.points(settings)):
            about = {"name": claim.name, "section": claim.section, "says": claim.says}
            found.append(about | asdict(claim.conclude(own)))
    return found


def _summary(found: Sequence[Mapping[str, Any]]) -> str:
    """How many claims hold, in words."""
    words = ("holds", "holds in part", "does not hold", "is not shown")
    named = {word: [f["name"] for f in found if f["word"] == word] for word in words}
    parts = (f"{word}: {', '.join(names)}" for word, names in named.items() if names)
    return f"Of {counted(len(found), 'claim')} measured: {'; '.join(parts)}."
