"""What the points of the sparsity experiment say about the paper's claims, with the criteria."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from statistics import fmean, median, stdev
from typing import Any

from ..training.summary import half_interval
from .claims.base import graded

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

    It holds for a model and scheme if the densest rewired graph takes longer than the sparsest, by the
    interval of their ratio; it does not if it takes at most 5% longer, or if some K is slower than the
    next larger one by more than 5%, by the intervals. Otherwise the noise leaves it open.
    """
    states = {}
    for own in speed:
        reversed_ = any(step["high"] < 1 / SLOWER for step in own["steps"])
        states[name_of(own, titles)] = "fails" if reversed_ else gained(own["gain"])
    return f"The smaller K, the faster: {held(states, 'noise')}{_range(speed)}."


def gained(gain: Mapping[str, float]) -> str:
    """What a ratio of seconds says."""
    return "holds" if gain["low"] > 1 else ("fails" if gain["high"] < SLOWER else "open")


def accuracy_verdict(accuracy: Sequence[Point], titles: Mapping[str, str]) -> str:
    """Second claim: accuracy is the same until K < 8.

    It holds in a case if every K ≥ 8 is the same as the densest and every K < 8 lower; it does not if
    one of them is otherwise. Otherwise too few splits leave it open.
    """
    states, wrong = {}, []
    for own in accuracy:
        case = f"{name_of(own, titles)}, {own['rewire']}"
        says = {g["k"]: g["difference"]["says"] for g in own["graphs"] if "difference" in g and g["k"]}
        others = [
            f"K = {k} {word}"
            for k, word in says.items()
            if word not in ("open", "same" if k >= FEW else "lower")
        ]
        states[case] = "fails" if others else ("open" if "open" in says.values() else "holds")
        wrong += [f"{case}: {', '.join(others)}"] if others else []
    text = f"Accuracy the same until K < {FEW}, within {MARGIN:g} point of the densest graph: "
    detail = f" ({'; '.join(wrong)})" if wrong else ""
    return f"{text}{held(states, 'too few splits')}{detail}."


def implicit_verdict(speed: Sequence[Point], titles: Mapping[str, str]) -> str:
    """Third claim: for implicit schemes sparsity helps at any step.

    It holds for a model and step if the densest rewired graph takes longer than the sparsest, by the
    interval of their ratio; it does not if it takes at most 5% longer. Beside it the paper's hypothesis,
    that a sparser graph takes fewer iterations.
    """
    states = {name_of(own, titles): gained(own["gain"]) for own in speed}
    counts = [[g["iterations"] for g in own["graphs"] if g["k"]] for own in speed]
    fewer = sum(own[0] < own[-1] for own in counts)
    shares = [own[0] / own[-1] for own in counts if own[-1]]
    beside = f", {min(shares):.2f} to {max(shares):.2f} times as many" if shares else ""
    return (
        f"For implicit schemes sparsity helps at any step: {held(states, 'noise')}{_range(speed)}; the "
        f"sparsest graph takes fewer iterations than the densest in {fewer} of {len(speed)}{beside}."
    )


def held(states: Mapping[str, str], why: str) -> str:
    """In how many cases a claim holds; ``why`` says what leaves others open."""
    count = Counter(states.values())
    total, undecided = len(states), count["open"]
    if undecided == total:
        return f"open in all {total} cases ({why})" if total else "not measured"
    text = f"{graded(not count['fails'], bool(count['holds']))}, in {count['holds']} of {total} cases"
    return text + (f", open in {undecided} ({why})" if undecided else "")


def name_of(own: Point, titles: Mapping[str, str]) -> str:
    return f"{MODELS[own['model']]}, {titles[own['scheme']]}"


def _range(speed: Sequence[Point]) -> str:
    """How much faster the sparsest graph is."""
    gains = [own["gain"]["mean"] for own in speed]
    if not gains:
        return ""
    return f" (the densest graph takes {min(gains):.2g} to {max(gains):.2g} times as long as the sparsest)"
