"""A random graph with communities, cut on disk and trained in parts: seconds, and peak memory.

    PYTHONPATH=src python benchmarks/parts_large.py --work FOLDER [--out parts_large.json]

Edges are written to a file, the parts are built out of core (LDG), and ``grand train FOLDER`` trains on
them. Each of these runs in processes of its own. Their memory is read from /proc, so this needs Linux.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from graphdiffusion.partition import read_about, write_parts_of_edges

CHUNK = 2_000_000  # edges that are drawn at once
INSIDE = 0.9  # share of the edges within a community


def draw(work: Path, nodes: int, edges: int, communities: int, features: int) -> None:
    """Write edges ``(2, E)``, one for both directions; features, labels and masks of the nodes."""
    random = np.random.default_rng(0)
    y = random.integers(communities, size=nodes)
    members = np.argsort(y, kind="stable")  # nodes by community
    counts = np.bincount(y, minlength=communities)
    starts = counts.cumsum() - counts
    file = np.lib.format.open_memmap(work / "edges.npy", "w+", np.int32, (2, edges))
    for first in range(0, edges, CHUNK):
        source = random.integers(nodes, size=min(CHUNK, edges - first))
        target = random.integers(nodes, size=len(source))
        inside = random.random(len(source)) < INSIDE
        own = y[source[inside]]
        target[inside] = members[starts[own] + (random.random(len(own)) * counts[own]).astype(np.int64)]
        file[:, first : first + len(source)] = source, target
    file.flush()
    x = np.lib.format.open_memmap(work / "x.npy", "w+", np.float32, (nodes, features))
    centres = random.standard_normal((communities, features), dtype=np.float32)
    for first in range(0, nodes, CHUNK // 10):
        own = y[first : first + CHUNK // 10]
        x[first : first + len(own)] = centres[own] + 3 * random.standard_normal((len(own), features))
    x.flush()
    np.save(work / "y.npy", y)
    np.save(work / "split.npy", random.choice(3, size=nodes, p=[0.1, 0.1, 0.8]).astype(np.int8))


def build(work: Path, parts: int, memory: int) -> None:
    """Cut the graph on disk, and write its parts."""
    split = np.load(work / "split.npy")
    masks = {f"{name}_mask": split == k for k, name in enumerate(("train", "val", "test"))}
    fields = {"x": np.load(work / "x.npy", mmap_mode="r"), "y": np.load(work / "y.npy"), **masks}
    n, about = len(split), {"name": "communities", "self_loops": len(split)}
    write_parts_of_edges(
        work / "parts", work / "edges.npy", n, parts=parts, undirected=True, self_loops=1.0, fields=fields,
        about=about, memory=memory,
    )  # fmt: skip


class Memory:
    """Samples of the memory of a process and of all that it has started, until :meth:`stop`."""

    def __init__(self, root: int) -> None:
        self.root, self.peaks, self.together = root, {}, 0.0
        self.going = threading.Event()
        self.thread = threading.Thread(target=self._watch, daemon=True)
        self.thread.start()

    def _watch(self) -> None:
        while not self.going.wait(0.5):
            shares = []
            for process in _family(self.root):
                found = _read(process)
                if found:
                    self.peaks.setdefault(process, {"process": found.pop("name")})
                    for key, value in found.items():
                        self.peaks[process][key] = max(value, self.peaks[process].get(key, 0))
                    shares.append(found["share_gb"])
            self.together = max(self.together, sum(shares))

    def stop(self) -> dict[str, Any]:
        """Peaks of each process that held 0.2 GB at least, and of all together; GB."""
        self.going.set()
        self.thread.join()
        large = [own for own in self.peaks.values() if own["resident_gb"] > 0.2]
        return {"processes": large, "together_gb": self.together}


def _family(root: int) -> list[int]:
    found, waiting = [], [root]
    while waiting:
        process = waiting.pop()
        found.append(process)
        for path in Path(f"/proc/{process}/task").glob("*/children"):
            try:
                waiting += map(int, path.read_text().split())
            except OSError:
                continue
    return found


def _read(process: int) -> dict[str, Any] | None:
    """What a process holds: all of its pages; its own ones; and its share of those that are shared."""
    try:
        folder = Path(f"/proc/{process}")
        command = folder.joinpath("cmdline").read_text().replace("\0", " ")
        status = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines())
        shares = dict(line.split(":", 1) for line in (folder / "smaps_rollup").read_text().splitlines()[1:])
    except (OSError, ValueError):
        return None
    if "VmHWM" not in status:
        return None
    name = "process of a part" if "spawn_main" in command else "parent"
    kb = {
        "resident_gb": status["VmHWM"],
        "anonymous_gb": status["RssAnon"],
        "share_gb": shares.get("Pss", "0 kB"),
    }
    return {"name": name} | {key: int(text.split()[0]) * 1024 / 1e9 for key, text in kb.items()}


def apart(function: Any, *args: Any) -> dict[str, Any]:
    """Run a function in a process of its own: its seconds, and its peak memory."""
    start = time.perf_counter()
    process = multiprocessing.get_context("spawn").Process(target=function, args=args)
    process.start()
    memory = Memory(process.pid or 0)
    process.join()
    if process.exitcode:
        sys.exit(f"{function.__name__} has failed")
    peak = max((own["resident_gb"] for own in memory.stop()["processes"]), default=0.0)
    return {"seconds": time.perf_counter() - start, "peak_gb": peak}


def train(work: Path, parts: int, options: list[str]) -> dict[str, Any]:
    """``grand train`` on the folder of parts."""
    run = work / "run"
    command = [
        sys.executable,
        "-m",
        "graphdiffusion.cli",
        "train",
        str(work / "parts"),
        "--parts",
        str(parts),
    ]
    start = time.perf_counter()
    process = subprocess.Popen([*command, *options, "--out", str(run)])
    memory, metrics, ends = Memory(process.pid), run / "metrics.jsonl", []
    while process.poll() is None:
        if metrics.exists() and metrics.read_bytes().count(b'"loss"') > len(ends):
            ends.append(time.perf_counter())
        time.sleep(0.1)
    if process.returncode:
        sys.exit("grand train has failed")
    summary = json.loads((run / "summary.json").read_text())
    return {
        "seconds": time.perf_counter() - start,
        "seconds_of_epochs": np.diff(ends).round(2).tolist(),  # after the first one
        "test": summary["results"][0]["test"],
        **memory.stop(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--work", type=Path, required=True, help="folder for edges, parts and run; about 3 GB"
    )
    parser.add_argument("--nodes", type=int, default=2_000_000)
    parser.add_argument("--edges", type=int, default=10_000_000, help="each for both directions")
    parser.add_argument("--communities", type=int, default=16)
    parser.add_argument("--features", type=int, default=32)
    parser.add_argument("--parts", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--hidden", type=int, default=16)
    parser.add_argument("--time", type=float, default=2.0)
    parser.add_argument("--memory", type=int, default=2**30, help="bytes for edges while parts are built")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    work: Path = options.work
    work.mkdir(parents=True, exist_ok=True)
    result: dict[str, Any] = {
        "options": {k: v for k, v in vars(options).items() if k not in ("work", "out")}
    }
    size = (options.nodes, options.edges, options.communities, options.features)
    result["drawn"] = apart(draw, work, *size)
    result["built"] = apart(build, work, options.parts, options.memory)
    about = read_about(work / "parts")
    result["graph"] = {"nodes": about.nodes, "edges": about.edges, "parts": about.sizes}
    model = {"preset": "none", "splits": 1, "epochs": options.epochs, "hidden": options.hidden}
    model |= {"time": options.time, "gradient": "checkpoint", "heads": 1, "attention-dim": 16}
    flags = [text for key, value in model.items() for text in (f"--{key}", str(value))]
    result["trained"] = train(work, options.parts, flags)
    result["torch"] = torch.__version__
    show(result)
    if options.out:
        options.out.write_text(json.dumps(result, indent=2) + "\n")


def show(result: dict[str, Any]) -> None:
    graph, trained = result["graph"], result["trained"]
    print(f"{graph['nodes']:,} nodes, {graph['edges']:,} edges with self-loops; parts: {graph['parts']}")
    for step in ("drawn", "built"):
        print(f"{step:10s} {result[step]['seconds']:8.1f} s   peak {result[step]['peak_gb']:.2f} GB")
    print(f"{'trained':10s} {trained['seconds']:8.1f} s   epochs {trained['seconds_of_epochs']} s")
    print(f"test {trained['test']:.4f}")
    for own in trained["processes"]:
        rest = ", ".join(f"{own[key]:.2f} GB {key[:-3]}" for key in ("resident_gb", "anonymous_gb"))
        print(f"{own['process']:20s} peak {rest}")
    print(f"all together         peak {trained['together_gb']:.2f} GB")


if __name__ == "__main__":
    main()
