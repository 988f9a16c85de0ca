"""What follows from the points of the schemes: which trainings are stable, and the paper's three claims."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any

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
        scores = [run["test"] for run in p["runs"] if not run["reason"] and run["test"] is not None]
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
                "reasons": reasons,
                **{key: p.get(key) for key in ("train_seconds", "evaluations", "error", "steps")},
            }
        )
    return found


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
        scores = [run["test"] for run in p["runs"] if not run["reason"] and run["test"] is not None]
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
    smallest = min((f["amount"] for f in rows if f["scheme"] in EXPLICIT), default=TINY)
    stopped = any(p["part"] == "accuracy" and (p["scheme"], p["amount"]) == ("ab4", TINY) for p in points)
    but = "" if smallest <= TINY else f" (the smallest step here is {smallest:g})"
    if but and stopped:
        but = " (stopped by the clock there)"
    return (
        f"Stable: all runs end, at most {KEPT:g} points below Dormand-Prince. Adams-Bashforth unstable for "
        f"all steps but τ = {TINY:g}{but}: {_told(unstable)}. Adams-Moulton stable for all steps: "
        f"{_told(stable)}. At some large step (τ ≥ {LARGE:g}) stable and faster than Dormand-Prince: "
        f"{_told(faster)}."
    )


def _only_the_tiny_one(own: Points) -> bool:
    return all(f["stable"] == (f["amount"] <= TINY) for f in own)


def _claim(rows: Points, schemes: Sequence[str], holds: Callable[[Points], bool]) -> dict[str, bool]:
    """Whether a claim is true of each scheme and model."""
    found = {}
    for name in schemes:
        for model in dict.fromkeys(f["model"] for f in rows):
            own = [f for f in rows if (f["scheme"], f["model"]) == (name, model)]
            if own:
                found[f"{SCHEMES[name].title} ({MODELS[model][0]})"] = holds(own)
    return found


def _told(found: Mapping[str, bool]) -> str:
    if not found:
        return "not measured"
    word = "holds" if all(found.values()) else "holds in part" if any(found.values()) else "does not hold"
    cases: dict[bool, list[str]] = {
        truth: [c for c, own in found.items() if own is truth] for truth in (True, False)
    }
    count, few = len(cases[True]), min(cases.values(), key=len)
    where = f": {'all but ' if few is cases[False] else ''}{'; '.join(few)}" if few else ""
    return f"{word} ({count} of {len(found)} cases{where})"
