"""Tasks: losses, scores and answers against scikit-learn and plain formulas, members alone and together."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.special import expit, log_softmax
from sklearn import metrics
from sklearn.utils.class_weight import compute_sample_weight
from torch import Tensor
from torch_geometric.data import Data

from graphdiffusion.data import check_data, deal_again, given_split
from graphdiffusion.errors import DataError
from graphdiffusion.training import Config, Member, Population, load_problem
from graphdiffusion.training.tasks import LOWEST, Classification, Multilabel, Regression, Task, make_task

NODES, MEMBERS = 40, 3


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def masks(share: float = 0.5, seed: int = 1) -> Tensor:
    """A mask for each member, none of them empty; unlabelled nodes, the last four, are in none."""
    found = torch.rand(MEMBERS, NODES, generator=torch.Generator().manual_seed(seed)) < share
    found[:, 0] = True
    found[:, -4:] = False
    return found


def classes() -> Classification:
    y = torch.arange(NODES) % 3
    y[:6] = 0  # of different sizes
    y[-4:] = -1
    return Classification(y, ["a", "b", "c"])


def numbers() -> Regression:
    y = drawn(NODES, 2, seed=2) * torch.tensor([3.0, 100.0]) + torch.tensor([-7.0, 1000.0])
    y[-4:] = torch.nan
    return Regression(y, ["u", "v"])


def labels() -> Multilabel:
    y = (drawn(NODES, 3, seed=3) > 0.4).float()
    y[-4:] = torch.nan
    return Multilabel(y, ["p", "q", "r"])


TASKS = {"classification": classes, "regression": numbers, "multilabel": labels}


@pytest.fixture(params=TASKS)
def task(request: pytest.FixtureRequest) -> Task:
    return TASKS[request.param]()


def own(statistics: dict[str, Tensor], k: int) -> dict[str, Tensor]:
    return {name: value[k : k + 1] for name, value in statistics.items()}


def padded(mask: Tensor) -> tuple[Tensor, Tensor]:
    """Nodes of every member, padded to one length, and which of them count."""
    order = torch.argsort((~mask).to(torch.int8), dim=1, stable=True)[:, : int(mask.sum(1).max())]
    return order, torch.arange(order.shape[1]) < mask.sum(1, keepdim=True)


def scored(task: Task, output: Tensor, mask: Tensor, statistics: dict[str, Tensor]) -> float:
    """The score of one member by scikit-learn."""
    found, wanted = output[mask].double().numpy(), task.y[mask].double().numpy()
    if task.name == "classification":
        return metrics.accuracy_score(wanted, found.argmax(1))
    if task.name == "multilabel":
        return metrics.f1_score(wanted, found > 0, average="micro")
    answers = found * statistics["scale"][0].double().numpy() + statistics["shift"][0].double().numpy()
    return metrics.r2_score(wanted, answers)


def lost(task: Task, output: Tensor, mask: Tensor, statistics: dict[str, Tensor]) -> np.ndarray:
    """The loss of each masked node, by formula in float64."""
    found, wanted = output[mask].double().numpy(), task.y[mask].double().numpy()
    if task.name == "classification":
        return -log_softmax(found, axis=1)[np.arange(len(found)), wanted.astype(int)]
    if task.name == "multilabel":
        return -(wanted * np.log(expit(found)) + (1 - wanted) * np.log(expit(-found))).mean(1)
    shift, scale = (statistics[key][0].double().numpy() for key in ("shift", "scale"))
    return (((wanted - shift) / scale - found) ** 2).mean(1)


def test_scores_and_losses(task):
    output, mask = drawn(MEMBERS, NODES, task.outputs), masks()
    statistics = task.statistics(mask)
    scores = task.score(output, mask, statistics)
    nodes, used = padded(mask)
    chosen = output.gather(1, nodes.unsqueeze(-1).expand(-1, -1, task.outputs))
    losses = task.losses(chosen, nodes, statistics)
    surprise = task.surprise(output, mask, statistics)
    for k in range(MEMBERS):
        each = lost(task, output[k], mask[k], own(statistics, k))
        reached = scored(task, output[k], mask[k], own(statistics, k))
        assert float(scores[k]) == pytest.approx(reached, rel=1e-5)
        np.testing.assert_allclose(losses[k][used[k]].numpy(), each, rtol=1e-4, atol=1e-5)
        assert float(surprise[k]) == pytest.approx(each.mean() / (1 + each.mean()), rel=1e-5)
        # alone as among others
        assert torch.equal(task.score(output[k : k + 1], mask[k : k + 1], own(statistics, k))[0], scores[k])
        one = task.losses(chosen[k : k + 1], nodes[k : k + 1], own(statistics, k))[0]
        torch.testing.assert_close(one, losses[k])


def test_a_sweep_has_a_leading_dimension(task):
    output, mask = drawn(4, MEMBERS, NODES, task.outputs), masks()
    statistics = task.statistics(mask)
    for name in ("score", "surprise"):
        together = getattr(task, name)(output, mask, statistics)
        alone = torch.stack([getattr(task, name)(part, mask, statistics) for part in output])
        assert together.shape == (4, MEMBERS)
        torch.testing.assert_close(together, alone)


def test_empty_masks_and_outputs_that_are_not_finite(task):
    output, mask = drawn(MEMBERS, NODES, task.outputs), masks()
    statistics = task.statistics(mask)
    mask[1] = False
    output[2, 5] = torch.nan
    scores, surprise = (getattr(task, name)(output, mask, statistics) for name in ("score", "surprise"))
    assert scores.isnan().tolist() == [False, True, False]
    assert surprise.isinf().tolist() == [False, False, True] and float(surprise[1]) == 0
    output[2] = torch.nan
    worst = {"classification": 0.0, "regression": LOWEST, "multilabel": 0.0}[task.name]
    assert float(task.score(output, mask, statistics)[2]) == worst


def test_shown_targets(task):
    mask = masks()
    statistics = task.statistics(mask)
    shown = task.shown(mask, statistics)
    assert shown.shape == (MEMBERS, NODES, task.outputs) and bool(shown.isfinite().all())
    assert not bool(shown[~mask].any())
    if task.name == "classification":
        assert torch.equal(shown[mask].argmax(-1), task.y.expand(MEMBERS, -1)[mask])
        assert torch.equal(shown[mask].sum(-1), torch.ones(int(mask.sum()), dtype=shown.dtype))
    elif task.name == "multilabel":
        assert torch.equal(shown[mask], task.y.expand(MEMBERS, -1, -1)[mask])
    else:  # in the units of each member, which its answers undo
        for k in range(MEMBERS):
            back = task.answers(shown[k], {name: value[k] for name, value in statistics.items()})
            torch.testing.assert_close(back[mask[k]], task.y[mask[k]])


def test_statistics_of_regression():
    task, mask = numbers(), masks()
    statistics = task.statistics(mask)
    for k in range(MEMBERS):
        values = task.y[mask[k]].double()
        torch.testing.assert_close(statistics["shift"][k].double(), values.mean(0))
        torch.testing.assert_close(statistics["scale"][k].double(), values.std(0, correction=0))
    constant = Regression(torch.full((5, 1), 0.1), ["u"])
    every = torch.ones(1, 5, dtype=torch.bool)
    found = constant.statistics(every)
    assert float(found["shift"]) == pytest.approx(0.1) and float(found["scale"]) > 0
    assert float(constant.losses(torch.zeros(1, 5, 1), torch.arange(5)[None], found).sum()) == 0
    tiny = Regression(torch.tensor([[0.0], [1e-44]]), ["u"]).statistics(torch.ones(1, 2, dtype=torch.bool))
    assert float(tiny["scale"]) > 0


def test_targets_far_from_zero():
    """Seconds of a day, counted from 1970: in float32 they are rounded to multiples of 128."""
    seconds = torch.rand(30, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 86400
    near, far = (Regression(seconds + start, ["time"]) for start in (0.0, 1.6e9))
    mask, output = torch.rand(2, 30, generator=torch.Generator().manual_seed(1)) < 0.6, drawn(2, 30, 1)
    nodes = torch.arange(30).expand(2, -1)
    here, there = near.statistics(mask), far.statistics(mask)
    assert {value.dtype for value in there.values()} == {torch.float64}
    torch.testing.assert_close(there["scale"], here["scale"], rtol=1e-9, atol=0)
    torch.testing.assert_close(there["shift"] - 1.6e9, here["shift"], rtol=0, atol=1e-6)
    losses = [task.losses(output, nodes, own) for task, own in ((near, here), (far, there))]
    assert losses[1].dtype == torch.float32
    torch.testing.assert_close(losses[1], losses[0], rtol=1e-5, atol=1e-6)
    unit = {"shift": torch.zeros(2, 1), "scale": torch.ones(2, 1)}
    for own in (there, unit):  # outputs of a model, and numbers as they are
        found = far.answers(output, own) if own is there else far.y + 1000 * output.double()
        scores = far.score(output if own is there else found, mask, own)
        for k in range(2):
            wanted = metrics.r2_score(far.y[mask[k]].numpy(), found[k][mask[k]].numpy())
            assert float(scores[k]) == pytest.approx(wanted, abs=1e-6)
    answers = far.answers(output, there)
    assert answers.dtype == torch.float64
    torch.testing.assert_close(answers - 1.6e9, near.answers(output, here), rtol=0, atol=1e-5)


def test_r2_of_a_constant_target():
    task = Regression(torch.tensor([[2.0], [2.0], [5.0]]), ["u"])
    unit = {"shift": torch.zeros(1, 1), "scale": torch.ones(1, 1)}
    mask = torch.tensor([[True, True, False]])
    assert float(task.score(torch.full((1, 3, 1), 2.0), mask, unit)) == 1
    assert float(task.score(torch.full((1, 3, 1), 3.0), mask, unit)) == 0
    far = torch.full((1, 3, 1), 1e20)
    assert float(task.score(far, torch.ones_like(mask), unit)) == LOWEST


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_answers(task, temperature):
    output = drawn(NODES, task.outputs)
    statistics = {"shift": torch.ones(2), "scale": torch.full((2,), 4.0)}
    answers = task.answers(output, statistics, temperature)
    found = output.double().numpy()
    expected = {
        "classification": np.exp(log_softmax(found / temperature, axis=1)),
        "multilabel": expit(found / temperature),
        "regression": found[:, :2] * 4 + 1,
    }[task.name]
    np.testing.assert_allclose(answers.numpy(), expected, rtol=1e-5, atol=1e-6)
    if task.name == "regression":
        return
    nodes = torch.arange(NODES - 4)
    wanted = task.y[nodes].numpy()
    if task.name == "classification":
        own = metrics.log_loss(wanted, expected[: NODES - 4])
    else:
        own = np.mean([metrics.log_loss(wanted[:, k], expected[: NODES - 4, k]) for k in range(3)])
    assert float(task.mean_loss(answers[nodes], nodes)) == pytest.approx(own, rel=1e-5)


def test_impossible_answers_have_a_finite_loss():
    for task, answers in ((classes(), torch.eye(3)[[1]]), (labels(), 1 - labels().y[:1])):
        assert math.isfinite(float(task.mean_loss(answers.double(), torch.tensor([0]))))


def test_no_decisions_at_all():
    """Where no node has a label and none is chosen, every decision is right."""
    task = Multilabel(torch.zeros(4, 2), ["p", "q"])
    every = torch.ones(1, 4, dtype=torch.bool)
    assert float(task.score(-torch.ones(1, 4, 2), every, {})) == 1
    assert float(task.score(torch.ones(1, 4, 2), every, {})) == 0


def test_class_weights():
    """As scikit-learn's balanced ones: mean 1, and every class has the same influence."""
    task, mask = classes(), masks()
    mask[2] &= task.y != 1  # a class that does not occur
    nodes, used = padded(mask)
    weights = task.weights(nodes, used)
    for k in range(MEMBERS):
        y = task.y[mask[k]].numpy()
        own = weights[k][used[k]].numpy()
        np.testing.assert_allclose(own, compute_sample_weight("balanced", y))
        assert own.mean() == pytest.approx(1)
        sums = [own[y == c].sum() for c in np.unique(y)]
        np.testing.assert_allclose(sums, sums[0])
        assert not bool(weights[k][~used[k]].any())
    for other in (numbers(), labels()):
        with pytest.raises(DataError, match=f"class weights need classes, and the task is {other.name}"):
            other.weights(nodes, used)


def test_class_weights_in_training():
    """The loss of a step is the mean over the classes of their mean losses."""
    generator = torch.Generator().manual_seed(0)
    y = torch.tensor([0] * 30 + [1] * 6)
    edges = torch.randint(36, (2, 80), generator=generator)
    data = Data(x=torch.randn(36, 4, generator=generator), edge_index=edges.unique(dim=1), y=y)
    config = Config(model="mlp", hidden=4, dropout=0.0, split="folds", device="cpu")
    losses = {}
    for kind in ("none", "balanced"):
        own = config.replace(class_weights=kind)
        population = Population(load_problem(own, data), own, [Member(0, 0, 0)])
        before = population.outputs(population.stack.tensors)[0]
        population.step()
        losses[kind] = float(population.loss)
    train = population.train[0]
    each = torch.nn.functional.cross_entropy(before, y, reduction="none")
    assert losses["none"] == pytest.approx(float(each[train].mean()), rel=1e-5)
    means = [float(each[train & (y == k)].mean()) for k in (0, 1)]
    assert losses["balanced"] == pytest.approx(sum(means) / 2, rel=1e-5)


def test_tasks_of_data():
    x, edges = torch.zeros(4, 2), torch.zeros(2, 0, dtype=torch.int64)

    def of(y: Tensor, **more: object) -> Task:
        return make_task(check_data(Data(x=x, edge_index=edges, y=y, **more)))

    task = of(torch.tensor([0, 2, -1, 0]))
    assert isinstance(task, Classification) and task.names == ["0", "1", "2"] and task.outputs == 3
    assert of(torch.tensor([0, 1, -1, 0]), class_names=["a", "b", "c"]).names == ["a", "b"]
    for y in (torch.tensor([0.5, 1.0, torch.nan, 2.0]), torch.tensor([[0.5], [1.0], [torch.nan], [2.0]])):
        for kind in (torch.float32, torch.float64):
            task = of(y.to(kind), target_names=["age"])
            assert isinstance(task, Regression) and task.names == ["age"] and task.y.shape == (4, 1)
            assert task.labelled.tolist() == [True, True, False, True]
            every = task.statistics(task.labelled[None])
            assert {value.dtype for value in every.values()} == {torch.float64}  # as they are stored
    task = of(torch.tensor([[True, False], [True, True], [False, False], [False, True]]))
    assert isinstance(task, Multilabel) and task.names == ["0", "1"] and bool(task.labelled.all())
    for y in (torch.full((4,), -1), torch.full((4, 2), torch.nan)):
        with pytest.raises(DataError, match="the data has no labels"):
            of(y)
    with pytest.raises(DataError, match="holds infinity; targets must be finite as float32"):
        of(torch.tensor([1.0, 1e300, 0.0, 0.0], dtype=torch.float64))


@pytest.mark.parametrize("kind", TASKS)
def test_a_given_split_is_dealt_anew_for_every_task(kind):
    y = TASKS[kind]().y[:36]
    places = torch.arange(36)
    train, val, test = (places % 3 == k for k in range(3))
    data = Data(y=y, x=torch.zeros(36, 1), train_mask=train, val_mask=val, test_mask=test)
    first = given_split(data)
    again = [deal_again(first, y, seed) for seed in (0, 1)]
    for split in again:
        assert split.train.shape == (36,) and torch.equal(split.test, test)
        assert int(split.train.sum()) == 12 and torch.equal(split.train | split.val, train | val)
    assert not torch.equal(again[0].train, again[1].train)
