"""The paper's smaller claims, each measured: one file of this folder for a claim.

Section 4, section 5.1 and appendices B, F and G.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from ...errors import ConfigError
from ...options import nearest
from ...training.summary import counted
from ..results import Note, Results, Tick, require_known
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
    data: Sequence[str] = (),
) -> Path:
    """Measure claims in ``<out>/claims``, or ``claims-small``; the path of the results file.

    Args:
        only: Names of claims; all by default. Others that the file holds keep their figures.
        data: Names of data sets; all by default. Claims on no data set are measured all the same.
    """
    settings = SMALL if small else FULL
    sets = dict.fromkeys((*settings.data, *settings.every))
    require_known("data", data, sets)
    known = claims()
    for name in only:
        if name not in known:
            raise ConfigError(
                f"there is no claim {name!r}.{nearest(name, known)} Known are {', '.join(known)}."
            )
    folder = out / ("claims-small" if small else "claims")
    lab = Laboratory(settings, folder, root, device)
    results = Results(folder, asdict(settings), note)

    def compute(point: Mapping[str, Any], tick: Tick) -> dict[str, Any]:
        lab.tick = tick
        return known[point["claim"]].measure({k: v for k, v in point.items() if k != "claim"}, lab)

    def find() -> dict[str, Any]:
        found = concluded(results, known, settings)
        return {"figures": found, "verdict": _summary(found)}

    points = [p for name in only or known for p in wanted(known[name], settings)]
    points = [p for p in points if not data or p.get("data") in (None, *data)]
    if not points:
        where = dict.fromkeys(p["data"] for n in only for p in wanted(known[n], settings) if "data" in p)
        raise ConfigError(
            f"{', '.join(only)} is not measured on {', '.join(data)}, but on {', '.join(where)}."
        )
    for name in dict.fromkeys(p["data"] for p in results.missing(points) if "data" in p):
        lab.data(name)  # missing files are to show before anything is measured
    results.measure(points, compute)
    results.conclude(find)
    return results.path


def wanted(claim: Claim, settings: Settings) -> list[dict[str, Any]]:
    """The points of a claim, with its name."""
    return [{"claim": claim.name, **point} for point in claim.points(settings)]


def concluded(results: Results, known: Mapping[str, Claim], settings: Settings) -> list[dict[str, Any]]:
    """Findings of the claims on the cases whose points are all measured.

    Each says which cases it stands on, how many splits ("20 or 5"; empty where nothing is trained on
    splits), and which cases of the claim are missing.
    """
    found = []
    for claim in known.values():
        planned = wanted(claim, settings)
        missing = {_case(p, claim) for p in results.missing(planned)}
        own = results.held([p for p in planned if _case(p, claim) not in missing])
        if own:
            done = {_case(p, claim) for p in own}
            splits = {p["options"]["splits"] for p in own if "test" in p}
            found.append(
                {
                    "name": claim.name,
                    "section": claim.section,
                    "says": claim.says,
                    "on": _named(done, planned, claim),
                    "splits": " or ".join(map(str, sorted(splits, reverse=True))),
                    "missing": _named(missing, planned, claim),
                    **asdict(claim.conclude(own)),
                }
            )
    return found


def _case(point: Mapping[str, Any], claim: Claim) -> tuple[str, ...]:
    return tuple(point[key] for key in claim.cases if key in point)


def _named(
    some: Collection[tuple[str, ...]], planned: Sequence[Mapping[str, Any]], claim: Claim
) -> list[str]:
    """Cases by name: a data set where all of its own are among them."""
    every = dict.fromkeys(_case(p, claim) for p in planned)
    names: dict[str, None] = {}
    for case in (case for case in every if case and case in some):  # a claim may have no data set
        own = [other for other in every if other[:1] == case[:1]]
        names[case[0] if all(other in some for other in own) else " ".join(case)] = None
    return list(names)


def _summary(found: Sequence[Mapping[str, Any]]) -> str:
    """How many claims hold, in words."""
    words = ("holds", "holds in part", "does not hold", "is not shown")
    named = {word: [f["name"] for f in found if f["word"] == word] for word in words}
    parts = (f"{word}: {', '.join(names)}" for word, names in named.items() if names)
    return f"Of {counted(len(found), 'claim')} measured: {'; '.join(parts)}."
