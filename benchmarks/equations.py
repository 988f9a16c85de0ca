"""Trainings a second of every equation, beside GRAND-nl and beside the same equation in plain torch.

    PYTHONPATH=src python benchmarks/equations.py --members 4 --epochs 5 --device cpu --out equations.json

Each has its preset ``own-*`` on Cora. A training is counted as 100 epochs, each with a validation. Members
of ours train together, plain models (``equations_plain.py``) one after the other. Both are first compared
in float64: dx/dt of the same parameters and state, and x(T). On a CPU the seconds are those of the process,
so that others may use the machine meanwhile.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import torch
from equations_plain import Plain
from torch.nn.functional import cross_entropy

from graphdiffusion.configs import read_preset
from graphdiffusion.ensemble.baselines import as_matrix
from graphdiffusion.nn import GRAND
from graphdiffusion.solvers import integrate
from graphdiffusion.training import Config, Population, load_problem, pick_device, protocol
from graphdiffusion.training.problem import Problem
from graphdiffusion.training.summary import device_name
from graphdiffusion.training.template import build_model

BASE = "nonlinear"
NAMES = (
    BASE, "linear", "fisher", "allen-cahn", "zeldovich", "blurring-sharpening", "labelled-source",
    "convection", "repulsion", "acmp", "graphcon", "adc", "blend", "fractional",
)  # fmt: skip


def settings(name: str) -> Config:
    return Config.from_dict({"data": "cora-embedded", "patience": 0}, read_preset(f"own-{name}"))


def both(config: Config, problem: Problem, train: torch.Tensor) -> tuple[GRAND, Plain]:
    """A model of ours, and the plain one with the same parameters."""
    model = build_model(config, problem.in_channels, problem.task.outputs, 0, problem.num_nodes)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():  # what starts at 0 would hide what it multiplies
        for p in filter(lambda p: p.requires_grad, model.parameters()):
            p.add_(0.1 * torch.randn(p.shape, generator=generator))
    model = model.to(problem.graph.device)
    return model, Plain(config, model, problem.graph, train).to(problem.graph.device)


def compared(config: Config, problem: Problem, train: torch.Tensor) -> tuple[float, float]:
    """Largest difference of dx/dt of the two, and relative difference of x(T), in float64."""
    model, _ = both(config, problem, train)
    layer = model.double().eval().diffusion
    plain = Plain(config, model, problem.graph, train).to(problem.graph.device).double().eval()
    with torch.no_grad():
        x0 = plain.encode(dense(problem).double())
        start = x0[:, : config.hidden]
        if config.augment:  # positions are added by the equation
            start = torch.nn.functional.pad(start, (0, config.augment))
        flow = layer.bind(start, problem.graph, observed=train[:, None].double())
        state = layer.equation.initial(start, flow.context)
        apart = float((flow(state.new_zeros(1, 1), state) - plain.field(x0)(state)).abs().max())
        end = layer.equation.read(integrate(flow, state, config.time, layer.solver).state)
        return apart, float((end - plain.end(x0)).norm() / end.norm())


def dense(problem: Problem) -> torch.Tensor:
    return torch.from_numpy(as_matrix(problem.x).toarray()).to(problem.graph.device)


def seconds_of(step: Callable[[], object], epochs: int, device: torch.device) -> float:
    """Of one step, the median; the first is not counted."""
    on_gpu, each = device.type == "cuda", []
    clock = time.perf_counter if on_gpu else time.process_time
    for _ in range(epochs + 1):
        start = clock()
        step()
        if on_gpu:
            torch.cuda.synchronize()
        each.append(clock() - start)
    return median(each[1:])


def plain_step(config: Config, problem: Problem, train: torch.Tensor) -> Callable[[], object]:
    """One epoch of the plain model: a step of Adam, and a validation."""
    plain, x, y = both(config, problem, train)[1], dense(problem), problem.y
    optimiser = torch.optim.Adam(plain.parameters(), config.rate, weight_decay=config.decay)

    def step() -> None:
        plain.train()
        optimiser.zero_grad()
        cross_entropy(plain(x)[train], y[train]).backward()
        optimiser.step()
        plain.eval()
        with torch.no_grad():
            plain(x).argmax(-1)

    return step


def measure(name: str, members: int, epochs: int, device: torch.device) -> dict[str, float | str]:
    config = settings(name).replace(splits=members)
    problem = load_problem(config).to(device)
    population = Population(problem, config, protocol(config, problem.data))
    train = population.train[0]
    apart, end = compared(config, problem, train)
    assert apart < 1e-9, f"{name}: dx/dt differs by {apart}"
    ours = seconds_of(population.step, epochs, device) / members
    plain = seconds_of(plain_step(config, problem, train), epochs, device)
    return {
        "name": name, "trainings_per_second": 0.01 / ours, "plain_trainings_per_second": 0.01 / plain,
        "times_plain": plain / ours, "evaluations": population.evaluations, "apart": apart, "end": end,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--members", type=int, default=100)
    parser.add_argument("--epochs", type=int, default=20, help="that are timed")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--threads", type=int, default=1, help="of a CPU")
    parser.add_argument("--only", nargs="+", choices=NAMES, default=list(NAMES))
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    device, rows = pick_device(options.device), []
    print("equation             trainings/s   cost of GRAND-nl   faster than plain   x(T) apart")
    for name in dict.fromkeys((BASE, *options.only)):
        row = measure(name, options.members, options.epochs, device)
        row["times_nonlinear"] = (rows[0] if rows else row)["trainings_per_second"] / row[
            "trainings_per_second"
        ]
        rows.append(row)
        print(
            f"{name:20} {row['trainings_per_second']:11.3f} {row['times_nonlinear']:15.2f} ×"
            f" {row['times_plain']:17.1f} × {row['end']:12.1e}",
            flush=True,
        )
    about = {"device": device_name(device), "torch": torch.__version__, "threads": options.threads}
    if options.out:
        found = {**about, "members": options.members, "epochs": options.epochs, "rows": rows}
        options.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
