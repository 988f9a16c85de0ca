"""ANODE augmentation: spread over splits, failed trainings and evaluations with and without it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

import numpy as np
from scipy.stats import fisher_exact
from scipy.stats import t as student

from .base import Claim, Difference, Finding, Panel, Points, Word, by
from .laboratory import Laboratory, Settings


class Augmentation(Claim):
    """GRAND-nl with Dormand-Prince, with as many zero channels again and without them."""

    name = "augmentation"
    section = "5.1"
    says = "for Cora and CiteSeer the Anode augmentation stabilises training"

    def points(self, settings: Settings) -> list[dict[str, Any]]:
        return [
            {"data": data, "preset": preset, "augmented": augmented}
            for data in settings.data
            if data != "pubmed"
            for preset in (("start",) if settings.small else ("start", "paper"))
            for augmented in (False, True)
        ]

    def measure(self, point: Mapping[str, Any], lab: Laboratory) -> dict[str, Any]:
        config = lab.adaptive(point["data"], preset=point["preset"])
        config = config.replace(augment=config.hidden if point["augmented"] else 0)
        return lab.train(config, "-".join(("augmentation", *map(str, point.values()))))

    def conclude(self, points: Points) -> Finding:
        found, known = [], by(points, "data", "preset", "augmented")
        panel = Panel("augmentation: spread over splits", "", "standard deviation, points", "bars")
        for data, preset in dict.fromkeys((p["data"], p["preset"]) for p in points):
            found.append(self._case(known[data, preset, True], known[data, preset, False]))
        names = [f["label"] for f in found]
        panel.add("without", names, [f["without"] for f in found])
        panel.add("augmented", names, [f["with"] for f in found])
        shown = "; ".join(
            f"{f['label']}: standard deviation {f['without']:.2f} without, {f['with']:.2f} with, ratio "
            f"{f['ratio']:.2f} ({f['low']:.2f} to {f['high']:.2f}), failed trainings {f['failed'][0]} and "
            f"{f['failed'][1]}, evaluations × {f['evaluations']:.2f}, test accuracy {f['accuracy']}"
            for f in found
        )
        return Finding(
            self._word(found),
            f"{shown}.",
            "on both data sets the standard deviation of test accuracy over splits is lower (95% interval "
            "of the ratio, paired, by Pitman and Morgan) or fewer trainings fail (Fisher's exact test, 5%)",
            panel,
            found,
        )

    @staticmethod
    def _word(found: Sequence[Mapping[str, Any]]) -> Word:
        better, worse = ([bool(f[key]) for f in found] for key in ("steadier", "shakier"))
        if all(better):
            return "holds"
        if any(better):
            return "holds in part"
        return "does not hold" if any(worse) else "is not shown"

    def _case(self, own: Mapping[str, Any], bare: Mapping[str, Any]) -> dict[str, Any]:
        label = bare["data"] + (", text" if bare["preset"] == "paper" else "")
        failed = [bare["failed"], own["failed"]]
        splits = bare["options"]["splits"]
        table = [[failed[1], splits - failed[1]], [failed[0], splits - failed[0]]]
        fewer, more = (bool(fisher_exact(table, side)[1] < 0.05) for side in ("less", "greater"))
        case = {"label": label, "failed": failed, "steadier": fewer, "shakier": more}
        if not own["test"] or not bare["test"]:
            missing = dict.fromkeys(("with", "without", "ratio", "low", "high", "evaluations"), math.nan)
            return case | missing | {"accuracy": "none"}
        ratio, low, high = ratio_of_spreads(own["test"], bare["test"])
        return case | {
            "with": stdev(own["test"]),
            "without": stdev(bare["test"]),
            "ratio": ratio,
            "low": low,
            "high": high,
            "evaluations": fmean(own["evaluations"]) / fmean(bare["evaluations"]),
            "accuracy": str(Difference.of(own["test"], bare["test"])),
            "steadier": fewer or high < 1,
            "shakier": more or low > 1,
        }


def ratio_of_spreads(first: Sequence[float], second: Sequence[float]) -> tuple[float, float, float]:
    """Ratio of the standard deviations of pairs, with a 95% interval (Pitman 1939, Morgan 1939).

    Sum and difference of two normal variables are uncorrelated if and only if both have one variance.
    Solved for the ratio w of the variances that this test does not reject:
    :math:`w \\,(k \\pm \\sqrt{k^2 - 1})` with :math:`k = 1 + 2(1 - r^2) t^2 / (n - 2)`.
    """
    count, ratio = len(first), stdev(first) / stdev(second) if stdev(second) > 0 else math.inf
    if count < 3 or not 0 < ratio < math.inf:
        return ratio, 0.0, math.inf
    correlation = float(np.corrcoef(first, second)[0, 1])
    quantile = float(student.ppf(0.975, count - 2))
    k = 1 + 2 * (1 - correlation**2) * quantile**2 / (count - 2)
    factor = math.sqrt(k + math.sqrt(max(k * k - 1, 0.0)))
    return ratio, ratio / factor, ratio * factor
