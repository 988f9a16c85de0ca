"""A training on parts: bytes exchanged and their formula, seconds on 1 and 2 processes, a model of time.

    PYTHONPATH=src python benchmarks/parts.py [--topology topology.npz] [--out parts.json]

It starts its processes itself (gloo, CPU, one thread each). Bytes are those of the ``traffic`` counter, of
the first epoch; seconds are the least of some repeats, by the clock and, for what other work on the machine
would disturb, of CPU time. ``parts_model.py`` fits the model and has its assumptions.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from parts_model import fit, predict, show_model
from parts_tables import show
from torch_geometric.data import Data

from graphdiffusion.ops import backends, propagate
from graphdiffusion.partition import Part, exchange, use_part, whole
from graphdiffusion.training import Config, load_problem, protocol
from graphdiffusion.training.partfolder import read_problem, write_problem
from graphdiffusion.training.population import Population

WIDTH = 64  # channels of a product
SHARED = {"splits": 1, "epochs": 3, "hidden": WIDTH, "heads": 2, "attention_dim": 16, "device": "cpu"}
MODELS: dict[str, dict[str, Any]] = {
    "linear, closed form": {},
    "nonlinear, rk4": {"variant": "nonlinear", "solver": "rk4", "step_size": 1.0},
}
TIMES = {"cora": 18.0, "arxiv": 3.676}


def problem_of(name: str, topology: Path | None, model: str) -> tuple[Config, Any]:
    """Configuration and problem of a graph by name."""
    options = {**SHARED, **MODELS[model], "time": TIMES[name]}
    if name == "cora":
        config = Config(data="cora-embedded", **options)
        return config, load_problem(config)
    assert topology is not None
    with np.load(topology) as file:
        edges = torch.from_numpy(file["edge_index"].astype(np.int64))
        y = torch.from_numpy(file["y"].astype(np.int64)).flatten()
    x = torch.randn(len(y), 128, generator=torch.Generator().manual_seed(0))
    config = Config(data="arxiv", split="shares", **options)
    return config, load_problem(config, Data(x=x, edge_index=torch.cat([edges, edges.flip(0)], 1), y=y))


def least(run: Callable[[], object], repeats: int, clock: Callable[[], float] = time.perf_counter) -> float:
    """Least seconds of a call that all processes begin together; the slowest process counts."""
    run()
    found = []
    for _ in range(repeats):
        if dist.is_initialized():
            dist.barrier()
        start = clock()
        run()
        found.append(clock() - start)
    own = torch.tensor(min(found))
    if dist.is_initialized():
        dist.all_reduce(own, dist.ReduceOp.MAX)
    return float(own)


class Watch:
    """What is exchanged and reduced while it is open, by phase; seconds in which exchanges were awaited."""

    def __enter__(self) -> Watch:
        self.exchanges: dict[str, dict[int, int]] = {"forward": {}, "backward": {}, "validation": {}}
        self.expected, self.reduced, self.reduced_bytes, self.awaited = 0, 0, 0, 0.0
        self.validating = False
        self.before = (exchange.traffic.exchanges, exchange.traffic.bytes)
        self.kept = exchange._exchange, exchange.Arriving.wait, whole.dist.all_reduce, Population._validate
        one, wait, reduce, validate = self.kept

        def counted(rows: Any, sent: tuple[int, ...], expected: tuple[int, ...]) -> Any:
            width = rows.shape[1:].numel()
            if len(sent) > 1:
                inside = torch._C._current_graph_task_id() >= 0  # in a backward pass
                phase = "validation" if self.validating else "backward" if inside else "forward"
                self.exchanges[phase][width] = self.exchanges[phase].get(width, 0) + 1
                self.expected += rows.element_size() * width * sum(sent)
            return one(rows, sent, expected)

        def timed(arriving: Any) -> Any:
            start = time.perf_counter()
            found = wait(arriving)
            self.awaited += time.perf_counter() - start
            return found

        def reducing(x: Any, *more: Any, **named: Any) -> Any:
            self.reduced, self.reduced_bytes = (
                self.reduced + 1,
                self.reduced_bytes + x.numel() * x.element_size(),
            )
            return reduce(x, *more, **named)

        def validating(population: Population, key: Any) -> Any:
            self.validating = True
            try:
                return validate(population, key)
            finally:
                self.validating = False

        self._set(counted, timed, reducing, validating)
        return self

    def _set(self, *functions: Any) -> None:
        places = (
            (exchange, "_exchange"),
            (exchange.Arriving, "wait"),
            (whole.dist, "all_reduce"),
            (Population, "_validate"),
        )
        for (place, name), function in zip(places, functions, strict=True):
            setattr(place, name, function)

    def __exit__(self, *_: object) -> None:
        self._set(*self.kept)
        self.sent = exchange.traffic.exchanges - self.before[0]
        self.bytes = exchange.traffic.bytes - self.before[1]


def product_bytes(part: Part) -> dict[str, tuple[int, int]]:
    """Formula and counter for one product of ``WIDTH`` channels: forward, and two kinds of backward."""

    def one(values_too: bool) -> list[int]:
        values = torch.rand(part.num_edges, requires_grad=values_too)
        x = torch.rand(part.num_nodes, WIDTH, requires_grad=True)
        marks = [exchange.traffic.bytes]
        y = propagate(part, values, x)
        marks.append(exchange.traffic.bytes)
        y.sum().backward()
        marks.append(exchange.traffic.bytes)
        return np.diff(marks).tolist()

    forward, backward = one(False)
    both = one(True)[1]
    rows, halo = len(part.send), len(part.halo)
    return {
        "forward": (4 * WIDTH * rows, forward),
        "backward to x": (4 * WIDTH * halo, backward),
        "backward to x and values": (4 * WIDTH * (halo + rows), both),
    }


def product_seconds(part: Part, repeats: int) -> dict[str, float]:
    """A product; its local work alone, with the rows of the halo at hand; and its exchange alone."""
    values, x = torch.rand(1, part.num_edges), torch.rand(1, part.num_nodes, WIDTH)
    kernels, halo = backends.backend(x), torch.rand(1, len(part.halo), WIDTH)
    (inner, inside), (outer, outside) = part.inner, part.outer
    one = x.new_ones(1)

    def local() -> None:
        own = kernels.spmm(inner, values.index_select(1, inside), x, None, minus=None)
        kernels.spmm(outer, values.index_select(1, outside), halo, add=(one, own))

    found = {
        "product": least(lambda: propagate(part, values[0], x[0]), repeats),
        "local": least(local, repeats),
    }
    found["local_cpu"] = least(local, repeats, time.process_time)
    if part.parts > 1:
        found["exchange"] = least(lambda: exchange.fetch(part, x).wait(), repeats)
    return found


def index_bytes(part: Part) -> int:
    """Bytes of the tensors of a part, with what was derived from them."""
    found: dict[int, int] = {}
    waiting: list[Any] = [part]
    while waiting:
        own = waiting.pop()
        if isinstance(own, torch.Tensor):
            found[own.data_ptr()] = max(found.get(own.data_ptr(), 0), own.numel() * own.element_size())
        elif isinstance(own, (tuple, list)):
            waiting += own
        elif hasattr(own, "__dataclass_fields__"):
            waiting += [v for k, v in vars(own).items() if k != "part"]
            waiting += list(getattr(own, "derived", {}).values())
    return sum(found.values())


def measure(
    rank: int, size: int, store: str, folder: str, options: dict[str, Any], job: dict[str, Any]
) -> None:
    """What one process does; its figures go to a file."""
    torch.set_num_threads(1)
    if size > 1:
        dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=size)
    config = Config(**options)
    problem, _ = read_problem(Path(folder), rank)
    part = problem.graph
    assert isinstance(part, Part)
    found: dict[str, Any] = {"nodes": part.rows, "edges": part.num_edges, "halo": len(part.halo)}
    with use_part(part):
        if job["product"]:
            found["product_bytes"] = product_bytes(part)
            if job["repeats"]:
                found["product_seconds"] = product_seconds(part, job["repeats"])
        population = Population(problem, config, protocol(config, problem.data)[:1])
        with Watch() as watch:
            population.step()
        found["epoch"] = {
            "exchanges": watch.exchanges,
            "sent": watch.sent,
            "formula": watch.expected,
            "bytes": watch.bytes,
            "reductions": watch.reduced,
            "reduced_bytes": watch.reduced_bytes,
        }
        found["index_bytes"] = index_bytes(part)
        seconds, cpu, awaited = [], [], []
        for _ in range(job["epochs"]):
            with Watch() as watch:
                start, begun = time.perf_counter(), time.process_time()
                population.step()
                seconds.append(time.perf_counter() - start)
                cpu.append(time.process_time() - begun)
            awaited.append(watch.awaited)
        if seconds:
            found["epoch"] |= {"seconds": min(seconds), "cpu": min(cpu)}
            found["epoch"]["awaited"] = statistics.median(awaited)
    Path(f"{store}-{rank}.json").write_text(json.dumps(found))
    if size > 1:
        dist.barrier()
        dist.destroy_process_group()


def link(rank: int, size: int, store: str) -> None:
    """Seconds of exchanges of several sizes between two processes."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=size)
    found = []
    for power in range(8, 25, 2):
        rows = torch.zeros(2**power // 4)
        out, counts = torch.empty_like(rows), [0, 0]
        counts[1 - rank] = len(rows)
        seconds = least(lambda out=out, rows=rows, c=counts: dist.all_to_all_single(out, rows, c, c), 20)
        found.append((2**power, seconds))
    Path(f"{store}-{rank}.json").write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


def together(function: Any, size: int, *args: Any) -> list[Any]:
    """What a function writes in each of ``size`` processes."""
    with tempfile.TemporaryDirectory() as folder:
        store = f"{folder}/store"
        mp.spawn(function, (size, store, *args), nprocs=size)
        return [json.loads(Path(f"{store}-{k}.json").read_text()) for k in range(size)]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--topology", type=Path, help="ogbn-arxiv's edge_index and y in an .npz file")
    parser.add_argument("--parts", type=int, nargs="+", default=[1, 2, 3, 4])
    parser.add_argument("--epochs", type=int, default=2, help="that are timed, on 1 and 2 processes")
    parser.add_argument("--cuts", type=Path, default=Path("docs/results/cuts.json"), help="from cuts.py")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rows = []
    for graph in ("cora", *(("arxiv",) if options.topology else ())):
        for model in MODELS:
            config, problem = problem_of(graph, options.topology, model)
            for size in options.parts:
                job = {"product": model == next(iter(MODELS)), "repeats": 10 if size < 3 else 0}
                job["epochs"] = options.epochs if size < 3 else 0
                with tempfile.TemporaryDirectory() as folder:
                    write_problem(Path(folder, "parts"), problem, size)
                    own = together(measure, size, f"{folder}/parts", config.to_dict(), job)
                rows.append({"graph": graph, "model": model, "parts": size, "processes": own})
                show(rows[-1])
                for process in own:
                    assert process["epoch"]["formula"] == process["epoch"]["bytes"]
                    assert all(a == b for a, b in process.get("product_bytes", {}).values())
    result: dict[str, Any] = {
        "options": SHARED, "times": TIMES, "torch": torch.__version__, "cores": os.cpu_count(), "rows": rows
    }  # fmt: skip
    result["link"] = together(link, 2)[0]
    result["model"] = fit(rows, result["link"])
    result["predictions"] = predict(result["model"], rows, json.loads(options.cuts.read_text())["cuts"])
    show_model(result["model"], result["predictions"])
    if options.out:
        options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
