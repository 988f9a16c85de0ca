"""The estimate of memory before a training, and what a step then takes: their ratio.

    python benchmarks/memory.py [--nodes 50000] [--edges 500000] [--out memory.json]

A random graph with 64 dense features; GRAND with 64 channels, 4 heads, T = 6. Each solver and gradient mode
in a process of its own. Measured are the most bytes that torch holds at once in a training step, beyond
what it held before, by its profiler (CPU).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from torch_geometric.data import Data

from graphdiffusion.errors import ConfigError
from graphdiffusion.training import Config, Member, Population, load_problem
from graphdiffusion.training.memory import member_bytes
from graphdiffusion.training.plan import MODES

SOLVERS: dict[str, dict[str, Any]] = {
    "linear, closed form": {},
    "linear, rk4": {"solver": "rk4", "step_size": 1.0},
    "nonlinear, rk4": {"variant": "nonlinear", "solver": "rk4", "step_size": 1.0},
    "nonlinear, dopri5": {"variant": "nonlinear", "solver": "dopri5"},
    "nonlinear, exponential-two-step": {
        "variant": "nonlinear", "solver": "exponential-two-step", "step_size": 1.0
    },
}  # fmt: skip
SOLVERS |= {
    f"{name}, bfloat16": {**SOLVERS[name], "precision": "bfloat16"}
    for name in ("linear, closed form", "nonlinear, exponential-two-step")
}


def random_graph(nodes: int, edges: int) -> Data:
    generator = torch.Generator().manual_seed(0)
    half = torch.randint(nodes, (2, edges // 2), generator=generator)
    x = torch.randn(nodes, 64, generator=generator)
    return Data(x=x, edge_index=torch.cat([half, half.flip(0)], 1), y=torch.arange(nodes) % 5)


def configured(name: str, mode: str) -> Config:
    return Config(
        split="random", development=1000, per_class=20, device="cpu", hidden=64, time=6.0, heads=4,
        attention_dim=32, gradient=mode, **SOLVERS[name],
    )  # fmt: skip


def measured(name: str, mode: str, nodes: int, edges: int) -> dict[str, Any]:
    config = configured(name, mode)
    problem = load_problem(config, random_graph(nodes, edges))
    population = Population(problem, config, [Member(0, 0, 0)])
    problem.graph.transposed  # noqa: B018  (made once)
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, profile_memory=True) as profile:
        population._train(population.seeds)
    events = profile.profiler.kineto_results.events()  # type: ignore[union-attr]
    changes = sorted((e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]")
    most = now = 0
    for _, change in changes:
        now += change
        most = max(most, now)
    return {
        "solver": name, "gradient": mode, "estimate": member_bytes(problem, config), "measured": most,
        "nodes": nodes, "edges": problem.graph.num_edges,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--nodes", type=int, default=50_000)
    parser.add_argument("--edges", type=int, default=500_000)
    parser.add_argument("--solvers", nargs="+", default=list(SOLVERS), choices=list(SOLVERS))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--job", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.job:
        print(json.dumps(measured(*args.job, args.nodes, args.edges)))
        return
    rows = []
    if args.out is not None and args.out.exists():  # lines that are not measured again stay
        rows = [
            row for row in json.loads(args.out.read_text())["rows"] if row["solver"] not in args.solvers
        ]
    for name in args.solvers:
        for mode in MODES:
            try:
                configured(name, mode)
            except ConfigError:  # no adjoint
                continue
            command = [sys.executable, __file__, "--job", name, mode]
            command += ["--nodes", str(args.nodes), "--edges", str(args.edges)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                sys.exit(done.stderr)
            row = json.loads(done.stdout.splitlines()[-1])
            rows.append(row)
            print(
                f"{name:32} {mode:10} estimate {row['estimate'] / 1e9:6.2f} GB   measured "
                f"{row['measured'] / 1e9:6.2f} GB   ratio {row['estimate'] / row['measured']:.2f}",
                flush=True,
            )
    if args.out is not None:
        args.out.write_text(json.dumps({"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
