"""Which tiling of the kernels is fastest: the constants of products, scores and attention.

python benchmarks/sweep.py [--arxiv topology.npz] [--out sweep.json]
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from harness import DK, HEADS, Bench, Workload, workloads

from graphdiffusion.ops import triton as triton_backend
from graphdiffusion.ops.triton import attention as forward_pass
from graphdiffusion.ops.triton import attention_backward as backward_pass
from graphdiffusion.ops.triton import plan as work_plan
from graphdiffusion.ops.triton import scores as sampled
from graphdiffusion.ops.triton.products import SpmmTiling, spmm_tiling


def sweep(bench: Bench, work: Workload) -> None:
    """All tilings on one workload."""
    g, members, d = work.graph, work.members, work.d
    values, x = bench.draw(members, g.num_edges), bench.draw(members, g.num_nodes, d)
    quick = {"repeat": 7, "inner": 4}
    now = spmm_tiling(d)
    tilings = [
        SpmmTiling(width, rows, edges, warps)
        for width, rows, edges, warps in (
            (16, 32, 16, 4),
            (16, 64, 16, 4),
            (16, 16, 16, 2),
            (32, 32, 16, 4),
            (32, 16, 16, 4),
            (32, 8, 8, 2),
            (64, 16, 8, 4),
            (64, 8, 8, 4),
            (128, 8, 8, 4),
            (128, 4, 4, 4),
            (128, 4, 4, 1),
        )
        if width <= max(d, 16) * 2
    ]
    for tiling in [now, *(tilings[:2] if bench.smoke else tilings)]:
        shown = f"w{tiling.width} r{tiling.rows} e{tiling.edges} {tiling.warps} warps"
        shown += " (now)" if tiling == now else ""
        bench.measure(
            "sweep",
            f"{work.name}: A x {shown}",
            lambda tiling=tiling: triton_backend.spmm(g, values, x, tiling=tiling),
            moved=work.moved,
            gathered=work.gathered,
            **quick,
        )
    scores = [(32, 16, 4), (64, 16, 4), (64, 32, 4), (32, 32, 4), (128, 32, 8), (32, 64, 4), (16, 32, 1)]
    for edges, width, warps in scores[:1] if bench.smoke else scores:
        kept = sampled.EDGES, sampled.WIDTH, sampled.WARPS
        sampled.EDGES, sampled.WIDTH, sampled.WARPS = edges, width, warps
        bench.measure(
            "sweep",
            f"{work.name}: score e{edges} w{width} {warps} warps",
            lambda: triton_backend.sddmm(g, x, x),
            gathered=work.gathered,
            **quick,
        )
        sampled.EDGES, sampled.WIDTH, sampled.WARPS = kept
    q, k = (
        bench.draw(members, g.num_nodes, HEADS * DK).unflatten(-1, (HEADS, DK)).transpose(1, 2)
        for _ in "qk"
    )
    how = ("identity", "softmax", "rows")
    attention, total, peak = triton_backend.attend(g, q, k, None, *how)

    def attend() -> object:
        return triton_backend.attend(g, q, k, None, *how)

    def attend_backward() -> object:
        return triton_backend.attend_backward(g, q, k, None, total, peak, attention, *how)

    held = [(256, 1), (512, 1), (512, 2), (1024, 2), (2048, 2), (1024, 4), (2048, 4), (4096, 8)]
    for tile, warps in held[:1] if bench.smoke else held:
        for module, run in ((forward_pass, attend), (backward_pass, attend_backward)):
            before = module.TILE, module.WARPS
            module.TILE, module.WARPS = tile, warps
            bench.measure("sweep", f"{work.name}: {run.__name__} tile {tile} {warps} warps", run, **quick)
            module.TILE, module.WARPS = before
    for short, chunk in () if bench.smoke else ((16, 512), (64, 512), (32, 256), (32, 1024)):
        usual = work_plan.SHORT, work_plan.CHUNK
        work_plan.SHORT, work_plan.CHUNK = short, chunk
        bench.measure(
            "sweep",
            f"{work.name}: A x short {short} chunk {chunk}",
            lambda: triton_backend.spmm(g, values, x),
            moved=work.moved,
            **quick,
        )
        work_plan.SHORT, work_plan.CHUNK = usual


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arxiv", type=Path, help="npz file with edge_index of ogbn-arxiv")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    parser.add_argument("--smoke", action="store_true", help="tiny graphs, with TRITON_INTERPRET=1")
    options = parser.parse_args()
    bench = Bench(options.smoke)
    for work in workloads(bench, options.arxiv):
        sweep(bench, work)
    if options.out is not None:
        options.out.write_text(json.dumps(bench.records, indent=2))


if __name__ == "__main__":
    main()
