"""The largest graph for one epoch on one device: edges are doubled until memory runs out.

    PYTHONPATH=src python benchmarks/largest.py [--out largest.json]

A random graph with 16 edges a node in both directions, built on the device. GRAND with hidden 64, forward
and backward pass, gradient checkpoint; linear by its closed form, nonlinear by exponential-two-step.
Without a GPU it runs on the CPU, up to --most edges.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path

import torch
from harness import Bench

from graphdiffusion.graph import Graph
from graphdiffusion.nn import GRAND
from graphdiffusion.training.memory import free_memory, is_out_of_memory

DEGREE, FEATURES, CLASSES = 16, 32, 16
MODEL = {
    "hidden": 64, "heads": 2, "attention_dim": 16, "over": "rows", "normaliser": "softmax", "time": 3.676,
    "gradient": "checkpoint",
}  # fmt: skip
VARIANTS = {
    "linear": {},
    "nonlinear": {"variant": "nonlinear", "solver": "exponential-two-step", "step_size": 1.5},
}


def random_graph(edges: int, device: str) -> Graph:
    """About so many edges in all, self-loops included."""
    nodes = math.ceil(edges / (DEGREE + 1))
    ends = torch.randint(nodes, (2, nodes * DEGREE // 2), device=device)
    return Graph.from_edge_index(torch.cat([ends, ends.flip(0)], 1), nodes, self_loops=1.0)


def epoch(bench: Bench, edges: int, variant: str) -> dict[str, float]:
    """Seconds and bytes of one epoch: those of a step, and with graph and features."""
    graph = random_graph(edges, bench.device)
    features = bench.draw(graph.num_nodes, FEATURES)
    y = torch.randint(CLASSES, (graph.num_nodes,), device=bench.device)
    model = GRAND(FEATURES, CLASSES, **MODEL, **VARIANTS[variant]).to(bench.device)

    def step() -> None:
        torch.nn.functional.cross_entropy(model(features, graph, check=False), y).backward()

    free_memory()
    seconds = bench.seconds(step, captured=False, repeat=3, inner=1)
    memory = bench.memory(step)
    held = 0 if bench.smoke else torch.cuda.memory_allocated()
    return {
        "nodes": graph.num_nodes, "edges": graph.num_edges, "seconds": seconds, "bytes": memory + held,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--least", type=int, default=2**22)
    parser.add_argument("--most", type=int, default=2**34)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    bench = Bench(smoke=not torch.cuda.is_available())
    device = "CPU" if bench.smoke else torch.cuda.get_device_name()
    rows = []
    for variant in VARIANTS:
        edges = options.least
        while edges <= options.most:
            try:
                found = epoch(bench, edges, variant)
            except Exception as error:
                if not is_out_of_memory(error):
                    raise
                found = None
            if found is None:  # here, where no error holds the tensors any more
                free_memory()
                print(f"{variant}: {edges:,} edges do not fit", flush=True)
                break
            rows.append({"variant": variant, **found})
            print(
                f"{variant}: {found['nodes']:,} nodes, {found['edges']:,} edges: {found['seconds']:.3f} s "
                f"an epoch, {found['bytes'] / 1e9:.2f} GB",
                flush=True,
            )
            free_memory()
            edges *= 2
    if options.out:
        options.out.write_text(json.dumps({"device": device, "rows": rows}, indent=2))


if __name__ == "__main__":
    main()
