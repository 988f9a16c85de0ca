"""Figures and verdict of the experiment on the successors' equations, from its points."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from ..training.summary import half_interval
from .successor_models import MODELS, RIVALS

FEW = 2  # labels a class for which the claim of GRAND++ is looked at

Points = Sequence[Mapping[str, Any]]


def figures(points: Points) -> list[dict[str, Any]]:
    """Of every point: means, half of the 95% interval, and the paired difference to GRAND-l."""
    found = []
    for p in points:
        base = next((q for q in points if _case(q) == _case(p) and q["model"] == "linear"), None)
        mean, half = (None, None) if base is None else paired(p, base)
        found.append(
            {
                **{key: p[key] for key in ("part", "data", "model", "level", "trials")},
                "title": MODELS[p["model"]][0],
                "splits": len(p["test"]),
                "test": fmean(p["test"]),
                "half": half_interval(p["test"]),
                "val": fmean(p["val"]),
                "difference": mean,
                "difference_half": half,
            }
        )
    return found


def paired(own: Mapping[str, Any], other: Mapping[str, Any]) -> tuple[float, float]:
    """Mean of the differences of two models on the same splits, and half of its 95% interval."""
    apart = [a - b for a, b in zip(own["test"], other["test"], strict=True)]
    return fmean(apart), half_interval(apart)


def best_of_each(points: Points) -> list[dict[str, Any]]:
    """Of every data set and level of the parts sets and labels: the best diffusion equation, and the rival.

    Each is the one that validates best; beside them the paired difference of their tests.
    """
    found = []
    for case in dict.fromkeys(_case(p) for p in points if p["part"] in ("sets", "labels")):
        own = [p for p in points if _case(p) == case]
        rivals, ours = ([p for p in own if (p["model"] in RIVALS) is rival] for rival in (True, False))
        if rivals and ours:
            best, rival = (max(group, key=lambda p: fmean(p["val"])) for group in (ours, rivals))
            mean, half = paired(best, rival)
            found.append(
                dict(zip(("part", "data", "level"), case, strict=True))
                | {"best": best["model"], "rival": rival["model"], "difference": mean, "half": half}
                | {"test": fmean(best["test"]), "rival_test": fmean(rival["test"])}
            )
    return found


def verdict(points: Points) -> str:
    """Where the best diffusion equation, chosen by validation, is at or above the best rival.

    Whether the source at labelled nodes is above GRAND-l with one and two labels a class, beyond the 95%
    interval of the paired difference. And how much the attacks take.
    """
    sentences = []
    ahead = [own for own in best_of_each(points) if own["part"] == "sets"]
    if ahead:
        named = ", ".join(
            f"{own['data']} {MODELS[own['best']][0]} {own['difference']:+.1f} ± {own['half']:.1f}"
            for own in ahead
        )
        wins, clear, lost = (
            sum(holds(own) for own in ahead)
            for holds in (
                lambda own: own["difference"] >= 0,
                lambda own: own["difference"] > own["half"],
                lambda own: own["difference"] < -own["half"],
            )
        )
        sentences.append(
            "The diffusion equation that validates best is at or above the best of MLP, GCN and GAT on "
            f"{wins} of {len(ahead)} sets whose neighbours differ, beyond the interval on {clear}, and "
            f"below it on {lost} ({named})."
        )
    known = [
        f
        for f in figures(points)
        if f["part"] == "labels"
        and f["level"] <= FEW
        and f["model"] == "labelled-source"
        and f["difference"] is not None
    ]
    if known:
        better = sum(f["difference"] > f["difference_half"] for f in known)
        named = ", ".join(f"{f['data']} {f['level']:g}: {f['difference']:+.1f}" for f in known)
        sentences.append(
            f"With at most {FEW} labels a class the source at labelled nodes is above GRAND-l in {better} "
            f"of {len(known)} cases, beyond the interval ({named})."
        )
    sentences += [_attack(points, part, about) for part, about in ATTACKS.items()]
    return " ".join(filter(None, sentences)) or "Not enough is measured for a verdict."


ATTACKS = {"attack": "An attack on GCN", "adaptive": "An attack on each model itself"}


def _attack(points: Points, part: str, about: str) -> str:
    """What an attack takes at its largest level from models that read edges, least and most."""
    own = [p for p in points if p["part"] == part and p["model"] != "mlp"]
    top = max((p["level"] for p in own), default=0.0)
    before = {(p["data"], p["model"]): p for p in own if p["level"] == 0}
    lost = {
        p["model"]: -paired(p, before[p["data"], p["model"]])[0]
        for p in own
        if p["level"] == top > 0 and (p["data"], p["model"]) in before
    }
    if len(lost) < 2:
        return ""
    least, most = min(lost, key=lambda m: lost[m]), max(lost, key=lambda m: lost[m])
    return (
        f"{about} that changes {top:.0%} of the edges takes {lost[least]:.1f} points from "
        f"{MODELS[least][0]}, the least, and {lost[most]:.1f} from {MODELS[most][0]}, the most."
    )


def _case(point: Mapping[str, Any]) -> tuple[str, str, float]:
    return point["part"], point["data"], point["level"]
