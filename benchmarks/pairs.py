"""Old and new code in turns: the ratio of their times, with an interval.

    PYTHONPATH=src python benchmarks/pairs.py OLD --case linear:auto:1 --members 100 --pairs 15

OLD is a checkout of an older commit. Each of the two runs in a process of its own, which has loaded and
warmed up before the first pair; in every pair the two are timed one after the other, and the order changes
from pair to pair. The ratio is that of new over old; its interval is that of the median (order statistics).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

HERE = Path(__file__).resolve().parents[1]


def work(case: str, members: int, epochs: int) -> None:
    """Answer each line of standard input with the seconds of one training."""
    sys.path.pop(0)  # the folder of this script, which may not be that of the code to time
    import population as bench
    import torch

    from graphdiffusion.training import Population, load_problem, pick_device, protocol
    from graphdiffusion.training.memory import free_memory

    variant, solver, step = case.split(":")
    config = bench.settings(variant, solver, float(step))
    config = getattr(config, "replace", None) or config.but
    config = config(splits=members)
    device = pick_device("auto")
    problem = load_problem(config).to(device)

    def train() -> float:
        population = Population(problem, config, protocol(config, problem.data))
        for _ in range(3 if device.type == "cuda" else 1):  # captures, and fills caches
            population.step()
        if device.type == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(epochs):
            population.step()
        if device.type == "cuda":
            torch.cuda.synchronize()
        seconds = time.perf_counter() - start
        del population
        free_memory()  # of a captured step
        return seconds

    train()
    print("ready", flush=True)
    for _ in sys.stdin:
        print(train(), flush=True)


def start(root: Path, options: argparse.Namespace) -> subprocess.Popen[str]:
    here = os.pathsep.join(str(root / part) for part in ("src", "benchmarks"))
    command = [sys.executable, __file__, "--work", "--case", options.case]
    command += ["--members", str(options.members), "--epochs", str(options.epochs)]
    environment = {**os.environ, "PYTHONPATH": here}
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment)


def answer(process: subprocess.Popen[str]) -> str:
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write("go\n")
    process.stdin.flush()
    return process.stdout.readline()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("old", type=Path, nargs="?", help="checkout of an older commit")
    parser.add_argument("--case", default="linear:auto:1", help="variant:solver:step")
    parser.add_argument("--members", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(options.case, options.members, options.epochs)
        return
    both = {"old": start(options.old, options), "new": start(HERE, options)}
    for process in both.values():
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
    taken: dict[str, list[float]] = {"old": [], "new": []}
    for k in range(options.pairs):
        for name in ("old", "new") if k % 2 else ("new", "old"):
            taken[name].append(float(answer(both[name])))
    ratios = sorted(n / o for n, o in zip(taken["new"], taken["old"], strict=True))
    spare = max(0, int(len(ratios) / 2 - 0.98 * len(ratios) ** 0.5))  # about 95%
    print(
        f"{options.case} P={options.members} epochs={options.epochs}: new/old {median(ratios):.4f} "
        f"(95% interval {ratios[spare]:.4f} to {ratios[-1 - spare]:.4f}, {len(ratios)} pairs; old "
        f"{median(taken['old']):.3f} s, new {median(taken['new']):.3f} s)",
        flush=True,
    )
    for process in both.values():
        process.communicate()


if __name__ == "__main__":
    main()
