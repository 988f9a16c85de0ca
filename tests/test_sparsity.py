"""Sparsity: the experiment on a small graph, what it times and counts, its verdicts, and its picture."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch_geometric.data import Data

from graphdiffusion.cli import main
from graphdiffusion.data import load_data
from graphdiffusion.experiments import sparsity, sparsity_claims
from graphdiffusion.experiments.results import Results, read_results
from graphdiffusion.rewiring import Rewire

KS = (3, 8)


@pytest.fixture(scope="module")
def part():
    """300 papers of Cora."""
    data = load_data("cora-embedded")
    inside = (data.edge_index < 300).all(0)
    return Data(
        x=data.x.to_dense()[:300, :200],
        edge_index=data.edge_index[:, inside],
        y=data.y[:300],
        class_names=data.class_names,
        task=data.task,
        name="part of Cora",
    )


@pytest.fixture
def quick(part, monkeypatch, tmp_path):
    """Two K, two splits, one epoch, two schemes."""
    monkeypatch.setenv("GRAND_CACHE", str(tmp_path / "cache"))
    few = ("closed-form", "adams-moulton-1")
    settings = replace(
        sparsity.SMALL, ks=KS, heat=5.0, splits=2, epochs=1, hidden=4, augment=4, heads=1, attention_dim=4,
        trained=few, trained_heat=few[:1], timed=few, warm=1, repeats=2, most_repeats=3, enough=0.0,
        time=5.0,
    )  # fmt: skip
    monkeypatch.setattr(sparsity, "SMALL", settings)
    monkeypatch.setattr(sparsity, "read_data", lambda config, root=None: part)
    return settings


def test_command_and_resuming(quick, tmp_path, capsys, monkeypatch):
    timed, calls = sparsity.Bench.timed, []

    def stop(self, point, tick):
        calls.append(point)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return timed(self, point, tick)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(sparsity.Bench, "timed", stop)
        device = torch.device("cpu")
        sparsity.reproduce(tmp_path, small=True, root=None, device=device, note=lambda line: None)
    folder = tmp_path / "sparsity-small"
    before = read_results(folder / "results.json")
    assert "verdict" not in before and sum(p["kind"] == "speed" for p in before["points"]) == 1

    command = ["reproduce", "sparsity", "--small", "--device", "cpu", "--out", str(tmp_path)]
    assert main(command) == 0
    printed = capsys.readouterr()
    for claim in ("The smaller K, the faster", "Accuracy the same until K < 8", "For implicit schemes"):
        assert claim in printed.out
    assert "steps of 0.125" in printed.err
    points = read_results(folder / "results.json")["points"]
    assert points[: len(before["points"])] == before["points"]
    # GRAND-l: two schemes on three graphs, and heat's two of one; GRAND-nl has no closed form
    assert sum(p["kind"] == "accuracy" for p in points) == 2 * 3 + 2 + 3
    assert sum(p["kind"] == "speed" for p in points) == 2 + 1
    for p in points:
        if p["kind"] == "speed":
            assert p["members"] == 1 and [g["k"] for g in p["graphs"]] == [0, *KS]
            assert all(len(g["seconds"]) == 2 and min(g["seconds"]) > 0 for g in p["graphs"])
            assert all((g["iterations"] > 0) == (p["scheme"] != "closed-form") for g in p["graphs"])
        else:
            assert len(p["test"]) == 2 and all(0 < own < 100 for own in p["test"])
    assert (folder / "picture.png").stat().st_size > 10_000
    monkeypatch.setattr(sparsity, "Bench", None)  # nothing is measured again
    assert main(command) == 0
    assert read_results(folder / "results.json")["points"] == points


def test_graphs_weights_and_counts(quick, part, tmp_path):
    """Edges are those of the transform, evaluations those of the scheme; timing leaves weights alone."""
    bench = sparsity.Bench(quick, tmp_path, part, "cpu")
    point = {"model": "linear", "scheme": "closed-form", "rewire": "ppr", "k": 3}
    run = bench.run(point)
    edge_index, _ = Rewire(method="ppr", alpha=0.05, top_k=3, cache=False).edges(part.edge_index, 300)
    apart = int((edge_index[0] != edge_index[1]).sum())
    assert sparsity.edges(run)["edges"] == apart <= 3 * 300
    moulton = sparsity.configuration(quick, point | {"scheme": "adams-moulton-1"}, "cpu")
    found = sparsity.cost(run, moulton)
    assert found["steps"] == 5  # T over τ
    # three starting steps of RK4, two with one evaluation and the corrections
    assert found["evaluations"] == 3 * 4 + 2 + found["iterations"]
    population = sparsity.loaded(run, moulton.replace(rate=1e-12), 1)
    before = {name: value.clone() for name, value in population.stack.tensors.items()}
    assert sparsity.epoch_seconds(population) > 0
    for name, value in population.stack.tensors.items():
        torch.testing.assert_close(value, before[name], rtol=0, atol=1e-9)
    trained = run.model(0).state_dict()
    for name, own in population.stack.saved.items():
        torch.testing.assert_close(before[own][0], trained[name], rtol=0, atol=0)


def test_settings_of_the_paper():
    full = sparsity.FULL
    assert full.ks == (4, 8, 16, 32, 64, 128) and full.ppr == 0.05 and full.time == 12.1
    points = sparsity.wanted(full)
    assert len({tuple(p.items()) for p in points}) == len(points)
    for p in points:
        for place in [p] if p["kind"] == "accuracy" else sparsity.graphs(full, p["scheme"]):
            if place["k"] > 4:
                continue  # the same but for K
            config = sparsity.configuration(full, {**p, **place})
            assert config.variant == p["model"] and config.time == 12.1
            assert config.self_loops == (0.555 if place["rewire"] == "none" else 0.0)
            step = getattr(config, "step_size", None)
            if p["scheme"] == "adams-bashforth-0.005":
                assert (step, config.gradient, config.splits) == (0.005, "checkpoint", 5)
            else:
                assert config.splits == 20
    # the costly scheme comes last, and the small setting takes a step that is stable for α up to 1
    assert [p["scheme"] for p in points if sparsity.SCHEMES[p["scheme"]].costly]
    assert not any(
        sparsity.SCHEMES[name].costly for name in (*sparsity.SMALL.timed, *sparsity.SMALL.trained)
    )


def speed(scheme, *seconds, iterations=(3, 5)):
    graphs = [{"k": 0, "seconds": [1.0, 1.0, 1.0]}]
    graphs += [{"k": k, "seconds": own} for k, own in zip((4, 8), seconds, strict=True)]
    for graph, count in zip(graphs, (4, *iterations), strict=True):
        graph |= {"edges": 10, "evaluations": 7, "iterations": count, "steps": 2}
    return {"kind": "speed", "model": "linear", "scheme": scheme, "graphs": graphs}


def test_verdict_on_seconds():
    titles = {"a": "a", "b": "b"}
    fast = speed("a", [1.0, 1.1, 0.9], [2.0, 2.1, 1.9])
    figures = sparsity_claims.speed_figures([fast])
    assert figures[0]["gain"]["low"] < 2.04 < figures[0]["gain"]["high"] and figures[0]["gain"]["low"] > 1
    assert figures[0]["graphs"][1]["seconds"] == 1.0
    assert "holds, in 1 of 1 cases" in sparsity_claims.faster_verdict(figures, titles)
    # a difference that the noise explains is none
    noisy = sparsity_claims.speed_figures([fast, speed("b", [1.0, 3.0, 0.5], [2.0, 1.0, 1.2])])
    assert "holds, in 1 of 2 cases, open in 1 (noise)" in sparsity_claims.faster_verdict(noisy, titles)
    slower = sparsity_claims.speed_figures([speed("a", [2.0, 2.1, 2.0], [1.0, 1.0, 1.0])])
    assert "does not hold, in 0 of 1" in sparsity_claims.faster_verdict(slower, titles)
    both = sparsity_claims.speed_figures([fast, speed("b", [2.0, 2.1, 2.0], [1.0, 1.0, 1.0])])
    text = sparsity_claims.implicit_verdict(both, titles)
    assert "holds in part, in 1 of 2" in text and "fewer iterations than the densest in 2 of 2" in text


@pytest.mark.parametrize(
    ("apart", "says"),
    [
        ((0.1, -0.1, 0.2, 0.0), "same"),
        ((-3.0, -2.5, -3.5, -2.9), "lower"),
        ((3.0, 2.5, 3.5, 2.9), "higher"),
        ((3.0, -2.5, 1.5, -2.0), "open"),
        ((-0.5, -0.4, -0.6, -0.5), "same"),  # surely lower, by less than the margin
    ],
)
def test_differences_are_paired(apart, says):
    base = [70.0, 80.0, 90.0, 60.0]  # much wider than any difference
    found = sparsity_claims.difference([b + a for b, a in zip(base, apart, strict=True)], base)
    assert found["says"] == says and found["low"] <= found["mean"] <= found["high"]
    assert sparsity_claims.difference([1.0], [2.0])["says"] == "open"


def test_verdict_on_accuracy():
    noise = (0.0, 0.1, -0.1)

    def points(**means):
        return [
            {
                "kind": "accuracy", "model": "linear", "scheme": "a",
                "rewire": "ppr" if int(k[1:]) else "none",
                "k": int(k[1:]), "edges": 1, "evaluations": 1, "iterations": 0,
                "test": [mean + n * (1 + int(k[1:])) / 9 for n in noise],
            }
            for k, mean in means.items()
        ]  # fmt: skip

    def verdict(**means):
        own = points(**means)
        return sparsity_claims.accuracy_verdict(sparsity_claims.accuracy_figures(own), {"a": "a"})

    assert ": holds, in 1 of 1 cases." in verdict(k0=80, k4=75, k8=80.1, k16=80)
    assert "K = 4 same" in verdict(k0=80, k4=80, k8=80, k16=80)
    assert "does not hold, in 0 of 1 cases" in (text := verdict(k0=80, k4=75, k8=77, k16=80))
    assert "K = 8 lower" in text and "K = 4" not in text
    assert sparsity_claims.held({"a": "open", "b": "open"}, "noise") == "open in all 2 cases (noise)"


def test_a_case_that_is_not_whole_is_not_judged(tmp_path):
    """Without its densest graph, or the graph as it is, a case has no verdict; the others have."""
    planned = [
        p
        for p in sparsity.wanted(sparsity.FULL)
        if (p["kind"], p["model"]) == ("accuracy", "linear") and p["scheme"] in ("closed-form", "dopri5")
    ]
    missing = (("closed-form", "heat", 128), ("dopri5", "none", 0))
    figures = {"edges": 1, "test": [80.0, 81.0], "evaluations": 1, "iterations": 0}
    results = Results(tmp_path, {}, print)
    results.content["points"] = [
        p | figures for p in planned if (p["scheme"], p["rewire"], p["k"]) not in missing
    ]
    sparsity._conclude(results, planned)
    cases = [(case["scheme"], case["rewire"]) for case in read_results(results.path)["figures"]["accuracy"]]
    assert cases == [("closed-form", "ppr")]
