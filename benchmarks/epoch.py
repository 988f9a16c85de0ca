"""One training epoch with validation on Cora, on this CPU: our engine and the usual composition.

    python benchmarks/epoch.py [--repeats 5] [--threads 1 2] [--out epoch.json]

Both sides train the same model with the published settings for Cora: T = 18.295, hidden 80, 8 heads,
attention dimension 128, squareplus over columns, source term, Adamax. The usual composition is dense
features, gather + index_add for every sparse product, torchdiffeq's dopri5 at the published tolerances
(atol = 822e-7, rtol = 822e-9) and plain autograd. Ours is the training engine as it is: the closed form for
the linear model; for the nonlinear one Dormand-Prince at the same tolerances, and RK4 with 11 steps, whose
error is about the same (it is measured, in float64, against tight tolerances). An epoch is a training step
and a validation pass. The two sides take turns, and a ratio is one of medians.

Before anything is timed, the logits of both sides are compared on the same weights.
"""

from __future__ import annotations

import argparse
import copy
import json
import platform
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, dropout, relu
from torchdiffeq import odeint

from graphdiffusion.solvers import DormandPrince, Solver, integrate
from graphdiffusion.training import Config, Population, Problem, load_problem, protocol

STEPS = 11  # of RK4: about the error of dopri5 at the published tolerances
TARGETS = {"linear": 10.0, "nonlinear": 3.0}
CASES = (("linear", "exponential"), ("nonlinear", "dopri5"), ("nonlinear", "rk4"))
PUBLISHED = Config(
    data="cora-embedded", time=18.295, hidden=80, heads=8, attention_dim=128, normaliser="squareplus",
    over="columns", terms="source", detach_source=True, optimiser="adamax", rate=0.0229, decay=0.00508,
    input_dropout=0.5, dropout=0.047, rtol=822e-9, atol=822e-7,
)  # fmt: skip


class Usual(nn.Module):
    """The model composed from what everybody has: Linear, gather, index_add, odeint."""

    def __init__(self, problem: Problem, config: Config) -> None:
        super().__init__()
        graph, hidden, wide = problem.graph, config.hidden, config.attention_dim
        self.config, self.n = config, graph.num_nodes
        self.row, self.col = graph.row.long(), graph.col.long()
        self.encoder, self.decoder = (
            nn.Linear(problem.in_channels, hidden),
            nn.Linear(hidden, problem.out_channels),
        )
        self.query, self.key = nn.Linear(hidden, wide), nn.Linear(hidden, wide)
        self.alpha, self.beta = nn.Parameter(torch.zeros(())), nn.Parameter(torch.zeros(()))
        self.evaluations = 0

    def attention(self, x: Tensor) -> Tensor:
        """Scaled dot product, squareplus over the edges that leave a node, mean of the heads: ``(E,)``."""
        heads = self.config.heads
        q, k = self.query(x).view(self.n, heads, -1), self.key(x).view(self.n, heads, -1)
        s = (q[self.row] * k[self.col]).sum(-1) / q.shape[-1] ** 0.5
        s = (s + (s.square() + 4).sqrt()) / 2
        total = torch.zeros(self.n, heads).index_add(0, self.col, s)
        return (s / total[self.col]).mean(1)

    def product(self, values: Tensor, x: Tensor) -> Tensor:
        return torch.zeros_like(x).index_add(0, self.row, values[:, None] * x[self.col])

    def forward(self, x: Tensor) -> Tensor:
        config = self.config
        start = self.encoder(dropout(x, config.input_dropout, self.training))
        source = start.detach()
        fixed = self.attention(start) if config.variant == "linear" else None
        self.evaluations = 0

        def field(t: Tensor, x: Tensor) -> Tensor:
            self.evaluations += 1
            values = self.attention(x) if fixed is None else fixed
            return torch.sigmoid(self.alpha) * (self.product(values, x) - x) + self.beta * source

        times = torch.tensor([0.0, config.time])
        end = odeint(field, start, times, rtol=PUBLISHED.rtol, atol=PUBLISHED.atol, method="dopri5")[-1]
        return self.decoder(dropout(relu(end), config.dropout, self.training))

    def take(self, state: dict[str, Tensor]) -> None:
        """The weights of a member of our population."""
        attention = "diffusion.equation.diffusivity"
        for name, source in (
            ("encoder", "encoder"),
            ("decoder", "decoder"),
            ("query", f"{attention}.query"),
            ("key", f"{attention}.key"),
        ):
            layer = self.get_submodule(name)
            layer.load_state_dict(
                {k: state[f"{source}.{k}"][0].detach().clone() for k in ("weight", "bias")}
            )


def usual_epoch(
    model: Usual, x: Tensor, y: Tensor, train: Tensor, val: Tensor
) -> Callable[[], tuple[int, float]]:
    config = model.config
    optimiser = torch.optim.Adamax(model.parameters(), lr=config.rate, weight_decay=config.decay)

    def epoch() -> tuple[int, float]:
        model.train()
        optimiser.zero_grad()
        cross_entropy(model(x)[train], y[train]).backward()
        optimiser.step()
        evaluations = model.evaluations
        model.eval()
        with torch.no_grad():
            accuracy = (model(x).argmax(-1) == y)[val].float().mean()
        return evaluations, float(accuracy)

    return epoch


def our_epoch(population: Population) -> Callable[[], tuple[int, float]]:
    def epoch() -> tuple[int, float]:
        population.step()
        return population.evaluations, float(population.score)

    return epoch


def error(population: Population, solver: Solver) -> float:
    """Relative error of x(T) with the trained weights, in float64."""
    model, problem = copy.deepcopy(population.stack.model), population.problem
    model.load_state_dict(population.saved(population.stack.tensors, 0))
    model = model.double().eval()
    with torch.no_grad():
        x0 = model.encoder(problem.data.x.to_dense().double())
        flow, span = model.diffusion.bind(x0, problem.graph), float(model.diffusion.time)
        exact = integrate(flow, x0, span, DormandPrince(1e-9, 1e-11)).state
        return float((integrate(flow, x0, span, solver, check=False).state - exact).norm() / exact.norm())


def compare(variant: str, solver: str, repeats: int) -> dict[str, Any]:
    below = PUBLISHED.to_dict() | {"step_size": PUBLISHED.time / STEPS}  # where the scheme has one
    config = Config.from_dict({"variant": variant, "solver": solver}, below)
    problem = load_problem(config)
    population = Population(problem, config, protocol(config, problem.data)[:1])
    dense = problem.data.x.to_dense()
    model = Usual(problem, config)
    state = population.stack.tensors
    model.take(state)
    population.stack.face.eval()
    model.eval()
    with torch.no_grad():
        own, other = population.run(population.seeds, state).logits[0], model(dense)
    difference = float((own - other).norm() / other.norm())
    assert difference < 1e-3, f"the two sides do not compute the same: {difference}"

    ours = our_epoch(population)
    theirs = usual_epoch(model, dense, problem.y, population.train[0], population.val[0])
    taken: dict[str, list[float]] = {"ours": [], "usual": []}
    work = {}
    for k in range(repeats + 1):
        for name, epoch in (("ours", ours), ("usual", theirs)):
            start = time.perf_counter()
            work[name], _ = epoch()
            if k > 0:  # the first epoch warms up
                taken[name].append(time.perf_counter() - start)
    middle = {name: median(values) for name, values in taken.items()}
    return {
        "variant": variant,
        "solver": solver,
        "error": {
            "usual": error(population, DormandPrince(PUBLISHED.rtol, PUBLISHED.atol)),
            "ours": error(population, population.stack.model.diffusion.solver),
        },
        "threads": torch.get_num_threads(),
        "usual_seconds": middle["usual"],
        "ours_seconds": middle["ours"],
        "ratio": middle["usual"] / middle["ours"],
        "target": TARGETS[variant],
        "evaluations_forward": work,
        "difference_of_logits": difference,
        "all_seconds": taken,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=5, help="epochs timed on each side")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--variants", nargs="+", choices=tuple(TARGETS), default=tuple(TARGETS))
    parser.add_argument("--out", type=Path, help="write the numbers as JSON")
    options = parser.parse_args()
    warnings.filterwarnings("ignore", message="Sparse CSR tensor support")
    rows = []
    print("one epoch with validation on Cora, seconds: usual composition / ours = ratio (target)")
    for threads in options.threads:
        torch.set_num_threads(threads)
        for variant, solver in CASES:
            if variant not in options.variants:
                continue
            torch.manual_seed(0)
            row = compare(variant, solver, options.repeats)
            rows.append(row)
            usual, ours = row["usual_seconds"], row["ours_seconds"]
            work = row["evaluations_forward"]
            errors = row["error"]
            print(
                f"   {variant:9} {solver:11} {threads} threads {usual:7.3f} / {ours:6.3f} = "
                f"{row['ratio']:4.1f}  (≥ {row['target']:g}; evaluations {work['usual']} / {work['ours']}; "
                f"error {errors['usual']:.0e} / {errors['ours']:.0e})",
                flush=True,
            )
    if options.out is not None:
        result = {
            "machine": platform.processor() or platform.machine(),
            "torch": torch.__version__,
            "rows": rows,
        }
        options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
