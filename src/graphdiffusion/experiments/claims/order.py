"""Order: accuracy of trainings with schemes of lower order beside RK4."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .base import Claim, Difference, Finding, Panel, Points, by, distinct, superior
from .laboratory import LIMIT, Laboratory, Settings

# name, scheme, order, steps; 0: as many as the tolerances ask for
FIXED = (
    ("euler, 40 steps", "euler", 1, 40),
    ("midpoint, 20 steps", "midpoint", 2, 20),
    ("rk4, 10 steps", "rk4", 4, 10),
)
SHORT = (("euler, 10 steps", "euler", 1, 10), ("midpoint, 10 steps", "midpoint", 2, 10))
ADAPTIVE = (("heun21", "heun21", 2, 0), ("bosh3", "bosh3", 3, 0), ("dopri5", "dopri5", 5, 0))
BEST = {True: "rk4, 10 steps", False: "dopri5"}  # of fixed steps, and of adaptive ones


class Order(Claim):
    """GRAND-nl, equal evaluations and equal steps; adaptive schemes at equal tolerances."""

    name = "order"
    section = "F"
    says = "for all experiments Runge-Kutta 4 (or its adaptive variants) outperforms lower order methods"

    def points(self, settings: Settings) -> list[dict[str, Any]]:
        schemes = FIXED if settings.small else (*FIXED, *SHORT, *ADAPTIVE)
        return [{"data": data, "scheme": own[0]} for data in settings.data for own in schemes]

    def measure(self, point: Mapping[str, Any], lab: Laboratory) -> dict[str, Any]:
        _, scheme, order, steps = next(s for s in (*FIXED, *SHORT, *ADAPTIVE) if s[0] == point["scheme"])
        name = f"order-{point['data']}-{scheme}-{steps}"
        if not steps:
            return lab.train(lab.adaptive(point["data"], scheme), name) | {"order": order, "fixed": False}
        config = lab.config(point["data"], "nonlinear", max_evaluations=LIMIT)
        config = config.replace(epochs=min(config.epochs, lab.settings.epochs), solver=scheme)
        found = lab.train(config.replace(step_size=config.time / steps), name)
        return found | {"order": order, "fixed": True}

    def conclude(self, points: Points) -> Finding:
        known, found = by(points, "data", "scheme"), []
        panel = Panel("order 4 or 5 minus a lower one", "", "test accuracy, points", "bars", level=0.0)
        for data in distinct(points, "data"):
            pairs = {}
            for p in (p for p in points if p["data"] == data and p["test"]):
                best = known[data, BEST[p["fixed"]]]
                if p is not best and best["test"]:
                    pairs[p["scheme"]] = Difference.of(best["test"], p["test"])
                    found.append((data, p["scheme"], best["scheme"], pairs[p["scheme"]]))
            panel.add(data, list(pairs), [d.mean for d in pairs.values()], [d.half for d in pairs.values()])
        shown = ", ".join(f"{data}, {best} minus {scheme} {d}" for data, scheme, best, d in found)
        return Finding(
            superior([d for *_, d in found]),
            f"Points of test accuracy: {shown}.",
            "on every data set the 95% interval over splits of RK4 minus each scheme of lower order, and "
            "of Dormand-Prince minus each adaptive one, is above 0; in part where some is, at 5% for all "
            "cases together",
            panel,
            [
                {"data": data, "scheme": scheme, "against": best, "mean": d.mean, "half": d.half}
                for data, scheme, best, d in found
            ],
        )
