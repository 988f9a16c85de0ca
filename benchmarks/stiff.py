"""Dormand-Prince and ESDIRK on a GRAND-nl that has turned stiff, at equal error (CPU).

    python benchmarks/stiff.py [--epochs 20] [--time 18.3] [--alpha 0.5] [--weights 1 2] [--out stiff.json]
    python benchmarks/stiff.py --time 2 --alpha 100

The model is trained on Cora with RK4. Then α is set to a larger value, or the weights of queries and keys
are multiplied by a factor, as a long training does. Printed are the eigenvalues of the Jacobian at the end,
of largest absolute value and of largest real part (Arnoldi's method on Jacobian-vector products), and for
each scheme and tolerance the error against Dormand-Prince at 1e-7, all in float64. Jacobian-vector products
count as evaluations; in forward mode one takes the time of about five.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.sparse.linalg import LinearOperator, eigs
from torch import Tensor
from torch.nn.functional import cross_entropy

from graphdiffusion.data import open_data
from graphdiffusion.equation import Coefficient
from graphdiffusion.errors import SolverError
from graphdiffusion.nn import GRAND
from graphdiffusion.solvers import ESDIRK4, DormandPrince, integrate
from graphdiffusion.solvers.newton_krylov import jacobian_product


def trained(data: Any, hidden: int, time_span: float, epochs: int) -> GRAND:
    torch.manual_seed(0)
    model = GRAND(
        data.num_features, int(data.y.max()) + 1, hidden=hidden, time=time_span, variant="nonlinear",
        solver="rk4", step_size=1.0, heads=2, attention_dim=16,
    )  # fmt: skip
    labelled = torch.randperm(data.num_nodes)[: data.num_nodes // 10]
    optimiser = torch.optim.Adamax(model.parameters(), lr=0.05)
    for _ in range(epochs):
        optimiser.zero_grad()
        logits = model(data.x, data.edge_index)
        cross_entropy(logits[labelled], data.y[labelled]).backward()
        optimiser.step()
    return model.double().eval().requires_grad_(False)


def eigenvalues(flow: Any, x: Tensor, which: str, count: int = 4) -> np.ndarray:
    """Of the Jacobian at x: LM of largest absolute value, LR of largest real part."""
    zero = torch.zeros(1, 1, dtype=x.dtype)

    def apply(v: np.ndarray) -> np.ndarray:
        return jacobian_product(flow, zero, x, torch.from_numpy(v).reshape(x.shape)).flatten().numpy()

    size = x.numel()
    operator = LinearOperator((size, size), matvec=apply, dtype=np.float64)
    return eigs(operator, count, which=which, tol=1e-2, v0=np.ones(size), return_eigenvectors=False)


def measured(name: str, solver: Any, flow: Any, x: Tensor, span: float, exact: Tensor) -> dict[str, Any]:
    start = time.perf_counter()
    try:
        solution = integrate(flow, x, span, solver)
    except SolverError as error:
        return {"scheme": name, "failed": type(error).__name__}
    stats = solution.stats
    return {
        "scheme": name,
        "rtol": float(solver.rtol),
        "error": float((solution.state - exact).square().mean().sqrt()),
        "evaluations": stats.evaluations,
        "products": stats.products,
        "gmres": stats.inner_iterations,
        "newton": stats.newton_iterations,
        "accepted": stats.accepted,
        "rejected": stats.rejected,
        "seconds": time.perf_counter() - start,
    }


@torch.no_grad()
def compare(model: GRAND, data: Any, case: str) -> list[dict[str, Any]]:
    layer = model.diffusion
    x = model.encoder(data.x.double())
    graph = layer.graph(data.edge_index, data.num_nodes)
    flow, span = layer.bind(x, graph), float(layer.time)
    exact = integrate(flow, x, span, DormandPrince(1e-7, 1e-8, max_evaluations=10**6)).state
    spectrum = {which: eigenvalues(flow, exact, which) for which in ("LM", "LR")}
    print(f"\n{case}, T = {span:g}, |x(T)| up to {float(exact.abs().max()):.3g}")
    for which, values in spectrum.items():
        print(f"eigenvalues at T, {which}: " + ", ".join(f"{v:.3g}" for v in values))
    rows = []
    for rtol in (1e-3, 1e-4, 1e-5):
        for name, scheme in (("dopri5", DormandPrince), ("esdirk", ESDIRK4)):
            row = measured(name, scheme(rtol, rtol / 10, max_evaluations=10**5), flow, x, span, exact)
            rows.append({"case": case, **row})
            print("  ".join(f"{k} {v:.3g}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items()))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--hidden", type=int, default=16)
    parser.add_argument("--time", type=float, default=18.3)
    parser.add_argument("--alpha", type=float, help="instead of the learnt one")
    parser.add_argument("--weights", type=float, nargs="+", default=[1.0])
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    data = open_data("cora-embedded")
    model = trained(data, given.hidden, given.time, given.epochs)
    equation, before, rows = model.diffusion.equation, 1.0, []
    if given.alpha is not None:
        equation.alpha = Coefficient(given.alpha, learn=False).double()
    for factor in given.weights:
        for parameter in equation.diffusivity.parameters():
            parameter.mul_(factor / before)
        before = factor
        rows += compare(model, data, f"α = {float(equation.alpha()):.3g}, weights times {factor:g}")
    if given.out is not None:
        given.out.write_text(json.dumps(rows, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
