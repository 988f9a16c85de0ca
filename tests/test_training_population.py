"""A population: every member trains as it would alone, and the optimisers are torch's."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch_geometric.data import Data

from graphdiffusion.data import Split, random_split, stack_splits
from graphdiffusion.errors import ArgumentError, ConfigError
from graphdiffusion.training import Config, Member, Population, Trainer, load_problem
from graphdiffusion.training.optimisers import Optimiser

NODES, CLASSES = 60, 3
SMALL = Config(
    hidden=8, heads=2, attention_dim=8, time=3.0, epochs=6, development=30, per_class=5, device="cpu",
    input_dropout=0.3, dropout=0.2, split="random",
)  # fmt: skip


@pytest.fixture(scope="module")
def data() -> Data:
    """Three communities with noisy features."""
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(NODES) % CLASSES
    pairs = torch.randint(NODES, (2, 900), generator=generator)
    same = y[pairs[0]] == y[pairs[1]]
    kept = pairs[:, same | (torch.rand(900, generator=generator) < 0.05)]
    kept = kept[:, kept[0] != kept[1]]
    edge_index = torch.cat([kept, kept.flip(0)], 1).unique(dim=1)
    x = torch.randn(NODES, 10, generator=generator) + 1.5 * torch.eye(CLASSES, 10)[y]
    return Data(x=x, edge_index=edge_index, y=y)


def members(count: int, **options: list) -> list[Member]:
    return [Member(k, k, 100 + k, {name: v[k] for name, v in options.items()}) for k in range(count)]


def trained(data: Data, config: Config, group: list[Member], epochs: int = 3) -> Population:
    population = Population(load_problem(config, data), config, group)
    for _ in range(epochs):
        population.step()
    return population


def same(together: Population, at: int, alone: Population, place: int = 0, exact: bool = True) -> None:
    """Bit for bit: parameters, moments, what was best. (The tie-break in the score is a long sum.)"""
    for name, value in alone.state().items():
        own = together.state()[name]
        if name not in ("optimiser/step", "self/epoch"):
            own, value = own[at], value[place]
        if exact and name != "self/best_score":
            assert torch.equal(own, value), name
        else:
            torch.testing.assert_close(own, value, rtol=1e-3, atol=1e-4, msg=name)


VARIED = {
    "linear": {},
    "linear, rows, softmax": {"over": "rows", "normaliser": "softmax", "detach_source": True},
    "linear, rk4": {"solver": "rk4"},
    "linear, sweep": {"sweep": 2.0, "sweep_points": 4},
    "nonlinear": {"variant": "nonlinear", "rtol": 1e-5, "atol": 1e-6},
    "nonlinear, euler": {"variant": "nonlinear", "solver": "euler", "step_size": 0.5},
    "nonlinear, semi-implicit": {"variant": "nonlinear", "solver": "semi-implicit"},
    "nonlinear, esdirk": {"variant": "nonlinear", "solver": "esdirk"},
    "nonlinear, adams-moulton": {"variant": "nonlinear", "solver": "adams-moulton", "step_size": 0.5},
    "nonlinear-rewired": {"variant": "nonlinear-rewired", "keep": 0.7, "solver": "heun", "step_size": 0.5},
    "checkpoint": {"variant": "nonlinear", "gradient": "checkpoint"},
    "everything": {
        "mlp": True, "batch_norm": True, "augment": 2, "label_rate": 0.4, "kinetic": 0.01, "jacobian": 0.01,
        "learn_time": True, "optimiser": "adam",
    },
}  # fmt: skip


@pytest.mark.parametrize("name", VARIED)
def test_a_member_equals_the_same_member_alone(data, name):
    config = SMALL.replace(**VARIED[name])
    group = members(3)
    together = trained(data, config, group)
    assert float(together.loss.std()) > 0  # the members do differ
    for k in (0, 2):
        same(together, k, trained(data, config, [group[k]]))
    same(together, 2, trained(data, config, group[1:]), place=1)  # in other company: always


@pytest.mark.parametrize("variant", ["linear", "nonlinear"])
def test_options_of_each_member(data, variant):
    config = SMALL.replace(variant=variant, label_rate=0.3)
    group = members(
        3, rate=[0.01, 0.02, 0.05], decay=[0.0, 0.01, 0.1], input_dropout=[0.0, 0.4, 0.8],
        dropout=[0.1, 0.0, 0.5], time=[1.0, 3.0, 7.0], alpha=[0.3, 0.5, 0.8], label_rate=[0.2, 0.5, 0.8],
    )  # fmt: skip
    if variant == "nonlinear":
        for member, tolerance in zip(group, (1e-2, 1e-4, 1e-6), strict=True):
            member.options.update(rtol=tolerance, atol=tolerance)
    together = trained(data, config, group)
    assert together.parameters["diffusion.equation.alpha.raw"].shape[0] == 3
    for k in range(3):
        same(together, k, trained(data, config, [group[k]]))
    same(together, 2, trained(data, config, group[1:]), place=1)


def test_options_that_change_a_shape_are_refused(data):
    with pytest.raises(ConfigError, match="hidden cannot differ between members"):
        Population(load_problem(SMALL, data), SMALL, [Member(0, 0, 0, {"hidden": 4})])


@pytest.mark.parametrize("variant", ["linear", "nonlinear"])
def test_leaving_members_do_not_disturb_the_others(data, variant):
    config = SMALL.replace(variant=variant)
    group = members(4)
    whole, cut = (Population(load_problem(config, data), config, group) for _ in range(2))
    for epoch in range(5):
        if epoch == 2:
            cut.select(torch.tensor([1, 3]))
            assert [m.number for m in cut.members] == [1, 3] and len(cut) == 2
        whole.step(), cut.step()
    for name, value in cut.state().items():
        other = whole.state()[name]
        assert torch.equal(value, other if name in ("optimiser/step", "self/epoch") else other[[1, 3]]), (
            name
        )


def test_early_stopping_and_chunks_change_no_result(data):
    config = SMALL.replace(epochs=25, patience=3)
    problem, group = load_problem(config, data), members(5)
    results = [Trainer(problem, config, group, chunk=size).run() for size in (5, 2, 1)]
    assert results[0] == results[1] == results[2]
    epochs = [r.epochs for r in results[0]]
    assert min(epochs) < 25 and len(set(epochs)) > 1
    assert all(r.epochs == min(25, r.best_epoch + 1 + 3) for r in results[0])


@pytest.mark.parametrize("solver", ["auto", "rk4", "dopri5"])
def test_a_member_that_turns_nan_hurts_nobody(data, solver):
    config = SMALL.replace(variant="linear" if solver == "auto" else "nonlinear", solver=solver)
    group = members(3)
    problem = load_problem(config, data)
    population = Population(problem, config, group)
    with torch.no_grad():
        population.parameters["encoder.weight"][1] = torch.nan
    for _ in range(3):
        population.step()
    assert population.finished().tolist() == [False, True, False]
    for k in (0, 2):
        same(population, k, trained(data, config, [group[k]], 3))
    _, val, test = population.final()
    assert bool(torch.isfinite(val).all() and torch.isfinite(test).all())


@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("kind", ["adam", "adamax", "rmsprop", "sgd"])
def test_optimisers_are_those_of_torch(kind, decay):
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(3, 4, 5, generator=generator, dtype=torch.float64)
    rates = torch.tensor([1e-3, 1e-2, 1e-1], dtype=torch.float64)
    ours = {"p": start.clone()}
    optimiser = Optimiser(kind, ours, rates, torch.full_like(rates, decay))
    build = {
        "adam": torch.optim.Adam,
        "adamax": torch.optim.Adamax,
        "rmsprop": torch.optim.RMSprop,
        "sgd": lambda p, **how: torch.optim.SGD(p, momentum=0.9, **how),
    }[kind]
    theirs = [torch.nn.Parameter(start[k].clone()) for k in range(3)]
    steppers = [
        build([p], lr=float(rate), weight_decay=decay) for p, rate in zip(theirs, rates, strict=True)
    ]
    for _ in range(30):
        gradient = torch.randn(3, 4, 5, generator=generator, dtype=torch.float64)
        optimiser.update(ours, {"p": gradient})
        for k in range(3):
            theirs[k].grad = gradient[k].clone()
            steppers[k].step()
    for k in range(3):
        torch.testing.assert_close(ours["p"][k], theirs[k].detach(), rtol=1e-10, atol=1e-10)


def test_optimiser_state_goes_round():
    parameters = {"p": torch.randn(2, 3)}
    one, two = (Optimiser("adam", parameters, torch.ones(2), torch.zeros(2)) for _ in range(2))
    one.update(parameters, {"p": torch.randn(2, 3)})
    two.load({k: v.clone() for k, v in one.state().items()})
    assert all(torch.equal(v, two.state()[k]) for k, v in one.state().items())
    with pytest.raises(ArgumentError, match="optimiser must be one of"):
        Optimiser("adagrad", parameters, torch.ones(2), torch.zeros(2))


def test_state_goes_round(data):
    config, group = SMALL.replace(batch_norm=True), members(2)
    unbroken = trained(data, config, group, 5)
    first = trained(data, config, group, 2)
    second = Population(load_problem(config, data), config, group)
    second.load({k: v.clone() for k, v in first.state().items()})
    for _ in range(3):
        second.step()
    for name, value in unbroken.state().items():
        assert torch.equal(value, second.state()[name]), name


def test_label_rate_shows_and_hides(data):
    config = SMALL.replace(label_rate=0.5, per_class=8)
    population = Population(load_problem(config, data), config, members(200))
    key = torch.arange(200)
    chosen, weight = population._shown(key)
    labels = population._label_inputs(chosen)["labels"]
    shown = labels.sum(-1)
    assert bool((shown.bool() <= population.train).all())  # training labels alone
    share = float(shown.sum() / population.train.sum())
    assert abs(share - 0.5) < 0.05
    # the loss is over the nodes whose label was not shown
    assert torch.equal(weight.sum(1) + shown.sum(1), population.train.sum(1).float())
    right = (labels.argmax(-1) == population.problem.y) | ~shown.bool()
    assert bool(right.all())


def test_sweep_keeps_the_best_time(data):
    config = SMALL.replace(sweep=3.0, sweep_points=6, time=2.0)
    population = Population(load_problem(config, data), config, members(3))
    assert population.fractions == [0.5, 1.0, 1.5, 2.0, 2.5, 3.0]
    for _ in range(4):
        population.step()
    state, val, _ = population.final()
    time = state["diffusion.time"]
    torch.testing.assert_close(time, 2 * population.best_fraction.float())
    assert bool(torch.isin(population.best_fraction, torch.tensor(population.fractions).double()).all())
    torch.testing.assert_close(population.accuracies(state)[0], val)  # at that time, that accuracy


def test_the_best_epoch_is_kept(data):
    config = SMALL.replace(rate=0.3)
    population = Population(load_problem(config, data), config, members(2))
    seen = []
    for _ in range(8):
        population.step()
        seen.append(population.score.clone())
    state, val, _ = population.final()
    torch.testing.assert_close(val, torch.stack(seen).amax(0))
    torch.testing.assert_close(population.accuracies(state)[0], val)
    assert torch.stack(seen)[population.best_epoch, torch.arange(2)].tolist() == val.tolist()


def test_splits_may_be_given_and_differ_in_size(data):
    y = data.y
    splits = [random_split(y, s, development=30, per_class=p) for s, p in ((0, 2), (1, 6))]
    config, group = SMALL, members(2)
    problem = load_problem(config, data)
    together = Population(problem, config, group, stack_splits(splits))
    assert together.train.sum(1).tolist() == [6, 18]
    together.step()
    for k in range(2):
        alone = Population(problem, config, [group[k]], stack_splits([splits[k]]))
        alone.step()
        torch.testing.assert_close(together.loss[k], alone.loss[0])
    assert isinstance(splits[0], Split)


def test_it_learns(data):
    config = SMALL.replace(epochs=30, hidden=16)
    results = Trainer(load_problem(config, data), config, members(3)).run()
    assert sum(r.test for r in results) / 3 > 0.8


@pytest.mark.parametrize(
    ("name", "shared", "own"), [("alpha", 0.5, 1.0), ("alpha", 1.0, 0.5), ("label_rate", 0.3, 0.0)]
)
def test_members_of_another_structure_are_refused(data, name, shared, own):
    """A fixed α has no parameter, and without labels as features there is no map of them."""
    config = SMALL.replace(**{name: shared})
    group = [Member(0, 0, 0), Member(1, 1, 1, {name: own})]
    with pytest.raises(
        ConfigError, match=rf"{name} of member 1 is {own:g}, but {shared:g}.*two populations"
    ):
        Population(load_problem(config, data), config, group)
    alone = config.replace(**{name: own})
    Population(load_problem(alone, data), alone, [Member(1, 1, 1)])


def test_labels_of_members_need_labels_in_the_configuration(data):
    with pytest.raises(ConfigError, match=r"label_rate of member 0 is 0\.5"):
        Population(load_problem(SMALL, data), SMALL, [Member(0, 0, 0, {"label_rate": 0.5})])


DIVERGING = {
    "linear, learnt T": {"learn_time": True},
    "linear, sgd": {"learn_time": True, "optimiser": "sgd"},
    "nonlinear, rk4, learnt T": {"variant": "nonlinear", "solver": "rk4", "learn_time": True},
    "nonlinear, adaptive": {"variant": "nonlinear", "max_evaluations": 200},
    "nonlinear, adaptive, learnt T": {"variant": "nonlinear", "learn_time": True, "max_evaluations": 200},
    "nonlinear, semi-implicit": {"variant": "nonlinear", "solver": "semi-implicit"},
    "nonlinear, penalties": {"variant": "nonlinear", "solver": "rk4", "kinetic": 0.1, "jacobian": 0.1},
}


@pytest.mark.parametrize("rate", [1e3, 1e12, 1e30])
@pytest.mark.parametrize("name", DIVERGING)
def test_a_diverging_member_ends_as_it_would_alone(data, name, rate):
    config = SMALL.replace(**DIVERGING[name], epochs=4)
    group = members(3, rate=[0.02, rate, 0.01])
    problem = load_problem(config, data)
    together, alone = (Trainer(problem, config, group, chunk=chunk).run() for chunk in (3, 1))
    for a, b in zip(together, alone, strict=True):
        assert (a.best_epoch, a.epochs) == (b.best_epoch, b.epochs), a.number
        assert a.val == pytest.approx(b.val, abs=0.1) and a.time == pytest.approx(b.time, rel=1e-3)
    # the others are what they are without it
    for a, b in zip(
        Trainer(problem, config, [group[0], group[2]], chunk=2).run(), together[::2], strict=True
    ):
        assert (a.val, a.test, a.best_epoch, a.epochs) == (b.val, b.test, b.best_epoch, b.epochs)


# none a multiple of the width of a vector register
WIDTHS = ({"hidden": 1, "attention_dim": 1}, {"hidden": 7, "attention_dim": 10}, {"hidden": 17, "heads": 4})
PATHS = {
    "linear": {},
    "rk4": {"variant": "nonlinear", "solver": "rk4"},
    "adaptive": {"variant": "nonlinear", "rtol": 1e-6, "atol": 1e-7, "time": 1.0},
    "semi-implicit": {"variant": "nonlinear", "solver": "semi-implicit"},
    "everything": VARIED["everything"],
}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("path", PATHS)
def test_rounding_is_all_that_company_changes(data, path, threads):
    """In float64, for all widths and threads: sums are added up in another order, nothing else differs."""
    before = torch.get_num_threads()
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(threads)
    try:
        for widths in WIDTHS:
            config = SMALL.replace(**{"heads": 1, **PATHS[path], **widths})
            problem = load_problem(config, data)
            problem = replace(problem, x=problem.x.double())
            group = members(4)
            together, *alone = (Population(problem, config, g) for g in (group, group[:1], group[3:]))
            for population in (together, *alone):
                for _ in range(3):
                    population.step()
            for k, single in zip((0, 3), alone, strict=True):
                for name, own in single.parameters.items():
                    torch.testing.assert_close(
                        together.parameters[name][k], own[0], rtol=0, atol=1e-10, msg=name
                    )
    finally:
        torch.set_default_dtype(torch.float32)
        torch.set_num_threads(before)
