"""From a graph to a trained ensemble, and what is said about it."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from torch_geometric.data import Data

from ..errors import ArgumentError
from ..training.config import Config
from ..training.problem import load_problem, pick_device, split_kind, splits_of
from ..training.runs import Run
from ..training.summary import describe_split, device_name, versions
from .automatic import Automatic, Progress, assess_runs, rounds_of
from .baselines import baselines
from .folder import open_choice, write_plan, write_summary
from .plan import Plan, make_plan, speed
from .portfolio import KEPT, Candidate, portfolio

log = logging.getLogger("graphdiffusion")


def choose(
    base: Config,
    data: Data,
    folder: Path,
    *,
    candidates: Sequence[Candidate] | None = None,
    refit: bool | None = None,
    compare: bool = True,
    resume: bool = False,
    budget: float = math.inf,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Race the portfolio on a graph, keep the best as an ensemble, and say what was found.

    Args:
        base: Options of data and splits.
        data: The graph.
        folder: Where to keep everything.
        candidates: Configurations to try; by default the portfolio.
        refit: Train the chosen configurations on all labels at last; by default unless the data carries
            a split.
        compare: Train simple methods for comparison.
        resume: Go on with what the folder holds.
        budget: Seconds that may cut the plan; by default it depends on the size of the graph alone.
        progress: Called on the way.

    Returns:
        The content of ``summary.json``.
    """
    started = time.monotonic()
    if candidates is not None and len({candidate.name for candidate in candidates}) < len(candidates):
        raise ArgumentError("two candidates have one name: name each of them.")
    device = pick_device(base.device)
    kind = split_kind(base, data)
    refit = kind in ("shares", "folds") if refit is None else refit
    shared = {name: value for name, value in base.to_dict().items() if name in KEPT}
    base = Config.from_dict(shared | {"split": kind, "splits": splits_of(base, data)})
    rounds = rounds_of(base, data)

    def make() -> Plan:
        problem = load_problem(base, data).to(device)
        tried = portfolio() if candidates is None else candidates
        most = math.inf if math.isinf(budget) else budget * speed(problem, tried[0].config(base))
        return make_plan(problem, base, tried, len(rounds), refit, compare, most)

    with open_choice(folder, base, data, make, resume) as plan:
        left = math.inf if resume else budget  # a plan that goes on is carried out as it is stored
        store = partial(write_plan, folder, base, data)
        automatic = Automatic(plan, base, data, device, folder, progress, left, store)
        standings, chosen = automatic.race()
        crossed = {run: s.weight for s in chosen for run in s.runs}
        runs: dict[Run, float] = {}
        for standing in chosen:
            own = [*standing.runs, *([automatic.refit(standing)] if plan.refit else [])]
            members = sum(len(run.results) for run in own)
            runs |= {run: standing.weight * len(run.results) / members for run in own}
        temperature, figures = assess_runs(list(crossed), list(crossed.values()))
        problem = chosen[0].runs[0].problem
        simple = {}
        if plan.compare and time.monotonic() - started < left:
            simple = baselines(automatic.problems, base, rounds)
        elif plan.compare:
            log.warning("the time is spent: simple methods are not compared.")
        summary = {
            "data": base.data,
            "task": problem.task.name,
            "names": problem.task.names,
            "metric": problem.task.metric,
            "unit": "%" if problem.task.percent else "",
            "runs": {run.folder.name: weight for run, weight in runs.items()},
            "crossed": {run.folder.name: weight for run, weight in crossed.items()},
            "members": sum(len(run.results) for run in runs),
            "temperature": temperature,
            "figures": figures,
            "baselines": simple,
            "chosen": [s.candidate.name for s in chosen],
            "race": [
                {
                    "name": s.candidate.name,
                    "options": dict(s.candidate.options),
                    "val": s.score,
                    "loss": s.loss if math.isfinite(s.loss) else None,
                    "weight": s.weight,
                    "rounds": len(s.results),
                    "epochs": s.epochs if s.results else 0,
                    "failure": s.failure,
                }
                for s in standings
            ],
            "split": describe_split(chosen[0].candidate.config(base), problem, chosen[0].results),
            "refit": plan.refit,
            "plan": {"work": automatic.plan.work, "size": asdict(automatic.plan.size)},
            "nodes": problem.graph.num_nodes,
            "edges": problem.edges_before,
            "features": problem.in_channels,
            "seconds": automatic.before + time.monotonic() - started,
            "device": device_name(device),
            "versions": versions(),
        }
        write_summary(folder, summary)
    return summary
