"""Evaluations against order: what explicit Runge-Kutta schemes of order 1 to 8 cost at equal error."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import torch

from ...solvers import integrate
from ...solvers.bogacki_shampine import BogackiShampine
from ...solvers.dormand_prince import DormandPrince
from ...solvers.euler import Euler
from ...solvers.midpoint import Midpoint
from ...solvers.rk4 import RK4
from ...solvers.runge_kutta import FixedRungeKutta
from ...solvers.tableau import Tableau
from ...training.template import build_model
from .base import Claim, Finding, Panel, Points, graded
from .laboratory import Laboratory, Settings, bound

_R = math.sqrt(21)
# Butcher 1964, order 6 with 7 stages
BUTCHER6 = Tableau(
    6,
    (
        (1 / 3,),
        (0.0, 2 / 3),
        (1 / 12, 1 / 3, -1 / 12),
        (-1 / 16, 9 / 8, -3 / 16, -3 / 8),
        (0.0, 9 / 8, -3 / 8, -3 / 4, 1 / 2),
        (9 / 44, -9 / 11, 63 / 44, 18 / 11, 0.0, -16 / 11),
    ),
    (11 / 120, 0.0, 27 / 40, 27 / 40, -4 / 15, -4 / 15, 11 / 120),
)
# Cooper and Verner 1972, order 8 with 11 stages
COOPER_VERNER8 = Tableau(
    8,
    (
        (1 / 2,),
        (1 / 4, 1 / 4),
        (1 / 7, (-7 - 3 * _R) / 98, (21 + 5 * _R) / 49),
        ((11 + _R) / 84, 0.0, (18 + 4 * _R) / 63, (21 - _R) / 252),
        ((5 + _R) / 48, 0.0, (9 + _R) / 36, (-231 + 14 * _R) / 360, (63 - 7 * _R) / 80),
        (
            (10 - _R) / 42, 0.0, (-432 + 92 * _R) / 315, (633 - 145 * _R) / 90, (-504 + 115 * _R) / 70,
            (63 - 13 * _R) / 35,
        ),
        (1 / 14, 0.0, 0.0, 0.0, (14 - 3 * _R) / 126, (13 - 3 * _R) / 63, 1 / 9),
        (
            1 / 32, 0.0, 0.0, 0.0, (91 - 21 * _R) / 576, 11 / 72, (-385 - 75 * _R) / 1152,
            (63 + 13 * _R) / 128,
        ),
        (
            1 / 14, 0.0, 0.0, 0.0, 1 / 9, (-733 - 147 * _R) / 2205, (515 + 111 * _R) / 504,
            (-51 - 11 * _R) / 56, (132 + 28 * _R) / 245,
        ),
        (
            0.0, 0.0, 0.0, 0.0, (-42 + 7 * _R) / 18, (-18 + 28 * _R) / 45, (-273 - 53 * _R) / 72,
            (301 + 53 * _R) / 72, (28 - 28 * _R) / 45, (49 - 7 * _R) / 18,
        ),
    ),
    (1 / 20, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 49 / 180, 16 / 45, 49 / 180, 1 / 20),
)  # fmt: skip


def _bare(tableau: Tableau) -> Tableau:
    """A pair without the last stage, which only its error estimate needs."""
    return Tableau(tableau.order, tableau.a[:-1], tableau.b[:-1])


TABLEAUX = {
    1: Euler.tableau,
    2: Midpoint.tableau,
    3: _bare(BogackiShampine.tableau),
    4: RK4.tableau,
    5: _bare(DormandPrince.tableau),
    6: BUTCHER6,
    8: COOPER_VERNER8,
}
PAPER = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 7, 7: 9, 8: 11}  # evaluations a step by order, appendix F
MOST = {True: 32, False: 128}  # steps, small or not; a power of 2
ERRORS = (1e-3, 1e-6)  # relative, at which the costs are compared
NEAR = 0.5  # between an order and the measured one
ROUNDING = 1e-11  # errors below are not used for an order


class Stages(Claim):
    """GRAND-nl before and after training, in float64, against Cooper and Verner with many steps."""

    name = "stages"
    section = "F"
    says = "orders 1 to 8 take 1, 2, 3, 4, 6, 7, 9, 11 evaluations a step: RK4 is the best trade-off"

    def points(self, settings: Settings) -> list[dict[str, Any]]:
        data = settings.data[:2]
        return [{"data": name, "state": state} for name in data for state in ("untrained", "trained")]

    def measure(self, point: Mapping[str, Any], lab: Laboratory) -> dict[str, Any]:
        config = lab.config(point["data"], "nonlinear").replace(splits=1)
        config = config.replace(epochs=min(config.epochs, lab.settings.epochs))
        problem = lab.problem(config)
        if point["state"] == "trained":
            model: Any = lab.run(config, f"stages-{point['data']}").model(0)
        else:
            model = build_model(config, problem.in_channels, problem.out_channels, 0, problem.num_nodes)
        _, x, time = bound(model.to(lab.device).eval(), problem)
        x = x.double()
        flow = model.double().diffusion.bind(x, problem.graph)
        most = MOST[lab.settings.small]
        steps = [2**k for k in range(1, most.bit_length())]

        @torch.no_grad()
        def at(order: int, count: int) -> torch.Tensor:
            scheme = scheme_of(TABLEAUX[order])(time / count, max_evaluations=100_000).to(x.device)
            return integrate(flow, x, time, scheme, check=False).state

        exact = at(8, 2 * most)
        errors = {
            str(order): [float((at(order, n) - exact).norm() / exact.norm()) for n in steps]
            for order in TABLEAUX
        }
        return {"steps": steps, "errors": errors, "time": time}

    def conclude(self, points: Points) -> Finding:
        panel = Panel("error by order, trained model", "evaluations", "relative error of x(T)", log="xy")
        found = [self._case(p) for p in points]
        for name, own in next(f for f in found if f["state"] == "trained")["orders"].items():
            kept = [(c, e) for c, e in zip(own["cost"], own["errors"], strict=True) if 1e-13 < e < 1]
            panel.add(f"order {name}", [c for c, _ in kept], [e for _, e in kept])
        smooth = [own for f in found if f["state"] == "untrained" for own in f["orders"].values()]
        right = all(own["stages"] == PAPER[own["order"]] for own in smooth)
        right = right and all(own["observed"] > own["order"] - NEAR for own in smooth)
        best = [order == 4 for f in found for order in f["cheapest"].values()]
        orders = ", ".join(f"{own['observed']:.1f}" for own in smooth[: len(TABLEAUX)])
        stages = ", ".join(str(own["stages"]) for own in smooth[: len(TABLEAUX)])
        shown = "; ".join(
            f"{f['data']} {f['state']}: order {order} at {error} ({f['fewest'][error]:.0f}, RK4 "
            f"{_shown(f['orders']['4']['needed'][error])})"
            for f in found
            for error, order in f["cheapest"].items()
        )
        return Finding(
            graded(right and all(best), right or any(best)),
            f"Orders 1 to 6 and 8 with {stages} evaluations a step: measured orders {orders} on the "
            f"untrained equation. Fewest evaluations for an error: {shown}. Order 7 is not measured.",
            "schemes with the paper's numbers of evaluations have their orders on the untrained equation "
            f"(at most {NEAR:g} below), and RK4 needs the fewest evaluations for both errors in all cases",
            panel,
            found,
        )

    def _case(self, point: Mapping[str, Any]) -> dict[str, Any]:
        orders: dict[str, dict[str, Any]] = {}
        for name, kept in point["errors"].items():
            errors = [math.inf if e is None else e for e in kept]  # as a file keeps them
            stages = len(TABLEAUX[int(name)].b)
            cost = [stages * n for n in point["steps"]]
            orders[name] = {
                "order": int(name),
                "stages": stages,
                "cost": cost,
                "errors": errors,
                "observed": observed_order(errors),
                "needed": {f"{e:g}": needed(cost, errors, e) for e in ERRORS},
            }
        cheapest, fewest = {}, {}
        for error in (f"{e:g}" for e in ERRORS):
            best = min(orders.values(), key=lambda own: own["needed"][error])
            cheapest[error], fewest[error] = best["order"], best["needed"][error]
        about = {"data": point["data"], "state": point["state"]}
        return about | {"orders": orders, "cheapest": cheapest, "fewest": fewest}


def _shown(evaluations: float) -> str:
    return f"{evaluations:.0f}" if math.isfinite(evaluations) else "does not reach it"


def scheme_of(tableau: Tableau) -> type[FixedRungeKutta]:
    """A scheme with fixed steps from a tableau."""
    return type("Scheme", (FixedRungeKutta,), {"tableau": tableau})


def observed_order(errors: Sequence[float]) -> float:
    """From the last halving of the step whose errors are above rounding and below 10%."""
    pairs = [(a, b) for a, b in pairwise(errors) if ROUNDING < b < a < 0.1]
    return math.log2(pairs[-1][0] / pairs[-1][1]) if pairs else math.nan


def needed(cost: Sequence[float], errors: Sequence[float], wanted: float) -> float:
    """Evaluations for an error, by interpolation between logarithms; infinite where it is not reached."""
    for k, error in enumerate(errors):
        if error <= wanted:
            if k == 0 or not math.isfinite(errors[k - 1]) or errors[k - 1] > 1:
                return float(cost[k])
            before, now = math.log(errors[k - 1]), math.log(error)
            share = (before - math.log(wanted)) / (before - now)
            return float(cost[k - 1] * (cost[k] / cost[k - 1]) ** share)
    return math.inf
