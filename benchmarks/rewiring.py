"""Time and memory of rewiring, beside PyG's GDC on the same machine.

    python benchmarks/rewiring.py --data FOLDER [--output rewiring.json] [--case NAME ...]

FOLDER holds ``PubMed/raw`` (Planetoid files) and ``ogbn-arxiv/topology.npz``. Every case
runs in a process of its own, so that its peak memory is its own; imports and data are included.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from torch_geometric.data import Data
from torch_geometric.transforms import GDC

from graphdiffusion.data import load_data
from graphdiffusion.rewiring import Rewire
from graphdiffusion.rewiring.transition import adjacency, transition

ALPHA, K = 0.15, 64
SAMPLE = 64  # sources whose exact PageRank the result is held against


def pubmed(root: Path) -> Data:
    data = load_data("pubmed", root, lcc=False)
    return Data(edge_index=data.edge_index, num_nodes=data.num_nodes)


def arxiv(root: Path) -> Data:
    data = load_data("ogbn-arxiv-topology", root)
    return Data(edge_index=data.edge_index, num_nodes=data.num_nodes)


def gdc_exact(data: Data) -> Data:
    rule = {"method": "topk", "k": K, "dim": 0}
    return GDC(diffusion_kwargs={"method": "ppr", "alpha": ALPHA}, sparsification_kwargs=rule)(data)


def gdc_approximate(data: Data) -> Data:
    """GDC's sparse path has no top-K; an average degree of K keeps as many edges."""
    rule = {"method": "threshold", "avg_degree": K}
    push = {"method": "ppr", "alpha": ALPHA, "eps": 1e-4}
    return GDC(diffusion_kwargs=push, sparsification_kwargs=rule, exact=False)(data)


CASES: dict[str, tuple[Callable[[Path], Data], Callable[[Data], Data]]] = {
    "pubmed ppr top-64": (pubmed, Rewire(alpha=ALPHA, top_k=K, cache=False)),
    "pubmed ppr avg-64": (pubmed, Rewire(alpha=ALPHA, avg_degree=K, cache=False)),
    "pubmed heat top-64": (pubmed, Rewire(method="heat", t=5.0, top_k=K, cache=False)),
    "pubmed PyG exact ppr top-64": (pubmed, gdc_exact),
    "pubmed PyG approximate ppr avg-64": (pubmed, gdc_approximate),
    "arxiv ppr top-64": (arxiv, Rewire(alpha=ALPHA, top_k=K, cache=False)),
    "arxiv PyG exact ppr top-64": (arxiv, gdc_exact),
    "arxiv PyG approximate ppr avg-64": (arxiv, gdc_approximate),
}


def recall(before: Data, after: Data) -> dict[str, float]:
    """How much of the exact top-64 of sampled nodes is among their edges: entries, and their mass."""
    n = before.num_nodes
    weights = adjacency(before.edge_index, n, None, 1.0)
    source = np.random.default_rng(0).choice(n, SAMPLE, replace=False)
    start = np.zeros((n, SAMPLE))
    start[source, np.arange(SAMPLE)] = ALPHA
    backward, exact = transition(weights, "sym").T.tocsr(), start
    for _ in range(150):  # 0.85^150 = 3e-11
        exact = start + (1 - ALPHA) * (backward @ exact)
    found, mass = [], []
    for column, node in enumerate(source):
        truth = np.argsort(-exact[:, column], kind="stable")[:K]
        truth = truth[exact[truth, column] > 1e-9]
        chosen = after.edge_index[0][after.edge_index[1] == node].numpy()
        found.append(np.isin(truth, chosen).mean())
        mass.append(exact[chosen, column].sum() / exact[truth, column].sum())
    return {"top_k_found": float(np.mean(found)), "top_k_mass": float(np.mean(mass))}


def run_case(name: str, root: Path) -> dict[str, object]:
    load, rewire = CASES[name]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))  # fail alone, not with the whole machine
    data = load(root)
    started, busy = time.perf_counter(), time.process_time()
    out = rewire(data)
    seconds, busy = time.perf_counter() - started, time.process_time() - busy
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    result = {"seconds": seconds, "cpu_seconds": busy, "peak_gib": peak, "nodes": data.num_nodes}
    result |= {"edges_before": data.num_edges, "edges_after": out.num_edges}
    if name.endswith("ppr top-64"):
        result |= recall(data, out)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=os.environ.get("GRAND_DATA"), help="or GRAND_DATA")
    parser.add_argument("--output", type=Path, default=Path("rewiring.json"))
    parser.add_argument("--case", nargs="*", choices=list(CASES), default=list(CASES), metavar="NAME")
    parser.add_argument("--limit", type=float, default=600.0, help="seconds for a case")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.data is None:
        parser.error("give --data, or set GRAND_DATA")
    if args.child:
        print(json.dumps(run_case(args.case[0], Path(args.data))))
        return
    results: dict[str, dict[str, object]] = {}
    for name in args.case:
        command = [sys.executable, __file__, "--child", "--data", str(args.data), "--case", name]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=args.limit)
            failed = {"failed": f"exit {done.returncode}: {(done.stderr.splitlines() or ['killed'])[-1]}"}
            results[name] = failed if done.returncode else json.loads(done.stdout.splitlines()[-1])
        except subprocess.TimeoutExpired:
            results[name] = {"failed": f"no result after {args.limit:.0f} s"}
        print(f"{name:36s}", _line(results[name]), flush=True)
    args.output.write_text(json.dumps({"cores": os.cpu_count(), "results": results}, indent=1) + "\n")


def _line(result: dict[str, object]) -> str:
    return "  ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in result.items())


if __name__ == "__main__":
    main()
