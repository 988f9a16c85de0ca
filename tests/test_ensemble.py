"""The automatic choice: its plan, its race, what it keeps, and how it goes on after an interruption."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression
from torch_geometric.data import Data

from graphdiffusion.data import check_data, open_data
from graphdiffusion.ensemble import Candidate, Plan, choose, load_ensemble, make_plan, portfolio
from graphdiffusion.ensemble.automatic import Automatic, rounds_of
from graphdiffusion.ensemble.baselines import baselines
from graphdiffusion.ensemble.plan import SIZES, Size
from graphdiffusion.errors import ArgumentError, ConfigError, DataError, SolverError
from graphdiffusion.graph import Graph
from graphdiffusion.training import Config, Trainer, load_problem, load_run
from graphdiffusion.training.problem import Problems, member_splits

SHORT: dict[str, Any] = {"hidden": 8, "epochs": 5, "patience": 3, "optimiser": "adam", "rate": 0.05}
TINY = [
    Candidate("linear", {"diffusivity": "laplacian", "over": "rows", "time": 2.0, **SHORT}),
    Candidate("gcn", {"model": "gcn", "scaling": "columns", **SHORT}),
]
SIZE = Size((2, 2), 2, 2)


@pytest.fixture(scope="module", autouse=True)
def small_plans():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("graphdiffusion.ensemble.plan.SIZES", (SIZE, SIZES[-1]))
        patch.setattr(
            "graphdiffusion.ensemble.baselines.read_preset",
            lambda name: {"model": name.removeprefix("own-"), **SHORT},
        )
        yield


def blocks(n: int = 150, seed: int = 0) -> dict[str, np.ndarray]:
    """A stochastic block model of three blocks; features say little of the block."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 3
    upper = np.triu(rng.random((n, n)) < np.where(y[:, None] == y, 0.12, 0.01), 1)
    x = rng.normal(size=(n, 6)) + np.eye(3, 6)[y]
    return {"edge_index": np.stack(upper.nonzero()), "x": x.astype(np.float32), "y": y}


def written(path: Path, **more: Any) -> Data:
    np.savez(path, **blocks() | more)
    return check_data(open_data(path))


@pytest.fixture
def mine(tmp_path, monkeypatch) -> Data:
    """A graph in a file, in the folder in which the commands run."""
    monkeypatch.chdir(tmp_path)
    return written(tmp_path / "mine.npz")


BASE = {"data": "mine.npz", "device": "cpu"}
TWO = Config(**BASE, splits=2)  # of five folds, where all of them would prove no more


def chosen(data: Data, folder: str, base: Config | None = None, **how: Any) -> dict[str, Any]:
    how = {"candidates": TINY, "compare": False} | how
    return choose(base or Config(**BASE), data, Path(folder), **how)


def told(summary: dict[str, Any]) -> dict[str, Any]:
    """What does not depend on the clock."""
    left_out = ("seconds", "run", "checksum", "kind")
    return json.loads(json.dumps({k: v for k, v in summary.items() if k not in left_out}))


def stored(folder: str) -> dict[str, Any]:
    return json.loads(Path(folder, "summary.json").read_text())


# plans


def test_a_plan_depends_on_the_graph_alone(mine, monkeypatch):
    monkeypatch.setattr("graphdiffusion.ensemble.plan.SIZES", SIZES)
    config = Config(**BASE)
    problem = load_problem(config, mine)
    plans = [make_plan(problem, config, portfolio(), 5, True) for _ in range(2)]
    assert plans[0] == plans[1] and plans[0].size == SIZES[0]
    assert Plan.from_dict(json.loads(json.dumps(plans[0].to_dict()))) == plans[0]
    # less work is a smaller plan, down to one training
    works = [make_plan(problem, config, TINY, 5, True, most=most) for most in (1e12, 3e8, 1e8, 1.0)]
    assert [p.work for p in works] == sorted((p.work for p in works), reverse=True)
    assert works[0].size == Size((2, 2), 2, SIZES[0].fits)  # no more than there are
    assert works[-1].size == SIZES[-1] and len(works[-1].candidates) == 1
    assert str(plans[0]) == (
        "9 configurations trained once, the best 4 of them 5 times; an ensemble of at most 4; "
        "4 fits of each to all labels"
    )
    assert str(works[-1]).startswith("1 configuration trained once, the best 1 of them 5 times;")


def test_rounds(mine):
    folds = rounds_of(Config(**BASE), mine)
    assert [m.split for m in folds] == [0, 1, 2, 3, 4] and len({m.init for m in folds}) == 5
    mine.train_mask = torch.arange(150) < 100
    one = rounds_of(Config(**BASE), mine)  # one split: several initialisations
    assert {m.split for m in one} == {0} and len({m.init for m in one}) == len(one) == 4
    with pytest.raises(ConfigError, match="needs validation nodes: take another split than all"):
        rounds_of(Config(**BASE, split="all"), mine)


def test_the_portfolio():
    for candidate in portfolio():
        config = candidate.config(Config(data="mine.npz", seed=3, class_weights="balanced"))
        assert (config.data, config.seed, config.class_weights) == ("mine.npz", 3, "balanced")


# the race and its result


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """A folder with a graph and a finished choice on it, which tests only read or copy."""
    place = tmp_path_factory.mktemp("whole")
    data = written(place / "mine.npz")
    config = Config(data=str(place / "mine.npz"), device="cpu")
    choose(config, data, place / "run", candidates=TINY, compare=False)
    return place


def test_what_is_kept(whole):
    found = stored(str(whole / "run"))
    assert (found["task"], found["names"], found["metric"], found["unit"]) == (
        "classification", ["0", "1", "2"], "accuracy", "%",
    )  # fmt: skip
    assert found["split"]["kind"] == "folds" and found["split"]["labelled"] == 150 and found["refit"]
    race = {entry["name"]: entry for entry in found["race"]}
    assert race.keys() == {"linear", "gcn"} and found["baselines"] == {}
    for name, entry in race.items():
        runs = [load_run(whole / "run" / "fits" / f"{name}-{rung}") for rung in (1, 2)]
        results = [result for run in runs for result in run.results]
        assert [result.split for result in results] == [0, 1, 2, 3, 4] and entry["rounds"] == 5
        assert entry["val"] == pytest.approx(np.mean([result.val for result in results]))
        assert entry["epochs"] == round(np.mean([result.best_epoch + 1 for result in results]))
    losses = [entry["loss"] for entry in found["race"]]
    assert losses == sorted(losses)
    weights = {name: race[name]["weight"] for name in found["chosen"]}
    assert sum(weights.values()) == pytest.approx(1) and list(weights) == sorted(
        weights, key=lambda n: -weights[n]
    )
    # five models of the race and those of the last fit, all with the same weight within a configuration
    shares = {"1": 1 / 7, "2": 4 / 7, "final": 2 / 7}
    expected = {f"{name}-{k}": w * share for name, w in weights.items() for k, share in shares.items()}
    assert found["runs"] == pytest.approx(expected) and found["members"] == 7 * len(weights)
    assert found["crossed"] == {f"{name}-{k}": w for name, w in weights.items() for k in "12"}
    for name in found["chosen"]:
        last = load_run(whole / "run" / "fits" / f"{name}-final")
        assert last.config.split == "all" and last.config.epochs == race[name]["epochs"]
        assert [r.epochs for r in last.results] == [race[name]["epochs"]] * SIZE.fits


def test_figures_are_of_nodes_that_a_member_has_not_learnt(whole):
    """Accuracy by hand: for every node, the mean over the members that have it in their test."""
    found, data = stored(str(whole / "run")), open_data(whole / "mine.npz")
    total, count = torch.zeros(150, 3, dtype=torch.float64), torch.zeros(150)
    for name in found["chosen"]:
        weight = next(entry["weight"] for entry in found["race"] if entry["name"] == name)
        for rung in (1, 2):
            run = load_run(whole / "run" / "fits" / f"{name}-{rung}")
            for result in run.results:
                split = member_splits(run.config, data, [result.member])
                nodes = split.test[0]
                assert not bool((nodes & (split.train[0] | split.val[0])).any())
                graph = Graph.from_data(data, self_loops=run.config.self_loops)
                with torch.no_grad():
                    output = run.model(result.number)(run.scaling(data.x), graph)
                total[nodes] += weight * (output[nodes].double() / found["temperature"]).softmax(-1)
                count[nodes] += 1
    assert count.tolist() == [len(found["chosen"])] * 150
    right = total.argmax(1) == data.y
    assert found["figures"]["accuracy"] == pytest.approx(right.double().mean().item())
    assert found["figures"]["nodes"] == 150 and found["figures"]["part"] == "test"
    assert found["figures"]["temperature"] == found["temperature"]


def test_predictions_are_the_mean_of_all_members(whole):
    ensemble, data = load_ensemble(whole / "run"), open_data(whole / "mine.npz")
    other = Data(**{k: torch.from_numpy(v) for k, v in blocks(60, 1).items() if k != "y"})
    for given in (None, other):
        graph_of = data if given is None else given
        each, shares = [], []
        for weight, run in zip(ensemble.weights, ensemble.runs, strict=True):
            graph = Graph.from_data(graph_of, self_loops=run.config.self_loops)
            for result in run.results:
                with torch.no_grad():
                    output = run.model(result.number)(run.scaling(graph_of.x), graph)
                each.append((output / ensemble.summary["temperature"]).softmax(-1))
                shares.append(weight / len(run.results))
        mean = ensemble.predict(given)
        assert len(each) == len(ensemble.members) == ensemble.summary["members"]
        expected = (torch.tensor(shares)[:, None, None] * torch.stack(each)).sum(0)
        torch.testing.assert_close(mean, expected, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(ensemble.predict(given, 1), each[1], rtol=1e-4, atol=1e-5)
    assert float((ensemble.predict().argmax(1) == data.y).double().mean()) > 0.8
    scores = [r.val or 0.0 for run in ensemble.runs for r in run.results]  # the last fits have none
    assert scores[ensemble.best] == max(scores) > 0
    with pytest.raises(ArgumentError, match="and no 99"):
        ensemble.predict(member=99)


class Stop:
    """Progress that interrupts at the k-th call of one kind."""

    def __init__(self, kind: str, at: int) -> None:
        self.kind, self.left = kind, at

    def _count(self, kind: str) -> None:
        if kind == self.kind:
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt

    def plan(self, plan) -> None:
        assert len(plan.candidates) <= 2

    def fit(self, name, done, total) -> None:
        assert done >= 0 and total > 0
        self._count("fit")

    def epoch(self, done, total, population) -> None:
        self._count("epoch")

    def finished(self, results) -> None:
        self._count("finished")


@pytest.mark.parametrize(("kind", "at"), [("epoch", 12), ("finished", 6), ("fit", 5)])
def test_an_interrupted_choice_goes_on(whole, tmp_path, monkeypatch, kind, at):
    monkeypatch.setenv("GRAND_CHECKPOINT_SECONDS", "0")
    data, config = open_data(whole / "mine.npz"), Config(data=str(whole / "mine.npz"), device="cpu")
    how = {"candidates": TINY, "compare": False}
    with pytest.raises(KeyboardInterrupt):
        choose(config, data, tmp_path / "run", progress=Stop(kind, at), **how)
    assert not (tmp_path / "run" / "summary.json").exists()
    assert (tmp_path / "run" / "plan.json").read_bytes() == (whole / "run" / "plan.json").read_bytes()
    # the plan is kept: what is asked for now does not count
    summary = choose(config, data, tmp_path / "run", candidates=TINY[:1], compare=False, resume=True)
    assert told(summary) == told(stored(str(whole / "run")))
    for path in (whole / "run" / "fits").glob("*/model.safetensors"):
        assert (tmp_path / "run" / path.relative_to(whole / "run")).read_bytes() == path.read_bytes()


def test_a_candidate_that_fails_is_left_out(mine, caplog):
    stiff = {"variant": "nonlinear", "solver": "dopri5", "max_evaluations": 1, **SHORT}
    found = chosen(mine, "run", TWO, candidates=[Candidate("stiff", stiff), TINY[0]])
    last = found["race"][-1]
    assert (last["name"], last["val"], last["rounds"]) == ("stiff", None, 0) and "evaluations" in last[
        "failure"
    ]
    assert "stiff" not in found["chosen"] and "candidate stiff is left out" in caplog.text
    with pytest.raises(SolverError, match=r"no candidate could be trained: .*evaluations"):
        chosen(mine, "other", candidates=[Candidate("stiff", stiff)])


def test_a_candidate_that_fails_late_is_left_out(mine, monkeypatch):
    """The best so far fails in the last rung, which it entered alone."""
    run = Trainer.run

    def failing(self):
        if self.folder.path.name.endswith("-2"):
            raise SolverError("stiff")
        return run(self)

    monkeypatch.setattr(Trainer, "run", failing)
    monkeypatch.setattr("graphdiffusion.ensemble.plan.SIZES", (Size((2, 1), 2, 1),))
    first, last = chosen(mine, "run")["race"]
    assert (last["failure"], last["rounds"]) == ("stiff", 1)
    assert (first["failure"], first["rounds"]) == ("", 1)
    assert stored("run")["chosen"] == [first["name"]]


# given masks


def test_given_masks(mine):
    places = torch.arange(150) % 5
    masks = {"train_mask": places < 3, "val_mask": places == 3, "test_mask": places == 4}
    data = written(Path("mine.npz"), **{name: mask.numpy() for name, mask in masks.items()})
    found = chosen(data, "one")
    assert found["split"]["kind"] == "given" and not found["refit"]
    assert found["figures"]["part"] == "test" and found["figures"]["nodes"] == 30
    assert found["race"][0]["rounds"] == 4  # initialisations
    assert found["members"] == 4 * len(found["chosen"])
    ensemble = load_ensemble("one")
    right = ensemble.predict().argmax(1) == data.y
    assert found["figures"]["accuracy"] == pytest.approx(right[places == 4].double().mean().item())
    scores = [run.results[k].val for run in ensemble.runs for k in range(len(run.results))]
    assert scores[ensemble.best] == max(scores)


def test_several_columns_of_masks(mine):
    part = np.random.default_rng(0).integers(0, 5, (150, 3))
    data = written(Path("mine.npz"), train_mask=part < 3, val_mask=part == 3, test_mask=part == 4)
    found = chosen(data, "several")
    assert found["split"]["splits"] == 3 and found["race"][0]["rounds"] == 3
    assert found["figures"]["nodes"] == int((part == 4).any(1).sum())
    assert chosen(data, "again", refit=True, candidates=TINY[:1])["refit"]


# files


def damaged(folder: Path, file: str, change: Any) -> None:
    body = json.loads((folder / file).read_text())
    change(body)
    (folder / file).write_text(json.dumps(body))


def test_damaged_files_are_refused(whole, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(whole / "run", folder)
    data, config = open_data(whole / "mine.npz"), Config(data=str(whole / "mine.npz"), device="cpu")
    how = {"candidates": TINY, "compare": False, "resume": True}
    summary = (folder / "summary.json").read_bytes()
    for change in (
        lambda: (folder / "summary.json").write_bytes(summary[:-20]),
        lambda: damaged(folder, "summary.json", lambda body: body.update(runs=["features-1"])),
        lambda: damaged(folder, "summary.json", lambda body: body.update(run="of another")),
    ):
        change()
        with pytest.raises(DataError, match=r"summary\.json .*put the original back, or train again"):
            load_ensemble(folder)
        (folder / "summary.json").write_bytes(summary)
    load_ensemble(folder)
    (folder / "summary.json").unlink()
    with pytest.raises(ConfigError, match="is unfinished: go on with grand train --resume"):
        load_ensemble(folder)
    plan = (folder / "plan.json").read_bytes()
    for content in (b"{", plan[:-9], plan.replace(b'"refit": true', b'"refit": false')):
        assert content != plan
        (folder / "plan.json").write_bytes(content)
        with pytest.raises(DataError, match=r"plan\.json .*put the original back, or train again"):
            choose(config, data, folder, **how)
    (folder / "plan.json").write_bytes(plan)
    changed = data.clone()
    changed.y = changed.y.flip(0)
    with pytest.raises(DataError, match="the labels of mine have changed since the run began"):
        choose(config, changed, folder, **how)
    with pytest.raises(ConfigError, match="run holds other files"):
        choose(config, data, folder, candidates=TINY)
    assert told(choose(config, data, folder, **how)) == told(json.loads(summary))


def test_simple_methods_for_comparison(mine):
    """On the nodes that the figures are over; they learn from all others that are labelled."""
    places = np.arange(150) % 10
    masks = {"train_mask": places < 6, "val_mask": places == 6, "test_mask": places > 6}
    data = written(Path("mine.npz"), **masks)
    found = chosen(data, "run", compare=True, candidates=TINY[:1])["baselines"]
    assert list(found) == ["majority", "logistic regression", "MLP", "GCN"]
    train, test = places < 7, places > 6
    x, y = mine.x.numpy(), mine.y.numpy()
    for name, model in (
        ("majority", DummyClassifier(strategy="most_frequent")),
        ("logistic regression", LogisticRegression(max_iter=1000)),
    ):
        assert found[name] == pytest.approx(model.fit(x[train], y[train]).score(x[test], y[test]))
    assert min(found.values()) == found["majority"]


def test_a_single_class(mine):
    data = written(Path("mine.npz"), y=np.zeros(150, dtype=int))
    found = chosen(data, "run", TWO, compare=True, candidates=TINY[:1])
    assert found["figures"]["accuracy"] == 1 and set(found["baselines"].values()) == {1}


@pytest.mark.parametrize("task", ["regression", "multilabel"])
def test_other_tasks(mine, task):
    y = blocks()["y"]
    noise = np.random.default_rng(0).normal(size=(150, 2))
    several = np.eye(3)[y] + np.eye(3)[0] > 0
    targets = {"regression": 10 * np.eye(3)[y][:, :2] + noise, "multilabel": several}
    data = written(Path("mine.npz"), y=targets[task].astype(np.float32))
    found = chosen(data, "run", TWO, compare=True, candidates=TINY[:1])
    assert found["task"] == task and found["metric"] in ("R²", "micro-F1") and found["temperature"] > 0
    own = found["figures"]["r2" if task == "regression" else "micro_f1"]
    assert len(found["baselines"]) == 4
    assert own > found["baselines"]["mean" if task == "regression" else "most frequent"]
    assert load_ensemble("run").predict().shape == (150, 2 if task == "regression" else 3)


def test_splits_in_another_order_change_no_baseline(mine):
    """Where all training nodes of a split are of one class, only that split has a constant answer."""
    y, places = mine.y.numpy(), np.arange(150) // 3 % 3
    one = np.where(places == 2, "test", np.where((y == 0) & (places == 0), "train", "val"))
    two = np.where(places == 2, "test", np.where(places == 0, "train", "val"))
    found = []
    for first, second in ((one, two), (two, one)):
        masks = {
            f"{part}_mask": np.stack([first == part, second == part], 1)
            for part in ("train", "val", "test")
        }
        data = written(Path("mine.npz"), **masks)
        config = Config(**BASE, split="given")
        members = rounds_of(config, data)
        found.append(baselines(Problems(data, torch.device("cpu")), config, members))
    assert found[0]["logistic regression"] == pytest.approx(found[1]["logistic regression"])
    assert found[0]["logistic regression"] > found[0]["majority"]


def test_two_candidates_of_one_name(mine):
    with pytest.raises(ArgumentError, match="two candidates have one name"):
        chosen(mine, "run", candidates=[TINY[0], TINY[0]])


def test_options_of_one_model_do_not_disturb_the_comparison(mine):
    """A base with options that the compared models do not have."""
    config = TWO.replace(label_rate=0.5, sweep=1.5)
    assert len(chosen(mine, "run", config, compare=True, candidates=TINY[:1])["baselines"]) == 4


def test_the_work_is_what_the_plan_says(mine):
    """Progress ends near the whole where no candidate stops early."""
    seen = []

    class Seen(Stop):
        def fit(self, name, done, total) -> None:
            seen.append((done, total))

    steady = [Candidate(c.name, {**c.options, "patience": 0}) for c in TINY]
    plan = make_plan(load_problem(Config(**BASE), mine), Config(**BASE), steady, 5, False)
    config = Config(**BASE, split="folds", splits=5)
    Path("run").mkdir()
    automatic = Automatic(plan, config, mine, torch.device("cpu"), Path("run"), Seen("", 0))
    automatic.race()
    assert automatic.done == pytest.approx(plan.work)
    assert [total for _, total in seen] == pytest.approx([plan.work] * 4)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
