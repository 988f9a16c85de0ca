"""Weights of configurations in an ensemble, against a search without gradients."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar

from graphdiffusion.ensemble.weights import SMALLEST, kept, stacked
from graphdiffusion.training.answers import CAUTION
from graphdiffusion.training.tasks import Classification, Multilabel, Regression


def answers(count: int, sharpness: tuple[float, ...], seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Classes of some nodes, and the answers of configurations that know them more or less well."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 3, (count,), generator=generator)
    noise = torch.randn(len(sharpness), count, 3, generator=generator, dtype=torch.float64)
    known = torch.nn.functional.one_hot(y, 3) * torch.tensor(sharpness)[:, None, None]
    return y, (known + noise).softmax(-1)


@pytest.mark.parametrize("count", [6, 40, 400])
def test_two_configurations(count):
    y, each = answers(count, (1.0, 1.5))
    task, nodes = Classification(y, ["a", "b", "c"]), torch.arange(count)

    def objective(w: float) -> float:
        mean = (w * each[0] + (1 - w) * each[1]).numpy()[np.arange(count), y.numpy()]
        distance = w * np.log(2 * w) + (1 - w) * np.log(2 * (1 - w))
        return -np.log(mean).sum() + CAUTION * distance

    best = minimize_scalar(objective, bounds=(1e-9, 1 - 1e-9), method="bounded", options={"xatol": 1e-10})
    found = stacked(task, nodes, each)
    assert sum(found) == pytest.approx(1) and found[0] == pytest.approx(best.x, abs=1e-4)
    assert objective(found[0]) <= best.fun + 1e-6


def test_few_nodes_say_little():
    y, each = answers(2000, (0.2, 3.0, 0.2))
    task = Classification(y, ["a", "b", "c"])
    many, few = (stacked(task, nodes, each[:, nodes]) for nodes in (torch.arange(2000), torch.arange(2)))
    assert many[1] > 0.98 and max(few) < 0.6 and few.index(max(few)) == many.index(max(many))


@pytest.mark.parametrize("unit", [1.0, 1e6])
def test_numbers(unit):
    """Two errors that cancel are worth more than the better of the two alone, in any unit."""
    y = unit * torch.linspace(-1, 1, 300, dtype=torch.float64)[:, None]
    wave = unit * torch.sin(torch.arange(300.0, dtype=torch.float64))[:, None]
    each = torch.stack([y + 0.2 * wave, y - 0.3 * wave, y + unit * wave.roll(7)])
    found = stacked(Regression(y, ["y"]), torch.arange(300), each)
    assert found[0] == pytest.approx(0.6, abs=0.02) and found[1] == pytest.approx(0.4, abs=0.02)


def test_several_labels():
    generator = torch.Generator().manual_seed(0)
    y = torch.randint(0, 2, (300, 4), generator=generator).float()
    good, bad = (s * (2 * y - 1) + torch.randn(300, 4, generator=generator) for s in (1.5, 0.0))
    found = stacked(Multilabel(y, list("abcd")), torch.arange(300), torch.stack([good, bad]).sigmoid())
    assert found[0] > 0.95


def test_sure_answers_of_several_labels():
    """Means of probabilities that are exactly 1 may round to more."""
    y = torch.ones(40, 3)
    task = Multilabel(y, list("abc"))
    for k in range(2, 9):
        each = torch.ones(k, 40, 3)
        each[0, :5] = torch.linspace(0.5, 0.999, 5)[:, None]
        assert sum(stacked(task, torch.arange(40), each)) == pytest.approx(1)
    assert (
        float(task.mean_loss(torch.full((40, 3), 1 + 2**-52, dtype=torch.float64), torch.arange(40))) == 0
    )


def test_kept():
    assert kept([0.5, 0.04, 0.26, 0.2], 3) == pytest.approx({0: 0.5 / 0.96, 2: 0.26 / 0.96, 3: 0.2 / 0.96})
    assert kept([0.3, 0.5, 0.2], 2) == pytest.approx({1: 5 / 8, 0: 3 / 8})
    assert kept([1.0], 3) == {0: 1.0}
    assert kept([SMALLEST / 2] * 3, 3) == {0: 1.0}
