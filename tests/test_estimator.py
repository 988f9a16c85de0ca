"""The estimators: nodes as samples, whole graphs, parameters, scores, and what is refused."""

from __future__ import annotations

import math
import pickle
import sys
import tempfile
from copy import deepcopy

import joblib
import numpy as np
import pytest
import torch
from estimator_data import EVEN, FAST, GRAND, LABELS, NODES, ODD, toy
from sklearn.base import clone
from sklearn.metrics import accuracy_score
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_score, train_test_split
from sklearn.pipeline import make_pipeline
from test_cli_basics import write_graph

from graphdiffusion import GRANDClassifier
from graphdiffusion.configs import read_preset
from graphdiffusion.data import open_data
from graphdiffusion.ensemble import choose, portfolio
from graphdiffusion.errors import (
    ConfigError,
    TooManyEvaluations,
    TrainedNodesWarning,
    TrainingWarning,
)
from graphdiffusion.nn import as_features
from graphdiffusion.training import Config
from graphdiffusion.training.fingerprint import data_digests
from graphdiffusion.training.problem import build_graph


@pytest.fixture
def data():
    return toy()


@pytest.fixture
def few_epochs(monkeypatch):
    """An automatic choice whose candidates train for a few epochs."""
    monkeypatch.setattr(sys.modules["graphdiffusion.ensemble.portfolio"], "EPOCHS", 2)


def test_nodes_are_the_samples(data):
    fitted = GRANDClassifier(graph=data, **GRAND).fit(EVEN, LABELS[EVEN])
    assert fitted.classes_.tolist() == ["apple", "pear", "plum"] and fitted.n_features_in_ == 1
    assert np.array_equal(fitted.trained_nodes_, EVEN)
    answers = fitted.predict(ODD)
    assert fitted.score(ODD, LABELS[ODD]) == accuracy_score(LABELS[ODD], answers) > 0.5
    # the oracle: the model itself
    (run,) = fitted.ensemble_.runs
    with torch.no_grad():
        output = run.model()(as_features(data.x), build_graph(run.config, data))
    wanted = (output / run.temperature).softmax(-1).numpy()
    assert np.allclose(fitted.predict_proba(ODD), wanted[ODD], atol=1e-6)
    assert np.array_equal(answers, fitted.classes_[wanted.argmax(1)[ODD]])
    assert fitted.n_iter_ == 15 and fitted.summary_["members"] == 1
    # options that are not given are those of the command line
    assert run.config.optimiser == read_preset("own-linear")["optimiser"] != Config().optimiser


def test_forms_of_nodes_and_labels(data):
    fitted = GRANDClassifier(graph=data, **FAST).fit(EVEN, LABELS[EVEN])
    wanted = fitted.predict_proba(EVEN)
    ids = [data.node_ids[k] for k in EVEN]
    for nodes in (
        EVEN[:, None], EVEN.tolist(), range(0, 60, 2), EVEN.astype(object), EVEN.astype(np.uint8),
        torch.from_numpy(EVEN), ids, np.array(ids)[:, None], np.array(ids, dtype=object),
    ):  # fmt: skip
        assert np.array_equal(fitted.predict_proba(nodes), wanted)
    assert np.array_equal(fitted.predict_proba(EVEN[::-1]), wanted[::-1])
    # a node twice with the same label, and in another order
    twice = np.r_[EVEN[::-1], EVEN[:5]]
    assert np.array_equal(clone(fitted).fit(twice, LABELS[twice]).predict_proba(EVEN), wanted)
    # labels of any kind keep their type and their order
    for kinds in (
        np.array([30, -5, 7]),
        np.array([0.5, 0.25, 0.75]) * 4,
        np.array(["z", "a", "é"], dtype=object),
    ):
        own = kinds[data.y.numpy()]
        fitted.fit(EVEN, own[EVEN])
        assert fitted.classes_.tolist() == sorted(kinds.tolist())
        assert np.array_equal(fitted.predict(ODD), fitted.classes_[fitted.predict_proba(ODD).argmax(1)])
        assert fitted.score(ODD, own[ODD]) == accuracy_score(own[ODD], fitted.predict(ODD))


def test_frames(data):
    pd = pytest.importorskip("pandas")
    fitted = GRANDClassifier(graph=data, **FAST).fit(EVEN, LABELS[EVEN])
    wanted = fitted.predict_proba(EVEN)
    ids = pd.Series([data.node_ids[k] for k in EVEN])
    for nodes in (ids, pd.DataFrame({"node": EVEN}), pd.DataFrame({"node": ids})):
        assert np.array_equal(fitted.predict_proba(nodes), wanted)
    again = clone(fitted).fit(ids, pd.Series(LABELS[EVEN], dtype="category"))
    assert np.array_equal(again.predict_proba(EVEN), wanted)


def test_labels_of_the_graph_are_not_used(data):
    data.train_mask = data.y == 0
    before = data_digests(data)
    wanted = GRANDClassifier(graph=data, **FAST).fit(EVEN, LABELS[EVEN]).predict_proba(NODES)
    assert data_digests(data) == before
    for key in ("y", "class_names", "task", "train_mask"):
        del data[key]
    assert np.array_equal(
        GRANDClassifier(graph=data, **FAST).fit(EVEN, LABELS[EVEN]).predict_proba(NODES), wanted
    )
    # nor are labels of nodes that are not given to fit
    data.y = torch.zeros(60, dtype=torch.int64)
    assert np.array_equal(
        GRANDClassifier(graph=data, **FAST).fit(EVEN, LABELS[EVEN]).predict_proba(NODES), wanted
    )


def test_graph_by_path(tmp_path):
    path = write_graph(tmp_path / "toy")
    fitted = GRANDClassifier(graph=str(path), **FAST).fit(EVEN, LABELS[EVEN])
    whole = GRANDClassifier(**FAST).fit(path)
    assert np.array_equal(fitted.classes_, whole.classes_)
    assert fitted.predict(path).shape == whole.predict(str(path)).shape == (60,)


def test_cross_validation(data):
    classifier = GRANDClassifier(graph=data, **FAST)
    folds = StratifiedKFold(3, shuffle=True, random_state=0)
    by_hand = [
        clone(classifier).fit(NODES[train], LABELS[train]).score(NODES[test], LABELS[test])
        for train, test in folds.split(NODES, LABELS)
    ]
    assert cross_val_score(classifier, NODES, LABELS, cv=folds, error_score="raise").tolist() == by_hand
    assert (
        cross_val_score(make_pipeline(classifier), NODES, LABELS, cv=folds, error_score="raise").tolist()
        == by_hand
    )
    probabilities = cross_val_score(
        classifier, NODES, LABELS, cv=2, scoring="roc_auc_ovr", error_score="raise"
    )
    assert (probabilities > 0.5).all()


def test_search(data):
    classifier = GRANDClassifier(graph=data, model="grand", epochs=8, hidden=8)
    grid = {"time": np.array([0.5, 4.0]), "hidden": np.array([4, 32]), "relu": [False]}
    train, test, known, hidden = train_test_split(NODES, LABELS, stratify=LABELS, random_state=0)
    search = GridSearchCV(classifier, grid, cv=2, error_score="raise").fit(train, known)
    best, scores = search.best_params_, search.cv_results_["mean_test_score"]
    assert len(set(scores)) > 1 and search.best_score_ == scores.max()
    config = search.best_estimator_.ensemble_.runs[0].config
    assert (config.time, config.hidden, config.relu) == (best["time"], best["hidden"], False)
    assert search.score(test, hidden) == search.best_estimator_.score(test, hidden)
    pipeline = make_pipeline(classifier).set_params(grandclassifier__time=7.0)
    assert pipeline[0].time == 7.0 and "grandclassifier__time" in pipeline.get_params()
    models = GridSearchCV(GRANDClassifier(graph=data, epochs=2), {"model": ["gcn", "mlp"]}, cv=2)
    assert models.fit(NODES, LABELS).best_params_["model"] in ("gcn", "mlp")


def test_parameters(data):
    classifier = GRANDClassifier(graph=data, model="grand", hidden=8, random_state=3)
    assert classifier.get_params() == {
        "graph": data, "model": "grand", "refit": None, "budget": None, "random_state": 3, "device": "auto",
        "verbose": 0, "hidden": 8,
    }  # fmt: skip
    assert classifier.set_params(epochs=2, time=1.0) is classifier and classifier.time == 1.0
    assert "epochs=2" in repr(classifier) and "hidden=8" in repr(classifier)
    classifier.fit(EVEN, LABELS[EVEN])
    copy = clone(classifier)
    assert copy.get_params() == classifier.get_params() and copy.graph is data
    assert not [name for name in vars(copy) if name.endswith("_")]
    copy.set_params(hidden=4)
    assert classifier.hidden == 8
    for wrong in (lambda: GRANDClassifier(hiden=8), lambda: classifier.set_params(hiden=8)):
        with pytest.raises(ConfigError, match="unknown option 'hiden': did you mean 'hidden'"):
            wrong()


def test_seeds(data):
    classifier = GRANDClassifier(graph=data, **FAST)
    first = classifier.fit(EVEN, LABELS[EVEN]).predict_proba(NODES)
    assert np.array_equal(first, clone(classifier).fit(EVEN, LABELS[EVEN]).predict_proba(NODES))
    other = clone(classifier).set_params(random_state=np.int64(1)).fit(EVEN, LABELS[EVEN])
    assert not np.array_equal(first, other.predict_proba(NODES))
    # seeds as scikit-learn's ensembles draw them
    large = clone(classifier).set_params(random_state=2**31 - 1).fit(EVEN, LABELS[EVEN])
    assert not np.array_equal(first, large.predict_proba(NODES))


def test_automatic_choice_is_that_of_the_command_line(data, few_epochs, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    calls = []

    def recorded(base, data, folder, **how):
        calls.append((base, how))
        return choose(base, data, folder, **how)

    monkeypatch.setattr("graphdiffusion.estimator.fitting.choose", recorded)
    fitted = GRANDClassifier(graph=data, random_state=2).fit(EVEN, LABELS[EVEN])
    assert capsys.readouterr() == ("", "") and not list(tmp_path.iterdir())
    ((base, how),) = calls
    assert base == Config(data="graph", seed=2)
    assert how == {
        "candidates": None, "refit": None, "compare": False, "budget": math.inf, "progress": None,
    }  # fmt: skip
    found = fitted.summary_
    assert {c["name"] for c in found["race"]} == {c.name for c in portfolio()}
    assert found["refit"] and found["baselines"] == {} and found["figures"]["part"] == "test"
    # the weighted mean of all models, which have learnt from all labels
    ensemble = fitted.ensemble_
    parts = [
        weight / len(run.results) * run.predict(member=result.number).double()
        for weight, run in zip(ensemble.weights, ensemble.runs, strict=True)
        for result in run.results
    ]
    assert len(parts) == found["members"] > 1
    assert np.allclose(fitted.predict_proba(NODES), sum(parts), atol=1e-6)
    assert np.array_equal(fitted.trained_nodes_, EVEN)


def test_automatic_choice_keeps_off_the_test_nodes(data, few_epochs):
    places = torch.arange(60) % 4
    data.train_mask, data.val_mask, data.test_mask = places == 0, places == 1, places == 2
    fitted = GRANDClassifier(budget=1e-9).fit(data)
    assert not fitted.summary_["refit"] and fitted.summary_["figures"]["part"] == "test"
    assert np.array_equal(fitted.trained_nodes_, (places < 2).nonzero().flatten())
    assert fitted.score(data) == pytest.approx(fitted.summary_["figures"]["accuracy"])


def test_verbose_budget_and_refit_of_one_configuration(data, capsys, few_epochs):
    GRANDClassifier(graph=data, verbose=1, budget=1e-9).fit(EVEN, LABELS[EVEN])
    shown = capsys.readouterr().out
    first, second = (candidate.name for candidate in portfolio()[:2])
    assert f"of the work: training {first}-1" in shown and f"training {second}" not in shown
    one = GRANDClassifier(graph=data, **FAST, verbose=1).fit(EVEN, LABELS[EVEN])
    assert "training gcn" in capsys.readouterr().out
    again = clone(one).set_params(refit=True, verbose=0).fit(EVEN, LABELS[EVEN])
    assert {run.config.split for run in one.ensemble_.runs} == {"given"}
    assert {run.config.split for run in again.ensemble_.runs} == {"given", "all"} and again.summary_[
        "refit"
    ]


def test_scores_of_trained_nodes_are_warned_of(data, recwarn):
    fitted = GRANDClassifier(graph=data, **FAST).fit(EVEN, LABELS[EVEN])
    fitted.score(ODD, LABELS[ODD])
    assert not [w for w in recwarn if w.category is TrainedNodesWarning]
    with pytest.warns(TrainedNodesWarning, match="30 of 60 nodes were used by fit"):
        score = fitted.score(NODES, LABELS)
    assert score == accuracy_score(LABELS, fitted.predict(NODES))
    weight = np.arange(30) + 1.0
    wanted = accuracy_score(LABELS[ODD], fitted.predict(ODD), sample_weight=weight)
    assert fitted.score(ODD, LABELS[ODD], sample_weight=weight) == wanted


def test_copies_predict_the_same(data, tmp_path):
    other = open_data(write_graph(tmp_path / "other", 30, seed=2))
    fitted = GRANDClassifier(graph=data, **GRAND, label_rate=0.5).fit(EVEN, LABELS[EVEN])
    assert "problem" in vars(fitted.ensemble_.runs[0])
    joblib.dump(fitted, tmp_path / "fitted.joblib")
    for copy in (
        pickle.loads(pickle.dumps(fitted)), deepcopy(fitted), joblib.load(tmp_path / "fitted.joblib")
    ):  # fmt: skip
        assert "problem" not in vars(copy.ensemble_.runs[0])  # it may lie on a GPU
        assert np.array_equal(copy.predict_proba(NODES), fitted.predict_proba(NODES))
        assert np.array_equal(copy.predict_proba(other), fitted.predict_proba(other))
        assert np.allclose(copy.ensemble_.predict(), fitted.predict_proba(NODES), atol=1e-6)
        assert np.array_equal(
            copy.fit(EVEN, LABELS[EVEN]).predict_proba(NODES), fitted.predict_proba(NODES)
        )


def test_an_integration_that_fails(data):
    stiff = {**GRAND, "variant": "nonlinear", "solver": "dopri5", "max_evaluations": 26}
    with pytest.raises(TooManyEvaluations, match="Loosen rtol and atol"):
        GRANDClassifier(graph=data, **stiff, rtol=1e-7, atol=1e-9).fit(EVEN, LABELS[EVEN])
    fast = GRANDClassifier(graph=data, **{**stiff, "epochs": 50}, rate=0.5)
    with pytest.warns(TrainingWarning, match=r"end at epoch \d+: .*max_evaluations=26"):
        fast.fit(EVEN, LABELS[EVEN])
    assert 0 < fast.n_iter_ < 50 and fast.predict(ODD).shape == (30,)
