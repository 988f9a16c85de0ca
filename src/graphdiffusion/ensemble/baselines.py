"""Does the graph pay? What simpler methods reach with the same labels."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from statistics import fmean
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.multiclass import OneVsRestClassifier
from torch import Tensor

from ..configs import read_preset
from ..nn import SparseFeatures
from ..training.config import Config
from ..training.population import Population
from ..training.problem import Member, Problem, Problems, member_splits, split_kind
from ..training.tasks import Task


def baselines(problems: Problems, base: Config, rounds: Sequence[Member]) -> dict[str, float]:
    """Mean scores of simple methods on the nodes that the figures of a choice are over.

    These are the test nodes of the splits, or without a test part the validation nodes of all folds. The
    majority (or mean) and logistic (or ridge) regression learn from training and validation nodes where
    there is a test part; an MLP and a GCN with their usual settings validate.
    """
    splits = list({member.split: member for member in rounds}.values())
    if split_kind(base, problems.data) == "shares":
        splits = splits[:1]  # all have the same test part
    each = [_on_split(problems, base, member) for member in splits]
    return {name: fmean(scores[name] for scores in each) for name in each[0]}


def _on_split(problems: Problems, base: Config, member: Member) -> dict[str, float]:
    found: dict[str, float] = {}
    problem = problems.of(base.replace(scaling="auto"))
    split = member_splits(base, problem.data, [member])
    tested = bool(split.test.any())
    part = (split.test if tested else split.val)[0]
    learnt = (split.train | split.val if tested else split.train)[0]
    for name, model in simple_models(problem.task).items():
        found[name] = _score(problem, model, learnt, part)
    for name in ("mlp", "gcn"):
        config = base.replace(**read_preset(f"own-{name}"))
        population = Population(problems.of(config), config, [member])
        while population.epochs_done < config.epochs and not bool(population.finished().any()):
            population.step()
        _, val, test = population.final()
        found[name.upper()] = float((test if tested else val)[0])
    return found


def simple_models(task: Task) -> dict[str, Any]:
    """Methods without a graph from scikit-learn, by name."""
    if task.name == "regression":
        return {"mean": DummyRegressor(), "ridge regression": Ridge()}
    logistic = LogisticRegression(max_iter=1000)
    if task.name == "multilabel":
        logistic = OneVsRestClassifier(logistic)
    name = "majority" if task.name == "classification" else "most frequent"
    return {name: DummyClassifier(strategy="most_frequent"), "logistic regression": logistic}


def _score(problem: Problem, model: Any, learnt: Tensor, part: Tensor) -> float:
    task = problem.task
    x, y = as_matrix(problem.x), task.y.cpu().numpy()
    nodes, asked = learnt.cpu().numpy().nonzero()[0], part.cpu().numpy().nonzero()[0]
    if task.name == "classification" and len(np.unique(y[nodes])) == 1:
        model = DummyClassifier()  # logistic regression refuses a single class
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # it is as good as it is
        warnings.simplefilter("ignore", UserWarning)  # a label that all training nodes have
        answers = model.fit(x[nodes], y[nodes]).predict(x[asked])
    outputs = torch.zeros(len(y), task.outputs, dtype=torch.float64)
    if task.name == "classification":
        outputs[torch.from_numpy(asked), torch.from_numpy(answers.astype(np.int64))] = 1.0
    else:
        outputs[torch.from_numpy(asked)] = torch.from_numpy(answers.astype(np.float64)).view(len(asked), -1)
    if task.name == "multilabel":
        outputs -= 0.5  # chosen are positive ones
    unit = {name: torch.full((1, task.outputs), float(name == "scale")) for name in task.stored}
    return float(task.to("cpu").score(outputs[None], part[None].cpu(), unit)[0])


def as_matrix(x: Any) -> Any:
    """Features as scikit-learn takes them."""
    if not isinstance(x, SparseFeatures):
        return x.cpu().numpy()
    row, col = x.pattern.row.cpu().numpy(), x.pattern.col.cpu().numpy()
    return sp.csr_matrix((x.values.cpu().numpy(), (row, col)), shape=x.shape)
