"""One epoch (forward and backward) on ogbn-arxiv's topology, 128 random features, beside gather/scatter.

PYTHONPATH=src python benchmarks/arxiv.py --topology topology.npz [--out arxiv.json]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from harness import Bench
from torch import Tensor

from graphdiffusion.graph import Graph
from graphdiffusion.nn import GRAND
from graphdiffusion.solvers import RK4

HIDDEN, CLASSES, TIME, HEADS, WIDTH, STEP = 128, 40, 3.676, 2, 32, 1.0


class GatherScatter(torch.nn.Module):
    """The same model composed the usual way: rows gathered by edge, messages scattered by index_add."""

    def __init__(self, model: GRAND, graph: Graph, linear: bool) -> None:
        super().__init__()
        self.model, self.linear = model, linear
        self.row, self.col = graph.row.long(), graph.col.long()

    def attention(self, x: Tensor) -> Tensor:
        q, k = self.model.diffusion.equation.diffusivity.features(x)
        scores = (q[:, self.row] * k[:, self.col]).sum(-1)
        peak = scores.new_full((len(scores), len(x)), -torch.inf)
        peak = peak.scatter_reduce(1, self.row.expand_as(scores), scores.detach(), "amax")
        e = (scores - peak[:, self.row]).exp()
        total = torch.zeros_like(peak).index_add(1, self.row, e)
        return (e / total[:, self.row]).mean(0)

    def product(self, a: Tensor, x: Tensor) -> Tensor:
        return torch.zeros_like(x).index_add(0, self.row, a[:, None] * x[self.col])

    def forward(self, features: Tensor) -> Tensor:
        x = x0 = self.model.encoder(features)
        equation = self.model.diffusion.equation
        fixed = self.attention(x) if self.linear else None

        def f(state: Tensor) -> Tensor:
            a = fixed if fixed is not None else self.attention(state)
            return equation.alpha() * (self.product(a, state) - state) + equation.terms[0].beta() * x0

        steps = int(np.ceil(TIME / STEP))
        h = TIME / steps
        for _ in range(steps):
            k1 = f(x)
            k2 = f(x + h / 2 * k1)
            k3 = f(x + h / 2 * k2)
            k4 = f(x + h * k3)
            x = x + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        return self.model.decoder(x.relu())


def measure(step: Callable[[], None], repeats: int) -> tuple[float, float]:
    """Median milliseconds, and the largest memory beyond what lay there before, in MB."""
    bench = Bench(smoke=False)
    seconds = bench.seconds(step, captured=False, repeat=repeats, inner=1)
    return seconds * 1e3, bench.memory(step) / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topology", type=Path, required=True)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with np.load(options.topology) as file:
        edges = torch.from_numpy(file["edge_index"]).long()
        y = torch.from_numpy(file["y"]).long().flatten().cuda()
    both = torch.cat([edges, edges.flip(0)], 1)
    graph = Graph.from_edge_index(both, len(y), self_loops=1.0).to("cuda")
    torch.manual_seed(0)
    features = torch.randn(len(y), 128, device="cuda")
    rows = []
    for variant in ("linear", "nonlinear"):
        linear = variant == "linear"
        model = GRAND(
            128, CLASSES, hidden=HIDDEN, time=TIME, variant=variant, heads=HEADS, attention_dim=WIDTH,
            normaliser="softmax", over="rows", input_dropout=0.0, dropout=0.0,
            solver="auto" if linear else RK4(STEP),
        ).cuda()  # fmt: skip
        usual = GatherScatter(model, graph, linear)

        def epoch(run: Callable[[], Tensor]) -> Callable[[], None]:
            def step() -> None:
                torch.nn.functional.cross_entropy(run(), y).backward()

            return step

        model.train()
        with torch.no_grad():
            model.eval()
            far = float((model(features, graph) - usual(features)).abs().max())
            model.train()
        ours = measure(epoch(lambda model=model: model(features, graph, check=False)), options.repeats)
        theirs = measure(epoch(lambda usual=usual: usual(features)), options.repeats)
        print(
            f"{variant:10s} ours {ours[0]:8.2f} ms {ours[1]:8.0f} MB   gather/scatter {theirs[0]:8.2f} ms "
            f"{theirs[1]:8.0f} MB   ×{theirs[0] / ours[0]:.1f} faster, ×{theirs[1] / ours[1]:.1f} less "
            f"memory, outputs differ by {far:.1e}",
            flush=True,
        )
        rows.append({"variant": variant, "ours": ours, "gather_scatter": theirs, "difference": far})
    if options.out:
        result = {"device": torch.cuda.get_device_name(), "rows": rows}
        options.out.write_text(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
