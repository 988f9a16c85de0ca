"""Sparsity, section 5.3 and figure 4 right: Cora rewired with K edges a node, accuracy and seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, cast

import torch
from torch_geometric.data import Data

from ..nn import GRAND
from ..training.config import Config
from ..training.memory import chunk_size
from ..training.population import Population
from ..training.problem import read_data
from ..training.runs import Run
from ..training.summary import device_name, versions
from .clock import seconds
from .results import Note, Results, Tick
from .side_branch import SideBranch
from .sparsity_claims import MODELS, conclusions
from .sparsity_schemes import REFERENCE, SCHEMES
from .trained import trained


@dataclass(frozen=True)
class Settings(SideBranch):
    """What the figures depend on; defaults from the authors' side branch, or marked as ours.

    Attributes:
        data: Cora's largest component, which comes with the library.
        ks: Largest entries that are kept of each row, beside the graph as it is.
        ppr: Return probability of personalised PageRank.
        heat: Time of the heat kernel (ours); 0: without it.
        epochs: Of a training.
        splits: Random splits, one training on each, the same for every graph and scheme (ours).
        trained: Schemes that are trained on all graphs of PageRank, beside those of ``REFERENCE``.
        trained_heat: Likewise of heat (ours).
        timed: Schemes whose epochs are timed, on the graphs of PageRank.
        costly_ks, costly_splits: K and splits of schemes that are costly (ours).
        warm: Rounds before the timed ones (ours).
        repeats, most_repeats, enough: Fewest and most timed rounds, and seconds after which no further
            one is begun (ours).
    """

    data: str = "cora-embedded"
    ks: tuple[int, ...] = (4, 8, 16, 32, 64, 128)
    ppr: float = 0.05
    heat: float = 5.0
    epochs: int = 50
    splits: int = 20
    trained: tuple[str, ...] = (
        "exponential-midpoint", "dopri5", "adams-moulton-1", "adams-bashforth-0.005",
    )  # fmt: skip
    trained_heat: tuple[str, ...] = ("closed-form", "dopri5", "adams-moulton-1")
    timed: tuple[str, ...] = tuple(name for name in SCHEMES if name != "adams-bashforth-0.125")
    costly_ks: tuple[int, ...] = (4, 8, 16, 32)
    costly_splits: int = 5
    warm: int = 3
    repeats: int = 10
    most_repeats: int = 30
    enough: float = 5.0


FULL = Settings()
SMALL = replace(
    FULL,
    ks=(4, 8, 16),
    heat=0.0,
    epochs=15,
    splits=3,
    trained=(),
    timed=(
        "closed-form", "exponential-midpoint", "dopri5", "adams-moulton-1", "adams-moulton-0.5",
        "adams-bashforth-0.125",
    ),
    warm=1,
    repeats=3,
    most_repeats=12,
)  # fmt: skip


def reproduce(out: Path, *, small: bool, root: str | None, device: torch.device, note: Note) -> Path:
    """Measure figure 4, right, in ``<out>/sparsity``, or ``sparsity-small``; the path of the results file.

    What is costly comes last. The file has its conclusions after each model, on the cases that are whole:
    if it is stopped, they are there without the rest.
    """
    settings = SMALL if small else FULL
    folder = out / ("sparsity-small" if small else "sparsity")
    data = read_data(Config(data=settings.data), root)
    if "adams-bashforth-0.005" not in settings.timed:
        note("Adams-Bashforth takes steps of 0.125, nearly the largest stable ones, not the paper's 0.005.")
    results = Results(folder, asdict(settings), note)

    def compute(point: Mapping[str, Any], tick: Tick) -> dict[str, Any]:
        bench = Bench(settings, folder / "runs", data, device.type)
        found = (bench.timed if point["kind"] == "speed" else bench.accuracy)(point, tick)
        return found | {"device": device_name(device), "versions": versions()}

    planned = wanted(settings)
    for costly, model in product((False, True), MODELS):
        points = [p for p in planned if SCHEMES[p["scheme"]].costly == costly and p["model"] == model]
        if points:
            results.measure(points, compute)
            _conclude(results, planned)
    return results.path


def _conclude(results: Results, planned: Sequence[Mapping[str, Any]]) -> None:
    titles = {name: scheme.title for name, scheme in SCHEMES.items()}
    implicit = [name for name, scheme in SCHEMES.items() if scheme.implicit]

    def find() -> dict[str, Any]:
        left = results.missing(planned)
        whole = [p for p in results.points if not any(_belongs(p, other) for other in left)]
        return {"titles": titles, **conclusions(whole, titles, implicit)}

    results.conclude(find)


def _belongs(point: Mapping[str, Any], missing: Mapping[str, Any]) -> bool:
    """Whether a point is judged together with one that is missing, which may be the graph as it is."""
    same = all(point[key] == missing[key] for key in ("kind", "model", "scheme"))
    return same and missing.get("rewire") in (point.get("rewire"), "none")


def graphs(settings: Settings, scheme: str, method: str = "ppr") -> list[dict[str, Any]]:
    """What identifies the graph as it is (K = 0) and those that a method rewires."""
    ks = settings.costly_ks if SCHEMES[scheme].costly else settings.ks
    return [{"rewire": "none", "k": 0}, *({"rewire": method, "k": k} for k in ks)]


def wanted(settings: Settings) -> list[dict[str, Any]]:
    """All points, a model and scheme after the other."""
    found = []
    for model in MODELS:
        own = [name for name, scheme in SCHEMES.items() if model in scheme.models]
        for name in own:
            places = graphs(settings, name) if name in (REFERENCE[model], *settings.trained) else []
            if settings.heat and name in settings.trained_heat:
                places += graphs(settings, name, "heat")[1:]
            found += [{"kind": "accuracy", "model": model, "scheme": name, **place} for place in places]
        found += [
            {"kind": "speed", "model": model, "scheme": name} for name in own if name in settings.timed
        ]
    return found


def configuration(settings: Settings, point: Mapping[str, Any], device: str = "auto") -> Config:
    """The options of a model and scheme on a graph."""
    rewired = {"none": {}, "ppr": {"rewire_alpha": settings.ppr}, "heat": {"rewire_t": settings.heat}}
    options: dict[str, Any] = {"rewire": point["rewire"], **rewired[point["rewire"]]}
    if point["rewire"] != "none":
        options |= {"rewire_k": point["k"]}
    splits = settings.costly_splits if SCHEMES[point["scheme"]].costly else settings.splits
    return Config(
        data=settings.data, split="random", splits=splits, epochs=settings.epochs, device=device,
        self_loops=0.0 if point["rewire"] != "none" else settings.self_loops,
        variant=point["model"], hidden=settings.hidden, augment=settings.augment, time=settings.time,
        optimiser="rmsprop", rate=settings.rate, decay=settings.decay,
        heads=settings.heads, attention_dim=settings.attention_dim, normaliser="softmax", over="rows",
        input_dropout=0.5, dropout=0.0, relu=False, **options, **SCHEMES[point["scheme"]].options,
    )  # fmt: skip


class Bench:
    """Trainings and timings of one experiment.

    Args:
        settings: Of the experiment.
        folder: For the runs.
        data: Cora.
        device: By its name.
    """

    def __init__(self, settings: Settings, folder: Path, data: Data, device: str) -> None:
        self.settings, self.folder, self.data, self.device = settings, folder, data, device

    def run(self, point: Mapping[str, Any], tick: Tick = lambda share: None) -> Run:
        """The run of a point, trained if it is not."""
        name = "-".join(str(point[key]) for key in ("model", "scheme", "rewire", "k"))
        config = configuration(self.settings, point, self.device)
        return trained(config, self.folder / name, self.data, tick)

    def accuracy(self, point: Mapping[str, Any], tick: Tick) -> dict[str, Any]:
        """Test accuracy on each split, and what an integral costs with the weights of the first."""
        run = self.run(point, tick)
        return {
            "test": [100 * (result.test or 0.0) for result in run.results],
            "val": [100 * (result.val or 0.0) for result in run.results],
            **edges(run),
            **cost(run, run.config),
            "options": run.config.to_dict(),
        }

    def timed(self, point: Mapping[str, Any], tick: Tick) -> dict[str, Any]:
        """Seconds an epoch on every graph, each once in each round, with the same weights.

        An epoch is that of the harness, a step of training and a validation, divided by the members that
        are trained together: one on a CPU.
        """
        places = graphs(self.settings, point["scheme"])
        found: list[dict[str, Any]] = []
        populations: list[Population] = []
        for place in places[::-1]:  # the densest graph decides how many fit
            run = self.run({**point, **place, "scheme": REFERENCE[point["model"]]})
            config = configuration(self.settings, {**point, **place}, self.device).replace(rate=1e-12)
            if not populations:
                room = chunk_size(run.problem, config, len(run.results) * len(places)) // len(places)
                members = max(1, min(len(run.results), room))
            populations.insert(0, loaded(run, config, members))
            found.insert(0, {"k": place["k"], **edges(run), **cost(run, config), "seconds": []})
        fewest, most, spent = self.settings.repeats, self.settings.most_repeats, 0.0
        for number in range(-self.settings.warm, most):
            if number >= fewest and spent > self.settings.enough:
                break
            for turn in range(len(places)):
                own = (number + turn) % len(places)
                taken = epoch_seconds(populations[own])
                if number >= 0:
                    found[own]["seconds"].append(taken / members)
                    spent += taken
            tick(max(0.0, (number + 1) / most))
        return {"graphs": found, "members": members}


def loaded(run: Run, config: Config, members: int) -> Population:
    """The first members of a run with their trained weights, to be integrated as a configuration says."""
    population = Population(run.problem, config, [result.member for result in run.results[:members]])
    with torch.no_grad():
        for name, own in population.stack.saved.items():
            population.stack.tensors[own].copy_(run.states[name][:members])
    return population


def epoch_seconds(population: Population) -> float:
    """Seconds of one epoch; what fails is raised."""
    device = population.loss.device
    start = seconds(device)
    failure = population.step()
    taken = seconds(device) - start
    if failure is not None:
        raise failure
    return taken


def edges(run: Run) -> dict[str, int]:
    """Edges of the graph that is diffused on; self-loops apart."""
    graph = run.problem.graph
    return {"edges": int((graph.row != graph.col).sum()), "self_loops": int((graph.row == graph.col).sum())}


@torch.no_grad()
def cost(run: Run, config: Config) -> dict[str, int]:
    """Steps, evaluations and iterations of one integral with the weights of the first member.

    Iterations are those of corrector or linear solver; of the exponential midpoint, sparse products.
    """
    model = cast(GRAND, replace(run, config=config).model(run.results[0].number))
    layer, problem = model.diffusion, run.problem
    x0 = model.encode(problem.x)
    stats = layer.diffuse(layer.bind(x0, problem.graph), x0, layer.span, None, True).stats
    return {
        "evaluations": stats.evaluations,
        "iterations": stats.inner_iterations,
        "steps": stats.accepted,
    }
