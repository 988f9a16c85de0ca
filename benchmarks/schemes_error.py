"""Error against work of the schemes for GRAND-nl on Cora (CPU): the table of docs/how-it-works.md.

    python benchmarks/schemes_error.py [--epochs 60] [--threads 1] [--out schemes.json]

GRAND-nl with the published settings (T = 18.3, hidden 80, 8 heads), untrained and after some epochs. All
schemes and equations, with a picture: `grand reproduce schemes --part errors`, whose code this is.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch

from graphdiffusion.experiments.scheme_errors import ErrorSettings, error_rows, published, trained_model
from graphdiffusion.solvers import (
    RK4,
    DormandPrince,
    ExponentialCF4,
    ExponentialCF42,
    ExponentialEuler,
    ExponentialMidpoint,
    ExponentialMidpointEuler,
    ExponentialTwoStep,
    Solver,
)
from graphdiffusion.training import load_problem

SETTINGS = ErrorSettings()
T = SETTINGS.time
SCHEMES: dict[str, Solver] = {
    **{f"rk4, {n} steps": RK4(T / n) for n in (8, 9, 12, 18)},
    "dopri5, 1e-3": DormandPrince(1e-3, 1e-4),
    "dopri5, 1e-5": DormandPrince(1e-5, 1e-6),
    **{f"exponential-euler, {n} steps": ExponentialEuler(T / n) for n in (8, 16)},
    **{f"exponential-midpoint, {n} steps": ExponentialMidpoint(T / n) for n in (1, 2, 4, 8, 16)},
    **{f"exponential-two-step, {n} steps": ExponentialTwoStep(T / n) for n in (4, 5, 8, 12)},
    **{f"exponential-cf4, {n} steps": ExponentialCF4(T / n) for n in (1, 2, 4, 8)},
    "exponential21, 1e-2": ExponentialMidpointEuler(1e-2, 1e-3),
    "exponential42, 1e-2": ExponentialCF42(1e-2, 1e-3),
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=SETTINGS.epochs)
    parser.add_argument("--repeats", type=int, default=4)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    config = published("nonlinear", "cora-embedded", SETTINGS)
    problem = load_problem(config)
    cases = [(name, None, solver) for name, solver in SCHEMES.items()]
    found = {}
    for name, epochs in (("untrained", 0), (f"after {options.epochs} epochs", options.epochs)):
        model = trained_model(problem, config, epochs, lambda share: None)
        found[name] = error_rows(model, problem, cases, options.repeats, lambda share: None)
        print(f"{name}\n  {'scheme':<30} evaluations products   error  ms forward and backward")
        for row in found[name]:
            error = float("nan") if row["error"] is None else row["error"]
            print(
                f"  {row['scheme']:<30} {row['evaluations']:11d} {row['inner_iterations']:8d} {error:7.0e}"
                f" {1e3 * row['cost']:6.0f}"
            )
    if options.out is not None:
        options.out.write_text(json.dumps(found, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
