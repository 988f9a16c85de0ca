"""Error against work of the schemes for the nonlinear model on Cora (CPU).

    python benchmarks/schemes_error.py [--epochs 60] [--threads 1] [--out schemes.json]

GRAND-nl with the published settings (T = 18.3, hidden 80, 8 heads), untrained and after some epochs. The
error is that of the state at T in float32, in the 2-norm and relative, against Dormand-Prince in float64 at
tight tolerances. Seconds are those of an integral and of its gradient, the fastest of several in turns.
"""

from __future__ import annotations

import argparse
import copy
import json
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from graphdiffusion import GRAND
from graphdiffusion.graph import Graph
from graphdiffusion.solvers import (
    RK4,
    DormandPrince,
    ExponentialCF4,
    ExponentialCF42,
    ExponentialEuler,
    ExponentialMidpoint,
    ExponentialMidpointEuler,
    Solver,
    integrate,
)
from graphdiffusion.training import Config, Population, load_problem, protocol

T = 18.3
CONFIG = Config(
    data="cora-embedded", variant="nonlinear", time=T, hidden=80, heads=8, attention_dim=128,
    normaliser="squareplus", over="columns", terms="source", optimiser="adamax", rate=0.0229, decay=0.00508,
    input_dropout=0.5, dropout=0.047, solver="rk4", step_size=2.04, splits=1,
)  # fmt: skip
SCHEMES: dict[str, Solver] = {
    **{f"rk4, {n} steps": RK4(T / n) for n in (8, 9, 12, 18)},
    "dopri5, 1e-3": DormandPrince(1e-3, 1e-4),
    "dopri5, 1e-5": DormandPrince(1e-5, 1e-6),
    **{f"exponential-euler, {n} steps": ExponentialEuler(T / n) for n in (8, 16)},
    **{f"exponential-midpoint, {n} steps": ExponentialMidpoint(T / n) for n in (1, 2, 4, 8, 16)},
    **{f"exponential-cf4, {n} steps": ExponentialCF4(T / n) for n in (1, 2, 4, 8)},
    "exponential21, 1e-2": ExponentialMidpointEuler(1e-2, 1e-3),
    "exponential42, 1e-2": ExponentialCF42(1e-2, 1e-3),
}


def measure(model: GRAND, features: Tensor, graph: Graph, repeats: int) -> list[dict[str, Any]]:
    """A row for each scheme."""
    wide = copy.deepcopy(model).double()
    with torch.no_grad():
        x, exact = model.encoder(features), wide.encoder(features.double())
        flow = wide.diffusion.bind(exact, graph)
        exact = integrate(flow, exact, T, DormandPrince(1e-10, 1e-11)).state
    x.requires_grad_()
    rows, times = [], {name: [] for name in SCHEMES}  # type: ignore[var-annotated]
    for turn in range(repeats):
        for name, solver in SCHEMES.items():
            start = time.perf_counter()
            solution = integrate(model.diffusion.bind(x, graph), x, T, solver, check=False)
            solution.state.sum().backward()
            times[name].append(time.perf_counter() - start)
            if turn == 0:
                error = float((solution.state.detach().double() - exact).norm() / exact.norm())
                row = {"scheme": name, "evaluations": solution.stats.evaluations, "error": error}
                rows.append(row | {"products": solution.stats.inner_iterations})
    return [row | {"seconds": min(times[row["scheme"]])} for row in rows]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--repeats", type=int, default=4)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    problem = load_problem(CONFIG)
    population = Population(problem, CONFIG, protocol(CONFIG, problem.data))
    features = problem.data.x.to_dense()
    found = {}
    for name, epochs in (("untrained", 0), (f"after {options.epochs} epochs", options.epochs)):
        for _ in range(epochs):
            population.step()
        model = copy.deepcopy(population.stack.model)
        model.load_state_dict({key: value[0] for key, value in population.parameters.items()}, strict=False)
        found[name] = measure(model.eval(), features, problem.graph, options.repeats)
        print(f"{name}\n  {'scheme':<30} evaluations products   error  ms forward and backward")
        for row in found[name]:
            print(
                f"  {row['scheme']:<30} {row['evaluations']:11d} {row['products']:8d} {row['error']:7.0e}"
                f" {1e3 * row['seconds']:6.0f}"
            )
    if options.out is not None:
        options.out.write_text(json.dumps(found, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
