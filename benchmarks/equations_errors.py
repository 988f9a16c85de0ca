"""Error of x(T) by scheme and step, for equations without a closed form, after some epochs on Cora (CPU).

PYTHONPATH=src python benchmarks/equations_errors.py --out docs/results/equations_errors.json
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from equations import settings

from graphdiffusion.experiments.scheme_errors import error_rows, trained_model
from graphdiffusion.solvers import RK4, DormandPrince, ExponentialTwoStep, Solver, Strang
from graphdiffusion.training import load_problem

SCHEMES: dict[str, Solver] = {
    **{f"rk4, τ = {h}": RK4(h) for h in (0.5, 1.0, 1.35)},
    **{f"exponential-two-step, τ = {h}": ExponentialTwoStep(h) for h in (0.5, 1.0)},
    **{f"strang, τ = {h}": Strang(h) for h in (0.5, 1.0)},
    "dopri5": DormandPrince(),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="+", default=["convection", "allen-cahn", "acmp"])
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    found = {}
    for name in options.only:
        config = settings(name).replace(splits=1)
        problem = load_problem(config)
        model = trained_model(problem, config, options.epochs, lambda share: None)
        offers = model.diffusion.equation.offers
        cases = [
            (scheme, None, solver)
            for scheme, solver in SCHEMES.items()
            if solver.needs is None or offers(solver.needs)
        ]
        rows = error_rows(model, problem, cases, 1, lambda share: None)
        found[name] = [{key: row[key] for key in ("scheme", "error", "evaluations")} for row in rows]
        for row in found[name]:
            error = "infinite" if row["error"] is None else f"{row['error']:.1e}"
            print(
                f"{name:12} {row['scheme']:30} {row['evaluations']:4} evaluations, error {error}",
                flush=True,
            )
    if options.out:
        options.out.write_text(json.dumps({"epochs": options.epochs, "rows": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
