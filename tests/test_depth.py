"""Depth: the experiment on few points, its energies, its verdict, and its picture."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from graphdiffusion.calculus import dirichlet_energy
from graphdiffusion.cli import main
from graphdiffusion.data import load_data
from graphdiffusion.errors import DataError
from graphdiffusion.experiments import depth, trained
from graphdiffusion.experiments.results import Results, read_results
from graphdiffusion.graph import Graph
from graphdiffusion.report import plot_depth


@pytest.fixture
def quick(monkeypatch):
    """Two depths of three models, two splits, few epochs."""
    monkeypatch.setattr(
        depth, "SMALL", replace(depth.SMALL, depths=(1, 5), splits=2, epochs=2, patience=2, hidden=8)
    )
    models = {name: depth.MODELS[name] for name in ("no-source", "gcn-residual", "gat")}
    monkeypatch.setattr(depth, "MODELS", models)
    monkeypatch.setattr(trained, "read_data", lambda config, root=None: load_data("cora-embedded"))


def test_command_and_resuming(quick, tmp_path, capsys, monkeypatch):
    assert main(["reproduce", "depth", "--small", "--device", "cpu", "--out", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    folder = tmp_path / "depth-small"
    assert "no verdict before GRAND" in out and "By " not in out
    assert f"Results: {folder / 'results.json'}" in out.replace("\n", "")
    found = read_results(folder / "results.json")
    assert len(found["points"]) == 2 * 3
    for point in found["points"]:
        assert len(point["test"]) == len(point["energy"]) == 2
        assert all(0 < accuracy < 100 for accuracy in point["test"])
        assert all(0 <= energy <= 2 for energy in point["energy"])
        options, option = point["options"], depth.MODELS[point["model"]][3]
        assert options[option] == point["depth"]
        if option == "time":
            assert (options["solver"], options["step_size"]) == ("rk4", 1.0)
    assert (folder / "picture.png").stat().st_size > 10_000
    # nothing is trained again
    monkeypatch.setattr(depth, "trained", None)
    assert main(["reproduce", "depth", "--small", "--device", "cpu", "--out", str(tmp_path)]) == 0
    assert read_results(folder / "results.json")["points"] == found["points"]
    assert plot_depth(folder / "results.json", tmp_path / "again.png").exists()


def test_missing_files_show_before_anything_is_measured(quick, tmp_path, capsys, monkeypatch):
    def read(config, root=None):
        if config.data == "citeseer":
            raise DataError("citeseer: did not find its files")
        return load_data("cora-embedded")

    monkeypatch.setattr(depth, "SMALL", replace(depth.SMALL, data=("cora", "citeseer")))
    monkeypatch.setattr(trained, "read_data", read)
    assert main(["reproduce", "depth", "--small", "--device", "cpu", "--out", str(tmp_path)]) == 2
    assert "citeseer: did not find" in capsys.readouterr().err
    assert not list(tmp_path.rglob("runs"))


def test_parts_join_one_file(quick, tmp_path, capsys):
    """Restricted to models and depths, in two commands: verdict and picture are of what is there."""
    command = ["reproduce", "depth", "--small", "--device", "cpu", "--out", str(tmp_path), "--only", "cora"]
    assert main([*command, "--model", "gcn-residual,gat", "--deepest", "1"]) == 0
    assert "By 2 of 6 points: no verdict before" in capsys.readouterr().out.replace("\n", " ")
    path = tmp_path / "depth-small" / "results.json"
    first = read_results(path)["points"]
    assert [(p["model"], p["depth"]) for p in first] == [("gcn-residual", 1), ("gat", 1)]
    assert main([*command, "--model", "gcn-residual", "--tuned", "once"]) == 0
    points = read_results(path)["points"]
    assert points[:2] == first and [(p["model"], p["depth"]) for p in points[2:]] == [("gcn-residual", 5)]
    assert (path.parent / "picture.png").stat().st_size > 10_000


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("--only", "core", "only must be among cora; got core"),
        ("--model", "gcnn", "model must be among no-source, gcn-residual, gat; got gcnn"),
        ("--tuned", "never", "tuned must be among once; got never"),
        ("--tuned", "every", "tuned must be among once; got every"),
    ],
)
def test_wrong_parts(quick, tmp_path, capsys, option, value, says):
    assert main(["reproduce", "depth", "--small", "--out", str(tmp_path), option, value]) == 2
    assert says in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "depth-small").exists()


def test_cheap_points_come_first():
    points = depth.points_of(depth.FULL)
    assert len(points) == 2 * 3 * 6 * 8
    costs = [depth.cost(p) for p in points[: 6 * 8]]
    assert costs == sorted(costs) and len({(p["data"], p["tuned"]) for p in points[: 6 * 8]}) == 1


@pytest.mark.parametrize(("kind", "at"), [("once", 4), ("every", 5)])
def test_models_are_tuned_once_or_at_every_depth(quick, tmp_path, monkeypatch, kind, at):
    settings, searched = replace(depth.SMALL, trials=2), []

    def found(start, space, plan, folder, **more):
        searched.append((start, space, folder.name))
        return type("Board", (), {"best": start.replace(rate=0.5)})

    monkeypatch.setattr("graphdiffusion.experiments.trained.search", found)
    work = depth.Work(settings, tmp_path, None, torch.device("cpu"), print)
    point = {"data": "cora", "model": "no-source", "tuned": kind, "depth": 5}
    config = work.config(point)
    assert (config.time, config.terms, config.rate, config.splits) == (5, "", 0.5, 2)
    assert work.config(point) == config
    ((start, space, name),) = searched  # a search is made once
    assert start.time == at and name == f"cora-no-source-{at}"
    assert not {"time", "terms", "solver", *depth.SHAPES} & set(space) and "rate" in space


def test_what_was_tuned_elsewhere_is_only_deepened(quick, tmp_path, monkeypatch):
    """With the results file alone, without the folder of the search."""
    how = {"small": True, "root": None, "device": torch.device("cpu"), "note": lambda line: None}
    tuned = depth.Work.search
    monkeypatch.setattr(depth.Work, "search", lambda *own: tuned(*own).replace(rate=0.02))
    path = depth.reproduce(tmp_path / "one", model=["gcn-residual"], deepest=1, **how)
    other = tmp_path / "two" / "depth-small"
    other.mkdir(parents=True)
    (other / "results.json").write_bytes(path.read_bytes())
    monkeypatch.setattr(depth.Work, "search", lambda *own: pytest.fail("searched again"))
    depth.reproduce(tmp_path / "two", model=["gcn-residual"], **how)
    first, second = (p["options"] for p in read_results(other / "results.json")["points"])
    assert (first["layers"], second["layers"]) == (1, 5)
    assert first | {"layers": 5} == second and second["rate"] == 0.02


def test_runs_of_other_settings_are_refused(quick, tmp_path, monkeypatch, capsys):
    """Where the results file is deleted, finished trainings are still in the folder."""
    command = ["reproduce", "depth", "--small", "--out", str(tmp_path), "--model", "gat", "--deepest", "1"]
    assert main([*command, "--device", "cpu"]) == 0
    path = tmp_path / "depth-small" / "results.json"
    before = read_results(path)["points"]
    path.unlink()
    assert main(command) == 0  # the device is no setting
    assert [p["test"] for p in read_results(path)["points"]] == [p["test"] for p in before]
    monkeypatch.setattr(depth, "SMALL", replace(depth.SMALL, epochs=3))
    capsys.readouterr()
    path.unlink()
    assert main(command) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "holds a training with other options" in said and "delete it, or name another folder" in said


def test_one_width_for_all_models(tmp_path):
    settings = replace(depth.FULL, trials=0)
    work = depth.Work(settings, tmp_path, None, torch.device("cpu"), print)
    for model in depth.MODELS:
        config = work.config({"data": "cora", "model": model, "tuned": "once", "depth": 8})
        assert config.hidden * (config.heads if model == "gat" else 1) == settings.hidden
        assert (config.epochs, config.patience) == (settings.epochs, settings.patience)


def test_energy_against_the_dense_form():
    """Of a weighted sum over pairs; 0 for constants, 2 for a state that alternates."""
    generator = torch.Generator().manual_seed(0)
    ends = torch.randint(0, 30, (2, 80), generator=generator)
    graph = Graph.from_edge_index(torch.cat([ends, ends.flip(0)], 1), 30, self_loops=1.0)
    x = torch.randn(30, 4, generator=generator, dtype=torch.float64)
    dense = np.zeros((30, 30))
    dense[graph.row.numpy(), graph.col.numpy()] = 1
    np.fill_diagonal(dense, 0)
    apart = ((x[:, None] - x) ** 2).sum(-1).numpy()
    expected = (dense * apart).sum() / 2 / (dense.sum(1) * (x**2).sum(1).numpy()).sum()
    assert depth.relative_energy(graph, x) == pytest.approx(expected, rel=1e-12)
    bare = Graph.from_edge_index(torch.cat([ends, ends.flip(0)], 1), 30, self_loops=0.0)
    size = (dense.sum(1) * (x**2).sum(1).numpy()).sum()
    assert 2 * float(dirichlet_energy(bare, x)) / size == pytest.approx(expected, rel=1e-12)
    assert depth.relative_energy(graph, torch.ones(30, 2)) == 0
    ring = torch.stack([torch.arange(8), (torch.arange(8) + 1) % 8])
    circle = Graph.from_edge_index(torch.cat([ring, ring.flip(0)], 1), 8, self_loops=0.0)
    assert depth.relative_energy(circle, torch.tensor([1.0, -1.0] * 4)[:, None]) == pytest.approx(2)
    assert depth.relative_energy(circle, torch.zeros(8, 1)) == 0


def points_at(depths, values, tuned="once"):
    return [
        {"data": "cora", "tuned": tuned, "model": model, "depth": d, "test": [value, value]}
        for model, own in values.items()
        for d, value in zip(depths, own, strict=True)
    ]


KEEPS = {"linear": (80, 82, 81), "nonlinear": (79, 81, 80)}
LOSES = {"gcn": (70, 80, 30), "gcn-residual": (70, 80, 39)}


def test_verdict():
    def said(values, planned=12):
        return depth.verdict(points_at((1, 4, 8), values), planned)

    assert said(KEEPS | LOSES).startswith(
        "The paper's claim holds: GRAND keeps its accuracy in 2 of 2 cases"
    )
    half = said(KEEPS | LOSES | {"gcn-residual": (70, 80, 79)})
    assert "does not hold as a whole" in half
    assert "in 1 of 2 cases (true for GCN on cora up to 8; not for residual GCN on cora up to 8)" in half
    fallen = said(KEEPS | LOSES | {"linear": (80, 82, 70)})
    assert "in 1 of 2 cases (true for GRAND-nl on cora up to 8; not for GRAND-l on cora up to 8)" in fallen


def test_verdict_on_a_part_of_the_points():
    """Each model is judged up to its own depth, which is named; none is judged up to depth 4."""
    deep = points_at((1, 4, 8), {"linear": KEEPS["linear"]} | LOSES)
    shallow = points_at((1, 2, 4), {"nonlinear": (80, 70, 60)})
    said = depth.verdict(deep + shallow, 48)
    assert said.startswith("By 12 of 48 points: The paper's claim holds")
    assert "in 1 of 1 cases (true for GRAND-l on cora up to 8)" in said and "GRAND-nl" not in said
    deeper = points_at((8, 16), {"nonlinear": (80, 79)})
    assert "GRAND-l on cora up to 8, GRAND-nl on cora up to 16" in depth.verdict(deep + deeper, 48)
    bare = depth.verdict(deep + points_at((1, 4, 8), {"no-source": (80, 81, 60)}), 48)
    assert bare.startswith("By 12 of 48 points: The paper's claim holds")
    assert "Without the source, as in the text, accuracy is kept in 0 of 1 cases (not for GRAND-l" in bare
    # what is tuned at every depth is not what the claim is on
    assert "no verdict" in depth.verdict(points_at((1, 4, 8), KEEPS | LOSES, "every"), 48)
    assert "no verdict" in depth.verdict(shallow, 48)


def test_figures_name_their_depths():
    (own,) = depth.figures(points_at((1, 16), {"gcn": (70, 30)}))
    assert (own["best_depth"], own["deepest"], own["deepest_depth"], own["least_deep"]) == (1, 30, 16, 30)
    (own,) = depth.figures(points_at((1, 4), {"gcn": (70, 30)}))
    assert own["least_deep"] is None


def test_no_picture_without_points(tmp_path):
    results = Results(tmp_path, {"data": ["cora"], "depths": [1], "moderate": 4}, print)
    results.conclude(lambda: {"figures": []})
    with pytest.raises(DataError, match="has no points yet"):
        plot_depth(results.path)


def test_time_left_is_told_by_the_cost(tmp_path):
    """Not by the number of points: after the first of two it is a tenth of the work."""
    lines = []
    results = Results(tmp_path, {}, lines.append)
    points = [{"depth": 1}, {"depth": 9}]
    results.measure(points, lambda point, tick: {}, lambda point: point["depth"])
    assert results.missing([*points, {"depth": 2}]) == [{"depth": 2}]
    assert "10% of the work, about" in lines[0] and "100% of the work." in lines[1]
