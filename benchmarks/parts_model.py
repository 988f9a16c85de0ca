"""Time and memory of an epoch on parts: a model, fitted to what ``parts.py`` measures, and predictions.

t(epoch) = X (k − 1) latency + bytes / bandwidth + W (edges · c_edge + nodes · c_node) + X · edges · c_pass

X is the number of exchanges of an epoch, W the sum of their widths: each exchange belongs to one pass over
the edges with as many channels (a product, or scores of an attention). Edges and nodes are those of the
largest part. The constants are CPU seconds: of a product, and of the epochs of two models on one process.

Assumptions: exchanges are not overlapped with work; every worker has a link of its own; c_edge does not
depend on the size of the graph, though larger ones leave the caches; X and W are those of ogbn-arxiv with
the same options; the halo share and the balance are those of ogbn-arxiv's cuts by LDG for as many parts.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import nnls

LINEAR = "linear, closed form"
PAPERS = {"nodes": 111_059_956, "edges": 2 * 1_615_685_872 + 111_059_956}  # both directions and self-loops
FEATURES, HIDDEN, HEADS, CLASSES = 128, 64, 2, 172
NETWORK, LATENCY = 12.5e9, 10e-6  # 100 Gbit/s; a message to another worker
CORES, EFFICIENCY = 16, 0.5  # of a CPU worker; measured is one core
GATHERED, COPIED = 3.35e12, 4.24e12  # bytes a second on an H200: docs/performance.md, 1e8 edges; a copy
STATES = 8  # (n, d) fields of the closed form with checkpoint: x, x₀, terms, sums, and their gradients
FIELDS = 6  # edge fields of a head or of their mean: scores, shares, A, and their gradients


def widths(row: dict[str, Any]) -> tuple[int, int]:
    """Exchanges of an epoch, and the sum of their widths."""
    phases = row["processes"][0]["epoch"]["exchanges"].values()
    counts = [(int(width), count) for phase in phases for width, count in phase.items()]
    return sum(c for _, c in counts), sum(w * c for w, c in counts)


def largest(row: dict[str, Any], key: str) -> int:
    return max(process[key] for process in row["processes"])


def find(rows: list[dict[str, Any]], graph: str, model: str, parts: int) -> dict[str, Any]:
    return next(r for r in rows if (r["graph"], r["model"], r["parts"]) == (graph, model, parts))


def fit(rows: list[dict[str, Any]], link: list[tuple[int, float]]) -> dict[str, Any]:
    """The constants: link from exchanges, c_edge from a product, the others from epochs on one process."""
    graph = rows[-1]["graph"]
    size, seconds = np.array(link).T
    slope, start = np.polyfit(size, seconds, 1, w=1 / seconds)
    own = find(rows, graph, LINEAR, 1)["processes"][0]
    edge = own["product_seconds"]["local_cpu"] / (own["edges"] * HIDDEN)
    matrix, rest = [], []
    for row in rows:
        if (row["graph"], row["parts"]) == (graph, 1):
            count, work = widths(find(rows, graph, row["model"], 2))
            own = row["processes"][0]
            matrix.append([work * own["nodes"], count * own["edges"]])
            rest.append(own["epoch"]["cpu"] - work * own["edges"] * edge)
    scale = np.max(matrix, 0)
    node, one = nnls(np.array(matrix) / scale, np.array(rest))[0] / scale
    found: dict[str, Any] = {
        "graph": graph,
        "latency": max(float(start), 0.0),
        "bandwidth": 1 / float(slope),
    }
    found |= {"c_edge": edge, "c_node": float(node), "c_pass": float(one), "checks": []}
    for row in rows:
        if "cpu" in row["processes"][0]["epoch"]:
            count, work = widths(find(rows, row["graph"], row["model"], 2))
            sent = max(p["epoch"]["bytes"] for p in row["processes"])
            measured = ("seconds", "cpu", "awaited")
            check = {key: row[key] for key in ("graph", "model", "parts")}
            check |= {key: max(p["epoch"][key] for p in row["processes"]) for key in measured}
            check["fitted"] = local(found, count, work, largest(row, "edges"), largest(row, "nodes"))
            check["exchanges"] = count * (row["parts"] - 1) * found["latency"] + sent / found["bandwidth"]
            found["checks"].append(check)
    return found


def local(model: dict[str, Any], count: int, work: int, edges: float, nodes: float) -> float:
    """CPU seconds of an epoch on a part."""
    return work * (edges * model["c_edge"] + nodes * model["c_node"]) + count * edges * model["c_pass"]


def predict(
    model: dict[str, Any], rows: list[dict[str, Any]], cuts: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """papers100M on 8, 16 and 64 workers: memory of the largest worker, seconds of an epoch."""
    two = find(rows, model["graph"], LINEAR, 2)
    count, work = widths(two)
    index = max(p["index_bytes"] / p["edges"] for p in two["processes"])  # bytes an edge, all included
    found = []
    for parts in (8, 16, 64):
        cut = next(c for c in cuts if (c["parts"], c["method"]) == (parts, "ldg"))
        nodes = PAPERS["nodes"] / parts * cut["nodes_balance"]
        edges = PAPERS["edges"] / parts * cut["edges_balance"]
        halo = PAPERS["nodes"] * cut["halo"] / parts
        memory = {
            "edges": index * edges,
            "features": 4.0 * FEATURES * nodes,
            "states": 4.0 * HIDDEN * (STATES * nodes + 2 * halo),
            "edge fields": 4.0 * FIELDS * (HEADS + 1) * edges,
            "logits": 3 * 4.0 * CLASSES * nodes,
        }
        sent = 4.0 * work * halo
        network = count * (parts - 1) * LATENCY + sent / NETWORK
        core = local(model, count, work, edges, nodes)
        gpu = work * (4 * edges / GATHERED + 3 * 4 * nodes / COPIED)  # a state is read twice and written
        found.append(
            {
                "parts": parts,
                "nodes": nodes,
                "edges": edges,
                "halo": halo,
                "memory": memory,
                "memory_total": sum(memory.values()),
                "network_seconds": network,
                "cpu_seconds": core / (CORES * EFFICIENCY) + network,
                "gpu_seconds": gpu + network,
            }
        )
    return found


def show_model(model: dict[str, Any], predictions: list[dict[str, Any]]) -> None:
    print(f"latency {model['latency'] * 1e6:.0f} µs, bandwidth {model['bandwidth'] / 1e9:.2f} GB/s (gloo)")
    print(
        f"c_edge {model['c_edge'] * 1e9:.3f} ns, c_node {model['c_node'] * 1e9:.3f} ns a channel; "
        f"c_pass {model['c_pass'] * 1e9:.2f} ns"
    )
    for check in model["checks"]:
        name = f"{check['graph']:6s} {check['model']:20s} k={check['parts']}"
        print(
            f"{name}  epoch {check['seconds']:.3f} s, CPU time {check['cpu']:.3f} s, by the model "
            f"{check['fitted']:.3f} s and {check['exchanges']:.3f} s of exchanges"
        )
    print("PREDICTION, not measured: papers100M, both directions, GRAND-l, hidden 64")
    for own in predictions:
        memory = ", ".join(f"{key} {value / 1e9:.0f}" for key, value in own["memory"].items())
        print(
            f"{own['parts']:3d} workers: {own['memory_total'] / 1e9:.0f} GB ({memory}); an epoch: network "
            f"{own['network_seconds']:.1f} s, {CORES} cores {own['cpu_seconds']:.0f} s, H200 "
            f"{own['gpu_seconds']:.1f} s"
        )
