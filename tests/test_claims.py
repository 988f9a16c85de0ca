"""The smaller claims: the command on a tiny graph, and the figures that verdicts stand on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import t as student
from scipy.stats import ttest_rel
from torch_geometric.data import Data
from torch_geometric.nn import GATConv, GCNConv, SAGEConv

from graphdiffusion.cli import main
from graphdiffusion.errors import DataError
from graphdiffusion.experiments import claims
from graphdiffusion.experiments.claims import base, dropout, laboratory, order, stages
from graphdiffusion.experiments.claims.attention import Attention
from graphdiffusion.experiments.claims.augmentation import Augmentation, ratio_of_spreads
from graphdiffusion.experiments.claims.disconnection import Disconnection, share_across
from graphdiffusion.experiments.claims.parameters import rival
from graphdiffusion.experiments.claims.regularisers import Regularisers
from graphdiffusion.experiments.claims.tolerances import Tolerances
from graphdiffusion.experiments.results import Results, read_results, write_content
from graphdiffusion.graph import Graph
from graphdiffusion.nn import GRAND
from graphdiffusion.report import plot_claims
from graphdiffusion.solvers import integrate

# a driven rigid body at t = 3, by scipy's DOP853 with tolerances of 1e-13
BODY = (-0.5463512289590595, -2.5690365393126924, 1.9636633768457494)


@pytest.fixture
def tiny(monkeypatch):
    """A graph of 90 nodes and three classes in place of Cora, one epoch."""
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(90) % 3
    ends = torch.randint(0, 90, (2, 240), generator=generator)
    ends[1, ::2] = (ends[0, ::2] + 3) % 90  # half of the edges stay in the class
    x = torch.randn(90, 5, generator=generator) + y[:, None]
    data = Data(x=x, y=y, edge_index=torch.cat([ends, ends.flip(0)], 1))
    monkeypatch.setattr(laboratory, "read_data", lambda config, root=None: data)
    options = {"hidden": 4, "heads": 1, "attention_dim": 4, "time": 0.2, "epochs": 1, "split": "shares"}
    monkeypatch.setattr(claims, "SMALL", replace(claims.SMALL, options=options))
    monkeypatch.setattr(stages, "MOST", {True: 8})
    monkeypatch.setattr(order, "FIXED", tuple((*own[:3], own[3] // 10) for own in order.FIXED))
    monkeypatch.setattr(dropout, "SHARPEST", {True: (3, 300)})
    return data


def test_command_resuming_and_picture(tiny, tmp_path, capsys, monkeypatch):
    how = {"small": True, "root": None, "device": torch.device("cpu"), "note": lambda line: None}
    path = claims.reproduce(tmp_path, only=["parameters", "attention"], **how)
    assert [own["name"] for own in read_results(path)["figures"]] == ["parameters", "attention"]
    assert main(["reproduce", "claims", "--small", "--device", "cpu", "--out", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "Of 9 claims measured" in out and "Results:" in out and "Picture:" in out
    found = read_results(path)
    sections = [own["section"] for own in found["figures"]]
    assert [own["name"] for own in found["figures"]] == list(claims.claims()) and sections == sorted(
        sections
    )
    for own in found["figures"]:
        assert own["word"] in ("holds", "holds in part", "does not hold", "is not shown")
        assert own["measured"] and own["criterion"] and own["panel"]["series"]
    trained = [p for p in found["points"] if "test" in p]
    assert all(len(p["test"]) == 3 and p["failed"] == 0 and p["seconds_each"] > 0 for p in trained)
    (sharp, *_, loose) = [p for p in trained if p["claim"] == "tolerances"]
    assert np.mean(sharp["evaluations"]) > np.mean(loose["evaluations"])
    assert (path.parent / "picture.png").stat().st_size > 50_000
    monkeypatch.setattr(laboratory, "trained", None)  # nothing is trained again
    claims.reproduce(tmp_path, **how)
    assert read_results(path)["points"] == found["points"]


def test_no_picture_before_the_first_claim(tmp_path):
    results = Results(tmp_path, {}, print)
    results.conclude(lambda: {"figures": []})
    with pytest.raises(DataError, match="let the experiment come to its end"):
        plot_claims(results.path)


def test_wrong_name(capsys, tmp_path):
    assert main(["reproduce", "claims", "--only", "augmentations", "--out", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert "no claim 'augmentations'" in error and "Did you mean" in error
    assert main(["reproduce", "claims", "--only", "order", "--data", "photo", "--out", str(tmp_path)]) == 2
    assert "order is not measured on photo, but on cora, citeseer, pubmed" in capsys.readouterr().err
    assert not (tmp_path / "claims").exists()


def test_training_that_fails_at_once_is_counted(tiny, tmp_path):
    lab = laboratory.Laboratory(claims.SMALL, tmp_path, None, torch.device("cpu"))
    config = lab.adaptive("cora-embedded").replace(max_evaluations=5)
    found = lab.train(config, "failing")
    assert found["failed"] == 3 and found["test"] == [] and "max_evaluations" in found["reason"]


def test_early_stopping_is_no_failure(tiny, tmp_path):
    """A loss that is not finite, or an integral that fails, is one; an end by patience is none."""
    settings = replace(claims.SMALL, options=claims.SMALL.options | {"epochs": 60})
    lab = laboratory.Laboratory(settings, tmp_path, None, torch.device("cpu"))
    config = lab.config("cora-embedded", "linear", patience=2)
    found = lab.train(config, "patient")
    epochs = [r.epochs for r in lab.run(config, "patient").results]
    assert min(epochs) < 60 and found["failed"] == 0
    result = lab.run(config, "patient").results[0]
    assert laboratory.has_failed(replace(result, epochs=result.best_epoch + 1), config)
    assert laboratory.has_failed(result, config.replace(patience=0))


def test_parts_by_data_set(tiny, tmp_path, monkeypatch, capsys):
    """A claim is concluded on the data sets whose points are all there, and names the others."""
    monkeypatch.setattr(
        claims, "SMALL", replace(claims.SMALL, data=("cora", "citeseer"), every=("cora", "citeseer"))
    )
    command = ["reproduce", "claims", "--small", "--device", "cpu", "--out", str(tmp_path)]
    only = ["--only", "attention, disconnection,parameters"]
    assert main([*command, *only, "--data", "core"]) == 2
    assert "data must be among cora, citeseer; got core." in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "claims-small").exists()
    assert main([*command, *only, "--data", "cora"]) == 0
    path = tmp_path / "claims-small" / "results.json"
    found = {own["name"]: own for own in read_results(path)["figures"]}
    assert found["attention"]["on"] == ["cora"] and found["attention"]["missing"] == ["citeseer"]
    assert found["attention"]["splits"] == "3" and found["parameters"]["splits"] == ""
    assert found["parameters"]["on"] == found["parameters"]["missing"] == []
    # one training serves both claims
    runs = sorted(own.name for own in (path.parent / "runs").iterdir())
    assert [name for name in runs if name.startswith("published")] == [
        f"published-cora-{row}-{kind}"
        for row in ("linear", "nonlinear")
        for kind in ("bahdanau", "scaled-dot")
    ]
    points = {
        (p["claim"], p["model"], p.get("preset"), p.get("attention")): p
        for p in read_results(path)["points"]
        if "model" in p
    }
    for row in ("linear", "nonlinear"):
        one, two = points["disconnection", row, "start", None], points["attention", row, None, "scaled-dot"]
        assert one["test"] == two["test"] and one["options"] == two["options"]
    assert main([*command, "--only", "attention", "--data", "citeseer"]) == 0
    (attention,) = [own for own in read_results(path)["figures"] if own["name"] == "attention"]
    assert attention["on"] == ["cora", "citeseer"] and attention["missing"] == []
    # without a point of GRAND-nl on CiteSeer the claim is judged on the three other cases
    content = {k: v for k, v in read_results(path).items() if k not in ("kind", "checksum")}
    content["points"] = [
        p
        for p in content["points"]
        if (p["claim"], p.get("data"), p.get("attention")) != ("attention", "citeseer", "bahdanau")
        or p["model"] == "linear"
    ]
    write_content(path, content)
    assert main([*command, "--only", "parameters"]) == 0
    (attention,) = [own for own in read_results(path)["figures"] if own["name"] == "attention"]
    assert attention["on"] == ["cora", "citeseer linear"] and len(attention["figures"]) == 3
    assert attention["missing"] == ["citeseer nonlinear"]
    assert [own["x"] for own in attention["panel"]["series"]] == [["cora", "citeseer"], ["cora"]]


def test_words():
    up, down = base.Difference(1.0, 0.5, 0.01), base.Difference(-1.0, 0.5, 0.01)
    open_ = base.Difference(0.1, 0.5, 0.6)
    assert base.superior([up, up]) == "holds"
    assert base.superior([up, open_]) == "holds in part"
    assert base.superior([up, *5 * [open_]]) == "is not shown", "one of six does so by chance"
    assert base.superior([open_, down]) == "does not hold"
    assert base.superior([open_, open_]) == base.superior([]) == "is not shown"
    assert base.share_of([]) == "does not hold"
    difference = base.Difference.of([3.0, 5.0, 8.0], [1.0, 4.0, 5.0])
    assert difference.mean == 2 and difference.half == pytest.approx(student.ppf(0.975, 2) / 3**0.5)
    generator = np.random.default_rng(1)
    first, second = generator.normal(0.3, 1, 9), generator.normal(0, 1, 9)
    assert base.Difference.of(first, second).chance == pytest.approx(ttest_rel(first, second).pvalue)
    assert base.Difference.of([2.0, 2.0], [1.0, 1.0]).chance == 0
    assert base.Difference.of([2.0, 2.0], [2.0, 2.0]).chance == 1
    assert base.Difference.of([2.0], [1.0]).chance == 1, "one pair says nothing"


def test_interval_of_a_ratio_of_spreads():
    """At its ends the correlation of sum and difference is as large as chance allows (Pitman, Morgan)."""
    generator = np.random.default_rng(0)
    common = generator.normal(size=20)
    first, second = common + generator.normal(size=20), 2 * common + generator.normal(size=20)
    ratio, low, high = ratio_of_spreads(first.tolist(), second.tolist())
    assert low < ratio < high and ratio == pytest.approx(first.std(ddof=1) / second.std(ddof=1))
    for end in (low, high):
        r = np.corrcoef(first + end * second, first - end * second)[0, 1]
        assert abs(r) * (18 / (1 - r * r)) ** 0.5 == pytest.approx(student.ppf(0.975, 18), rel=1e-9)
    assert ratio_of_spreads([1.0, 2.0], [1.0, 3.0])[1:] == (0.0, float("inf"))


@pytest.mark.parametrize("number", stages.TABLEAUX)
def test_orders_on_a_nonlinear_equation(number):
    """Euler's equations of a rigid body, for which conditions of linear equations do not suffice."""

    def field(t, x):
        a, b, c = x.unbind(-1)
        return torch.stack([b * c + torch.sin(t)[..., 0], -a * c, -0.51 * a * b], -1)

    tableau = stages.TABLEAUX[number]
    assert len(tableau.b) == stages.PAPER[number]
    x0 = torch.tensor([[0.0, 1.0, 1.0]], dtype=torch.float64)
    steps = 128 if number < 5 else 32

    def error(count):
        state = integrate(field, x0, 3.0, stages.scheme_of(tableau)(3.0 / count)).state
        return float((state[0] - torch.tensor(BODY, dtype=torch.float64)).norm())

    assert number - 0.3 < np.log2(error(steps) / error(2 * steps)) < number + 0.9


def test_cost_of_an_error():
    steps = [2, 4, 8, 16]
    errors = [n**-3.0 for n in steps]
    assert stages.observed_order(errors) == pytest.approx(3)
    assert stages.needed(steps, errors, 1e-3) == pytest.approx(10)
    assert stages.needed(steps, errors, 1e-9) == float("inf")


def test_dropout_at_each_evaluation():
    generator = torch.Generator().manual_seed(1)
    ends = torch.randint(0, 20, (2, 60), generator=generator)
    graph = Graph.from_edge_index(ends, 20, self_loops=1.0)
    model = GRAND(4, 2, hidden=3, heads=1, attention_dim=2, variant="nonlinear", solver="dopri5").eval()
    x = model.encode(torch.randn(20, 4, generator=generator))
    flow = model.diffusion.bind(x, graph)
    t = torch.zeros(1, 1)
    with torch.no_grad():
        exact = flow(t, x)
        torch.testing.assert_close(dropout.NoisyFlow(flow, 0.0)(t, x), exact)
        noisy = dropout.NoisyFlow(flow, 0.5)
        each = torch.stack([noisy(t, x) for _ in range(500)])
    assert (each[0] - each[1]).abs().max() > 0.01
    error = (each.mean(0) - exact).abs() / (each.std(0) / 500**0.5 + 1e-6)
    assert error.max() < 5
    assert dropout.exponent([(10.0**-k, 3 * 10.0**-k) for k in range(4)]) == pytest.approx(1)


def test_share_of_attention_between_classes():
    ends = torch.tensor([[0, 1, 2, 3, 0], [1, 0, 3, 2, 3]])
    graph = Graph.from_edge_index(ends, 4, self_loops=1.0)
    y = torch.tensor([0, 0, 1, 1])
    assert share_across(graph, None, y) == pytest.approx(1 / 5)
    values = torch.rand(graph.num_edges, generator=torch.Generator().manual_seed(2))
    dense = torch.zeros(4, 4)
    dense[graph.row.long(), graph.col.long()] = values
    dense.fill_diagonal_(0)
    expected = dense[y[:, None] != y].sum() / dense.sum()
    assert share_across(graph, values, y) == pytest.approx(float(expected), rel=1e-6)


def test_parameters_against_pyg():
    def size(*modules):
        return sum(p.numel() for m in modules for p in m.parameters())

    norms = [torch.nn.BatchNorm1d(256), torch.nn.BatchNorm1d(256)]
    widths = ((128, 256), (256, 256), (256, 40))
    assert rival("GCN", 3) == size(*norms, *(GCNConv(a, b) for a, b in widths)) == 110_120
    assert rival("SAGE", 3) == size(*norms, *(SAGEConv(a, b) for a, b in widths)) == 218_664
    norms = [torch.nn.BatchNorm1d(750), torch.nn.BatchNorm1d(750)]
    layers = [GATConv(128, 250, 3), GATConv(750, 250, 3), GATConv(750, 40, 1, concat=False)]
    beside = [torch.nn.Linear(a, b, bias=False) for a, b in ((128, 750), (750, 750), (750, 40))]
    assert rival("GAT", 3) == size(*norms, *layers, *beside)
    claim = claims.claims()["parameters"]
    counted = {point["depth"]: claim.measure(point, None) for point in claim.points(claims.FULL)[:4]}
    assert {own["count"] for own in counted.values()} == {38_143}
    assert {own["with_labels"] for own in counted.values()} == {44_623}


def outcome(test, evaluations=50, seconds=1.0, **more):
    """A point as a training leaves it."""
    return {
        "test": test, "val": test, "evaluations": [evaluations + k % 2 for k in range(len(test))],
        "seconds_each": seconds, "failed": 0, "options": {"splits": len(test)}, **more,
    }  # fmt: skip


GOOD, BAD = [82.0, 83.0, 84.1, 82.2], [70.0, 71.5, 72.0, 70.3]


@pytest.mark.parametrize(
    ("evaluations", "seconds", "test", "word"),
    [
        (30, 0.5, GOOD, "holds"),
        (30, 2.0, GOOD, "holds in part"),
        (60, 0.5, GOOD, "does not hold"),
    ],
)
def test_verdict_on_regularisers(evaluations, seconds, test, word):
    bare = outcome(GOOD, data="cora", kinetic=0.0, jacobian=0.0)
    with_it = outcome(test, evaluations, seconds, data="cora", kinetic=1.0, jacobian=0.0)
    dear = outcome(BAD, 10, 0.1, data="cora", kinetic=9.0, jacobian=0.0)  # costs too much accuracy
    found = Regularisers().conclude([bare, with_it, dear])
    assert found.word == word and "K 1, J 0" in found.measured


@pytest.mark.parametrize(
    ("loose", "evaluations", "word"),
    [(GOOD, 20, "holds"), (BAD, 20, "holds in part"), (BAD, 90, "does not hold")],
)
def test_verdict_on_tolerances(loose, evaluations, word):
    sharp = outcome([v - 5 for v in GOOD], data="cora", scale=1)
    found = Tolerances().conclude(
        [sharp, outcome(loose, evaluations, evaluations / 50, data="cora", scale=100)]
    )
    assert found.word == word


def test_verdicts_on_augmentation_attention_and_order():
    spread = [60.0, 95.0, 70.0, 88.0, 75.0, 62.0]
    steady = [80.0 + v / 100 for v in spread]

    def augmented(without, with_it, **more):
        own = {"data": "cora", "preset": "start"}
        return Augmentation().conclude(
            [outcome(without, augmented=False, **own), outcome(with_it, augmented=True, **own, **more)]
        )

    assert augmented(spread, steady).word == "holds"
    assert augmented(steady, spread).word == "does not hold"
    assert augmented(spread, spread[::-1]).word == "is not shown"
    assert augmented(steady, [], failed=6).word == "does not hold"
    own = {"data": "cora", "model": "linear"}
    pair = [outcome(GOOD, attention="scaled-dot", **own), outcome(BAD, attention="bahdanau", **own)]
    assert Attention().conclude(pair).word == "holds"
    schemes = [
        outcome(GOOD, data="cora", scheme="rk4, 10 steps", fixed=True),
        outcome(BAD, data="cora", scheme="euler, 40 steps", fixed=True),
    ]
    assert order.Order().conclude(schemes).word == "holds"


def test_no_verdict_without_trainings():
    own = {"data": "cora"}
    none = {"val": [], "failed": 4}
    bare = outcome([], kinetic=0.0, jacobian=0.0, **own) | none
    assert Regularisers().conclude([bare, outcome(GOOD, kinetic=1.0, jacobian=0.0, **own)]).word != "holds"
    schemes = [
        outcome([], scheme="rk4, 10 steps", fixed=True, **own),
        outcome(BAD, scheme="euler, 40 steps", fixed=True, **own),
    ]
    assert order.Order().conclude(schemes).word == "is not shown"
    pair = [
        outcome([], attention="scaled-dot", model="linear", **own),
        outcome(BAD, attention="bahdanau", model="linear", **own),
    ]
    assert Attention().conclude(pair).word == "is not shown"


def test_verdict_on_disconnection():
    def found(end):
        shares = {"before": [0.2, 0.21, 0.2], "start": [0.1] * 3, "end": end}
        point = {"data": "cora", "model": "linear", "preset": "start", "edges": 0.2, "shares": shares}
        return Disconnection().conclude([point | {"test": [80.0] * 3}]).word

    assert found([0.01, 0.01, 0.011]) == "holds"
    assert found([0.08, 0.09, 0.08]) == "holds in part"
    assert found([0.2, 0.22, 0.21]) == "does not hold"


def test_every_claim_is_a_file():
    folder = Path(claims.__file__).parent
    helpers = {"__init__", "base", "laboratory"}
    assert {path.stem for path in folder.glob("*.py")} - helpers == set(claims.claims())
