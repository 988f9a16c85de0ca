"""The training behind an estimator: in a temporary folder, of which the trained models remain."""

from __future__ import annotations

import logging
import math
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
from torch_geometric.data import Data

from ..configs import find_preset, parts_of, read_preset
from ..data import labelled, number_of_splits
from ..ensemble import Candidate, Ensemble, choose, load_ensemble
from ..ensemble.portfolio import KEPT
from ..ensemble.progress import Stages
from ..errors import ConfigError
from ..training.choices import MOST_SEEDS
from ..training.config import Config
from ..training.folder import open_folder
from ..training.problem import load_problem, pick_device, protocol
from ..training.trainer import Trainer

AUTO = "auto"
NAME = "graph"  # of the data, in summaries

# options that have another place in an estimator
_ELSEWHERE = {
    "data": "give the graph as graph, or to fit",
    "lcc": "give a graph that has been cut already",
    "directed": "read the graph with open_data(path, directed=True) and give that",
    "task": "take GRANDClassifier or GRANDRegressor",
    "seed": "give random_state",
}

# scikit-learn's ensembles draw seeds up to 2**31, and splits take the seeds that follow
_SEEDS = MOST_SEEDS // 2

log = logging.getLogger("graphdiffusion")


def configured(model: str, options: Mapping[str, Any], random_state: Any, device: str) -> Config:
    """The options of a training: for the automatic choice those of data and splits, else of one model.

    What is not given is as ``grand train`` takes it for a graph of one's own.
    """
    for name in options:
        if name in _ELSEWHERE:
            raise ConfigError(f"{name} is no argument of an estimator: {_ELSEWHERE[name]}.")
    if type(random_state) is bool or not isinstance(random_state, Integral) or random_state < 0:
        raise ConfigError(f"random_state must be a whole number from 0, got {random_state!r}.")
    # searches give numbers and texts of NumPy
    given = {
        name: value.item() if isinstance(value, np.generic) else value for name, value in options.items()
    }
    given |= {"data": NAME, "seed": int(random_state) % _SEEDS, "device": device}
    if model == AUTO:
        for name in given:
            if name not in KEPT or name == "inits":
                raise ConfigError(
                    f"{name} is an option of one configuration, and model='auto' tries several: name the "
                    f"model as well, such as model='grand', or leave {name} out."
                )
        return Config.from_dict(given)
    given["model"] = model
    # as options that may be left out: the preset that they choose may be what makes them count
    chosen = Config.from_dict({"model": model}, given)
    preset = find_preset(NAME, chosen.row, parts=parts_of(chosen.to_dict()))
    return Config.from_dict(given, {"splits": 1, **({} if preset is None else read_preset(preset))})


def train(
    config: Config, data: Data, *, auto: bool, refit: bool | None, budget: float | None, verbose: bool
) -> tuple[Ensemble, list[str]]:
    """Train on a graph, and say what was logged as a warning.

    Args:
        config: As :func:`configured` makes it.
        data: The graph with its labels.
        auto: Race the portfolio; otherwise train this one configuration.
        refit: A last fit on all labels; by default the automatic choice decides.
        budget: Seconds that may cut the plan.
        verbose: Print lines of progress.
    """
    if budget is not None and not (isinstance(budget, int | float) and budget > 0):
        raise ConfigError(f"budget must be a number of seconds greater than 0, or None, got {budget!r}.")
    progress = Stages(print) if verbose else None
    with tempfile.TemporaryDirectory(prefix="grand-") as place, _warnings() as found:
        folder = Path(place, "run")
        if not auto and config.split == "auto" and number_of_splits(data) == 0:
            # a test part would only take labels from the training: a fifth validates, all others train
            data = copy(data)
            data.train_mask = labelled(data)
            config = config.replace(split="given")
        if auto or refit:
            own = {name: value for name, value in config.to_dict().items() if name not in KEPT}
            candidates = None if auto else [Candidate(config.row, own)]
            choose(
                config, data, folder, candidates=candidates, refit=refit, compare=False,
                budget=math.inf if budget is None else budget, progress=progress,
            )  # fmt: skip
        elif budget is not None:
            raise ConfigError(
                "budget cuts the plan of an automatic choice: leave it out for one configuration."
            )
        else:
            _train_one(config, data, folder, progress)
        ensemble = load_ensemble(folder)
    for run in ensemble.runs:
        run.remember(data)  # it cannot be read again
    return ensemble, found


def _train_one(config: Config, data: Data, folder: Path, progress: Stages | None) -> None:
    problem = load_problem(config, data).to(pick_device(config.device))
    if progress is not None:
        progress.fit(config.row, 0, 1)
    with open_folder(folder, config, data) as run:
        Trainer(problem, config, protocol(config, data), run, progress).run()


class _Sentences(logging.Handler):
    """Keeps warnings; errors are raised besides."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno == logging.WARNING:
            self.found.append(record.getMessage())


@contextmanager
def _warnings() -> Iterator[list[str]]:
    """What the library logs as a warning meanwhile."""
    handler = _Sentences()
    log.addHandler(handler)
    try:
        yield handler.found
    finally:
        log.removeHandler(handler)
