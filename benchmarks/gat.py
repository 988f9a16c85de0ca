"""An epoch with validation of GRAND-nl on Cora beside PyG's GAT, one CPU thread.

    python benchmarks/gat.py [--repeats 15] [--schemes rk4:8 exponential-midpoint:4 exponential-two-step:5]

GRAND-nl has the published settings (T = 18.3, hidden 80, 8 heads); a scheme is a name and a number of
steps. GAT is that of its paper: two GATConv layers of PyG, 8 heads of 8 channels, dropout 0.6, dense
features. All take turns. Printed are milliseconds of the processor, which other work on the machine
disturbs less than those of the clock, and ratios to GAT: of medians, and quartiles of single turns.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, dropout, elu
from torch_geometric.nn import GATConv

from graphdiffusion.training import Config, Population, load_problem, protocol

T = 18.295
SCHEMES = ("rk4:8", "exponential-midpoint:8", "exponential-midpoint:4", "exponential-two-step:8",
           "exponential-two-step:5", "exponential-two-step:4")  # fmt: skip


class GAT(nn.Module):
    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.first = GATConv(channels, 8, heads=8, dropout=0.6)
        self.second = GATConv(64, classes, heads=1, concat=False, dropout=0.6)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        x = elu(self.first(dropout(x, 0.6, self.training), edges))
        return self.second(dropout(x, 0.6, self.training), edges)


def grand(scheme: str) -> Population:
    name, steps = scheme.split(":")
    config = Config(
        data="cora-embedded", variant="nonlinear", time=T, hidden=80, heads=8, attention_dim=128,
        normaliser="squareplus", over="columns", terms="source", detach_source=True, optimiser="adamax",
        rate=0.0229, decay=0.00508, input_dropout=0.5, dropout=0.047, splits=1, solver=name,
        step_size=T / int(steps),
    )  # fmt: skip
    problem = load_problem(config)
    return Population(problem, config, protocol(config, problem.data)[:1])


def gat_epoch(population: Population) -> Callable[[], Any]:
    problem, train, val = population.problem, population.train[0], population.val[0]
    x, edges, y = problem.data.x.to_dense(), problem.data.edge_index, problem.y
    model = GAT(x.shape[1], problem.out_channels)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.005, weight_decay=5e-4)

    def epoch() -> float:
        model.train()
        optimiser.zero_grad()
        cross_entropy(model(x, edges)[train], y[train]).backward()
        optimiser.step()
        model.eval()
        with torch.no_grad():
            return float((model(x, edges).argmax(-1) == y)[val].float().mean())

    return epoch


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--schemes", nargs="+", default=SCHEMES)
    given = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    populations = {scheme: grand(scheme) for scheme in given.schemes}
    sides: dict[str, Callable[[], Any]] = {name: p.step for name, p in populations.items()}
    sides["GAT"] = gat_epoch(next(iter(populations.values())))
    taken: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(given.repeats + 2):
        for name, epoch in sides.items():
            start = time.process_time()
            epoch()
            if turn > 1:  # the first epochs warm up
                taken[name].append(1e3 * (time.process_time() - start))
    for name, own in taken.items():
        ratios = sorted(a / b for a, b in zip(own, taken["GAT"], strict=True))
        low, high = ratios[len(ratios) // 4], ratios[-1 - len(ratios) // 4]
        print(
            f"{name:<24} {median(own):6.0f} ms = {median(own) / median(taken['GAT']):.2f} GAT "
            f"(quartiles {low:.2f} to {high:.2f})"
        )


if __name__ == "__main__":
    main()
