"""Dropout inside the integral: steps of Dormand-Prince with a mask drawn anew at each evaluation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...equation import Flow
from ...errors import SolverError
from ...ops import propagate
from ...solvers import integrate
from ...solvers.dormand_prince import DormandPrince
from ...training.template import build_model
from .base import Claim, Finding, Panel, Points, share_of
from .laboratory import Laboratory, Settings, bound

STEEP = 0.7  # least exponent of the step in the tolerance; 1/5 without dropout, 1 with it by theory

SHARPEST = {True: (4, 3000), False: (6, 10_000)}  # digits of the last tolerance, and most evaluations


class NoisyFlow:
    """A flow whose attention is dropped out, each entry with the same chance, anew at each evaluation.

    The library has no such option: what is drawn anew at each evaluation has no solution.
    """

    def __init__(self, flow: Flow, rate: float, seed: int = 0) -> None:
        self.flow, self.rate = flow, rate
        self.generator = torch.Generator(flow.x0.device).manual_seed(seed)

    def __call__(self, t: Tensor, x: Tensor) -> Tensor:
        parts = self.flow.stiff(t, x)
        assert parts is not None
        drawn = torch.rand(parts.values.shape, generator=self.generator, device=x.device)
        values = parts.values * (drawn >= self.rate) / (1 - self.rate)
        change = parts.coefficient * (propagate(self.flow.graph, values, x) - x)
        return change if parts.rest is None else change + parts.rest


class Dropout(Claim):
    """GRAND-nl with its first weights: no training is needed to see the steps."""

    name = "dropout"
    section = "B"
    says = "dropout inside adaptive solvers drives τ → 0"

    def points(self, settings: Settings) -> list[dict[str, Any]]:
        rates = (0.0, 0.5) if settings.small else (0.0, 0.1, 0.5)
        return [{"data": data, "rate": rate} for data in settings.data for rate in rates]

    def measure(self, point: Mapping[str, Any], lab: Laboratory) -> dict[str, Any]:
        config = lab.config(point["data"], "nonlinear")
        problem = lab.problem(config)
        model = build_model(config, problem.in_channels, problem.out_channels, 0, problem.num_nodes)
        flow, x, time = bound(model.to(lab.device).eval(), problem)  # type: ignore[arg-type]
        sharpest, limit = SHARPEST[lab.settings.small]
        tolerances = [10.0**-k for k in range(1, sharpest + 1)]
        found = [steps_of(NoisyFlow(flow, point["rate"]), x, time, tol, limit) for tol in tolerances]
        return {"tolerances": tolerances, "found": found, "time": time, "limit": limit}

    def conclude(self, points: Points) -> Finding:
        panel = Panel("dropout in the integral", "tolerance", "evaluations", log="xy")
        found = []
        for p in points:
            taken = [(tol, own) for tol, own in zip(p["tolerances"], p["found"], strict=True)]
            done = [(tol, own) for tol, own in taken if not own["failed"]]
            label = f"{p['data']}, dropout {p['rate']:g}"
            panel.add(label, [tol for tol, _ in done], [own["evaluations"] for _, own in done])
            found.append(
                {
                    "data": p["data"],
                    "rate": p["rate"],
                    "exponent": exponent([(tol, own["step"]) for tol, own in done]),
                    "evaluations": [own["evaluations"] for _, own in taken],
                    "failed": [tol for tol, own in taken if own["failed"]],
                }
            )
        noisy = [f for f in found if f["rate"] > 0]
        shown = []
        for f in found:
            failed = f"; more than the limit at {', '.join(f'{tol:g}' for tol in f['failed'])}" * bool(
                f["failed"]
            )
            shown.append(
                f"{f['data']}, dropout {f['rate']:g}: step ∝ tolerance^{f['exponent']:.2f}, "
                f"{f['evaluations'][0]} to {f['evaluations'][-1]} evaluations{failed}"
            )
        first, last = points[0]["tolerances"][0], points[0]["tolerances"][-1]
        return Finding(
            share_of([f["exponent"] >= STEEP for f in noisy]),
            f"Tolerances {first:g} to {last:g}: {'; '.join(shown)}.",
            f"with dropout the mean step falls at least like tolerance^{STEEP:g} (Dormand-Prince on a "
            "smooth equation: 1/5)",
            panel,
            found,
        )


@torch.no_grad()
def steps_of(flow: NoisyFlow, x: Tensor, time: float, tolerance: float, limit: int) -> dict[str, Any]:
    """What Dormand-Prince needs for an integral; a failed one has used up its evaluations."""
    solver = DormandPrince(tolerance, tolerance / 10, max_evaluations=limit).to(x.device)
    try:
        stats = integrate(flow, x, time, solver).stats
    except SolverError as error:
        return {"failed": type(error).__name__, "evaluations": limit, "step": None}
    return {
        "failed": "",
        "evaluations": stats.evaluations,
        "accepted": stats.accepted,
        "rejected": stats.rejected,
        "step": time / stats.accepted,
    }


def exponent(pairs: list[tuple[float, float]]) -> float:
    """Slope of log step against log tolerance, over the sharper half of the tolerances (at least two)."""
    own = sorted(pairs)[: max(2, (len(pairs) + 1) // 2)]
    if len(own) < 2:
        return float("inf")
    tolerance, step = np.log(np.array(own)).T
    return float(np.polyfit(tolerance, step, 1)[0])
