"""Throughput of the population engine: trainings a second against the number of members.

    PYTHONPATH=src python benchmarks/population.py --members 1 10 100 --out population.json
    PYTHONPATH=src python benchmarks/population.py --members 100 --cases gcn gat cgnn

A case is a variant of GRAND, a scheme and its step with the published settings, or a row of the tables with
its preset for Cora.
"""

from __future__ import annotations

import argparse
import json
import time
from contextlib import nullcontext
from pathlib import Path

import torch

from graphdiffusion.experiments import preset_config
from graphdiffusion.ops import use_backend
from graphdiffusion.training import Config, Population, load_problem, pick_device, protocol
from graphdiffusion.training.summary import device_name

# the authors' code on one H200, seconds for one training of about 100 epochs
AUTHORS = {"linear": 16.0, "nonlinear": 100.0}


def settings(variant: str, solver: str, step: float) -> Config:
    """The published settings for Cora: T = 18.29, hidden 80, 8 heads, attention dimension 128."""
    published = {
        "data": "cora-embedded", "variant": variant, "solver": solver, "time": 18.2948, "hidden": 80,
        "heads": 8, "attention_dim": 128, "optimiser": "adamax", "rate": 0.022924849, "decay": 0.00507685,
        "input_dropout": 0.5, "dropout": 0.046878964, "normaliser": "squareplus", "over": "columns",
    }  # fmt: skip
    return Config.from_dict(published, {"step_size": step})  # where the scheme has one


def case_config(case: str) -> Config:
    if ":" not in case:
        return preset_config("cora-embedded", case, patience=0)
    variant, solver, step = case.split(":")
    return settings(variant, solver, float(step))


def measure(config: Config, members: int, epochs: int, device: torch.device) -> dict[str, float]:
    problem = load_problem(config).to(device)
    config = config.replace(splits=members)

    def sync() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize()

    warm = Population(problem, config, protocol(config, problem.data))
    for _ in range(3):
        warm.step()
    del warm
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    population = Population(problem, config, protocol(config, problem.data))
    sync()
    start = time.perf_counter()
    for _ in range(epochs):
        population.step()
    _, val, test = population.final()
    sync()
    seconds = time.perf_counter() - start
    return {
        "members": members,
        "epochs": epochs,
        "seconds": seconds,
        "trainings_per_second_100_epochs": members * epochs / 100 / seconds,
        "peak_gb": torch.cuda.max_memory_allocated() / 1e9 if device.type == "cuda" else float("nan"),
        "val": 100 * float(val.mean()),
        "test": 100 * float(test.mean()),
        "test_std": 100 * float(test.std()) if members > 1 else 0.0,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--members", type=int, nargs="+", default=[1, 10, 100])
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument(
        "--cases", nargs="+", default=["linear:auto:1", "nonlinear:rk4:2", "nonlinear:dopri5:1"]
    )
    parser.add_argument("--device", default="auto")
    parser.add_argument(
        "--backend", choices=["triton", "torch"], help="kernels for all; by default the device's own"
    )
    parser.add_argument("--profile", action="store_true", help="print where one step spends its time")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    device = pick_device(options.device)
    found = []
    for case in options.cases:
        config = case_config(case)
        for members in options.members:
            with use_backend(options.backend) if options.backend else nullcontext():
                row = measure(config, members, options.epochs, device)
            speed, ratio = row["trainings_per_second_100_epochs"], ""
            if ":" in case:
                row["times_authors"] = AUTHORS[config.variant] * speed
                ratio = f"×{row['times_authors']:7.1f} the authors' code  "
            print(
                f"{case:22s} P={members:4d} {row['seconds']:8.3f} s {speed:9.3f}/s {ratio}"
                f"{row['peak_gb']:.1f} GB  test {row['test']:.1f}",
                flush=True,
            )
            found.append({"case": case, **row})
        if options.profile:
            profile(config, max(options.members), device)
    about = {"device": device_name(device), "torch": torch.__version__, "backend": options.backend}
    result = {**about, "rows": found}
    if options.out:
        options.out.write_text(json.dumps(result, indent=2))


def profile(config: Config, members: int, device: torch.device) -> None:
    config = config.replace(splits=members)
    problem = load_problem(config).to(device)
    population = Population(problem, config, protocol(config, problem.data))
    for _ in range(3):
        population.step()
    with torch.profiler.profile() as recorded:
        population.step()
        if device.type == "cuda":
            torch.cuda.synchronize()
    by = "self_cuda_time_total" if device.type == "cuda" else "self_cpu_time_total"
    print(recorded.key_averages().table(sort_by=by, row_limit=25, max_name_column_width=60))


if __name__ == "__main__":
    main()
