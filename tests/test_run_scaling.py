"""The scaling of features is stored with a run, and used on other graphs."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from test_cli_basics import write_graph
from test_runs import trained

from graphdiffusion.data import open_data
from graphdiffusion.errors import DataError
from graphdiffusion.graph import Graph
from graphdiffusion.training import load_run
from graphdiffusion.training.storage import read_tensors, write_tensors


def test_scaling_is_stored_with_a_run(tmp_path):
    run = load_run(trained(tmp_path, scaling="columns", splits=2))
    for result in run.results:
        assert run.evaluate(result.number) == (result.val, result.test)
    own, other = open_data(tmp_path / "toy"), open_data(write_graph(tmp_path / "unseen", 30, labels=False))
    other.x = other.x * 100 + 7
    x = own.x.double().numpy()
    scaled = torch.from_numpy((other.x.double().numpy() - x.mean(0)) / x.std(0)).float()
    graph = Graph.from_data(other, self_loops=run.config.self_loops)
    with torch.no_grad():
        each = [(run.model(k)(scaled, graph) / run.temperature).softmax(-1) for k in range(2)]
    torch.testing.assert_close(run.predict(other), torch.stack(each).mean(0), rtol=1e-3, atol=1e-5)
    assert "scaling.shift" not in run.states


DAMAGE = {
    "no shift": lambda tensors: tensors.pop("scaling.shift"),
    "too short": lambda tensors: tensors.update({"scaling.scale": tensors["scaling.scale"][:-1]}),
    "of another kind": lambda tensors: tensors.update({"scaling.shift": tensors["scaling.shift"].double()}),
    "not finite": lambda tensors: tensors["scaling.scale"].fill_(torch.nan),
    "one too many": lambda tensors: tensors.update({"scaling.more": torch.zeros(5)}),
}


def forge_tensors(path: Path, change) -> None:
    tensors, note = read_tensors(path, "model")
    change(tensors)
    write_tensors(path, "model", tensors, note)


def test_damage_of_a_stored_scaling(tmp_path):
    folder = trained(tmp_path, scaling="columns", splits=1, epochs=1)
    path = folder / "model.safetensors"
    kept = path.read_bytes()
    for change in DAMAGE.values():
        forge_tensors(path, change)
        with pytest.raises(DataError, match=r"model\.safetensors"):
            load_run(folder)
        path.write_bytes(kept)
    load_run(folder)


def test_a_scaling_of_a_run_without_one(tmp_path):
    folder = trained(tmp_path, splits=1, epochs=1)
    forge_tensors(
        folder / "model.safetensors", lambda tensors: tensors.update({"scaling.shift": torch.zeros(5)})
    )
    with pytest.raises(DataError, match=r"holds a tensor scaling\.shift, which the model does not have"):
        load_run(folder)
