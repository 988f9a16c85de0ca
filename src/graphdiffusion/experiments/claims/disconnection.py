"""Attention between classes before and after training: does the graph come apart?"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from ...graph import Graph
from ...solvers import integrate
from ...training.template import build_model
from .base import Claim, Difference, Finding, Panel, Points, distinct, graded
from .laboratory import Laboratory, Settings, bound

NEARLY = 0.1  # share of the attention between classes that may be left if the graph is to be "disconnected"
MOMENTS = ("before", "start", "end")
TWO_STEP: dict[str, Any] = {"solver": "exponential-two-step", "step_size": 1.5}


class Disconnection(Claim):
    """Share of the attention between different nodes that crosses classes, for every label."""

    name = "disconnection"
    section = "4"
    says = "as A is learned, the graph becomes (approximately) disconnected"
    cases = ("data", "model", "preset")

    def points(self, settings: Settings) -> list[dict[str, Any]]:
        return [
            {"data": data, "model": row, "preset": preset}
            for row in ("linear", "nonlinear")  # the cheap ones first
            for data in settings.data
            for preset in ("start", "paper")
        ]

    def measure(self, point: Mapping[str, Any], lab: Laboratory) -> dict[str, Any]:
        config = lab.published(point["data"], point["model"], point["preset"])
        # the claim on kinds of attention has the same training
        name = "-".join(("published", point["data"], point["model"], config.diffusivity))
        if point["preset"] == "paper":  # the text has α = 1: a step of two-step schemes with τα = 1.5
            linear = point["model"] == "linear"
            config = config.replace(**({"solver": "auto"} if linear else TWO_STEP))
            name = "-".join(("disconnection", *point.values()))
        found = lab.train(config, name)
        if not found["test"]:
            return found
        run = lab.run(config, name)
        y = run.problem.y
        sizes = (run.in_channels, len(run.names))
        shares: dict[str, list[float]] = {moment: [] for moment in MOMENTS}
        for result in run.results:
            new = build_model(config, *sizes, result.init, run.problem.num_nodes).to(lab.device).eval()
            shares["before"] += crossing(new, run.problem, y)[:1]
            first, last = crossing(run.model(result.number), run.problem, y)
            shares["start"].append(first)
            shares["end"].append(last)
        return found | {"edges": share_across(run.problem.graph, None, y), "shares": shares}

    def conclude(self, points: Points) -> Finding:
        done = [p for p in points if p["test"]]
        panel = Panel("attention between classes", "", "share, %", "bars")
        found = []
        for p in done:
            before, start, end = (p["shares"][moment] for moment in MOMENTS)
            change = Difference.of([100 * v for v in end], [100 * v for v in before])
            found.append(
                {
                    "label": _label(p),
                    "edges": 100 * p["edges"],
                    "before": 100 * fmean(before),
                    "start": 100 * fmean(start),
                    "end": 100 * fmean(end),
                    "change": str(change),
                    "apart": fmean(end) <= NEARLY * fmean(before),
                    "halved": fmean(end) <= 0.5 * fmean(before),
                    "accuracy": fmean(p["test"]),
                }
            )
        names = [f["label"] for f in found]
        for key, label in (
            ("before", "before training"),
            ("start", "after, t = 0"),
            ("end", "after, t = T"),
        ):
            panel.add(label, names, [f[key] for f in found])
        word = graded(bool(found) and all(f["apart"] for f in found), any(f["halved"] for f in found))
        shown = "; ".join(
            f"{f['label']} {f['before']:.1f}% before, {f['start']:.1f}% after it at t = 0, "
            f"{f['end']:.1f}% at T"
            for f in found
        )
        edges = ", ".join(
            f"{data} {next(100 * p['edges'] for p in done if p['data'] == data):.1f}%"
            for data in distinct(done, "data")
        )
        return Finding(
            word,
            f"Edges between classes: {edges}. Attention on them: {shown}.",
            f"in every case at most {100 * NEARLY:.0f}% of the attention that crosses classes before "
            "training is left after it; in part where at most half is left in some case",
            panel,
            found,
        )


def _label(p: Mapping[str, Any]) -> str:
    row = "l" if p["model"] == "linear" else "nl"
    return f"{p['data'].removesuffix('-embedded')} {row}" + (", text" if p["preset"] == "paper" else "")


@torch.no_grad()
def crossing(model: Any, problem: Any, y: Tensor) -> list[float]:
    """Share of the attention between nodes of different classes at x(0) and at x(T)."""
    flow, x, time = bound(model, problem)
    last = integrate(flow, x, time, model.diffusion.solver, check=False).state
    return [share_across(problem.graph, flow.attention(None, state), y) for state in (x, last)]


def share_across(graph: Graph, values: Tensor | None, y: Tensor) -> float:
    """Share of an edge field (by default of the number of edges) between classes, without self-loops."""
    row, col = graph.row.long(), graph.col.long()
    apart = row != col
    weight = torch.ones(len(row), device=row.device) if values is None else values
    total = weight[apart].sum()
    return float(weight[apart & (y[row] != y[col])].sum() / total)
