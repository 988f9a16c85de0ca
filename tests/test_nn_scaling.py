"""Scaled features: against scikit-learn, dense and sparse, with the statistics of another graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from conftest import normal
from safetensors.torch import load, save
from sklearn.preprocessing import StandardScaler, normalize
from torch import Tensor

from graphdiffusion.errors import ArgumentError, DataError, ShapeError
from graphdiffusion.nn import SparseFeatures, as_features
from graphdiffusion.nn.scaling import Scaling


def features(n: int = 40, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    """Columns of very different size, many zeros, a row of zeros, a column of zeros and a constant one."""
    x = normal(n, 6, seed=seed) * torch.tensor([1.0, 1e3, 1e-4, 5.0, 0.0, 0.0], dtype=torch.float64)
    x = x * (normal(n, 6, seed=seed + 1) > 0.2)
    x[:, 5] = 0.1
    x[3] = 0.0
    return x.to(dtype)


def as_dense(x: Any) -> Tensor:
    return x.dense() if isinstance(x, SparseFeatures) else x


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rows(dtype: torch.dtype) -> None:
    x = features(dtype=dtype)
    scaling = Scaling.fit(x, "rows")
    exact = torch.from_numpy(normalize(x.double().numpy(), norm="l1"))
    for given in (x, x.to_sparse_csr(), x.to_sparse()):
        out = scaling(given)
        assert isinstance(out, SparseFeatures) == (given is not x)
        assert as_dense(out).dtype == dtype
        torch.testing.assert_close(as_dense(out).double(), exact, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_columns_of_dense_features(dtype: torch.dtype) -> None:
    x, other = features(dtype=dtype), features(seed=7, dtype=dtype)
    x[:, 5] = other[:, 5] = 0.1  # constant; 0.1 has no finite binary form
    scaling = Scaling.fit(x, "columns")
    scaler = StandardScaler().fit(x.double().numpy())
    for given in (x, other):
        out = scaling(given)
        exact = scaler.transform(given.double().numpy())
        exact[:, 4:] = 0.0
        np.testing.assert_allclose(out.numpy(), exact, rtol=1e-5, atol=1e-6)
    # sparse features with these statistics: the same numbers, dense
    torch.testing.assert_close(scaling(other.to_sparse()), scaling(other))


def test_columns_of_sparse_features_keep_zeros() -> None:
    x, other = features(), features(seed=7)
    other[:, 4] = 2.0  # a column that was zero has no scale: it becomes 0
    scaling = Scaling.fit(x.to_sparse(), "columns")
    assert not bool(scaling.shift.any())
    size = x.double().square().mean(0).sqrt()
    for given in (x, other):
        exact = given.double() / torch.where(size == 0, torch.inf, size)
        sparse = as_features(given.to_sparse())
        out = scaling(sparse)
        assert isinstance(out, SparseFeatures) and out.pattern is sparse.pattern
        torch.testing.assert_close(out.dense().double(), exact, rtol=1e-6, atol=0)
        torch.testing.assert_close(scaling(given).double(), exact, rtol=1e-6, atol=0)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("kind", ["rows", "columns"])
@pytest.mark.parametrize("size", [1e30, 3.4e38, 1e-30, 1e-44])
def test_extreme_numbers_stay_finite(size: float, kind: Any, sparse: bool) -> None:
    x = torch.tensor([[1.0, 0.5, 1.0], [-1.0, 0.25, 1.0], [1.0, 0.125, 1.0], [0.5, 1.0, 1.0]])
    x = (x.double() * size).float()
    given = x.to_sparse() if sparse else x
    out = as_dense(Scaling.fit(given, kind)(given))
    assert bool(torch.isfinite(out).all()) and bool(out.any())
    if kind == "rows":
        torch.testing.assert_close(out.abs().sum(1), torch.ones(4))
    elif size > 1e-40:  # smaller numbers have few digits, and so has their scale
        spread = out.double().square().mean(0).sqrt()[:2]
        torch.testing.assert_close(spread, torch.ones(2).double(), rtol=1e-5, atol=0)


def test_a_variance_of_one_rounding() -> None:
    x = torch.full((50, 2), 1e6)
    x[0, 0] += 0.0625  # the next number in float32
    scaling = Scaling.fit(x, "columns")
    out = scaling(x)
    assert bool(torch.isfinite(out).all()) and not bool(out[:, 1].any())
    assert float(out[0, 0] - out[1, 0]) == pytest.approx(0.0625 / float(x.double().std(0, correction=0)[0]))
    far = scaling(torch.full((1, 2), -3e38))  # another graph, far away: large, but a number
    assert bool(torch.isfinite(far).all())


@pytest.mark.parametrize("kind", ["none", "rows", "columns"])
@pytest.mark.parametrize("sparse", [False, True])
def test_stored_and_read(kind: Any, sparse: bool) -> None:
    x, other = (v.to_sparse() if sparse else v for v in (features(), features(seed=9)))
    scaling = Scaling.fit(x, kind)
    tensors = scaling.tensors()
    assert len(tensors) == (2 if kind == "columns" else 0)
    assert all((t.dtype, tuple(t.shape)) == (torch.float32, (6,)) for t in tensors.values())
    again = Scaling.from_tensors(kind, load(save(tensors)), 6)
    assert torch.equal(as_dense(again(other)), as_dense(scaling(other)))
    if kind == "none":
        given = as_features(other)
        assert scaling(given) is given


def test_many_rows_are_summed_exactly() -> None:
    """Where float32 sums would lose digits: a mean far larger than the deviation, over many rows."""
    x = 1000 + normal(300_000, 1, dtype=torch.float32)
    scaling = Scaling.fit(x, "columns")
    assert float(scaling.shift) == pytest.approx(float(x.double().mean()), rel=1e-7)
    assert float(scaling.scale) == pytest.approx(float(x.double().std(correction=0)), rel=1e-6)


def test_wrong_arguments() -> None:
    x = features()
    with pytest.raises(ArgumentError, match="kind must be one of none, rows, columns, auto, got 'both'"):
        Scaling.fit(x, "both")  # type: ignore[arg-type]
    with pytest.raises(ShapeError, match="6 features a node, as the scaling has, got 5"):
        Scaling.fit(x, "rows")(x[:, :5])
    for bad in (x * torch.nan, x.double() * 1e200):
        with pytest.raises(DataError, match="NaN, or numbers beyond float32"):
            Scaling.fit(bad, "columns")


@pytest.mark.parametrize("sparse", [False, True])
def test_auto_scales_columns_of_different_units(sparse: bool) -> None:
    words = (torch.rand(30, 5, generator=torch.Generator().manual_seed(0)) < 0.3).float()
    money = words * torch.tensor([1.0, 1.0, 4e4, 1.0, 1.0])
    small = words * torch.tensor([1.0, 1.0, 1e-3, 1.0, 1.0])
    for x, kind in ((words, "none"), (money, "columns"), (small, "columns"), (0 * words, "none")):
        given = x.to_sparse() if sparse else x
        found = Scaling.fit(given, "auto")
        assert found.kind == kind
        assert torch.equal(as_dense(found(given)), as_dense(Scaling.fit(given, kind)(given)))
        again = Scaling.from_tensors("auto", load(save(found.tensors())), 5)
        assert again.kind == kind
