"""Scaling of features: against NumPy, dense and sparse, and stored with a run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from test_cli_basics import write_graph
from test_runs import trained

from graphdiffusion.data import open_data
from graphdiffusion.errors import ArgumentError, DataError, ShapeError
from graphdiffusion.graph import Graph
from graphdiffusion.nn import SparseFeatures, as_features
from graphdiffusion.nn.scaling import Scaling
from graphdiffusion.training import load_run
from graphdiffusion.training.storage import read_tensors, write_tensors


def features(seed: int = 0) -> np.ndarray:
    """Columns of very different sizes; one is constant, one zero; a row of zeros."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(20, 6)) * [1, 1e4, 1e-4, 1, 0, 0] + [0, 1e5, 0, 3, 0.1, 0]
    x[rng.random(x.shape) < 0.3] = 0
    x[:, 4] = 0.1
    x[7] = 0
    x[7, 4] = 0.1
    return x.astype(np.float32)


def dense(x) -> np.ndarray:
    return (x.dense() if isinstance(x, SparseFeatures) else x).double().numpy()


def test_columns():
    x = features()
    scaled = dense(Scaling.fit(torch.from_numpy(x), "columns")(torch.from_numpy(x)))
    wide = x.astype(np.float64)
    varied = [0, 1, 2, 3]
    expected = (wide - wide.mean(0))[:, varied] / wide.std(0)[varied]
    np.testing.assert_allclose(scaled[:, varied], expected, rtol=1e-4, atol=1e-5)
    assert not scaled[:, 4:].any()  # constant columns


def test_sparse_columns_keep_their_zeros():
    x = features()
    sparse = as_features(torch.from_numpy(x).to_sparse_csr())
    scaling = Scaling.fit(sparse, "columns")
    scaled = scaling(sparse)
    assert isinstance(scaled, SparseFeatures) and torch.equal(scaled.pattern.col, sparse.pattern.col)
    wide = x.astype(np.float64)
    size = np.sqrt((wide**2).mean(0))
    np.testing.assert_allclose(dense(scaled), wide / np.where(size > 0, size, 1), rtol=1e-5)
    np.testing.assert_allclose(dense(scaling(torch.from_numpy(x))), dense(scaled), rtol=1e-5)


def test_rows():
    x = -features()
    x[3] = 0
    sums = np.abs(x.astype(np.float64)).sum(1, keepdims=True)
    expected = x / np.where(sums > 0, sums, 1)
    for given in (torch.from_numpy(x), as_features(torch.from_numpy(x).to_sparse_coo())):
        np.testing.assert_allclose(dense(Scaling.fit(given, "rows")(given)), expected, rtol=1e-5, atol=1e-9)


def test_another_graph_has_the_scale_of_the_first():
    first, other = features(), features(1) * 3 + 5
    scaling = Scaling.fit(torch.from_numpy(first), "columns")
    wide = first.astype(np.float64)
    expected = (other[:, :4] - wide.mean(0)[:4]) / wide.std(0)[:4]
    for given in (torch.from_numpy(other), as_features(torch.from_numpy(other).to_sparse_csr())):
        np.testing.assert_allclose(dense(scaling(given))[:, :4], expected, rtol=1e-4, atol=1e-5)
    with pytest.raises(ShapeError, match="x must have 6 columns, as the scaling has, got 5"):
        scaling(torch.zeros(3, 5))
    plain = torch.from_numpy(other)
    assert Scaling.fit(plain, "none")(plain) is plain
    with pytest.raises(ArgumentError, match="one of none, rows, columns, got 'row'"):
        Scaling.fit(plain, "row")


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
    "too short": lambda tensors: tensors.update({"scaling.factor": tensors["scaling.factor"][:-1]}),
    "of another kind": lambda tensors: tensors.update({"scaling.shift": tensors["scaling.shift"].double()}),
    "not finite": lambda tensors: tensors["scaling.factor"].fill_(torch.nan),
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
