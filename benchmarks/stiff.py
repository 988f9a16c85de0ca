"""Dormand-Prince beside implicit and exponential schemes on a GRAND-nl that needs many evaluations (CPU).

    python benchmarks/stiff.py [--epochs 60] [--decay 0] [--span 3] [--limit 600] [--out stiff.json]
    python benchmarks/stiff.py --epochs 8 --hidden 16 --time 2 --span 1 --alpha 100

The model is trained on Cora with the published settings, but without weight decay: queries and keys grow,
and the attention follows the state closely. The authors' code tests at up to 3T: that is the span here.
With ``--alpha`` the learnt α is replaced by a larger one.

Printed are eigenvalues of the Jacobian (Arnoldi's method on Jacobian-vector products) at the start, at T
and at the end; the longest step for which Dormand-Prince is stable at the end, beside the mean of the
steps it takes; and for each scheme the error of the state at the end, relative and in the 2-norm, against
Dormand-Prince at 1e-7, all in float64. Work is evaluations of the right-hand side or of the attention; a
Jacobian-vector product counts as one, a sparse product of an exponential scheme as a tenth, about its time.
At last the work of each scheme at equal errors, by interpolation. ``--limit`` is in CPU seconds.
"""

from __future__ import annotations

import argparse
import copy
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphdiffusion.equation import Coefficient
from graphdiffusion.errors import SolverError
from graphdiffusion.nn import GRAND
from graphdiffusion.solvers import (
    ESDIRK4,
    RK4,
    DormandPrince,
    ExponentialCF42,
    ExponentialMidpoint,
    ExponentialTwoStep,
    Solver,
    Trapezoid,
    integrate,
)
from graphdiffusion.solvers.newton_krylov import jacobian_product
from graphdiffusion.training import Config, Population, Problem, load_problem, protocol

PUBLISHED = {"rtol": 822e-9, "atol": 822e-7}  # tolerance scale 822
REAL_LIMIT = 3.3  # Dormand-Prince is stable on the negative real axis up to it
MOST = 20_000  # evaluations of one integral
PRODUCT = 0.1  # of an evaluation of the attention, in time


def schemes() -> dict[str, list[Solver]]:
    """Of each scheme several tolerances or steps, the loose ones first."""
    more = {"max_evaluations": MOST}
    return {
        "dopri5": [DormandPrince(r, r / 10, **more) for r in (1e-2, 1e-3, 1e-4, 1e-5)],
        "rk4": [RK4(size, **more) for size in (2.0, 1.0, 0.5, 0.25)],
        "esdirk": [ESDIRK4(r, r / 10, **more) for r in (1e-2, 1e-3, 1e-4)],
        "trapezoid": [Trapezoid(size, **more) for size in (2.0, 1.0, 0.5)],
        "exponential-midpoint": [ExponentialMidpoint(size, **more) for size in (4.0, 2.0, 1.0, 0.5)],
        "exponential-two-step": [ExponentialTwoStep(size, **more) for size in (4.0, 2.0, 1.0, 0.5, 0.25)],
        "exponential42": [ExponentialCF42(r, r / 10, **more) for r in (1e-1, 1e-2, 1e-3)],
    }


def trained(given: argparse.Namespace) -> tuple[GRAND, Problem]:
    config = Config(
        data="cora-embedded", variant="nonlinear", time=given.time, hidden=given.hidden, heads=given.heads,
        attention_dim=given.attention_dim, normaliser="squareplus", over="columns", terms="source",
        detach_source=True, optimiser="adamax", rate=0.0229, decay=given.decay, input_dropout=0.5,
        dropout=0.047, solver="exponential-two-step", step_size=given.time / 4, splits=1,
    )  # fmt: skip
    problem = load_problem(config)
    population = Population(problem, config, protocol(config, problem.data)[:1])
    for _ in range(given.epochs):
        population.step()
    print(
        f"{given.epochs} epochs without weight decay, validation {float(population.score):.3f}", flush=True
    )
    model: Any = copy.deepcopy(population.stack.model)
    model.load_state_dict(population.saved(population.stack.tensors, 0))
    if given.alpha is not None:
        model.diffusion.equation.alpha = Coefficient(given.alpha, learn=False)
    return model.double().eval().requires_grad_(False), problem


def eigenvalues(flow: Any, x: Tensor, steps: int = 60) -> np.ndarray:
    """Eigenvalues of the Jacobian at x that Arnoldi's method finds to 5% in so many products."""
    zero = torch.zeros(1, 1, dtype=x.dtype)
    basis, small = x.new_empty(steps + 1, x.numel()), np.zeros((steps + 1, steps))
    start = torch.randn(x.numel(), dtype=x.dtype, generator=torch.Generator().manual_seed(0))
    basis[0] = start / start.norm()
    for k in range(steps):
        w = jacobian_product(flow, zero, x, basis[k].view_as(x)).flatten()
        for _ in range(2):
            shares = basis[: k + 1] @ w
            small[: k + 1, k] += shares.numpy()
            w = w - shares @ basis[: k + 1]
        small[k + 1, k] = float(w.norm())
        basis[k + 1] = w / w.norm()
    values, vectors = np.linalg.eig(small[:-1])
    return values[abs(small[-1, -1] * vectors[-1]) < 0.05 * abs(values)]


def spectrum(flow: Any, states: dict[str, Tensor], alpha: float) -> list[dict[str, Any]]:
    """Eigenvalues at each state, and how far outside of the disc of α(A − I) they lie."""
    rows = []
    for name, x in states.items():
        found = eigenvalues(flow, x)
        largest, radius = float(abs(found).max()), float(abs(found + alpha).max() / alpha)
        row = {"at": name, "largest": largest, "radius": radius}
        for which, order in (("largest real part", -found.real), ("least real part", found.real)):
            row[which] = [[v.real, v.imag] for v in found[np.argsort(order)][:4]]
        rows.append(row)
        ends = " to ".join(f"{edge(found.real):.3g}" for edge in (np.min, np.max))
        print(
            f"eigenvalues {name}: |λ| up to {largest:.3g}, real parts {ends}, imaginary parts up to "
            f"{abs(found.imag).max():.3g}; |λ + α| up to {radius:.3g} α",
            flush=True,
        )
    return rows


def measured(name: str, solver: Any, flow: Any, x: Tensor, span: float, exact: Tensor) -> dict[str, Any]:
    start = time.process_time()
    how = f"{float(solver.rtol):.0e}" if hasattr(solver, "step_size") is False else f"{solver.step_size:g}"
    row: dict[str, Any] = {"scheme": name, "how": how}
    try:
        solution = integrate(flow, x, span, solver, check=False)
    except SolverError as error:
        return row | {"failed": type(error).__name__}
    stats = solution.stats
    own = stats.inner_iterations if name.startswith("exponential") else 0  # sparse products
    return row | {
        "error": float((solution.state - exact).norm() / exact.norm()),
        "work": stats.evaluations + PRODUCT * own,  # Jacobian-vector products are among the evaluations
        "evaluations": stats.evaluations,
        "jacobian_products": stats.products,
        "sparse_products": own,
        "gmres": stats.inner_iterations - own,
        "newton": stats.newton_iterations,
        "accepted": stats.accepted,
        "rejected": stats.rejected,
        "seconds": time.process_time() - start,
    }


def shown(row: dict[str, Any]) -> str:
    if "failed" in row:
        return f"  {row['scheme']:<21} {row['how']:>6}  {row['failed']}"
    return (
        f"  {row['scheme']:<21} {row['how']:>6}  error {row['error']:7.1e}  work {row['work']:7.0f}"
        f"  evaluations {row['evaluations']:5d}  products {row['jacobian_products']:5d}"
        f" + {row['sparse_products']:5d}  gmres {row['gmres']:5d}  steps {row['accepted']:4d}"
        f" + {row['rejected']:3d}  {row['seconds']:6.1f} s"
    )


def work_at(rows: list[dict[str, Any]], error: float) -> float | None:
    """Work at an error, between two measurements on a double logarithmic scale; None outside of them."""
    points = sorted((r["error"], r["work"]) for r in rows if 0 < r.get("error", 0.0) < np.inf)
    errors, work = (np.log([p[k] for p in points]) for k in (0, 1))
    if not points or not errors[0] <= np.log(error) <= errors[-1]:
        return None
    return float(np.exp(np.interp(np.log(error), errors, work)))


@torch.no_grad()
def compare(model: GRAND, problem: Problem, span: float, limit: float) -> dict[str, Any]:
    layer, begin = model.diffusion, time.process_time()
    x = model.encoder(problem.data.x.to_dense().double())  # type: ignore[operator]
    flow, end = layer.bind(x, problem.graph), span * float(layer.time)  # type: ignore[operator]
    alpha = float(flow.rate.max())
    reference = integrate(flow, x, end, DormandPrince(1e-7, 1e-8, max_evaluations=MOST))
    exact = reference.state
    own = DormandPrince(PUBLISHED["rtol"], PUBLISHED["atol"], max_evaluations=MOST)
    first = measured("dopri5, published", own, flow, x, end, exact)
    print(f"α = {alpha:.3g}, t = {end:g} = {span:g} T, |x| up to {float(exact.abs().max()):.3g}")
    print(shown(first), flush=True)
    middle = integrate(flow, x, float(layer.time), DormandPrince(1e-5, 1e-6, max_evaluations=MOST)).state
    found = spectrum(flow, {"at the start": x, "at T": middle, "at the end": exact}, alpha)
    mean = end / first["accepted"]
    stable = REAL_LIMIT / found[-1]["largest"]
    verdict = "stability bounds the steps: stiff" if mean > 0.7 * stable else "accuracy bounds the steps"
    print(f"mean step {mean:.3g}, stable at the end up to about {stable:.3g}: {verdict}")
    rows = [first]
    for name, ladder in schemes().items():
        for solver in ladder:
            if time.process_time() - begin > limit:
                print("  out of time")
                break
            rows.append(measured(name, solver, flow, x, end, exact))
            print(shown(rows[-1]), flush=True)
    equal = {}
    for error in (1e-2, 1e-3, 1e-4):
        each = {n: work_at([r for r in rows if r["scheme"] == n], error) for n in schemes()}
        equal[f"{error:g}"] = each
        line = ", ".join(f"{n} {'–' if w is None else f'{w:.0f}'}" for n, w in each.items())
        print(f"work at error {error:g}: {line}")
    return {"alpha": alpha, "end": end, "verdict": verdict, "mean": mean, "stable": stable,
            "spectrum": found, "rows": rows, "equal": equal}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, value in (("epochs", 60), ("hidden", 80), ("heads", 8), ("attention-dim", 128)):
        parser.add_argument(f"--{name}", type=int, default=value)
    for name, number in (("time", 18.295), ("decay", 0.0), ("span", 3.0), ("limit", 600.0)):
        parser.add_argument(f"--{name}", type=float, default=number)
    parser.add_argument("--alpha", type=float, help="instead of the learnt one")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    model, problem = trained(given)
    result = compare(model, problem, given.span, given.limit)
    if given.out is not None:
        given.out.write_text(json.dumps(result, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
