"""What the benchmarks of kernels share: timing, memory, and the graphs they run on."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphdiffusion.graph import Graph
from graphdiffusion.training import Config, load_problem

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
        results: int = 0,
        captured: bool = True,
        beside: float | None = None,
        **timing: int,
    ) -> float:
        """Time a call.

        Args:
            moved: The fewest bytes that it must read from memory and write there.
            gathered: Bytes that it reads through caches.
            results: Bytes that it must return, whatever it does in between.
        """
        seconds = self.seconds(run, captured, **timing)
        record: dict[str, Any] = {"section": section, "name": name, "ms": seconds * 1e3}
        record["peak_mb"] = self.memory(run) / 1e6
        if results:
            record["workspace_mb"] = record["peak_mb"] - results / 1e6
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
    cells += [f"of it workspace {record['workspace_mb']:.0f} MB"] if "workspace_mb" in record else []
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
    cora = load_problem(Config(data="cora-embedded")).graph.to("cuda")
    if arxiv is not None and arxiv.exists():
        with np.load(arxiv) as file:
            edges = torch.from_numpy(file["edge_index"].astype(np.int64)).cuda()
        big = Graph.from_edge_index(torch.cat([edges, edges.flip(0)], dim=1), 169343, self_loops=1.0)
    else:
        big = power_law(169343, 2_484_941, "cuda")
    for graph in (cora, big):
        longest = [int(pointer.diff().max()) for pointer in (graph.rowptr, graph.colptr)]
        print(graph, "longest row {} column {}".format(*longest))
    return [Workload("cora", cora, 100, 80), Workload("arxiv", big, 1, 128)]
