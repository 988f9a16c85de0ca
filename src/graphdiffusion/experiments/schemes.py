"""Schemes and step sizes, section 5.3 and figure 4 left: accuracy, error and stability of each scheme."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from torch_geometric.data import Data

from ..training.config import Config
from ..training.problem import Problem, Problems, protocol, read_data
from ..training.summary import device_name, versions
from .results import Note, Results, Tick
from .scheme_errors import ErrorSettings, error_point, error_points
from .scheme_list import MODELS, SCHEMES, amounts, available, make_solver, missing, solver_options
from .scheme_stability import SPECTRA, Spectrum, stability_point
from .scheme_training import Trainings
from .scheme_verdict import figures, limits, verdict
from .side_branch import SideBranch

PARTS = ("accuracy", "errors", "stability")
SHORT = 500  # beyond so many steps the backward pass computes states again instead of keeping them


@dataclass(frozen=True)
class Settings(SideBranch):
    """What the figures depend on; defaults are those of the authors' side branch, or marked as ours.

    Attributes:
        data, lcc: Cora's whole graph.
        models: The branch ran the constant Laplacian alone.
        schemes: Of the trainings (ours, but for Adams and Dormand-Prince).
        explicit, implicit: Steps τ.
        stiff: Steps τ of the schemes that solve a system in every step, or have no limit (ours).
        scales: Tolerance scales of the adaptive schemes.
        scale: That of the equation of an implicit step.
        runs: Random splits of the paper's kind, one training on each (the paper: 10 runs).
        epochs: Of a training.
        limit: Seconds after which trainings that run together are stopped (ours).
        errors: Of the errors (ours).
        limits: Schemes with a limit of stability that is measured (ours).
        spectra: Graphs on which they are measured.
        stability_steps, digits: Steps of an integration, and relative width of the limits.
    """

    data: str = "cora"
    lcc: bool = False
    models: tuple[str, ...] = tuple(MODELS)
    schemes: tuple[str, ...] = tuple(SCHEMES)
    explicit: tuple[float, ...] = (2, 1, 0.5, 0.25, 0.1, 0.005)
    implicit: tuple[float, ...] = (5, 2, 1, 0.5, 0.25, 0.1)
    stiff: tuple[float, ...] = (5, 2, 1, 0.5)
    scales: tuple[float, ...] = (100, 1000)
    scale: float = 1000
    runs: int = 10
    epochs: int = 30
    limit: float = 240.0
    errors: ErrorSettings = field(default_factory=ErrorSettings)
    limits: tuple[str, ...] = tuple(name for name, own in SCHEMES.items() if own.kind != "closed")
    spectra: tuple[Spectrum, ...] = SPECTRA
    stability_steps: int = 60
    digits: float = 0.005


FULL = Settings()
_FEW = ("ab4", "am3", "am3-newton", "torchdiffeq-explicit", "torchdiffeq-implicit", "rk4", "dopri5")
SMALL = replace(
    FULL,
    data="cora-embedded",
    lcc=True,
    schemes=(*_FEW, "closed", "exponential-midpoint"),
    explicit=(2, 1, 0.5),
    implicit=(5, 2, 1),
    stiff=(5, 2),
    scales=(1000,),
    runs=2,
    epochs=6,
    heads=2,
    errors=ErrorSettings(
        hidden=16,
        heads=2,
        attention_dim=16,
        epochs=10,
        parts=(4, 8, 16, 32),
        scales=(1e3, 1e5),
        repeats=1,
        schemes=(*_FEW, "trapezoid", "esdirk", "closed", "exponential-midpoint", "exponential-cf4"),
    ),
    limits=(*_FEW, "am4", "trapezoid", "bdf2", "semi-implicit", "exponential-midpoint"),
    spectra=("disc",),
    stability_steps=24,
    digits=0.05,
)


def reproduce(
    out: Path, *, small: bool, root: str | None, device: torch.device, note: Note, part: str = ""
) -> Path:
    """Measure figure 4 left in ``<out>/schemes``, or ``schemes-small``; the path of the results file.

    Args:
        part: One of ``PARTS``; empty: all of them.
    """
    settings = SMALL if small else FULL
    folder = out / ("schemes-small" if small else "schemes")
    named = dict.fromkeys((*settings.schemes, *settings.errors.schemes, *settings.limits))
    absent = missing(list(named))
    if absent:
        note(f"not installed, and left out: {', '.join(absent)} (pip install torchdiffeq).")
    results = Results(folder, asdict(settings), note)
    points = [p for p in wanted(settings) if part in ("", p["part"])]
    # first of all: missing files are to show before anything is measured
    data = None if part == "stability" else Problems(_read(settings, root), device)

    def problem(config: Config) -> Problem:
        assert data is not None
        return data.of(config)

    def compute(point: Mapping[str, Any], tick: Tick) -> dict[str, Any]:
        if point["part"] == "stability":
            return stability_point(
                point["scheme"], settings.stability_steps, settings.digits, settings.spectra
            )
        if point["part"] == "errors":
            found = error_point(point, problem, settings.errors, settings.data, tick)
        else:
            found = training_point(point, problem, settings, tick)
        return {**found, "device": device_name(device), "versions": versions()}

    def find() -> dict[str, Any]:
        return {
            "figures": figures(results.points),
            "limits": limits(results.points, settings.spectra),
            "verdict": verdict(results.points, settings.scale),
            "missing": absent,
        }

    results.measure(points, compute)
    results.conclude(find)
    return results.path


def wanted(settings: Settings) -> list[dict[str, Any]]:
    """What identifies each point, in the order of the measurement."""
    points: list[dict[str, Any]] = [
        {"part": "stability", "scheme": name} for name in available(settings.limits)
    ]
    points += error_points()
    steps = (settings.explicit, settings.implicit, settings.stiff, settings.scales)
    for model in settings.models:
        for name in available(settings.schemes, linear=MODELS[model][1]["variant"] == "linear"):
            for amount in amounts(name, *steps):
                if name == "rk4" and settings.time / (amount or 1) > SHORT:
                    continue  # four evaluations a step: minutes for what a longer step shows as well
                points.append({"part": "accuracy", "model": model, "scheme": name, "amount": amount})
    return points


def training_config(point: Mapping[str, Any], settings: Settings) -> Config:
    """The configuration of a training; a scheme of torchdiffeq is put in later, in the place of RK4."""
    name, amount = point["scheme"], point["amount"]
    own = SCHEMES[name]
    scheme = {"solver": own.solver, **solver_options(name, amount, settings.scale)}
    if own.foreign:
        scheme = {"solver": "rk4", "step_size": amount}
    long = "step_size" in scheme and settings.time / amount > SHORT
    _, equation = MODELS[point["model"]]
    attention = {
        "heads": settings.heads, "attention_dim": settings.attention_dim, "normaliser": "softmax",
    }  # fmt: skip
    return Config(
        data=settings.data, lcc=settings.lcc, split="random", splits=settings.runs, hidden=settings.hidden,
        augment=settings.augment, time=settings.time, optimiser="rmsprop", rate=settings.rate,
        decay=settings.decay, self_loops=settings.self_loops, epochs=settings.epochs, patience=0,
        over="rows", alpha=0.5, terms="", gradient="checkpoint" if long else "backprop",
        **({} if "diffusivity" in equation else attention), **equation, **scheme,
    )  # fmt: skip


def training_point(
    point: Mapping[str, Any], problem: Any, settings: Settings, tick: Tick
) -> dict[str, Any]:
    """Accuracies and cost of the trainings with a scheme, and the error of x(T) in the first of them."""
    config = training_config(point, settings)
    ready = problem(config)
    solver = None
    if SCHEMES[point["scheme"]].foreign:
        solver = make_solver(point["scheme"], point["amount"], settings.scale)
    found = Trainings(ready, config, solver, settings.limit, tick)
    found.run(protocol(config, ready.data))
    return {
        "runs": [found.runs[number] for number in sorted(found.runs)],
        "together": found.together,
        "epoch_seconds": found.epoch_seconds,
        "train_seconds": None if found.epoch_seconds is None else config.epochs * found.epoch_seconds,
        "evaluations": fmean(found.evaluations) if found.evaluations else None,
        **found.first,
        "options": config.to_dict(),
    }


def _read(settings: Settings, root: str | None) -> Data:
    config = Config(data=settings.data, lcc=settings.lcc)
    return read_data(config, root)
