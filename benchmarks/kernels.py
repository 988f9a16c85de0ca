"""The sparse kernels on a GPU: time, bandwidth and memory, beside torch's CSR product and gather/scatter.

    python benchmarks/kernels.py [--arxiv topology.npz] [--only SECTION ...] [--out kernels.json]
    TRITON_INTERPRET=1 python benchmarks/kernels.py --smoke        (no GPU: does it run at all?)

Two workloads: ``cora``, a population of 100 members on a graph of Cora's size (d = 80), and ``arxiv``, one
model on ogbn-arxiv's topology (d = 128), read from ``edge_index`` of an npz file, or a random graph of the
same size. Our kernels are timed as replays of a CUDA graph, the others as calls queued one after the other;
both are medians. The bound of a kernel is the time a copy of the fewest bytes it must move would take.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphdiffusion import ops
from graphdiffusion.graph import Graph
from graphdiffusion.ops import torch_backend, triton_backend, triton_plan, triton_sddmm
from graphdiffusion.ops import triton_attention as forward_pass
from graphdiffusion.ops import triton_attention_backward as backward_pass
from graphdiffusion.ops.triton_spmm import SpmmTiling, spmm_tiling

HEADS, DK = 8, 16


@dataclass
class Bench:
    """Where things run, and what was measured."""

    smoke: bool
    records: list[dict[str, Any]] = field(default_factory=list)
    copy_rate: float = float("nan")  # bytes read and written in a second

    @property
    def device(self) -> str:
        return "cpu" if self.smoke else "cuda"

    def draw(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.randn(*shape, device=self.device).to(dtype)

    def seconds(self, run: Callable[[], object], captured: bool, repeat: int = 15, inner: int = 4) -> float:
        """Median time of one call."""
        run()
        if self.smoke:
            start = time.perf_counter()
            run()
            return time.perf_counter() - start
        many = _captured(run, inner) if captured else lambda: [run() for _ in range(inner)]
        many()
        torch.cuda.synchronize()
        times = []
        for _ in range(repeat):
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            many()
            end.record()
            end.synchronize()
            times.append(start.elapsed_time(end) / inner / 1e3)
        return statistics.median(times)

    def memory(self, run: Callable[[], object]) -> int:
        """Most bytes held during a call, beyond what was held before it."""
        if self.smoke:
            return 0
        gc.collect()
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        run()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before

    def measure(
        self,
        section: str,
        name: str,
        run: Callable[[], object],
        *,
        moved: int = 0,
        gathered: int = 0,
        captured: bool = True,
        beside: float | None = None,
        **timing: int,
    ) -> float:
        """Time a call; ``moved`` are the fewest bytes to memory, ``gathered`` those read through caches."""
        seconds = self.seconds(run, captured, **timing)
        record: dict[str, Any] = {"section": section, "name": name, "ms": seconds * 1e3}
        record["peak_mb"] = self.memory(run) / 1e6
        if moved:
            record["bound_ms"] = moved / self.copy_rate * 1e3
            record["fraction"] = moved / self.copy_rate / seconds
        if gathered:
            record["gathered_tb_s"] = gathered / seconds / 1e12
        if beside is not None:
            record["times_slower"] = seconds / beside
        self.records.append(record)
        _show(record)
        return seconds


def _captured(run: Callable[[], object], inner: int) -> Callable[[], object]:
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        run()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(inner):
            run()
    return graph.replay


def _show(record: dict[str, Any]) -> None:
    cells = [f"{record['section']:9s} {record['name']:44s} {record['ms']:10.4f} ms"]
    cells += [f"{record['fraction']:6.1%} of bound"] if "fraction" in record else []
    cells += [f"{record['gathered_tb_s']:5.2f} TB/s gathered"] if "gathered_tb_s" in record else []
    cells += [f"x{record['times_slower']:.2f}"] if "times_slower" in record else []
    cells += [f"peak {record['peak_mb']:.0f} MB"] if record.get("peak_mb") else []
    print("  ".join(cells), flush=True)


# Workloads


def power_law(n: int, edges: int, device: str, symmetric: bool = True) -> Graph:
    """A random graph whose degrees have a long tail; about ``edges`` directed edges with the loops."""
    random = torch.Generator(device=device).manual_seed(0)
    half = max((edges - n) // (2 if symmetric else 1), 1)
    u = (torch.rand(half, generator=random, device=device) ** 2 * n).long().clamp_(max=n - 1)
    v = torch.randint(n, (half,), generator=random, device=device)
    both = torch.stack([u, v])
    if symmetric:
        both = torch.cat([both, both.flip(0)], dim=1)
    return Graph.from_edge_index(both, n, self_loops=1.0)


@dataclass
class Workload:
    name: str
    graph: Graph
    members: int
    d: int

    @property
    def moved(self) -> int:
        """Bytes of one product: values and indices, x read once, the result written once."""
        g = self.graph
        return 4 * (self.members * (g.num_edges + 2 * g.num_nodes * self.d) + g.num_edges + g.num_nodes)

    @property
    def gathered(self) -> int:
        """Bytes of the rows of x that the edges name."""
        return 4 * self.members * self.graph.num_edges * self.d


def workloads(bench: Bench, arxiv: Path | None) -> list[Workload]:
    if bench.smoke:
        return [
            Workload("cora", power_law(20, 60, "cpu"), 2, 20),
            Workload("arxiv", power_law(30, 90, "cpu"), 1, 16),
        ]
    cora = power_law(2485, 12623, "cuda")
    if arxiv is not None and arxiv.exists():
        with np.load(arxiv) as file:
            edges = torch.from_numpy(file["edge_index"].astype(np.int64)).cuda()
        big = Graph.from_edge_index(torch.cat([edges, edges.flip(0)], dim=1), 169343, self_loops=1.0)
    else:
        big = power_law(169343, 2_484_941, "cuda")
    for graph in (cora, big):
        print(graph, "longest row", graph.longest_row, "column", graph.longest_column)
    return [Workload("cora", cora, 100, 80), Workload("arxiv", big, 1, 128)]


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
    forward = bench.measure("spmm", name("A x"), lambda: triton_backend.spmm(g, values, x(), False), **size)
    bench.measure("spmm", name("Aᵀ x"), lambda: triton_backend.spmm(g, values, x(), True), **size)
    extra = {**size, "moved": work.moved + 4 * members * g.num_nodes * d}
    bench.measure(
        "spmm", name("A x + c z"), lambda: triton_backend.spmm(g, values, x(), False, (c, z)), **extra
    )
    half = [t.bfloat16() for t in xs]
    bench.measure(
        "spmm",
        name("A x, bfloat16"),
        lambda: triton_backend.spmm(g, values, half[next(turn) % 2], False),
        moved=work.moved - 4 * members * g.num_nodes * d,
        gathered=work.gathered // 2,
    )
    slow = {"captured": False, "repeat": 5, "inner": 2}
    bench.measure(
        "spmm",
        name("A x, torch CSR"),
        lambda: torch_backend.spmm(g, values, x(), False),
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
    for way, go in (("forward", forward), ("forward + backward", both)):
        title = f"{work.name}: {way}"
        ours = bench.measure("step", f"{title}, fused", lambda go=go: go("triton", rows), repeat=7)
        bench.measure("step", f"{title}, fused, columns", lambda go=go: go("triton", columns), repeat=7)
        for other, run in (("torch composition", rows), ("gather/scatter", gathered)):
            bench.measure(
                "step", f"{title}, {other}", lambda go=go, run=run: go("torch", run), beside=ours, **slow
            )


def sweep(bench: Bench, work: Workload) -> None:
    """Which tiling is fastest: constants of triton_spmm, triton_sddmm and the two passes of attention."""
    g, members, d = work.graph, work.members, work.d
    values, x = bench.draw(members, g.num_edges), bench.draw(members, g.num_nodes, d)
    quick = {"repeat": 7, "inner": 4}
    now = spmm_tiling(d)
    tilings = [
        SpmmTiling(width, rows, edges, unroll, warps)
        for width, rows, edges, unroll, warps in (
            (16, 32, 16, 4, 4),
            (16, 64, 16, 4, 4),
            (16, 64, 16, 8, 4),
            (16, 16, 16, 4, 2),
            (32, 32, 16, 4, 4),
            (32, 16, 16, 4, 4),
            (32, 8, 8, 4, 2),
            (64, 16, 8, 4, 4),
            (64, 8, 8, 4, 4),
            (64, 8, 8, 8, 2),
            (128, 8, 8, 4, 4),
            (128, 4, 4, 4, 4),
            (128, 4, 4, 8, 1),
        )
        if width <= max(d, 16) * 2
    ]
    for tiling in [now, *(tilings[:2] if bench.smoke else tilings)]:
        shown = f"w{tiling.width} r{tiling.rows} e{tiling.edges} u{tiling.unroll} {tiling.warps} warps"
        shown += " (now)" if tiling == now else ""
        bench.measure(
            "sweep",
            f"{work.name}: A x {shown}",
            lambda tiling=tiling: triton_backend.spmm(g, values, x, False, tiling=tiling),
            moved=work.moved,
            gathered=work.gathered,
            **quick,
        )
    scores = [(32, 16, 4), (64, 16, 4), (64, 32, 4), (32, 32, 4), (128, 32, 8), (32, 64, 4), (16, 32, 1)]
    for edges, width, warps in scores[:1] if bench.smoke else scores:
        kept = triton_sddmm.EDGES, triton_sddmm.WIDTH, triton_sddmm.WARPS
        triton_sddmm.EDGES, triton_sddmm.WIDTH, triton_sddmm.WARPS = edges, width, warps
        bench.measure(
            "sweep",
            f"{work.name}: score e{edges} w{width} {warps} warps",
            lambda: triton_backend.sddmm(g, x, x),
            gathered=work.gathered,
            **quick,
        )
        triton_sddmm.EDGES, triton_sddmm.WIDTH, triton_sddmm.WARPS = kept
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

    held = [(512, 1), (1024, 1), (1024, 2), (2048, 2), (1024, 4), (2048, 4), (4096, 4), (4096, 8)]
    for tile, warps in held[:1] if bench.smoke else held:
        for module, run in ((forward_pass, attend), (backward_pass, attend_backward)):
            before = module.TILE, module.WARPS
            module.TILE, module.WARPS = tile, warps
            bench.measure("sweep", f"{work.name}: {run.__name__} tile {tile} {warps} warps", run, **quick)
            module.TILE, module.WARPS = before
    for short, chunk in () if bench.smoke else ((16, 512), (64, 512), (32, 256), (32, 1024)):
        usual = triton_plan.SHORT, triton_plan.CHUNK
        triton_plan.SHORT, triton_plan.CHUNK = short, chunk
        bench.measure(
            "sweep",
            f"{work.name}: A x short {short} chunk {chunk}",
            lambda: triton_backend.spmm(g, values, x, False),
            moved=work.moved,
            **quick,
        )
        triton_plan.SHORT, triton_plan.CHUNK = usual


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
                lambda g=g, v=values, x=x: triton_backend.spmm(g, v, x, False),
                **size_of,
                **how,
            )
        )

        def diffuse(g: Graph = g, q: Tensor = q, k: Tensor = k, x: Tensor = x) -> Tensor:
            with torch.no_grad(), ops.use_backend("triton"):
                return ops.diffuse(g, q, k, x)

        times["step, forward"].append(bench.measure("growth", f"{work.name}: step", diffuse, **how))
        del g, work, values, x, q, k, diffuse
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
    "sweep": sweep,
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
