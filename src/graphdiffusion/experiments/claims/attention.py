"""Scaled dot product against Bahdanau's attention."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .base import Claim, Difference, Finding, Panel, Points, by, superior
from .laboratory import Laboratory, Settings

KINDS = ("scaled-dot", "bahdanau")


class Attention(Claim):
    """Both with the published settings of each data set: none is searched for either."""

    name = "attention"
    section = "B"
    says = "for all datasets, the scaled dot product attention performed better than Bahdanau's"
    cases = ("data", "model")

    def points(self, settings: Settings) -> list[dict[str, Any]]:
        return [
            {"data": data, "model": row, "attention": kind}
            for row in ("linear", "nonlinear")  # the cheap ones first
            for data in settings.every
            for kind in KINDS
        ]

    def measure(self, point: Mapping[str, Any], lab: Laboratory) -> dict[str, Any]:
        config = lab.published(point["data"], point["model"], diffusivity=point["attention"])
        return lab.train(config, "-".join(("published", *point.values())))

    def conclude(self, points: Points) -> Finding:
        known = by(points, "data", "model", "attention")
        cases = dict.fromkeys((p["data"], p["model"]) for p in points)
        found = {
            (data, row): Difference.of(*(known[data, row, kind]["test"] for kind in KINDS))
            for data, row in cases
            if all(known[data, row, kind]["test"] for kind in KINDS)  # some training came through
        }
        panel = Panel(
            "scaled dot minus Bahdanau's attention", "", "test accuracy, points", "bars", level=0.0
        )
        for row in ("linear", "nonlinear"):
            own = {data: d for (data, kind), d in found.items() if kind == row}
            title = "GRAND-l" if row == "linear" else "GRAND-nl"
            if own:
                panel.add(title, list(own), [d.mean for d in own.values()], [d.half for d in own.values()])
        shown = ", ".join(f"{data} {row} {d}" for (data, row), d in found.items())
        return Finding(
            superior(list(found.values())),
            f"Scaled dot minus Bahdanau's, points of test accuracy with equal published settings: {shown}.",
            "on every data set and for both models the 95% interval over splits is above 0; in part where "
            "that of some case is, at 5% for all cases together",
            panel,
            [
                {"data": data, "model": row, "mean": d.mean, "half": d.half}
                for (data, row), d in found.items()
            ],
        )
