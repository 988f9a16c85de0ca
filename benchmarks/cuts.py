"""Cuts of ogbn-arxiv's topology: edges between parts, halos, balance, and what a product exchanges.

    PYTHONPATH=src python benchmarks/cuts.py --topology topology.npz [--out JSON] [--table PAGE]

The graph is undirected, with self-loops. A product A x of d channels in float32 exchanges ``4 d Σ halo``
bytes. Its predicted time is that of the busiest part on a network of 100 Gbit/s: the larger of the bytes it
sends and those it receives, over 12.5 GB/s, plus 10 µs for each part it exchanges with. A share of the
bandwidth that other traffic takes, and the overlap with the work on inner rows, are left out.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphdiffusion.graph import Graph
from graphdiffusion.partition import METHODS, cut

CHANNELS, BANDWIDTH, LATENCY = 128, 12.5e9, 10e-6
BYTES = 4  # float32


def load(path: Path) -> Graph:
    content = np.load(path)
    ends = torch.from_numpy(content["edge_index"].astype(np.int64))
    return Graph.from_edge_index(torch.cat([ends, ends.flip(0)], 1), len(content["y"]), self_loops=1.0)


def measure(graph: Graph, parts: int, method: str, seed: int) -> dict[str, Any]:
    start = time.process_time()  # of one core, whatever else runs
    assignment = cut(graph, parts, method, seed)
    seconds = time.process_time() - start
    row, col, n = graph.row.long(), graph.col.long(), graph.num_nodes
    reader, owner = assignment[row], assignment[col]
    outside = reader != owner
    pairs = torch.unique(reader[outside] * n + col[outside])  # each row that a part reads, once
    halos = torch.zeros(parts, parts, dtype=torch.long)  # rows that part i reads of part j
    ends = (pairs // n, assignment[pairs % n])
    halos.index_put_(ends, torch.ones_like(pairs), accumulate=True)
    total = int(halos.sum())
    busiest = torch.maximum(halos.sum(0), halos.sum(1)) * BYTES * CHANNELS / BANDWIDTH
    latency = torch.maximum((halos > 0).sum(0), (halos > 0).sum(1)) * LATENCY
    return {
        "parts": parts,
        "method": method,
        "cut": float(outside.double().mean()),
        "halo": total / n,
        "edges_balance": balance(reader, parts),
        "nodes_balance": balance(assignment, parts),
        "bytes_per_channel": BYTES * total,
        "product_seconds": float((busiest + latency).max()),
        "cut_seconds": seconds,
    }


def balance(numbers: Tensor, parts: int) -> float:
    """Largest part over the mean."""
    counts = torch.bincount(numbers, minlength=parts).double()
    return float(counts.max() / counts.mean())


def table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| parts | method | edges cut | halo rows / nodes | edges, largest / mean | nodes, largest / mean "
        f"| MB a product, a channel | ms a product, d = {CHANNELS} | seconds to cut |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {r['parts']} | {r['method']} | {100 * r['cut']:.1f} % | {r['halo']:.2f} "
        f"| {r['edges_balance']:.2f} | {r['nodes_balance']:.2f} | {r['bytes_per_channel'] / 1e6:.2f} "
        f"| {1e3 * r['product_seconds']:.2f} | {r['cut_seconds']:.1f} |"
        for r in rows
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--topology", type=Path, required=True, help="npz: edge_index (2, E), y (n,)")
    parser.add_argument("--parts", type=int, nargs="+", default=[2, 4, 8, 16, 32, 64])
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--table", type=Path, help="a page with <!-- cuts --> and <!-- end -->")
    options = parser.parse_args()
    graph = load(options.topology)
    cut(graph, 2, options.methods[0])  # imports
    rows = [
        measure(graph, parts, method, options.seed) for parts in options.parts for method in options.methods
    ]
    print(table(rows))
    if options.table is not None:
        page = options.table.read_text(encoding="utf-8")
        made = f"<!-- cuts -->\n\n{table(rows)}\n\n<!-- end -->"
        page = re.sub("<!-- cuts -->.*?<!-- end -->", lambda _: made, page, flags=re.DOTALL)
        options.table.write_text(page, encoding="utf-8")
    if options.out is not None:
        about = {"nodes": graph.num_nodes, "edges": graph.num_edges, "seed": options.seed}
        about |= {"channels": CHANNELS, "bandwidth": BANDWIDTH, "latency": LATENCY}
        about |= {"torch": torch.__version__, "numpy": np.__version__, "python": platform.python_version()}
        options.out.write_text(json.dumps({**about, "cuts": rows}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
