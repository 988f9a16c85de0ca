"""Kinetic and Jacobian regularisers: evaluations and seconds with and without them."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean
from typing import Any

from .base import Claim, Difference, Finding, Panel, Points, by, distinct, graded
from .laboratory import Laboratory, Settings

PRICE = 1.0  # points of validation accuracy that a regulariser may cost


class Regularisers(Claim):
    """GRAND-nl with Dormand-Prince at the default tolerances, weights 0 and others."""

    name = "regularisers"
    section = "5.1"
    says = (
        "kinetic and Jacobian regularisation makes the dynamics easily solvable and reduces training time"
    )

    def points(self, settings: Settings) -> list[dict[str, Any]]:
        weights = (1.0,) if settings.small else (0.1, 1.0)
        pairs = [(0.0, 0.0), *((k * w, j * w) for w in weights for k, j in ((1, 0), (0, 1), (1, 1)))]
        return [{"data": data, "kinetic": k, "jacobian": j} for data in settings.data for k, j in pairs]

    def measure(self, point: Mapping[str, Any], lab: Laboratory) -> dict[str, Any]:
        weights = {key: point[key] for key in ("kinetic", "jacobian")}
        name = "-".join(("regularisers", *map(str, point.values())))
        return lab.train(lab.adaptive(point["data"], **weights), name)

    def conclude(self, points: Points) -> Finding:
        found, panel = [], Panel("regularisers: cost over that without", "", "ratio", "bars", level=1.0)
        known = by(points, "data", "kinetic", "jacobian")
        for data in distinct(points, "data"):
            bare = known[data, 0.0, 0.0]
            if not bare["test"]:
                continue  # nothing to compare with
            rest = [p for p in points if p["data"] == data and p is not bare and p["test"]]
            cases = [self._case(p, bare) for p in rest]
            panel.add(
                f"{data}: evaluations", [c["label"] for c in cases], [c["evaluations"] for c in cases]
            )
            panel.add(f"{data}: seconds", [c["label"] for c in cases], [c["seconds"] for c in cases])
            harmless = [c for c in cases if c["val_lost"] <= PRICE] or cases
            if harmless:
                found.append(min(harmless, key=lambda c: c["evaluations"]) | {"data": data, "all": cases})
        easier, faster = ([bool(f[key]) for f in found] for key in ("easier", "faster"))
        both = [a and b for a, b in zip(easier, faster, strict=True)]
        word = graded(any(both) and all(both), any(easier))
        if not any(easier) and not any(f["harder"] for f in found):
            word = "is not shown"
        shown = "; ".join(
            f"{f['data']}, {f['label']}: evaluations × {f['evaluations']:.2f}, seconds × "
            f"{f['seconds']:.2f}, test accuracy {f['accuracy']}"
            for f in found
        )
        return Finding(
            word,
            f"The best weights against none: {shown}.",
            "on every data set fewer evaluations of the trained model (95% interval over splits) and fewer "
            "seconds of training, with the weights that need the fewest evaluations at a price of at most "
            f"{PRICE:g} point of validation accuracy",
            panel,
            found,
        )

    def _case(self, point: Mapping[str, Any], bare: Mapping[str, Any]) -> dict[str, Any]:
        spared = Difference.of(point["evaluations"], bare["evaluations"])
        seconds = point["seconds_each"] / bare["seconds_each"]
        return {
            "label": f"K {point['kinetic']:g}, J {point['jacobian']:g}",
            "evaluations": fmean(point["evaluations"]) / fmean(bare["evaluations"]),
            "seconds": seconds,
            "val_lost": fmean(bare["val"]) - fmean(point["val"]),
            "accuracy": str(Difference.of(point["test"], bare["test"])),
            "easier": spared.below,
            "harder": spared.above,
            "faster": seconds < 1,
        }
