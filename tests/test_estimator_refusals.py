"""What the estimators refuse, with a sentence that says why."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from estimator_data import EVEN, FAST, LABELS, toy
from sklearn.exceptions import NotFittedError

from graphdiffusion import GRANDClassifier, GRANDRegressor
from graphdiffusion.errors import ConfigError, DataError


@pytest.fixture
def data():
    return toy()


@pytest.mark.parametrize(
    ("nodes", "y", "message"),
    [
        (None, None, "X must be nodes of the graph, .*got None"),
        (7, ["a"], "got 7"),
        ([[0], [1, 2]], ["a"], "inhomogeneous"),
        (EVEN, None, "requires y to be passed, but the target y is None"),
        (EVEN, ["a", "b"], r"inconsistent numbers of samples: \[30, 2\]"),
        ([0, 1, 2, 60], list("abab"), "no node 60, the graph has the nodes 0 to 59"),
        ([0, -1], list("ab"), "no node -1, the graph has"),
        (["ann", "bob"], list("ab"), "no node 'ann' in the graph"),
        ([0.0, 1.0], list("ab"), "whole numbers for positions, or texts for node ids; got float64"),
        ([True, False], list("ab"), "got bool"),
        (np.array([0, "ann", None], dtype=object), list("aba"), "got object"),
        (np.zeros((4, 3)), list("abab"), r"got shape \(4, 3\). Features belong to the graph"),
        ([], [], "minimum of 1 is required"),
        ([0, 1, 0], list("aab"), "node 0 is given twice, with the labels 'a' and 'b'"),
        ([0, 1, 2], [0.0, np.nan, 1.0], "y contains NaN"),
        ([0, 1, 2], np.array(["a", np.nan, "b"], dtype=object), "NaN"),
        ([0, 1, 2], ["a", None, "b"], "y"),
        (EVEN, np.linspace(0, 1, 30), "Unknown label type: continuous"),
        (EVEN, np.arange(60).reshape(30, 2), "multiclass-multioutput"),
        (EVEN, ["a"] * 30, "one class alone, 'a': at least two"),
        (EVEN, ["a", None] * 15, "nodes without a label: give fit the labelled nodes alone"),
        (EVEN, np.array(["a", 1] * 15, dtype=object), "mixes labels of the types int, str: take one"),
        ([0, 1, 20, 21], list("aabb"), "too few to train and to validate"),
    ],
)
def test_bad_nodes_and_labels(data, nodes, y, message):
    with pytest.raises(DataError, match=message) as caught:
        GRANDClassifier(graph=data, **FAST).fit(nodes, y)
    assert str(caught.value).count("\n") == 0


def test_bad_targets_of_a_regression(data):
    regressor = GRANDRegressor(graph=data, model="mlp", epochs=2)
    for y, message in (
        (["a"] * 30, "not compatible with arrays of bytes/strings"),
        ([1e39] * 30, "finite in float32, got 1e.39"),
        ([np.inf] * 30, "y contains infinity"),
        (np.full(30, 1j), "Complex data not supported"),
    ):
        with pytest.raises(DataError, match=message):
            regressor.fit(EVEN, y)


def test_bad_arguments(data):
    for options, message in (
        ({"hidden": 8}, "hidden is an option of one configuration, and model='auto' tries several"),
        ({"inits": 2}, "inits is an option of one configuration"),
        ({"model": "grand", "hidden": 0}, "hidden must be at least 1"),
        ({"model": "mlp", "time": 1.0}, "time is an option of .*none of them is chosen"),
        ({"model": "grant"}, "model must be one of .*, got 'grant'. Did you mean 'grand'"),
        ({"model": "mlp", "seed": 1}, "seed is no argument of an estimator: give random_state"),
        ({"model": "mlp", "data": "cora"}, "data is no argument of an estimator: give the graph"),
        ({"random_state": None}, "random_state must be a whole number from 0, got None"),
        ({"random_state": -1}, "random_state must be a whole number from 0, got -1"),
        ({"budget": 0}, "budget must be a number of seconds greater than 0, or None, got 0"),
        ({"model": "mlp", "budget": 3}, "budget cuts the plan of an automatic choice"),
        ({"device": "tpu"}, "device must be one of auto, cpu, cuda"),
    ):
        with pytest.raises(ConfigError, match=message):
            GRANDClassifier(graph=data, **options).fit(EVEN, LABELS[EVEN])


def test_bad_graphs(data):
    classifier = GRANDClassifier(**FAST)
    with pytest.raises(NotFittedError):
        classifier.predict(data)
    with pytest.raises(NotFittedError):
        classifier.score(data)
    with pytest.raises(ConfigError, match=r"learns from nodes of a graph: .*got NoneType and no graph"):
        classifier.fit(None)
    with pytest.raises(ConfigError, match="got ndarray and no graph"):  # features without a graph
        classifier.fit(np.zeros((5, 3)), np.zeros(5))
    with pytest.raises(DataError, match=r"a graph must be .*got 3\."):
        GRANDClassifier(graph=3, **FAST).fit(EVEN, LABELS[EVEN])
    with pytest.raises(ConfigError, match="to the constructor and to fit"):
        GRANDClassifier(graph=data, **FAST).fit(data)
    with pytest.raises(DataError, match="fit of a whole graph takes the labels"):
        classifier.fit(data, LABELS)
    with pytest.raises(DataError, match="are classes, not numbers: take GRANDClassifier"):
        GRANDRegressor(model="mlp").fit(data)
    del data.node_ids
    with pytest.raises(DataError, match="'ann' is an id, and the graph has no node_ids"):
        GRANDClassifier(graph=data, **FAST).fit(["ann", "bob"], ["a", "b"])
    data.node_ids = ["ann"] * 60
    with pytest.raises(DataError, match="the same node_ids: give positions"):
        GRANDClassifier(graph=data, **FAST).fit(["ann", "bob"], ["a", "b"])
    data.y = torch.full((60,), -1)
    with pytest.raises(DataError, match="no labels"):
        classifier.fit(data)
    data.y, data.task = torch.rand(60), "regression"
    with pytest.raises(DataError, match="are numbers, not classes: take GRANDRegressor"):
        classifier.fit(data)
