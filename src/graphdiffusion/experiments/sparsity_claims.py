"""What the points of the sparsity experiment say about the paper's claims, with the criteria."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from statistics import fmean, median, stdev
from typing import Any

from ..training.summary import half_interval

MODELS = {"linear": "GRAND-l", "nonlinear": "GRAND-nl"}
FEW = 8  # the paper: accuracy is the same until K < 8
MARGIN = 1.0  # points of accuracy that count as the same
SLOWER = 1.05  # a sparser graph that takes this many times as long contradicts the first claim

Point = Mapping[str, Any]


def conclusions(
    points: Sequence[Point], titles: Mapping[str, str], implicit: Sequence[str]
) -> dict[str, Any]:
    """Figures and verdicts.

    Args:
        points: Of the results file.
        titles: Of the schemes, by name.
        implicit: Names of the schemes with implicit steps.
    """
    speed, accuracy = speed_figures(points), accuracy_figures(points)
    parts = [
        faster_verdict(speed, titles),
        accuracy_verdict(accuracy, titles),
        implicit_verdict([own for own in speed if own["scheme"] in implicit], titles),
    ]
    return {"figures": {"speed": speed, "accuracy": accuracy}, "verdict": " ".join(parts)}


def speed_figures(points: Iterable[Point]) -> list[dict[str, Any]]:
    """Of each model and scheme: seconds, evaluations and iterations on each graph, and ratios of seconds.

    ``gain`` is the time on the densest rewired graph over that on the sparsest, ``steps`` the same for
    each K and the next one. Ratios are of epochs in the same round, as geometric means with 95% intervals.
    """
    found = []
    for p in points:
        if p["kind"] != "speed":
            continue
        kept = ("k", "edges", "evaluations", "iterations", "steps")
        rows = [{key: g[key] for key in kept} | {"seconds": median(g["seconds"])} for g in p["graphs"]]
        rewired = [g for g in p["graphs"] if g["k"]]
        found.append(
            {
                "model": p["model"],
                "scheme": p["scheme"],
                "graphs": rows,
                "gain": ratio(rewired[-1]["seconds"], rewired[0]["seconds"]),
                "steps": [ratio(dense["seconds"], bare["seconds"]) for bare, dense in pairwise(rewired)],
            }
        )
    return found


def ratio(above: Sequence[float], below: Sequence[float]) -> dict[str, float]:
    """Geometric mean of paired ratios with its 95% interval (Student's t of the logarithms)."""
    logs = [math.log(a / b) for a, b in zip(above, below, strict=True)]
    mean, half = fmean(logs), half_interval(logs)
    high = math.exp(mean + half) if half < 700 else math.inf
    return {"mean": math.exp(mean), "low": math.exp(mean - half), "high": high}


def accuracy_figures(points: Iterable[Point]) -> list[dict[str, Any]]:
    """Of each model, scheme and method: accuracy on each graph, and its difference to the densest one's.

    Differences are paired over the splits, with 95% intervals (Student's t). A difference is ``same`` if
    its interval lies within ±``MARGIN`` points; else ``lower`` or ``higher`` if it lies on one side of 0;
    else ``open``: too few splits to tell.
    """
    own = [p for p in points if p["kind"] == "accuracy"]
    cases = dict.fromkeys((p["model"], p["scheme"], p["rewire"]) for p in own if p["rewire"] != "none")
    found = []
    for model, scheme, method in cases:
        group = {
            p["k"]: p
            for p in own
            if (p["model"], p["scheme"]) == (model, scheme) and p["rewire"] in (method, "none")
        }
        densest = max(group)
        rows = [
            {
                "k": k,
                "edges": p["edges"],
                "mean": fmean(p["test"]),
                "std": stdev(p["test"]) if len(p["test"]) > 1 else 0.0,
                "evaluations": p["evaluations"],
                "iterations": p["iterations"],
                **({} if k == densest else {"difference": difference(p["test"], group[densest]["test"])}),
            }
            for k, p in sorted(group.items())
        ]
        found.append({"model": model, "scheme": scheme, "rewire": method, "graphs": rows})
    return found


def difference(ours: Sequence[float], theirs: Sequence[float]) -> dict[str, Any]:
    """Mean of paired differences, its 95% interval, and what it says."""
    apart = [a - b for a, b in zip(ours, theirs, strict=True)]
    mean, half = fmean(apart), half_interval(apart)
    low, high = mean - half, mean + half
    if low >= -MARGIN and high <= MARGIN:
        says = "same"
    elif high < 0 or low > 0:
        says = "lower" if high < 0 else "higher"
    else:
        says = "open"
    # JSON has no infinity: a single split has no interval
    finite = math.isfinite(half)
    return {"mean": mean, "low": low if finite else None, "high": high if finite else None, "says": says}


def faster_verdict(speed: Sequence[Point], titles: Mapping[str, str]) -> str:
    """First claim: the smaller K, the faster.

    It holds for a model and scheme if the sparsest rewired graph is faster than the densest, by the
    interval of their ratio, and no K is slower than the next one by more than 5%, by the interval.
    """
    cases = {
        name_of(own, titles): own["gain"]["low"] > 1
        and all(step["high"] > 1 / SLOWER for step in own["steps"])
        for own in speed
    }
    gains = [own["gain"]["mean"] for own in speed]
    return f"The smaller K, the faster: {_held(cases)}{_range(gains)}."


def accuracy_verdict(accuracy: Sequence[Point], titles: Mapping[str, str]) -> str:
    """Second claim: accuracy is the same until K < 8.

    It holds in a case if every K ≥ 8 is the same as the densest and every K < 8 lower; it does not if
    one of them is otherwise; it is open where intervals are too wide to tell.
    """
    states: dict[str, list[str]] = {"holds": [], "fails": [], "open": []}
    for own in accuracy:
        says = {g["k"]: g["difference"]["says"] for g in own["graphs"] if "difference" in g and g["k"]}
        wrong = [
            f"K = {k} {word}"
            for k, word in says.items()
            if word != "open" and word != ("same" if k >= FEW else "lower")
        ]
        case = f"{name_of(own, titles)}, {own['rewire']}"
        if wrong:
            states["fails"].append(f"{case}: {', '.join(wrong)}")
        else:
            states["open" if "open" in says.values() else "holds"].append(case)
    total = sum(map(len, states.values()))
    held = dict.fromkeys(states["holds"], True) | dict.fromkeys(states["fails"], False)
    text = f"Accuracy the same until K < {FEW}, within {MARGIN:g} point of the densest graph: "
    if total and not held:
        return f"{text}open in all {total} cases: too few splits."
    text += _held(held | dict.fromkeys(states["open"], False))
    if states["open"]:
        text += f", open in {len(states['open'])} (too few splits)"
    if states["fails"]:
        text += f"; it does not hold in {len(states['fails'])} ({'; '.join(states['fails'])})"
    return f"{text}."


def implicit_verdict(speed: Sequence[Point], titles: Mapping[str, str]) -> str:
    """Third claim: for implicit schemes sparsity helps at any step.

    It holds for a model and step if the sparsest rewired graph is faster than the densest, by the interval
    of their ratio. Beside it the paper's hypothesis, that a sparser graph takes fewer iterations.
    """
    cases = {name_of(own, titles): own["gain"]["low"] > 1 for own in speed}
    counts = [[g["iterations"] for g in own["graphs"] if g["k"]] for own in speed]
    fewer = sum(own[0] < own[-1] for own in counts)
    shares = [own[0] / own[-1] for own in counts if own[-1]]
    beside = f", {min(shares):.2f} to {max(shares):.2f} times as many" if shares else ""
    gains = [own["gain"]["mean"] for own in speed]
    return (
        f"For implicit schemes sparsity helps at any step: {_held(cases)}{_range(gains)}; the sparsest "
        f"graph takes fewer iterations than the densest in {fewer} of {len(cases)}{beside}."
    )


def name_of(own: Point, titles: Mapping[str, str]) -> str:
    return f"{MODELS[own['model']]}, {titles[own['scheme']]}"


def _held(cases: Mapping[str, bool]) -> str:
    count, total = sum(cases.values()), len(cases)
    if not total:
        return "not measured"
    word = "holds" if count == total else ("holds in part" if count else "does not hold")
    return f"{word}, in {count} of {total} cases"


def _range(gains: Sequence[float]) -> str:
    """How much faster the sparsest graph is."""
    if not gains:
        return ""
    return f" (the densest graph takes {min(gains):.2g} to {max(gains):.2g} times as long as the sparsest)"
