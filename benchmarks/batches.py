"""Training on random groups of parts against exact training: accuracy, seconds and memory.

    python benchmarks/batches.py [--data cora-embedded citeseer] [--batches 2 4 8] [--out batches.json]

Each line is a configuration of a data set (the tuned preset of the linear or the nonlinear model)
trained on the same splits, with the same seeds, in a process of its own: on the whole graph, or in so many
groups of parts that METIS has cut or that were drawn at random. The test accuracy is of the whole graph in
all of them. With k groups an epoch has k updates. Seconds are those of the processor, so that other work on
the machine counts less. Memory is what the updates of one epoch take beyond data and model; validation, on
the whole graph, is apart. Lines of an earlier run with the same --out stay, unless they are measured again.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import time
from pathlib import Path
from statistics import mean, stdev
from typing import Any

VARIANTS = ("linear", "nonlinear")
CUTS = ("metis", "random")
SAME = ("data", "variant", "batches", "cut")  # what names a line


def measured(job: dict[str, Any]) -> dict[str, Any]:
    """One configuration, in this process."""
    import torch

    from graphdiffusion.configs import find_preset, read_preset
    from graphdiffusion.training import Config, Population, Trainer, load_problem, protocol

    torch.set_num_threads(job["threads"])
    preset = find_preset(job["data"], job["variant"], "auto", "auto")
    given = {"data": job["data"], "variant": job["variant"], "device": "cpu", "splits": job["splits"]}
    given |= {"batches": job["batches"], "batch_cut": job["cut"] or "auto"}
    if job["epochs"]:
        given["epochs"] = job["epochs"]
    config = Config.from_dict(given, {} if preset is None else read_preset(preset))
    problem = load_problem(config)
    members = protocol(config, problem.data)

    # what one epoch of training takes, without validation
    population = Population(problem, config, members[:1])
    before = resident()
    population._train(population.seeds)
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before

    started = time.process_time()
    results = Trainer(problem, config, members).run()
    seconds = time.process_time() - started
    tests = [100 * (r.test or 0.0) for r in results]
    cut_share = 0.0
    if population.batches is not None:
        group = population.batches.deal(0)[population.batches.part]
        graph = problem.graph
        apart = graph.row != graph.col
        cut_share = float((group[graph.row.long()] != group[graph.col.long()])[apart].double().mean())
    return {
        **{name: job[name] for name in (*SAME, "splits")},
        "test": mean(tests),
        "std": stdev(tests) if len(tests) > 1 else 0.0,
        "tests": tests,
        "epochs": mean(r.epochs for r in results),
        "best_epoch": mean(r.best_epoch for r in results),
        "seconds": seconds,
        "seconds_epoch": seconds / sum(r.epochs for r in results),
        "megabytes": max(held, 0) / 2**20,
        "left_out": cut_share,
    }


def resident() -> int:
    """Bytes of this process in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def jobs(args: argparse.Namespace) -> list[dict[str, Any]]:
    found = []
    for data in args.data:
        for variant in args.variants:
            how = {"data": data, "variant": variant, "splits": args.splits, "epochs": args.epochs}
            how["threads"] = args.threads
            found.append(how | {"batches": 0, "cut": ""})
            found += [how | {"batches": count, "cut": cut} for count in args.batches for cut in args.cuts]
    return found


def line(row: dict[str, Any]) -> str:
    groups = f"{row['batches']} {row['cut']}" if row["batches"] else "exact"
    return (
        f"{row['data']:14} {row['variant']:10} {groups:10} {row['left_out']:6.1%} "
        f"{row['test']:6.2f} ± {row['std']:.2f}  {row['difference']:+6.2f} "
        f"{row['epochs']:6.0f} epochs {1000 * row['seconds_epoch']:8.1f} ms an epoch "
        f"{row['megabytes']:8.1f} MB"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", nargs="+", default=["cora-embedded", "citeseer", "pubmed"])
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS), choices=VARIANTS)
    parser.add_argument("--batches", nargs="+", type=int, default=[2, 4, 8])
    parser.add_argument("--cuts", nargs="+", default=list(CUTS), choices=("metis", "ldg", "random"))
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=0, help="0: those of the published settings")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--job", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.job:
        print(json.dumps(measured(json.loads(args.job))))
        return
    exact: dict[tuple[str, str], dict[str, Any]] = {}
    for job in jobs(args):
        command = [sys.executable, __file__, "--job", json.dumps(job)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"{job} failed:\n{done.stderr}")
        row = json.loads(done.stdout.splitlines()[-1])
        base = exact.setdefault((row["data"], row["variant"]), row)
        paired = [a - b for a, b in zip(row["tests"], base["tests"], strict=True)]
        row["difference"] = mean(paired)
        print(line(row), flush=True)
        if args.out is not None:
            keep(args.out, row)


def keep(path: Path, row: dict[str, Any]) -> None:
    """Add a line to a file, in place of one with the same name."""
    found = json.loads(path.read_text()) if path.exists() else {"rows": []}
    found["about"] = {"machine": platform.machine(), "python": platform.python_version()}
    rows = [old for old in found["rows"] if any(old[name] != row[name] for name in SAME)]
    found["rows"] = [*rows, row]
    path.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
