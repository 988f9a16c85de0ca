"""Tables of docs/distributed.md from what ``parts.py`` and ``parts_large.py`` have measured.

python benchmarks/parts_tables.py [--page docs/distributed.md]
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any

PHASES = ("forward", "backward", "validation")


def exchanged(found: dict[str, Any]) -> str:
    """Exchanges and bytes of an epoch and of a product, formula and counter."""
    lines = [
        "| graph | model | parts | exchanges: forward, backward, validation | MB an epoch: formula "
        "| measured | bytes a product: formula | measured | reductions, bytes |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in found["rows"]:
        if row["parts"] == 1:
            continue
        own = row["processes"]
        counts = ", ".join(str(sum(own[0]["epoch"]["exchanges"][phase].values())) for phase in PHASES)
        epoch = [sum(p["epoch"][key] for p in own) / 1e6 for key in ("formula", "bytes")]
        cells = [row["graph"], row["model"], str(row["parts"]), counts, *(f"{v:,.2f}" for v in epoch)]
        if "product_bytes" in own[0]:
            cells += [f"{sum(p['product_bytes']['forward'][k] for p in own):,}" for k in (0, 1)]
        else:
            cells += ["", ""]
        cells.append(f"{own[0]['epoch']['reductions']}, {own[0]['epoch']['reduced_bytes']:,}")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def seconds(found: dict[str, Any]) -> str:
    """An epoch on one and two processes: CPU time, the clock, and what the model gives."""
    lines = [
        "| graph | model | processes | CPU time of a process | by the model | awaiting exchanges "
        "| by the model | by the clock |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for own in found["model"]["checks"]:
        shown = [f"{own[key]:.2f} s" for key in ("cpu", "fitted", "awaited", "exchanges", "seconds")]
        lines.append(f"| {own['graph']} | {own['model']} | {own['parts']} | {' | '.join(shown)} |")
    model = found["model"]
    lines += [
        "",
        "Constants of the model below: latency "
        f"{model['latency'] * 1e6:.0f} µs, bandwidth {model['bandwidth'] / 1e9:.1f} GB/s, c_edge "
        f"{model['c_edge'] * 1e9:.2f} ns, c_node {model['c_node'] * 1e9:.2f} ns, c_pass "
        f"{model['c_pass'] * 1e9:.2f} ns.",
    ]
    return "\n".join(lines)


def products(found: dict[str, Any]) -> str:
    """Seconds of one product, of its local work and of its exchange."""
    lines = [
        "| graph | parts | product | local work alone | its CPU time | exchange alone |",
        "|---|---|---|---|---|---|",
    ]
    for row in found["rows"]:
        own = row["processes"]
        if "product_seconds" in own[0]:
            times = [
                max(p["product_seconds"].get(key, 0) for p in own) * 1e3
                for key in ("product", "local", "local_cpu", "exchange")
            ]
            shown = [f"{value:.2f} ms" if value else "" for value in times]
            lines.append(f"| {row['graph']} | {row['parts']} | {' | '.join(shown)} |")
    return "\n".join(lines)


def predicted(found: dict[str, Any]) -> str:
    """Memory of a worker and seconds of an epoch for papers100M."""
    lines = [
        "| workers | nodes, edges, halo of the largest | GB a worker | of it edges, features, states, "
        "edge fields, logits | seconds on the network | an epoch, 16 cores a worker "
        "| an epoch, one H200 a worker |",
        "|---|---|---|---|---|---|---|",
    ]
    for own in found["predictions"]:
        size = ", ".join(f"{own[key] / 1e6:,.0f} M" for key in ("nodes", "edges", "halo"))
        memory = ", ".join(f"{value / 1e9:.0f}" for value in own["memory"].values())
        lines.append(
            f"| {own['parts']} | {size} | {own['memory_total'] / 1e9:.0f} | {memory} "
            f"| {own['network_seconds']:.1f} | {own['cpu_seconds']:,.0f} s | {own['gpu_seconds']:.1f} s |"
        )
    return "\n".join(lines)


def large(found: dict[str, Any]) -> str:
    """The steps of the large graph: seconds and peak memory."""
    trained, graph = found["trained"], found["graph"]
    lines = ["| step | seconds | peak memory |", "|---|---|---|"]
    names = {"drawn": "edges and features drawn, to files", "built": "cut by LDG, parts written"}
    for step, name in names.items():
        lines.append(f"| {name} | {found[step]['seconds']:.0f} | {found[step]['peak_gb']:.2f} GB |")
    each = " and ".join(f"{value:.0f}" for value in trained["seconds_of_epochs"])
    lines.append(f"| the second and the third epoch | {each} | |")
    for own in trained["processes"]:
        more = f"{own['resident_gb']:.2f} GB, of it {own['anonymous_gb']:.2f} GB not of files"
        lines.append(f"| `grand train`, {own['process']} | | {more} |")
    lines.append(
        f"| `grand train`, all together | {trained['seconds']:.0f} | {trained['together_gb']:.2f} GB |"
    )
    head = f"{graph['nodes']:,} nodes, {graph['edges']:,} edges with self-loops; halos of "
    halos = " and ".join(f"{part['halo']:,}" for part in graph["parts"])
    return f"{head}{halos} rows:\n\n" + "\n".join(lines)


def show(row: dict[str, Any]) -> None:
    """What was measured, on the screen."""
    own = row["processes"]
    line = f"{row['graph']:6s} {row['model']:20s} k={row['parts']}  "
    total = [sum(p["epoch"][key] for p in own) for key in ("formula", "bytes")]
    counts = {phase: sum(widths.values()) for phase, widths in own[0]["epoch"]["exchanges"].items()}
    line += f"epoch: {counts} exchanges, formula {total[0]:,} B, measured {total[1]:,} B; "
    line += f"{own[0]['epoch']['reductions']} reductions of {own[0]['epoch']['reduced_bytes']:,} B"
    print(line, flush=True)
    if "product_bytes" in own[0] and row["parts"] > 1:
        for kind in own[0]["product_bytes"]:
            formula, counted = (sum(p["product_bytes"][kind][j] for p in own) for j in (0, 1))
            print(f"       product, {kind}: formula {formula:,} B, measured {counted:,} B")
    if "seconds" in own[0]["epoch"]:
        slowest = max(own, key=lambda p: p["epoch"]["seconds"])["epoch"]
        print(
            f"       epoch {slowest['seconds']:.3f} s, CPU time {slowest['cpu']:.3f} s; "
            f"{slowest['awaited']:.3f} s awaiting exchanges"
        )
    if "product_seconds" in own[0]:
        times = {
            key: max(p["product_seconds"][key] for p in own) * 1e3 for key in own[0]["product_seconds"]
        }
        print(
            "       product, d = 64: " + ", ".join(f"{key} {value:.2f} ms" for key, value in times.items())
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--page", type=Path, default=Path("docs/distributed.md"))
    parser.add_argument("--results", type=Path, default=Path("docs/results"))
    options = parser.parse_args()
    parts = json.loads((options.results / "parts.json").read_text())
    tables = {function.__name__: function(parts) for function in (exchanged, products, seconds, predicted)}
    tables["large"] = large(json.loads((options.results / "parts_large.json").read_text()))
    page = options.page.read_text(encoding="utf-8")
    for name, table in tables.items():
        made = f"<!-- {name} -->\n\n{table}\n\n<!-- end -->"
        page = re.sub(f"<!-- {name} -->.*?<!-- end -->", lambda _, made=made: made, page, flags=re.DOTALL)
    options.page.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
