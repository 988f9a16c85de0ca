"""Depth: the experiment on few points, its energies, its verdict, and its picture."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from graphdiffusion.calculus import dirichlet_energy
from graphdiffusion.cli import main
from graphdiffusion.data import load_data
from graphdiffusion.experiments import depth
from graphdiffusion.experiments.results import read_results
from graphdiffusion.graph import Graph
from graphdiffusion.report import plot_depth


@pytest.fixture
def quick(monkeypatch):
    """Two depths of three models, two splits, few epochs."""
    monkeypatch.setattr(depth, "SMALL", replace(depth.SMALL, depths=(1, 5), splits=2))
    models = {name: depth.MODELS[name] for name in ("no-source", "gcn-residual", "gat")}
    monkeypatch.setattr(depth, "MODELS", models)
    monkeypatch.setattr(depth, "read_data", lambda config, root=None: load_data("cora-embedded"))
    start = depth.preset_config

    def shorter(data, row, kind, **more):
        config = start(data, row, kind, **more)
        return config.replace(epochs=2, hidden=8, **({"heads": 1} if row == "gat" else {}))

    monkeypatch.setattr(depth, "preset_config", shorter)


def test_command_and_resuming(quick, tmp_path, capsys, monkeypatch):
    assert main(["reproduce", "depth", "--small", "--device", "cpu", "--out", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    folder = tmp_path / "depth-small"
    assert "The paper's claim" in out and f"Results: {folder / 'results.json'}" in out.replace("\n", "")
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
    monkeypatch.setattr(depth, "Trainer", None)
    assert main(["reproduce", "depth", "--small", "--device", "cpu", "--out", str(tmp_path)]) == 0
    assert read_results(folder / "results.json")["points"] == found["points"]
    assert plot_depth(folder / "results.json", tmp_path / "again.png").exists()


def test_models_are_tuned_once_or_at_every_depth(quick, tmp_path, monkeypatch):
    data = load_data("cora-embedded")
    settings = replace(depth.SMALL, trials=2)
    searched = []

    def found(start, space, plan, folder, **more):
        searched.append((start, space, folder.name))
        return type("Board", (), {"best": start})

    monkeypatch.setattr(depth, "search", found)
    point = {"data": "cora", "model": "no-source", "tuned": "once", "depth": 5}
    config = depth.tuned(point, settings.moderate, settings, data, tmp_path, "cpu", print)
    assert config.time == settings.moderate and config.terms == ""
    ((_, space, _),) = searched
    assert not {"time", "terms", "solver"} & set(space) and "rate" in space


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


def test_verdict():
    def points(deep):
        return [
            {"data": "cora", "tuned": "once", "model": model, "depth": d, "test": [value, value]}
            for model, own in deep.items()
            for d, value in zip((1, 4, 8), own, strict=True)
        ]

    kept = {"linear": (80, 82, 81), "nonlinear": (79, 81, 80)}
    lost = {"gcn": (70, 80, 30), "gcn-residual": (70, 80, 39)}
    assert "claim holds: GRAND keeps its accuracy in 2 of 2 cases" in depth.verdict(points(kept | lost))
    half = depth.verdict(points(kept | {"gcn": (70, 80, 30), "gcn-residual": (70, 80, 79)}))
    assert "does not hold as a whole" in half and "in 1 of 2 cases (GCN on cora)" in half
    fallen = depth.verdict(points({"linear": (80, 82, 70), "nonlinear": (79, 81, 80)} | lost))
    assert "in 1 of 2 cases (GRAND-nl on cora)" in fallen
