"""The mean answer of all members: which of them count, its temperature, and its figures."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.special import softmax
from sklearn import metrics
from torch import Tensor
from torch_geometric.data import Data

from graphdiffusion.training import Config, Population, load_problem, protocol
from graphdiffusion.training.answers import (
    CAUTION,
    COLDEST,
    HOTTEST,
    Answer,
    Answers,
    answers_of,
    fit_temperature,
    joined,
    mean_answer,
)
from graphdiffusion.training.assess import assessed
from graphdiffusion.training.figures import BINS, calibration_error, figures
from graphdiffusion.training.tasks import Classification, Multilabel, Regression, Task

NODES = 90


def made(seed: int = 0, scale: float = 4.0) -> tuple[Classification, list[Answer]]:
    """Three members that are too sure of themselves; each node validates and tests for some of them."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, NODES)
    task = Classification(torch.from_numpy(y), ["a", "b", "c"])
    each = []
    for _ in range(3):
        output = scale * (0.8 * np.eye(3)[y] + rng.normal(size=(NODES, 3)))
        part = rng.integers(0, 4, NODES)
        masks = (torch.from_numpy(part == k) for k in (0, 1))
        each.append(Answer(torch.from_numpy(output).float(), {}, *masks))
    return task, each


def told(answers: list[Answer]) -> Answers:
    def together(visit):
        for answer in answers:
            visit(answer)

    return together


def by_hand(each: list[Answer], part: str, temperature: float) -> dict[int, Tensor]:
    """The mean answer of every node, in a loop."""
    found = {}
    for node in range(NODES):
        own = [
            torch.from_numpy(softmax(answer.output[node].double().numpy() / temperature))
            for answer in each
            if getattr(answer, part)[node] and answer.output[node].isfinite().all()
        ]
        if own:
            found[node] = torch.stack(own).mean(0)
    return found


@pytest.mark.parametrize("temperature", [1.0, 2.5])
@pytest.mark.parametrize("part", ["val", "test"])
def test_only_members_with_the_node_in_the_part_count(part, temperature):
    task, each = made()
    each[1].output[::5] = torch.nan  # could not be integrated
    expected = by_hand(each, part, temperature)
    assert 0 < len(expected) < NODES  # some nodes are in this part of no member
    nodes, mean = mean_answer(task, told(each), part, temperature)
    assert nodes.tolist() == list(expected)
    torch.testing.assert_close(mean, torch.stack(list(expected.values())), rtol=1e-5, atol=1e-7)
    apart = joined([told(each[:1]), told(each[1:])])
    assert torch.equal(mean_answer(task, apart, part, temperature)[1], mean)


def test_a_node_that_a_member_trained_on_does_not_count():
    task, each = made()
    _, before = mean_answer(task, told(each), "test")
    for answer in each:
        answer.output[~answer.test] = 1000.0 * torch.eye(3)[task.y[~answer.test]]  # it knows these
    assert torch.equal(mean_answer(task, told(each), "test")[1], before)


def loss_by_hand(task: Task, each: list[Answer], temperature: float) -> float:
    expected = by_hand(each, "val", temperature)
    losses = [-np.log(float(p[int(task.y[node])])) for node, p in expected.items()]
    return float(np.sum(losses)) + CAUTION * np.log(temperature) ** 2


def test_outputs_are_computed_once(monkeypatch):
    """Unless there are too many of them to keep."""
    generator = torch.Generator().manual_seed(0)
    edges = torch.randint(20, (2, 60), generator=generator).unique(dim=1)
    data = Data(x=torch.randn(20, 3, generator=generator), edge_index=edges, y=torch.arange(20) % 2)
    config = Config(model="mlp", hidden=4, split="folds", splits=2, device="cpu")
    problem, members = load_problem(config, data), protocol(config, data)
    states = dict(Population(problem, config, members).stack.tensors)
    outputs, passes = Population.outputs, []

    def counted(self, state):
        passes.append(len(self))
        return outputs(self, state)

    monkeypatch.setattr(Population, "outputs", counted)
    means = {}
    for most in (1 << 20, 0):
        monkeypatch.setattr("graphdiffusion.training.answers.KEPT", most)
        passes.clear()
        answers = answers_of(problem, config, members, states)
        means[most] = [mean_answer(problem.task, answers, "val")[1] for _ in range(3)]
        assert sum(passes) == (2 if most else 6)
    assert all(torch.equal(mean, means[0][0]) for own in means.values() for mean in own)


def test_temperature():
    """The best of a fine grid, and no other is better."""
    task, each = made()
    found = fit_temperature(task, told(each))
    grid = np.exp(np.linspace(np.log(COLDEST), np.log(HOTTEST), 100))
    losses = [loss_by_hand(task, each, t) for t in grid]
    assert found == pytest.approx(grid[int(np.argmin(losses))], rel=0.07) and found > 1.5
    assert loss_by_hand(task, each, found) <= min(losses) + 1e-5
    # fewer nodes move it less from 1
    first = torch.arange(NODES) < 12
    few = fit_temperature(task, told([Answer(a.output, {}, a.val & first, a.test) for a in each]))
    assert 1 < few < found


def test_temperature_of_several_labels():
    rng = np.random.default_rng(1)
    y = (rng.random((NODES, 2)) < 0.4).astype(np.float32)
    task = Multilabel(torch.from_numpy(y), ["p", "q"])
    output = torch.from_numpy(5 * (y - 0.5 + rng.normal(size=y.shape))).float()
    every = torch.ones(NODES, dtype=torch.bool)
    found = fit_temperature(task, told([Answer(output, {}, every, ~every)]))
    grid = np.exp(np.linspace(np.log(COLDEST), np.log(HOTTEST), 100))
    losses = [
        NODES * metrics.log_loss(y.ravel(), (output.double() / t).sigmoid().numpy().ravel())
        + CAUTION * np.log(t) ** 2
        for t in grid
    ]
    assert found == pytest.approx(grid[int(np.argmin(losses))], rel=0.07)


def test_temperatures_that_cannot_be_fitted():
    task, each = made()
    none = torch.zeros(NODES, dtype=torch.bool)
    assert fit_temperature(task, told([Answer(a.output, {}, none, a.test) for a in each])) == 1
    broken = [Answer(torch.full_like(a.output, torch.nan), {}, a.val, a.test) for a in each]
    assert fit_temperature(task, told(broken)) == 1
    right = [Answer(torch.eye(3)[task.y], {}, ~none, none)]
    assert COLDEST <= fit_temperature(task, told(right)) < 0.3
    numbers = Regression(torch.randn(NODES, 1), ["u"])
    unit = {"shift": torch.zeros(1), "scale": torch.ones(1)}
    assert fit_temperature(numbers, told([Answer(torch.randn(NODES, 1), unit, ~none, none)])) == 1


def test_which_nodes_are_assessed():
    """Test nodes; where there are none validation nodes; where there are none of them nothing."""
    task, each = made()
    none = torch.zeros(NODES, dtype=torch.bool)
    tested = assessed(task, told(each), 2.0)
    nodes, mean = mean_answer(task, told(each), "test", 2.0)
    assert tested["part"] == "test" and tested["temperature"] == 2.0 and tested["nodes"] == len(nodes)
    assert tested["accuracy"] == metrics.accuracy_score(task.y[nodes], mean.argmax(1))
    plain = mean_answer(task, told(each), "test")[1].numpy()
    assert tested["uncalibrated_error"] == calibration_error(task.y[nodes].numpy(), plain)
    validated = assessed(task, told([Answer(a.output, {}, a.val, none) for a in each]), 1.0)
    assert validated["part"] == "val" and validated["nodes"] == len(by_hand(each, "val", 1.0))
    assert assessed(task, told([Answer(a.output, {}, none, none) for a in each]), 1.0) == {}


def test_figures_of_classes():
    rng = np.random.default_rng(2)
    names = ["a", "b", "never", "c"]
    y = rng.choice([0, 1, 3], NODES, p=[0.6, 0.3, 0.1])
    found = softmax(rng.normal(size=(NODES, 4)) + 1.5 * np.eye(4)[y], axis=1)
    own = figures(Classification(torch.from_numpy(y), names), torch.arange(NODES), torch.from_numpy(found))
    chosen = found.argmax(1)
    assert own["nodes"] == NODES and (chosen == 2).any()
    assert own["accuracy"] == pytest.approx(metrics.accuracy_score(y, chosen))
    occurring = {"labels": [0, 1, 3], "zero_division": 0}
    recall = metrics.recall_score(y, chosen, average="macro", **occurring)
    assert own["balanced_accuracy"] == pytest.approx(recall)
    assert own["macro_f1"] == pytest.approx(metrics.f1_score(y, chosen, average="macro", **occurring))
    assert own["weighted_f1"] == pytest.approx(metrics.f1_score(y, chosen, average="weighted"))
    assert own["log_loss"] == pytest.approx(metrics.log_loss(y, found, labels=range(4)))
    assert own["confusion"] == metrics.confusion_matrix(y, chosen, labels=range(4)).tolist()
    assert [entry["class"] for entry in own["per_class"]] == names
    assert [entry["nodes"] for entry in own["per_class"]] == np.bincount(y, minlength=4).tolist()
    for k, entry in enumerate(own["per_class"]):
        truth, said = y == k, chosen == k
        assert entry["precision"] == pytest.approx(metrics.precision_score(truth, said, zero_division=0))
        assert entry["recall"] == pytest.approx(metrics.recall_score(truth, said, zero_division=0))
        assert entry["f1"] == pytest.approx(metrics.f1_score(truth, said, zero_division=0))
    assert "roc_auc" not in own


def test_figures_of_one_class(recwarn):
    task = Classification(torch.zeros(NODES, dtype=torch.int64), ["a"])
    own = figures(task, torch.arange(NODES), torch.ones(NODES, 1))
    assert own["confusion"] == [[NODES]] and own["accuracy"] == own["balanced_accuracy"] == 1
    assert not recwarn.list


def test_figures_of_two_classes():
    rng = np.random.default_rng(3)
    y, chance = rng.integers(0, 2, NODES), rng.random(NODES)
    task = Classification(torch.from_numpy(y), ["no", "yes"])
    found = torch.from_numpy(np.stack([1 - chance, chance], 1))
    own = figures(task, torch.arange(NODES), found)
    assert own["roc_auc"] == pytest.approx(metrics.roc_auc_score(y, chance))
    one = torch.from_numpy(y.nonzero()[0])
    assert "roc_auc" not in figures(task, one, found[one])  # one class alone has none
    assert figures(task, one[:0], found[:0]) == {}


def test_calibration_error():
    """Against a slow loop over bins; confidences on the edge of a bin belong to the upper one."""
    rng = np.random.default_rng(4)
    y = rng.integers(0, 3, 500)
    found = softmax(3 * rng.normal(size=(500, 3)), axis=1)
    found[:5] = [[1, 0, 0], [0, 1, 0], [1 / 3, 1 / 3, 1 / 3], [0.4, 0.6, 0], [0.8, 0.2, 0]]
    confidence, right = found.max(1), found.argmax(1) == y
    total = 0.0
    for place in range(BINS):
        inside = (confidence >= place / BINS) & (confidence < (place + 1) / BINS)
        if place == BINS - 1:
            inside |= confidence == 1
        if inside.any():
            total += inside.sum() / 500 * abs(right[inside].mean() - confidence[inside].mean())
    assert calibration_error(y, found) == pytest.approx(total)
    assert calibration_error(np.zeros(4, int), np.eye(2)[[0] * 4]) == 0


def test_figures_of_numbers():
    rng = np.random.default_rng(5)
    y = rng.normal(size=(NODES, 2)) * [1, 30]
    found = y + rng.normal(size=y.shape) * [0.5, 3]
    task = Regression(torch.from_numpy(y), ["u", "v"])
    nodes = torch.arange(0, NODES, 2)
    own = figures(task, nodes, torch.from_numpy(found)[nodes])
    y, found = y[::2].astype(np.float32).astype(float), found[::2]
    assert own["nodes"] == len(nodes) and own["r2"] == pytest.approx(metrics.r2_score(y, found))
    assert own["mae"] == pytest.approx(metrics.mean_absolute_error(y, found))
    assert own["rmse"] == pytest.approx(metrics.mean_squared_error(y.ravel(), found.ravel()) ** 0.5)
    for k, entry in enumerate(own["per_target"]):
        assert entry["target"] == task.names[k]
        assert entry["r2"] == pytest.approx(metrics.r2_score(y[:, k], found[:, k]))
        assert entry["rmse"] == pytest.approx(metrics.root_mean_squared_error(y[:, k], found[:, k]))
        assert entry["mae"] == pytest.approx(metrics.mean_absolute_error(y[:, k], found[:, k]))


@pytest.mark.parametrize("width", [1, 3])
def test_figures_of_labels(width):
    rng = np.random.default_rng(6)
    y = (rng.random((NODES, width)) < 0.4).astype(np.float32)
    if width > 1:
        y[:, 1] = 0  # a label that no node has
    found = 1 / (1 + np.exp(-rng.normal(size=y.shape) - y))
    names = [f"l{k}" for k in range(width)]
    own = figures(Multilabel(torch.from_numpy(y), names), torch.arange(NODES), torch.from_numpy(found))
    chosen = found > 0.5
    columns = [metrics.f1_score(y[:, k], chosen[:, k], zero_division=0) for k in range(width)]
    assert own["micro_f1"] == pytest.approx(metrics.f1_score(y.ravel(), chosen.ravel()))
    assert own["macro_f1"] == pytest.approx(np.mean(columns))
    assert own["all_right"] == pytest.approx((y == chosen).all(1).mean())
    varied = [k for k in range(width) if y[:, k].any()]
    chances = [metrics.roc_auc_score(y[:, k], found[:, k]) for k in varied]
    assert own["roc_auc"] == pytest.approx(np.mean(chances))
    assert [entry["label"] for entry in own["per_label"]] == names
    assert [entry["f1"] for entry in own["per_label"]] == pytest.approx(columns)
    assert [entry["nodes"] for entry in own["per_label"]] == y.sum(0).tolist()
