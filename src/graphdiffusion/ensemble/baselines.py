"""Does the graph pay? What simpler methods reach with the same labels."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
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
from ..data import Split
from ..nn import SparseFeatures
from ..training.answers import Answer, Visit, mean_answer
from ..training.config import Config
from ..training.figures import figures
from ..training.population import Population
from ..training.problem import Member, Problem, Problems, member_splits, split_kind
from ..training.summary import FIGURES
from ..training.tasks import Task


def baselines(problems: Problems, base: Config, rounds: Sequence[Member]) -> dict[str, float]:
    """Scores of simple methods on the nodes that the figures of a choice are over, in the same way.

    These are the test nodes of the splits, or without a test part the validation nodes of all folds. The
    majority (or mean) and logistic (or ridge) regression learn from training and validation nodes where
    there is a test part; an MLP and a GCN with their usual settings validate.
    """
    splits = list({member.split: member for member in rounds}.values())
    if split_kind(base, problems.data) == "shares":
        splits = splits[:1]  # all have the same test part
    problem = problems.of(base.replace(scaling="auto"))
    each = member_splits(base, problem.data, splits)
    part = "test" if bool(each.test.any()) else "val"
    found = {
        name: _learnt(problem, model, each, part) for name, model in simple_models(problem.task).items()
    }
    for name in ("mlp", "gcn"):
        found[name.upper()] = _trained(problems, base.replace(**read_preset(f"own-{name}")), splits)
    return {name: _score(problem.task, answers, part) for name, answers in found.items()}


def simple_scores(problem: Problem, splits: Split) -> dict[str, float]:
    """Mean scores over splits of what scikit-learn learns from the training nodes alone, without a graph.

    They are scores on the test nodes, or without a test part on the validation nodes.

    Args:
        problem: The data; its features are taken as they are.
        splits: ``(S, n)`` each.
    """
    part = "test" if bool(splits.test.any()) else "val"
    found = {}
    for name, model in simple_models(problem.task).items():
        answers = _learnt(problem, model, splits, part, alone=True)
        found[name] = float(np.mean([_score(problem.task, [answer], part) for answer in answers]))
    return found


def _score(task: Task, answers: Sequence[Answer], part: str) -> float:
    def together(visit: Visit) -> None:
        for answer in answers:
            visit(answer)

    nodes, mean = mean_answer(task, together, part)
    return float(figures(task, nodes, mean)[FIGURES[task.metric]])


def _trained(problems: Problems, config: Config, members: Sequence[Member]) -> list[Answer]:
    """The answers of a network for each split."""
    population = Population(problems.of(config), config, members)
    while population.epochs_done < config.epochs and not bool(population.finished().all()):
        population.step()
    outputs = population.outputs(population.final()[0]).cpu()
    return [
        Answer(
            outputs[k],
            {name: value[k].cpu() for name, value in population.statistics.items()},
            population.val[k].cpu(),
            population.test[k].cpu(),
        )
        for k in range(len(members))
    ]


def simple_models(task: Task) -> dict[str, Any]:
    """Methods without a graph from scikit-learn, by name."""
    if task.name == "regression":
        return {"mean": DummyRegressor(), "ridge regression": Ridge()}
    logistic = LogisticRegression(max_iter=1000)
    if task.name == "multilabel":
        logistic = OneVsRestClassifier(logistic)
    name = "majority" if task.name == "classification" else "most frequent"
    return {name: DummyClassifier(strategy="most_frequent"), "logistic regression": logistic}


def _learnt(problem: Problem, model: Any, splits: Split, part: str, *, alone: bool = False) -> list[Answer]:
    """The answers of a method from scikit-learn for each split; ``alone`` takes training nodes only."""
    task, x = problem.task, as_matrix(problem.x)
    y, found = task.y.cpu().numpy(), []
    for train, val, test in zip(splits.train.cpu(), splits.val.cpu(), splits.test.cpu(), strict=True):
        nodes = ((train | val) if part == "test" and not alone else train).numpy().nonzero()[0]
        asked = (test if part == "test" else val).numpy().nonzero()[0]
        single = task.name == "classification" and len(np.unique(y[nodes])) == 1
        own = DummyClassifier() if single else model  # logistic regression refuses a single class
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # it is as good as it is
            warnings.simplefilter("ignore", UserWarning)  # a label that all training nodes have
            answers = own.fit(x[nodes], y[nodes]).predict(x[asked])
        found.append(Answer(_output(task, asked, answers), _unit(task), val, test))
    return found


def _output(task: Task, nodes: Any, answers: Any) -> Tensor:
    """Decisions, or numbers, as the outputs of a model that is sure of them."""
    output = torch.zeros(len(task.y), task.outputs, dtype=torch.float64)
    places = torch.from_numpy(nodes)
    if task.name == "classification":
        output[places, torch.from_numpy(answers.astype(np.int64))] = SURE
        return output
    numbers = torch.from_numpy(answers.astype(np.float64)).view(len(nodes), -1)
    output[places] = numbers if task.name == "regression" else SURE * (2 * numbers - 1)
    return output


def _unit(task: Task) -> dict[str, Tensor]:
    """Statistics of a task with which outputs are answers."""
    return {
        name: torch.full((task.outputs,), float(name == "scale"), dtype=torch.float64)
        for name in task.stored
    }


SURE = 50.0  # a logit: exp(-50) is zero


def as_matrix(x: Any) -> Any:
    """Features as scikit-learn takes them."""
    if not isinstance(x, SparseFeatures):
        return x.cpu().numpy()
    row, col = x.pattern.row.cpu().numpy(), x.pattern.col.cpu().numpy()
    return sp.csr_matrix((x.values.cpu().numpy(), (row, col)), shape=x.shape)
