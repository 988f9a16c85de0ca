"""Estimators that are fitted to a whole graph, predict on others, and for each task."""

from __future__ import annotations

from copy import copy

import numpy as np
import pytest
import torch
from estimator_data import EVEN, FAST, GRAND, LABELS, NODES, ODD, toy
from sklearn.base import clone
from sklearn.metrics import accuracy_score, r2_score
from test_cli_basics import write_graph
from torch_geometric.data import Data

from graphdiffusion import GRANDClassifier, GRANDRegressor
from graphdiffusion.data import open_data
from graphdiffusion.data.structure import select_columns
from graphdiffusion.errors import DataError


@pytest.fixture
def data():
    return toy()


def test_whole_graph(data, tmp_path):
    places = torch.arange(60) % 4
    data.train_mask, data.val_mask, data.test_mask = places == 0, places == 1, places == 2
    fitted = GRANDClassifier(**FAST).fit(data)
    assert fitted.classes_.tolist() == ["apple", "pear", "plum"]
    assert np.array_equal(fitted.trained_nodes_, (data.train_mask | data.val_mask).nonzero().flatten())
    answers = fitted.predict(data)
    assert np.array_equal(answers, fitted.predict(NODES)) and answers.shape == (60,)
    test = data.test_mask.numpy()
    assert fitted.score(data) == accuracy_score(LABELS[test], answers[test])
    assert fitted.score(data) == pytest.approx(fitted.summary_["figures"]["accuracy"])
    del data.test_mask  # then all labelled nodes count that fit has not used
    unseen = ~(data.train_mask | data.val_mask).numpy()
    assert fitted.score(data) == accuracy_score(LABELS[unseen], answers[unseen])
    # the nodes are the same with other edges
    data.edge_index = data.edge_index[:, data.edge_index.sum(0) != 3]
    assert fitted.score(data) == accuracy_score(LABELS[unseen], fitted.predict(data)[unseen])
    del data.class_names, data.test_mask, data.train_mask, data.val_mask
    plain = GRANDClassifier(**FAST).fit(data)
    assert plain.classes_.tolist() == [0, 1, 2] and plain.predict(data).dtype == np.int64
    with pytest.raises(DataError, match=r"no labelled node that fit has not used: .*test_mask"):
        plain.score(data)


def test_masks_of_several_splits(data):
    turns = torch.arange(60)[:, None] + torch.arange(3)
    data.train_mask, data.val_mask, data.test_mask = turns % 3 == 0, turns % 3 == 1, turns % 3 == 2
    fitted = GRANDClassifier(**FAST).fit(data)  # the first one
    unseen = data.test_mask[:, 0].numpy()
    assert (
        len(fitted.ensemble_.members) == 1
        and not np.isin(np.flatnonzero(unseen), fitted.trained_nodes_).any()
    )
    wanted = np.asarray(data.class_names)[data.y][unseen]
    assert fitted.score(data) == accuracy_score(wanted, fitted.predict(data)[unseen])
    several = GRANDClassifier(**FAST, splits=3).fit(data)
    assert len(several.ensemble_.members) == 3 and len(several.trained_nodes_) == 60
    with pytest.raises(DataError, match="no labelled node that fit has not used"):
        several.score(data)


def test_another_graph(data, tmp_path):
    fitted = GRANDClassifier(**FAST).fit(data)
    other = open_data(write_graph(tmp_path / "other", 30, seed=2))
    other.feature_names = list("abcde")
    wanted = fitted.predict_proba(other)
    assert wanted.shape == (30, 3)
    truth = np.asarray(other.class_names)[other.y]
    assert fitted.score(other) == accuracy_score(truth, fitted.predict(other)) > 0.5  # no node was seen
    order = [3, 0, 4, 1, 2]
    other.x, other.feature_names = other.x[:, order], [other.feature_names[k] for k in order]
    assert np.allclose(fitted.predict_proba(other), wanted, atol=1e-6)
    other.class_names = ["plum", "apple", "pear"]  # numbers of classes are those of each graph
    other.y = (other.y + 1) % 3
    assert fitted.score(other) == accuracy_score(truth, fitted.predict(other))
    other.x, other.feature_names = other.x[:, :3], None
    with pytest.raises(DataError, match="the models take 5 features a node, but other has 3"):
        fitted.predict(other)


@pytest.mark.parametrize("sparse", [False, True])
def test_trained_nodes_are_found_in_a_graph_that_has_grown(data, sparse):
    data.train_mask, data.val_mask = torch.arange(60) % 3 == 0, torch.arange(60) % 3 == 1
    fitted = GRANDClassifier(**FAST).fit(data)
    order = torch.randperm(60, generator=torch.Generator().manual_seed(0))
    new = Data(
        x=torch.cat([data.x[order], torch.zeros(1, 5)]),
        edge_index=torch.randint(0, 61, (2, 200)),
        y=torch.cat([data.y[order], torch.tensor([0])]),
        class_names=data.class_names,
        node_ids=[*(data.node_ids[k] for k in order), "new"],
    )
    if sparse:
        new.x = new.x.to_sparse_csr()
    unseen = torch.cat([order % 3 == 2, torch.tensor([True])]).numpy()
    truth = np.asarray(new.class_names)[new.y]
    assert fitted.score(new) == accuracy_score(truth[unseen], fitted.predict(new)[unseen])
    columns = [3, 0, 4, 1, 2]
    swapped = copy(new)
    swapped.x = select_columns(new.x, columns)
    swapped.feature_names = [data.feature_names[k] for k in columns]
    assert fitted._unseen(swapped, None)[0].tolist() == truth[unseen].tolist()
    new.node_ids = None  # then by position: node 0 is another one
    at_place = (order == torch.arange(60)) & (order % 3 < 2)
    unseen = ~torch.cat([at_place, torch.tensor([False])]).numpy()
    assert fitted.score(new) == accuracy_score(truth[unseen], fitted.predict(new)[unseen])


def test_labels_as_features_are_seen_on_the_graph_of_the_training(data):
    fitted = GRANDClassifier(graph=data, **GRAND, label_rate=0.5).fit(EVEN, LABELS[EVEN])
    seen = fitted.predict_proba(NODES)
    assert np.array_equal(fitted.predict_proba(data), seen)
    assert not np.allclose(fitted.ensemble_.predict(data).numpy(), seen, atol=1e-3)


def test_regression(data):
    targets = data.x[:, :2].numpy().astype(np.float64) @ np.array([[1.0, -2.0], [0.5, 3.0]])
    regressor = GRANDRegressor(graph=data, model="mlp", epochs=100)
    one = clone(regressor).fit(EVEN, targets[EVEN, 0])
    assert one.predict(ODD).shape == (30,) and one.predict(ODD).dtype == np.float64
    assert one.score(ODD, targets[ODD, 0]) == r2_score(targets[ODD, 0], one.predict(ODD)) > 0.3
    # in other units the predictions are the same numbers in these units
    scaled = clone(regressor).fit(EVEN, 1000 * targets[EVEN, 0] - 7)
    assert np.allclose(scaled.predict(NODES), 1000 * one.predict(NODES) - 7, atol=0.5)
    both = clone(regressor).fit(EVEN, targets[EVEN])
    assert both.predict(ODD).shape == (30, 2)
    assert both.score(ODD, targets[ODD]) == r2_score(targets[ODD], both.predict(ODD)) > 0.3
    column = clone(regressor).fit(EVEN, targets[EVEN, :1])
    assert np.array_equal(column.predict(ODD), one.predict(ODD)[:, None])
    data.y, data.task, data.target_names = torch.from_numpy(targets), "regression", ["up", "down"]
    data.y[ODD] = torch.nan
    whole = GRANDRegressor(model="mlp", epochs=100).fit(data)
    assert np.allclose(whole.predict(data), both.predict(NODES)) and whole.summary_["names"] == [
        "up",
        "down",
    ]


def test_numbers_far_from_zero(data):
    """Times of one minute, in seconds since 1970."""
    times = 1.6e9 + 10 * data.x[:, 0].numpy().astype(np.float64)
    fitted = GRANDRegressor(graph=data, model="mlp", epochs=100).fit(EVEN, times[EVEN])
    assert fitted.ensemble_.data.y.dtype == torch.float64
    assert r2_score(times[ODD], fitted.ensemble_.runs[0].predict()[ODD, 0].numpy()) > 0.3


def test_several_labels(data):
    values = np.stack([data.y.numpy() == 0, data.y.numpy() > 0, data.y.numpy() == 2], 1).astype(int)
    fitted = GRANDClassifier(graph=data, **FAST | {"epochs": 40}).fit(EVEN, values[EVEN])
    p, answers = fitted.predict_proba(ODD), fitted.predict(ODD)
    assert p.shape == (30, 3) and np.array_equal(answers, p > 0.5) and answers.dtype.kind == "i"
    assert fitted.score(ODD, values[ODD]) == (answers == values[ODD]).all(1).mean() > 0.5
    assert fitted.classes_.tolist() == [0, 1, 2]
    data.y, data.task, data.target_names = torch.from_numpy(values).float(), "multilabel", ["a", "b", "c"]
    data.y[ODD] = torch.nan
    whole = GRANDClassifier(**FAST | {"epochs": 40}).fit(data)
    assert whole.classes_.tolist() == ["a", "b", "c"] and np.allclose(
        whole.predict_proba(ODD), p, atol=1e-6
    )
