"""The experiment on the successors' equations: on few points, its edges, its verdict, and its picture."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from test_cli_basics import write_graph
from torch_geometric.data import Data

from graphdiffusion.cli import main
from graphdiffusion.data import load_data, open_data
from graphdiffusion.experiments import successors
from graphdiffusion.experiments.results import read_results
from graphdiffusion.report import plot_successors
from graphdiffusion.training import Config


def test_command_and_resuming(tmp_path, capsys, monkeypatch):
    """A small graph in place of Cora."""
    write_graph(tmp_path / "toy")
    small = replace(
        successors.SMALL, per_class=(2,), shares=(0.5,), splits=2, epochs=2, hidden=8,
        models=("gcn", "linear", "labelled-source"),
    )  # fmt: skip
    monkeypatch.setattr(successors, "SMALL", small)
    monkeypatch.setattr(successors, "read_data", lambda config, root=None: open_data(str(tmp_path / "toy")))
    command = ["reproduce", "successors", "--small", "--device", "cpu", "--out", str(tmp_path)]
    assert main([*command, "--part", "labels"]) == 0
    folder = tmp_path / "successors-small"
    assert len(read_results(folder / "results.json")["points"]) == 3
    assert main(command) == 0
    out = capsys.readouterr().out
    assert "the source at labelled nodes is above GRAND-l in " in out.replace("\n", " ")
    found = read_results(folder / "results.json")
    assert [p["part"] for p in found["points"]] == ["labels"] * 3 + ["edges"] * 3
    assert all(len(p["test"]) == len(p["val"]) == 2 for p in found["points"])
    assert found["figures"][1]["difference"] == 0  # GRAND-l itself
    assert (folder / "picture.png").stat().st_size > 10_000
    monkeypatch.setattr(successors, "trained", None)  # nothing is trained again
    assert main(command) == 0
    assert plot_successors(folder / "results.json", tmp_path / "again.png").exists()
    assert main([*command, "--part", "set"]) == 2


@pytest.mark.parametrize("name", list(successors.MODELS))
def test_every_model_has_settings_and_a_space(name, tmp_path, monkeypatch):
    """What a search starts from is a configuration, and so is every corner of its space."""
    started = []

    def found(start, space, plan, folder, **more):
        started.append((start, space))
        return type("Board", (), {"best": start})

    monkeypatch.setattr(successors, "search", found)
    for part, data in (("sets", "texas"), ("labels", "cora")):
        point = {"part": part, "data": data, "model": name, "level": 0.0}
        config = successors.tuned(point, successors.FULL, Data(), tmp_path, "cpu", print)
        assert isinstance(config, Config) and config.split == ("given" if part == "sets" else "random")
    fixed, more = successors.MODELS[name][2:]
    for start, space in started:
        assert not set(fixed) & set(space) and set(more) <= set(space)
        for option, values in more.items():
            ends = [values.low, values.high] if isinstance(values, successors.Range) else values
            for value in ends:
                assert getattr(start.replace(**{option: value}), option) == value


def test_random_edges():
    data = load_data("cora-embedded")
    more = successors.with_random_edges(data, 0.5)
    before, after = ({(i, j) for i, j in d.edge_index.T.tolist()} for d in (data, more))
    assert before < after and len(after) == len(before) + 2 * round(0.25 * len(before))
    assert all((j, i) in after and i != j for i, j in after)
    assert torch.equal(successors.with_random_edges(data, 0.5).edge_index, more.edge_index)
    assert successors.with_random_edges(data, 0.0) is data
    pair = Data(edge_index=torch.tensor([[0, 1], [1, 0]]), num_nodes=3)
    assert (
        successors.with_random_edges(pair, 50.0).edge_index.shape[1] == 6
    )  # no more than there is room for


def test_verdict():
    def point(part, model, test, val, level=0.0):
        return {"part": part, "data": "toy", "model": model, "level": level, "test": test, "val": val}

    points = [
        point("sets", "gcn", [50.0, 52.0], [60.0, 60.0]),
        point("sets", "linear", [40.0, 42.0], [50.0, 50.0]),
        point("sets", "fisher", [53.0, 53.0], [61.0, 61.0]),
        point("sets", "acmp", [90.0, 90.0], [55.0, 55.0]),  # better in the test, not chosen by it
        point("labels", "linear", [40.0, 42.0], [50.0, 50.0], 1.0),
        point("labels", "labelled-source", [45.0, 47.2], [50.0, 50.0], 1.0),
        point("labels", "labelled-source", [10.0, 10.0], [50.0, 50.0], 5.0),
    ]
    said = successors.verdict(points)
    assert "on 1 of 1 sets whose neighbours differ (toy Fisher +2.0)" in said
    assert "above GRAND-l in 1 of 1 cases, beyond the interval (toy 1: +5.1)" in said
    assert successors.verdict(points[:1]) == "Not enough is measured for a verdict."
    assert [f["difference"] for f in successors.figures(points)][2] == 12.0
