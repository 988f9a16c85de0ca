"""How good the mean answer of all members is: temperature and figures, for the summary of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from ..partition.whole import active_part, use_part
from .answers import Answers, answers_of, fit_temperature, mean_answer
from .config import Config
from .figures import figures
from .problem import Problem
from .summary import Result
from .tasks import Task


def assess(
    problem: Problem, config: Config, results: Sequence[Result], states: Mapping[str, Tensor]
) -> tuple[float, dict[str, Any]]:
    """Temperature and figures of the members of one configuration.

    Where this is one part of a graph, the first process has them.
    """
    answers = answers_of(problem, config, [result.member for result in results], states)
    part = active_part()
    if part is not None:
        answers(lambda answer: None)  # own rows go to the first process
        if part.number:
            return 1.0, {}
    with use_part(None):  # it has all rows now, and exchanges nothing
        task = problem.whole_task
        temperature = fit_temperature(task, answers)
        return temperature, assessed(task, answers, temperature)


def assessed(task: Task, answers: Answers, temperature: float) -> dict[str, Any]:
    """Figures of the mean answer: on test nodes, or where there are none on validation nodes.

    The answer for a node is the mean over the members that have it in that part.
    """
    for part in ("test", "val"):
        nodes, mean = mean_answer(task, answers, part, temperature)
        if not len(nodes):
            continue
        found = figures(task, nodes, mean) | {"part": part, "temperature": temperature}
        if task.name == "classification":
            plain = figures(task, *mean_answer(task, answers, part))
            found["uncalibrated_error"] = plain["calibration_error"]
        return found
    return {}
