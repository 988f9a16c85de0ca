"""Weights of the configurations in an ensemble."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor

from ..training.answers import CAUTION
from ..training.tasks import Task

SMALLEST = 0.05  # weights below it are not worth the trainings


def stacked(task: Task, nodes: Tensor, answers: Tensor) -> list[float]:
    """Weights of several configurations: ``w ≥ 0`` with sum 1 that minimise

        m · loss(Σ_k w_k p_k) + CAUTION · KL(w ‖ 1/K)

    with the mean loss over the ``m`` nodes. Few nodes tell little: then weights stay near to equal ones.

    Args:
        task: What is learnt.
        nodes: ``(m,)``, nodes that validate.
        answers: ``(K, m, outputs)`` of each configuration, from models that have not learnt from the node.
    """
    count, answers = len(answers), answers.double()

    def objective(z: NDArray) -> tuple[float, NDArray]:
        logits = torch.from_numpy(z).requires_grad_()
        log = logits.log_softmax(0)
        mean = (log.exp()[:, None, None] * answers).sum(0)
        distance = (log.exp() * (log + np.log(count))).sum()
        value = len(nodes) * task.mean_loss(mean, nodes) + CAUTION * distance
        value.backward()
        assert logits.grad is not None
        return float(value.detach()), logits.grad.numpy()

    found = minimize(objective, np.zeros(count), jac=True, method="L-BFGS-B")
    return torch.from_numpy(found.x).softmax(0).tolist()


def kept(weights: list[float], most: int) -> dict[int, float]:
    """The places of the largest weights, at most so many and none below ``SMALLEST``; their sum is 1."""
    order = sorted(range(len(weights)), key=lambda k: -weights[k])
    chosen = [k for k in order[:most] if weights[k] >= SMALLEST] or order[:1]
    total = sum(weights[k] for k in chosen)
    return {k: weights[k] / total for k in chosen}
