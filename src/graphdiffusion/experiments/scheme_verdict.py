"""What follows from the points of the schemes: which trainings are stable, and the paper's three claims."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any

from .claims.base import graded
from .scheme_list import MODELS, SCHEMES

KEPT = 5.0  # points of accuracy below Dormand-Prince up to which a training counts as stable
TINY = 0.005  # the one step at which Adams-Bashforth is stable in the paper
LARGE = 1.0  # steps from here on are large
EXPLICIT = ("ab4", "torchdiffeq-explicit")
IMPLICIT = ("am3", "am3-newton", "am4", "am4-newton", "torchdiffeq-implicit")

Points = Sequence[Mapping[str, Any]]


def figures(points: Points) -> list[dict[str, Any]]:
    """Of each training point: mean accuracy, whether it is stable, seconds and counts."""
    trainings = [p for p in points if p["part"] == "accuracy"]
    best = _reference(trainings)
    found = []
    for p in trainings:
        scores = ended(p)
        mean = fmean(scores) if scores else None
        reasons = sorted({run["reason"] for run in p["runs"]} - {""})
        stable = None  # not known where trainings were only stopped by the clock
        if p["model"] in best and (scores or set(reasons) - {"TimeLimit"}):
            failed = bool(set(reasons) - {"TimeLimit"})
            stable = not failed and mean is not None and mean >= best[p["model"]] - KEPT
        found.append(
            {
                "model": p["model"],
                "scheme": p["scheme"],
                "title": SCHEMES[p["scheme"]].title,
                "amount": p["amount"],
                "test": mean,
                "stable": stable,
                "ended": len(scores),
                "runs": len(p["runs"]),
                "reasons": reasons,
                **{key: p.get(key) for key in ("train_seconds", "evaluations", "error", "steps")},
            }
        )
    return found


def ended(point: Mapping[str, Any]) -> list[float]:
    """Test accuracies of the runs that came to their end."""
    return [run["test"] for run in point["runs"] if not run["reason"] and run["test"] is not None]


def limits(points: Points, spectra: Sequence[str]) -> list[dict[str, Any]]:
    """Of each scheme its limits of stability, measured and by theory."""
    return [
        {
            "scheme": p["scheme"],
            "title": SCHEMES[p["scheme"]].title,
            "spectra": list(spectra),
            **{spectrum: p[spectrum] for spectrum in spectra},
        }
        for p in points
        if p["part"] == "stability"
    ]


def _reference(trainings: Points) -> dict[str, float]:
    """Mean accuracy of Dormand-Prince for each model, at its sharpest tolerance."""
    own = [p for p in trainings if p["scheme"] == "dopri5"]
    found: dict[str, float] = {}
    for p in sorted(own, key=lambda p: -p["amount"]):
        scores = ended(p)
        if scores:
            found[p["model"]] = fmean(scores)
    return found


def verdict(points: Points, scale: float) -> str:
    """The paper's three claims, each with its criterion.

    A training is stable if every run comes to its end and the mean test accuracy is at most ``KEPT`` points
    below that of Dormand-Prince.

    Args:
        scale: Tolerance scale of the Dormand-Prince that Adams-Moulton is to be faster than.
    """
    rows = [f for f in figures(points) if f["stable"] is not None]
    if not rows:
        return "The paper's claims are about trainings, which have not been measured here."
    unstable = _claim(rows, EXPLICIT, _only_the_tiny_one)
    stable = _claim(rows, IMPLICIT, lambda own: all(f["stable"] for f in own))
    fast = {
        f["model"]: f["train_seconds"]
        for f in rows
        if f["scheme"] == "dopri5" and f["amount"] == scale and f["train_seconds"]
    }
    large = [f for f in rows if f["amount"] is not None and f["amount"] >= LARGE and f["model"] in fast]
    faster = _claim(
        large, IMPLICIT,
        lambda own: any(f["stable"] and (f["train_seconds"] or 0) < fast[f["model"]] for f in own),
    )  # fmt: skip
    return (
        f"Stable: all runs end, at most {KEPT:g} points below Dormand-Prince. Adams-Bashforth unstable for "
        f"all steps but τ = {TINY:g}: {_told(unstable)}. Adams-Moulton stable for all steps: "
        f"{_told(stable)}. At some large step (τ ≥ {LARGE:g}) stable and faster than Dormand-Prince: "
        f"{_told(faster)}."
    )


def _only_the_tiny_one(own: Points) -> bool | None:
    """Open if all longer steps are unstable, and the tiny one was not measured or stopped by the clock."""
    if any(f["stable"] for f in own if f["amount"] > TINY):
        return False
    tiny = [f["stable"] for f in own if f["amount"] <= TINY]
    return all(tiny) if tiny else None


def _claim(
    rows: Points, schemes: Sequence[str], holds: Callable[[Points], bool | None]
) -> dict[str, bool | None]:
    """Whether a claim is true of each scheme and model; ``None`` where it is open."""
    found = {}
    for name in schemes:
        for model in dict.fromkeys(f["model"] for f in rows):
            own = [f for f in rows if (f["scheme"], f["model"]) == (name, model)]
            if own:
                found[f"{SCHEMES[name].title} ({MODELS[model][0]})"] = holds(own)
    return found


def _told(found: Mapping[str, bool | None]) -> str:
    if not found:
        return "not measured"
    true, false, unknown = ([case for case, own in found.items() if own is v] for v in (True, False, None))
    word = graded(len(true) == len(found), bool(true)) if true or false else "open"
    few = min(true, false, key=len)
    where = f": {'all but ' if few is false else ''}{'; '.join(few)}" if few else ""
    left = f", open in {len(unknown)}: {'; '.join(unknown)}" if unknown else ""
    return f"{word} ({len(true)} of {len(found)} cases{where}{left})"
