"""The estimator keeps the habits of scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from test_cli_basics import write_graph

from graphdiffusion import GRANDClassifier
from graphdiffusion.data import open_data
from graphdiffusion.errors import ConfigError, DataError, TooManyEvaluations
from graphdiffusion.training import Config

SMALL = {"hidden": 8, "heads": 2, "attention_dim": 8, "time": 2.0, "epochs": 15, "per_class": 4}


@pytest.fixture
def data(tmp_path):
    return open_data(write_graph(tmp_path / "toy"))


def test_fit_predict_score(data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = set(tmp_path.rglob("*"))
    classifier = GRANDClassifier(**SMALL)
    assert classifier.fit(data) is classifier
    assert set(tmp_path.rglob("*")) == before
    assert classifier.classes_.tolist() == [0, 1, 2]
    answers, p = classifier.predict(data), classifier.predict_proba(data)
    assert answers.shape == (60,) and p.shape == (60, 3)
    assert np.array_equal(answers, p.argmax(1)) and np.allclose(p.sum(1), 1)
    assert classifier.score(data) == np.mean(answers == data.y.numpy()) > 0.6
    assert 0 <= classifier.result_.test <= 1
    mask = data.y == 2
    assert classifier.score(data, mask) == np.mean(answers[mask] == 2)
    unseen = open_data(write_graph(tmp_path / "unseen", 30, seed=2, labels=False))
    del unseen.y
    assert classifier.predict(unseen).shape == (30,)


def test_parameters():
    classifier = GRANDClassifier(hidden=8, config={"relu": False})
    parameters = classifier.get_params()
    assert parameters["hidden"] == 8 and parameters["config"] == {"relu": False}
    for name, value in GRANDClassifier().get_params().items():
        assert name == "config" or value == getattr(Config(), name)
    assert classifier.set_params(epochs=7).epochs == 7
    copy = clone(classifier)
    assert copy is not classifier and copy.get_params() == classifier.get_params()
    assert "hidden=8" in repr(classifier)
    with pytest.raises(ValueError, match="Invalid parameter 'hiden'"):
        classifier.set_params(hiden=8)


def test_clones_learn_the_same(data):
    classifier = GRANDClassifier(**SMALL, config={"batch_norm": True})
    first = classifier.fit(data).predict_proba(data)
    assert np.array_equal(first, clone(classifier).fit(data).predict_proba(data))
    assert not np.array_equal(first, clone(classifier).set_params(seed=1).fit(data).predict_proba(data))


def test_masks(data):
    places = torch.arange(60) % 4
    data.train_mask, data.val_mask, data.test_mask = places == 0, places == 1, places == 2
    fitted = GRANDClassifier(**SMALL).fit(data)
    answers = torch.from_numpy(fitted.predict(data))
    assert fitted.score(data) == fitted.result_.test
    assert fitted.score(data, data.val_mask) == fitted.result_.val
    assert fitted.score(data) == (answers == data.y)[data.test_mask].double().mean().item()
    # a mask in place of train_mask, and every labelled node used up: no test nodes are left
    for key in ("train_mask", "val_mask", "test_mask"):
        del data[key]
    assert np.isnan(GRANDClassifier(**SMALL).fit(data, data.y >= 0).result_.test)
    assert GRANDClassifier(**SMALL).fit(data, places < 2).result_.test >= 0


def test_patience(data):
    stopped = GRANDClassifier(**{**SMALL, "epochs": 200}, patience=2).fit(data)
    assert stopped.result_.epochs == stopped.result_.best_epoch + 3 < 200


def test_an_integration_that_fails(data):
    stiff = {**SMALL, "variant": "nonlinear", "solver": "dopri5"}
    tight = {"max_evaluations": 40, "rtol": 1e-7, "atol": 1e-9}
    with pytest.raises(TooManyEvaluations, match="Loosen rtol and atol"):
        GRANDClassifier(**stiff, config=tight).fit(data)
    fast = GRANDClassifier(**{**stiff, "epochs": 50}, rate=0.5, config={"max_evaluations": 40})
    with pytest.warns(ConvergenceWarning, match=r"training ends after \d+ epochs: .*max_evaluations=40"):
        fast.fit(data)
    assert 0 <= fast.result_.best_epoch < fast.result_.epochs < 50
    assert fast.predict(data).shape == (60,) and fast.result_.val > 0.3


def test_errors(data):
    classifier = GRANDClassifier(**SMALL)
    with pytest.raises(NotFittedError):
        classifier.predict(data)
    with pytest.raises(ConfigError, match="hidden must be at least 1"):
        GRANDClassifier(hidden=0).fit(data)
    with pytest.raises(ConfigError, match="unknown option 'hiden': did you mean 'hidden'"):
        GRANDClassifier(config={"hiden": 3}).fit(data)
    with pytest.raises(ConfigError, match="hidden is an argument of its own"):
        GRANDClassifier(config={"hidden": 3}).fit(data)
    with pytest.raises(ConfigError, match="splits has no meaning here"):
        GRANDClassifier(config={"splits": 3}).fit(data)
    with pytest.raises(ConfigError, match="label_rate needs labels"):
        GRANDClassifier(config={"label_rate": 0.5}).fit(data)
    with pytest.raises(ConfigError, match="config must be a dictionary"):
        GRANDClassifier(config=["relu"]).fit(data)
    with pytest.raises(DataError, match=r"expected a torch_geometric.data.Data, got list"):
        classifier.fit([1, 2])
    with pytest.raises(DataError, match="per_class of at most 20"):
        GRANDClassifier(per_class=30).fit(data)
    with pytest.raises(DataError, match="a mask must be a bool tensor"):
        classifier.fit(data, torch.ones(60))
    with pytest.raises(DataError, match="0 labelled training nodes are too few"):
        classifier.fit(data, torch.zeros(60, dtype=torch.bool))
    classifier.fit(data)
    with pytest.raises(DataError, match="no labelled node to score on"):
        classifier.score(data, torch.zeros(60, dtype=torch.bool))
    data.x = data.x[:, :3]
    with pytest.raises(DataError, match="must have 5 features, as in fit, got 3"):
        classifier.predict(data)
