"""The sparse kernels on a GPU: time, bandwidth and memory, beside torch's CSR product and gather/scatter.

    python benchmarks/kernels.py [--arxiv topology.npz] [--only SECTION ...] [--out kernels.json]
    TRITON_INTERPRET=1 python benchmarks/kernels.py --smoke        (no GPU: does it run at all?)

Two workloads: ``cora``, a population of 100 members on Cora (d = 80), and ``arxiv``, one
model on ogbn-arxiv's topology (d = 128), read from ``edge_index`` of an npz file, or a random graph of the
same size. Our kernels are timed as replays of a CUDA graph, the others as calls queued one after the other;
both are medians. The bound of a kernel is the time a copy of the fewest bytes it must move would take.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from harness import DK, HEADS, Bench, Workload, power_law, workloads
from torch import Tensor

from graphdiffusion import ops
from graphdiffusion.graph import Graph
from graphdiffusion.ops import torch as torch_backend
from graphdiffusion.ops import triton as triton_backend
from graphdiffusion.ops.dense import affines
from graphdiffusion.ops.functions import transposed

# Sections


def copy(bench: Bench) -> None:
    """Bandwidth of a device copy: the yardstick of all bounds."""
    source = bench.draw(1 << (10 if bench.smoke else 29))
    target = torch.empty_like(source)
    seconds = bench.seconds(lambda: target.copy_(source), captured=False)
    bench.copy_rate = 2 * source.numel() * 4 / seconds
    record = {"section": "copy", "name": "device copy", "ms": seconds * 1e3}
    bench.records.append({**record, "tb_s": bench.copy_rate / 1e12})
    print(f"device copy {bench.copy_rate / 1e12:.2f} TB/s")


def products(bench: Bench, work: Workload) -> None:
    """propagate, its transpose and its gradients beside the torch backend and gather/scatter."""
    g, members, d = work.graph, work.members, work.d
    values = bench.draw(members, g.num_edges)
    xs = [bench.draw(members, g.num_nodes, d) for _ in range(2)]
    z, c = bench.draw(members, g.num_nodes, d), bench.draw(members)
    turn = iter(range(10**9))

    def x() -> Tensor:  # in turn, so that a small input is not found in cache
        return xs[next(turn) % 2]

    def name(what: str) -> str:
        return f"{work.name}: {what}"

    size = {"moved": work.moved, "gathered": work.gathered}
    forward = bench.measure("spmm", name("A x"), lambda: triton_backend.spmm(g, values, x()), **size)
    bench.measure("spmm", name("Aᵀ x"), lambda: triton_backend.spmm(*transposed(g, values), x()), **size)
    extra = {**size, "moved": work.moved + 4 * members * g.num_nodes * d}
    bench.measure("spmm", name("A x + c z"), lambda: triton_backend.spmm(g, values, x(), (c, z)), **extra)
    half = [t.bfloat16() for t in xs]
    bench.measure(
        "spmm",
        name("A x, bfloat16"),
        lambda: triton_backend.spmm(g, values, half[next(turn) % 2]),
        moved=work.moved - 4 * members * g.num_nodes * d,
        gathered=work.gathered // 2,
    )
    slow = {"captured": False, "repeat": 5, "inner": 2}
    bench.measure(
        "spmm",
        name("A x, torch CSR"),
        lambda: torch_backend.spmm(g, values, x()),
        beside=forward,
        **slow,
    )
    row, col = g.row.long(), g.col.long()

    def gather_scatter(a: Tensor, y: Tensor) -> Tensor:
        return torch.zeros_like(y).index_add_(1, row, a.unsqueeze(-1) * y[:, col])

    bench.measure(
        "spmm", name("A x, gather/scatter"), lambda: gather_scatter(values, x()), beside=forward, **slow
    )
    grad = bench.draw(members, g.num_nodes, d)
    leaves = [values.clone().requires_grad_(), xs[0].clone().requires_grad_()]

    def both_ways(kernels: Any, product: Callable[[Tensor, Tensor], Tensor]) -> object:
        with ops.use_backend(kernels):
            return torch.autograd.grad(product(*leaves), leaves, grad)

    def propagate(a: Tensor, y: Tensor) -> Tensor:
        return ops.propagate(g, a, y)

    ours = bench.measure("spmm", name("forward + backward"), lambda: both_ways("triton", propagate))
    for title, run in (
        ("forward + backward, torch CSR", lambda: both_ways("torch", propagate)),
        ("forward + backward, gather/scatter", lambda: both_ways("torch", gather_scatter)),
    ):
        bench.measure("spmm", name(title), run, beside=ours, **slow)


def fields(bench: Bench, work: Workload) -> None:
    """score and normalise."""
    g, members, d = work.graph, work.members, work.d
    q, k = bench.draw(members, g.num_nodes, d), bench.draw(members, g.num_nodes, d)
    slow = {"captured": False, "repeat": 5, "inner": 2}
    ours = bench.measure(
        "fields",
        f"{work.name}: score",
        lambda: triton_backend.sddmm(g, q, k),
        moved=work.moved,
        gathered=work.gathered,
    )
    bench.measure(
        "fields",
        f"{work.name}: score, torch",
        lambda: torch_backend.sddmm(g, q, k),
        beside=ours,
        **slow,
    )
    scores = bench.draw(members * HEADS, g.num_edges)
    for over in ("rows", "columns"):
        ours = bench.measure(
            "fields",
            f"{work.name}: normalise over {over}, {HEADS} heads",
            lambda over=over: triton_backend.normalise(g, scores, None, "softmax", over),
            moved=8 * scores.numel(),
        )
        bench.measure(
            "fields",
            f"{work.name}: normalise over {over}, torch",
            lambda over=over: torch_backend.normalise(g, scores, None, "softmax", over),
            beside=ours,
            **slow,
        )


def step(bench: Bench, work: Workload) -> None:
    """The fused nonlinear step beside its compositions."""
    g, members, n = work.graph, work.members, work.graph.num_nodes

    def heads() -> Tensor:
        flat = bench.draw(members, n, HEADS * DK) / DK**0.5
        return flat.unflatten(-1, (HEADS, DK)).transpose(1, 2).requires_grad_()

    inputs = [heads(), heads(), bench.draw(members, n, work.d).requires_grad_()]
    grad = bench.draw(members, n, work.d)
    row, col = g.row.long(), g.col.long()

    def gathered(q: Tensor, k: Tensor, x: Tensor) -> Tensor:
        s = (q[:, :, row] * k[:, :, col]).sum(-1)
        index = row.expand_as(s)
        top = s.new_full(q.shape[:3], -math.inf).scatter_reduce(2, index, s.detach(), "amax")
        phi = (s - top[:, :, row]).exp()
        total = phi.new_zeros(q.shape[:3]).index_add(2, row, phi)
        a = (phi / total[:, :, row]).mean(1)
        return torch.zeros_like(x).index_add(1, row, a.unsqueeze(-1) * x[:, col]) - x

    def rows(q: Tensor, k: Tensor, x: Tensor) -> Tensor:
        return ops.diffuse(g, q, k, x)

    def columns(q: Tensor, k: Tensor, x: Tensor) -> Tensor:
        return ops.diffuse(g, q, k, x, over="columns")

    def forward(kernels: Any, run: Callable[..., Tensor]) -> object:
        with ops.use_backend(kernels), torch.no_grad():
            return run(*inputs)

    def both(kernels: Any, run: Callable[..., Tensor]) -> object:
        with ops.use_backend(kernels):
            return torch.autograd.grad(run(*inputs), inputs, grad)

    slow = {"captured": False, "repeat": 3, "inner": 1}
    state = 4 * grad.numel()
    gradients = 4 * sum(t.numel() for t in inputs)
    for way, go, results in (("forward", forward, state), ("forward + backward", both, state + gradients)):
        title = f"{work.name}: {way}"
        held = {"results": results}
        ours = bench.measure("step", f"{title}, fused", lambda go=go: go("triton", rows), repeat=7, **held)
        bench.measure(
            "step", f"{title}, fused, columns", lambda go=go: go("triton", columns), repeat=7, **held
        )
        for other, run in (("torch composition", rows), ("gather/scatter", gathered)):
            bench.measure(
                "step",
                f"{title}, {other}",
                lambda go=go, run=run: go("torch", run),
                beside=ours,
                **held,
                **slow,
            )


def maps(bench: Bench, work: Workload) -> None:
    """Queries and keys of every node, forward and with gradients, beside torch's float32 products."""
    n, members, width = work.graph.num_nodes, work.members, HEADS * DK
    x = bench.draw(members, n, work.d).requires_grad_()
    pairs = [(bench.draw(members, width, work.d), bench.draw(members, width)) for _ in "qk"]
    leaves = [x, *(t.requires_grad_() for pair in pairs for t in pair)]
    grads = [bench.draw(members, n, width) for _ in "qk"]

    def forward(kernels: Any) -> object:
        with ops.use_backend(kernels), torch.no_grad():
            return affines(x, pairs)

    def both(kernels: Any) -> object:
        with ops.use_backend(kernels):
            return torch.autograd.grad(affines(x, pairs), leaves, grads)

    one = x.numel() + 2 * members * n * width  # x, and either q and k or their gradients
    for way, go, moved in (("forward", forward, 4 * one), ("forward + backward", both, 4 * 3 * one)):
        title = f"{work.name}: queries and keys, {way}"
        ours = bench.measure("maps", title, lambda go=go: go("triton"), moved=moved)
        bench.measure("maps", f"{title}, torch", lambda go=go: go("torch"), captured=False, beside=ours)
    exact = x[:1].detach().double() @ pairs[0][0][:1].detach().double().mT + pairs[0][1][:1, None].double()
    for kernels in ("triton", "torch"):
        with ops.use_backend(kernels), torch.no_grad():
            error = float((affines(x, pairs)[0][:1] - exact).abs().max() / exact.abs().max())
        bench.records.append({"section": "maps", "name": f"{work.name}: error, {kernels}", "error": error})
        print(f"maps      {work.name}: error of {kernels} against float64, of the largest: {error:.1e}")


def growth(bench: Bench) -> None:
    """Time against edges, over three decades."""
    sizes = (40, 80) if bench.smoke else (10**5, 10**6, 10**7, 10**8)
    d, heads = 32, 2
    times: dict[str, list[float]] = {"product": [], "step, forward": []}
    edges = []
    for size in sizes:
        g = power_law(size // 16 + 1, size, bench.device)
        edges.append(g.num_edges)
        work = Workload(f"{g.num_edges:.1e} edges", g, 1, d)
        values, x = bench.draw(1, g.num_edges), bench.draw(1, g.num_nodes, d)
        q, k = (bench.draw(1, g.num_nodes, heads, DK).transpose(1, 2) for _ in "qk")
        how = {"repeat": 5, "inner": 2}
        size_of = {"moved": work.moved, "gathered": work.gathered}
        times["product"].append(
            bench.measure(
                "growth",
                f"{work.name}: A x",
                lambda g=g, v=values, x=x: triton_backend.spmm(g, v, x),
                **size_of,
                **how,
            )
        )

        def diffuse(g: Graph = g, q: Tensor = q, k: Tensor = k, x: Tensor = x) -> Tensor:
            with torch.no_grad(), ops.use_backend("triton"):
                return ops.diffuse(g, q, k, x)

        times["step, forward"].append(bench.measure("growth", f"{work.name}: step", diffuse, **how))

        def composed(g: Graph = g, q: Tensor = q, k: Tensor = k, x: Tensor = x) -> Tensor:
            with torch.no_grad(), ops.use_backend("torch"):
                return ops.diffuse(g, q, k, x)

        slow = {"captured": False, "repeat": 3, "inner": 1}
        bench.measure(
            "growth",
            f"{work.name}: A x, torch CSR",
            lambda g=g, v=values, x=x: torch_backend.spmm(g, v, x),
            beside=times["product"][-1],
            **slow,
        )
        bench.measure(
            "growth", f"{work.name}: step, torch", composed, beside=times["step, forward"][-1], **slow
        )
        del g, work, values, x, q, k, diffuse, composed
        gc.collect()
        if not bench.smoke:
            torch.cuda.empty_cache()
    for name, seconds in times.items():
        exponent = float(np.polyfit(np.log(edges), np.log(seconds), 1)[0])
        last = math.log(seconds[-1] / seconds[-2]) / math.log(edges[-1] / edges[-2])
        bench.records.append(
            {"section": "growth", "name": name, "exponent": exponent, "last_decade": last, "edges": edges}
        )
        print(f"growth    {name}: time ~ edges^{exponent:.3f}, last decade edges^{last:.3f}")


SECTIONS: dict[str, Callable[[Bench, Workload], None]] = {
    "spmm": products,
    "fields": fields,
    "step": step,
    "maps": maps,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--arxiv", type=Path, help="npz file with edge_index of ogbn-arxiv")
    parser.add_argument("--only", nargs="*", choices=[*SECTIONS, "growth"], help="sections; all by default")
    parser.add_argument("--workload", choices=["cora", "arxiv"], help="one workload; both by default")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    parser.add_argument(
        "--smoke", action="store_true", help="tiny sizes on the CPU, under Triton's interpreter"
    )
    args = parser.parse_args()
    torch.manual_seed(0)
    start = time.perf_counter()
    bench = Bench(args.smoke)
    machine = "cpu, interpreted" if args.smoke else torch.cuda.get_device_name()
    print(machine, "torch", torch.__version__)
    copy(bench)
    wanted = args.only or [*SECTIONS, "growth"]
    chosen = [w for w in workloads(bench, args.arxiv) if args.workload in (None, w.name)]
    try:
        for work in chosen:
            for name in SECTIONS:
                if name in wanted:
                    SECTIONS[name](bench, work)
        if "growth" in wanted:
            growth(bench)
    finally:  # what was measured before a failure is worth keeping
        if args.out is not None:
            result = {"machine": machine, "torch": torch.__version__, "copy_tb_s": bench.copy_rate / 1e12}
            args.out.write_text(json.dumps({**result, "records": bench.records}, indent=1))
    print(f"total {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
