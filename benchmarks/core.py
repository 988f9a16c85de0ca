"""The numerical core on this CPU, side by side with the usual ways. Prints ratios and writes JSON.

    python benchmarks/core.py --data ROOT [--out core.json] [--threads 1]

1. Forward + backward of ``propagate`` against gather + index_add.
2. Sparse products of the exponential solver against evaluations of Dormand-Prince (ours, and torchdiffeq's
   dopri5) at equal error: for each error level, the fewest of each that reach it, in float64.
3. Time that an integrator spends outside the right-hand side: ours against torchdiffeq's dopri5.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor
from torchdiffeq import odeint

from graphdiffusion.data import load_data
from graphdiffusion.diffusivity import ScaledDotProduct
from graphdiffusion.equation import Diffusion, Flow
from graphdiffusion.graph import Graph
from graphdiffusion.ops import propagate
from graphdiffusion.solvers import DormandPrince, Exponential, integrate

# data set, width of the state, T of the published settings
SETTINGS = (
    ("cora", 80, 18.295),
    ("pubmed", 128, 12.942),
    ("computers", 128, 3.249),
    ("ogbn-arxiv-topology", 128, 3.676),
)
PAPER = {"normaliser": "softmax", "over": "rows"}
LEVELS = (1e-3, 1e-4, 1e-5, 1e-6, 1e-8)


def load(name: str, root: str | None) -> Graph:
    return Graph.from_data(load_data(name, root=root), self_loops=1.0)


def seconds(function: Callable[[], Any], repeats: int) -> float:
    function()
    taken = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        taken.append(time.perf_counter() - start)
    return median(taken)


def products(graph: Graph, width: int, repeats: int) -> dict[str, float]:
    """Forward + backward, with gradients for the edge values and for the state."""
    n, row, col = graph.num_nodes, graph.row.long(), graph.col.long()
    values = torch.rand(graph.num_edges).requires_grad_()
    x = torch.randn(n, width).requires_grad_()
    grad = torch.randn(n, width)

    def gathered() -> tuple[Tensor, ...]:
        out = torch.zeros(n, width).index_add(0, row, values[:, None] * x[col])
        return torch.autograd.grad(out, (values, x), grad)

    def ours() -> tuple[Tensor, ...]:
        return torch.autograd.grad(propagate(graph, values, x), (values, x), grad)

    for a, b in zip(gathered(), ours(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-3)
    slow, fast = seconds(gathered, repeats), seconds(ours, repeats)
    return {"gather_ms": 1e3 * slow, "propagate_ms": 1e3 * fast, "ratio": slow / fast}


def fewest(cost_and_error: Callable[[float], tuple[int, float]], level: float) -> tuple[int, float]:
    """Fewest evaluations whose error is at most ``level``, over a grid of tolerances."""
    best: tuple[int, float] | None = None
    for k in range(1, 56):
        tolerance = 10 ** (-k / 4)
        if tolerance > 30 * level:
            continue
        cost, error = cost_and_error(tolerance)
        if error <= level and (best is None or cost < best[0]):
            best = (cost, error)
        if best is not None and error < level / 4:
            return best
    raise RuntimeError(f"no tolerance reaches {level}")


def evaluations(graph: Graph, name: str, end: float, alpha: float, width: int = 2) -> list[dict[str, Any]]:
    """The cost in evaluations does not depend on the width, so a narrow state will do."""
    x = torch.randn(graph.num_nodes, width, dtype=torch.float64)
    attention = ScaledDotProduct(width, heads=2, attention_dim=4, start=0.1, **PAPER).double()
    equation = Diffusion(attention, linear=True, alpha=alpha).double().requires_grad_(False)
    flow = equation.bind(graph, x)
    exact = integrate(flow, x, end, Exponential(tolerance=1e-16)).state
    stepped = integrate(flow, x, end, DormandPrince(1e-9, 1e-10)).state
    assert float((stepped - exact).norm() / exact.norm()) < 1e-7  # two methods, one reference

    def error(state: Tensor) -> float:
        return float((state - exact).norm() / exact.norm())

    @cache
    def exponential(tolerance: float) -> tuple[int, float]:
        solution = integrate(flow, x, end, Exponential(tolerance=min(tolerance, 0.5)))
        return solution.stats.evaluations, error(solution.state)

    @cache
    def ours(tolerance: float) -> tuple[int, float]:
        solution = integrate(flow, x, end, DormandPrince(tolerance, tolerance))
        return solution.stats.evaluations, error(solution.state)

    @cache
    def theirs(tolerance: float) -> tuple[int, float]:
        calls = 0

        def f(t: Tensor, y: Tensor) -> Tensor:
            nonlocal calls
            calls += 1
            return flow(t, y)

        times = torch.tensor([0.0, end], dtype=torch.float64)
        state = odeint(f, x, times, rtol=tolerance, atol=tolerance, method="dopri5")[-1]
        return calls, error(state)

    rows = []
    for level in LEVELS:
        closed, own, other = (fewest(f, level) for f in (exponential, ours, theirs))
        rows.append(
            {
                "graph": name,
                "T": end,
                "alpha": alpha,
                "error": level,
                "exponential": closed[0],
                "dormand_prince": own[0],
                "dopri5": other[0],
                "errors": [closed[1], own[1], other[1]],
                "ratio_dormand_prince": own[0] / closed[0],
                "ratio_dopri5": other[0] / closed[0],
            }
        )
    return rows


def overhead(graph: Graph, width: int, learn: bool, end: float, repeats: int) -> dict[str, Any]:
    """Microseconds an evaluation outside the right-hand side, for one nonlinear equation."""
    x = torch.randn(graph.num_nodes, width)
    attention = ScaledDotProduct(width, heads=2, attention_dim=16, start=0.1, **PAPER)
    flow: Flow = Diffusion(attention).requires_grad_(learn).bind(graph, x)
    inside = calls = 0.0

    def f(t: Tensor, y: Tensor) -> Tensor:
        nonlocal inside, calls
        start = time.perf_counter()
        out = flow(t, y)
        inside, calls = inside + time.perf_counter() - start, calls + 1
        return out

    def ours() -> Tensor:
        return integrate(f, x, end, DormandPrince(1e-5, 1e-7)).state

    def theirs() -> Tensor:
        return odeint(f, x, torch.tensor([0.0, end]), rtol=1e-5, atol=1e-7, method="dopri5")[-1]

    def outside(run: Callable[[], Tensor]) -> tuple[float, float, float]:
        nonlocal inside, calls
        taken = []
        for _ in range(repeats):
            inside = calls = 0.0
            start = time.perf_counter()
            run()
            taken.append(1e6 * (time.perf_counter() - start - inside) / calls)
        return median(taken), calls, 1e6 * inside / calls

    with torch.set_grad_enabled(learn):
        state, same = ours().detach(), theirs().detach()
        assert float((state - same).norm()) < 1e-3 * float(same.norm())
        own, own_calls, rhs = outside(ours)
        other, other_calls, _ = outside(theirs)
    return {
        "learn": learn,
        "rhs_us": rhs,
        "ours_us": own,
        "torchdiffeq_us": other,
        "evaluations": [own_calls, other_calls],
        "ratio": other / own,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default=os.environ.get("GRAND_DATA"), help="folder with the raw files")
    parser.add_argument("--out", type=Path, help="write the numbers as JSON")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    warnings.filterwarnings("ignore", message="Sparse CSR tensor support")
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    graphs = {name: load(name, options.data) for name, *_ in SETTINGS}
    results: dict[str, Any] = {"threads": options.threads, "torch": torch.__version__}

    print("1. forward + backward of propagate against gather + index_add (target ≥ 3)")
    results["propagate"] = {}
    for name, width, _ in SETTINGS:
        if name == "computers":
            continue
        found = products(graphs[name], width, 5 if "arxiv" in name else 21)
        results["propagate"][name] = found
        print(
            f"   {name:20} d={width:<4} {found['gather_ms']:9.2f} ms / {found['propagate_ms']:8.2f} ms"
            f" = {found['ratio']:5.1f}"
        )

    print("2. evaluations of dopri5 (torchdiffeq | ours) against products of Exponential (target ≥ 4)")
    results["evaluations"] = []
    for name, _, end in SETTINGS:
        for alpha in (1.0, 0.5):
            for row in evaluations(graphs[name], name, end, alpha):
                results["evaluations"].append(row)
                print(
                    f"   {name:20} T={end:<7g} α={alpha:<4g} error {row['error']:.0e}: {row['dopri5']:4d} |"
                    f" {row['dormand_prince']:4d} / {row['exponential']:3d} ="
                    f" {row['ratio_dopri5']:5.1f} | {row['ratio_dormand_prince']:5.1f}"
                )

    print("3. time an evaluation outside the right-hand side, torchdiffeq dopri5 / ours")
    results["overhead"] = {}
    for name, width in (("cora", 80), ("pubmed", 128)):
        for learn in (False, True):
            found = overhead(graphs[name], width, learn, 3.0, 5)
            results["overhead"][f"{name}{' with gradient' if learn else ''}"] = found
            print(
                f"   {name:8} {'with' if learn else 'no':4} gradient: {found['torchdiffeq_us']:8.0f} µs /"
                f" {found['ours_us']:7.0f} µs = {found['ratio']:5.1f} (inside it: {found['rhs_us']:.0f} µs)"
            )
    if options.out is not None:
        options.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
