"""A search on a cluster, through Ray Tune: each Ray trial is a family of trials that race together.

Within a family the race is that of :mod:`~graphdiffusion.experiments.race`; between families Ray's ASHA
scheduler stops those with a best trial that is behind. Ray and Optuna are the extra ``tune``.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import torch
from torch_geometric.data import Data

from ..errors import ConfigError
from ..training.config import Config
from ..training.problem import pick_device
from .race import Outcome, Workshop, race
from .record import Book, Leaderboard, Plan
from .search import Note, conclude
from .space import Range, Space, Trial, draw, draw_trials

_CHUNK = "chunk"


def search_on_cluster(
    config: Config,
    space: Space,
    plan: Plan,
    folder: Path,
    *,
    data: Data,
    sampler: str = "random",
    watcher: Note = lambda line: None,
) -> Leaderboard:
    """As :func:`~graphdiffusion.experiments.search.search`, on all machines of a Ray cluster.

    Args:
        sampler: ``"random"`` draws the families in advance; ``"optuna"`` lets Optuna choose each by
            what earlier ones reached.

    Ray keeps its own state in ``folder/ray``: a search that was stopped goes on with the families that
    had not finished. The finals run on this machine.
    """
    try:
        from ray import tune
        from ray.tune.schedulers import ASHAScheduler
    except ImportError as error:
        raise ConfigError(_install("ray", error)) from None
    workshop = Workshop(data, pick_device(config.device))
    workshop.rehearse(config, plan.race_seeds[0])
    how: dict[str, Any]
    if sampler == "optuna":
        how, points = _optuna(config, space, plan)
    else:
        chunks = _chunks(config, space, plan)
        how, points = {}, {_CHUNK: tune.grid_search(list(range(len(chunks))))}
    gpu = 1 if workshop.device.type == "cuda" else 0
    task = tune.with_resources(
        tune.with_parameters(_race_chunk, config=config, space=space, plan=plan, data=data),
        {"cpu": 1, "gpu": gpu},
    )
    place = (folder / "ray").resolve()
    scheduler = ASHAScheduler(
        time_attr="epochs",
        max_t=config.epochs + 1,  # the last report comes from the race itself
        grace_period=min(plan.grace, config.epochs),
        reduction_factor=plan.reduction,
    )
    with Book(config, space, plan, folder).open(data) as book:
        if tune.Tuner.can_restore(str(place)):
            watcher(f"going on with the families in {place}.")
            tuner = tune.Tuner.restore(
                str(place), task, restart_errored=True, resume_unfinished=True, param_space=points
            )
        else:
            tuner = tune.Tuner(
                task,
                param_space=points,
                tune_config=tune.TuneConfig(metric="score", mode="max", scheduler=scheduler, **how),
                run_config=tune.RunConfig(name="ray", storage_path=str(place.parent), verbose=0),
            )
        watcher(f"search {book.name}: {plan.trials} trials in {plan.families} families, on Ray.")
        results = tuner.fit()
        for failure in results.errors:
            watcher(f"a family failed: {failure}")
        found = [
            json.loads(r.metrics["outcomes"])
            for r in (results[k] for k in range(len(results)))
            if r.metrics and "outcomes" in r.metrics
        ]
        return conclude(book, workshop, _collect(config, found), watcher)


def _install(package: str, error: ImportError) -> str:
    return (
        f"this search needs the package {package}, which cannot be imported ({error}): "
        "install it with pip install 'ray[tune]' optuna."
    )


def _chunks(config: Config, space: Space, plan: Plan) -> list[list[Trial]]:
    """The trials of a random search by family, the configuration's own first."""
    trials = draw_trials(config, space, plan.trials, plan.families, plan.seed, plan.stay)
    ordered = sorted(trials, key=lambda t: repr(t.family))
    families = [list(group) for _, group in groupby(ordered, key=lambda t: t.family)]
    return sorted(families, key=lambda family: family[0].number)


def _optuna(config: Config, space: Space, plan: Plan) -> tuple[dict[str, Any], dict[str, Any]]:
    """Options of Ray, and the structural part of the space as Ray writes it."""
    try:
        import optuna  # noqa: F401
        from ray import tune
        from ray.tune.search.optuna import OptunaSearch
    except ImportError as error:
        raise ConfigError(_install("optuna", error)) from None
    points: dict[str, Any] = {}
    for name, choices in space.items():
        if name in config.per_member:
            continue
        if not isinstance(choices, Range):
            points[name] = tune.choice(list(choices))
            continue
        low, high = choices.bounds(getattr(config, name))
        if choices.integer:
            make = tune.lograndint if choices.log else tune.randint
            points[name] = make(round(low), round(high) + 1)
        else:
            points[name] = (tune.loguniform if choices.log else tune.uniform)(low, high)
    if not points:
        raise ConfigError("the space has no structure for optuna to choose: take --sampler random.")
    search = OptunaSearch(metric="score", mode="max", seed=plan.seed)
    return {"search_alg": search, "num_samples": plan.families}, points


def _race_chunk(point: dict[str, Any], config: Config, space: Space, plan: Plan, data: Data) -> None:
    """What a Ray trial does: race one family, and report its best score at every rung."""
    from ray import tune

    trials = _trials(point, config, space, plan)
    # Ray gives a trial its GPU by hiding the others
    device = torch.device("cuda" if torch.cuda.is_available() and config.device != "cpu" else "cpu")
    known: dict[int, Outcome] = {}
    if not trials:
        tune.report({"epochs": config.epochs, "score": 0.0, "outcomes": "[]"})
        return

    def reached(rung: int, outcomes: Sequence[Outcome]) -> None:
        known.update({o.trial.number: o for o in outcomes})
        best = max(o.score for o in outcomes)
        # as text: Ray would try to draw a list
        listed = json.dumps([_packed(o, space) for o in known.values()])
        tune.report({"epochs": rung, "score": best if math.isfinite(best) else 0.0, "outcomes": listed})

    race(
        Workshop(data, device),
        trials,
        plan.race_seeds,
        grace=plan.grace,
        reduction=plan.reduction,
        earlier={},
        budget=plan.budget,
        reached=reached,
        note=lambda line: None,
    )


def _trials(point: dict[str, Any], config: Config, space: Space, plan: Plan) -> list[Trial]:
    """The trials of a family: as drawn in advance, or for a structure that Optuna has chosen."""
    if _CHUNK in point:
        return _chunks(config, space, plan)[point[_CHUNK]]
    try:
        base = Config.from_dict({}, config.to_dict() | point)
    except ConfigError:  # for example heads that do not divide attention_dim
        return []
    free = {name: s for name, s in space.items() if name in config.per_member}
    size = math.ceil(plan.trials / plan.families)
    rngs = (random.Random(f"trial {plan.seed} {sorted(point.items())} {k}") for k in range(1, size))
    drawn = [base, *(draw(base, free, rng, 0.0) for rng in rngs)]
    return [Trial(k, own) for k, own in enumerate(drawn)]


def _packed(outcome: Outcome, space: Space) -> dict[str, Any]:
    options = {name: getattr(outcome.trial.config, name) for name in space}
    state = "dropped" if outcome.state == "racing" else outcome.state  # its family may be stopped here
    return {
        "number": outcome.trial.number, "score": outcome.score, "epochs": outcome.epochs, "state": state,
        "rungs": outcome.rungs, "options": options,
    }  # fmt: skip


def _collect(config: Config, chunks: Sequence[Sequence[dict[str, Any]]]) -> list[Outcome]:
    """The outcomes of all families, and the configuration itself if no family had it."""
    rows = [row for chunk in chunks for row in chunk]
    found = []
    if len({row["number"] for row in rows}) < len(rows):  # each family has counted from 0
        rows.sort(key=lambda row: json.dumps(row["options"]))  # Ray does not keep their order
        rows = [row | {"number": 1 + k} for k, row in enumerate(rows)]
        found.append(Outcome(Trial(0, config), state="start"))
    for row in rows:
        rungs = {int(rung): score for rung, score in row["rungs"].items()}
        trial = Trial(row["number"], Config.from_dict({}, config.to_dict() | row["options"]))
        found.append(Outcome(trial, row["score"], row["epochs"], rungs, row["state"]))
    return found
