"""scikit-learn's own checks of estimators."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from sklearn.utils import estimator_checks
from torch_geometric.data import Data

from graphdiffusion import GRANDClassifier, GRANDRegressor

NODES = 300  # no check has more samples

OWN_CLASS = "its labels are the first column of X: every node would have a class of its own"
NO_RELATION = "its labels are made for the features of the check, which the graph does not have"
ONE_COLUMN = "it cuts X into columns, and nodes are one"

BOTH = {
    "check_estimators_overwrite_params": "joblib's hash of a tensor is another for its copy",
    "check_do_not_raise_errors_in_init_or_set_params": "it gives an argument 'options', which is no option",
    "check_n_features_in_after_fitting": ONE_COLUMN,
    "check_estimators_dtypes": "it gives nodes as floating point, which are refused",
    "check_fit2d_predict1d": "predict takes nodes of shape (m,), too",
}
CLASSIFIER = BOTH | {
    "check_dont_overwrite_parameters": OWN_CLASS,
    "check_f_contiguous_array_estimator": OWN_CLASS,
    "check_methods_sample_order_invariance": OWN_CLASS,
    "check_methods_subset_invariance": OWN_CLASS,
    "check_fit2d_1feature": OWN_CLASS,
    "check_dict_unchanged": OWN_CLASS,
    "check_classifiers_train": NO_RELATION,
}
REGRESSOR = BOTH | {
    "check_regressors_train": NO_RELATION,
    "check_fit2d_1sample": "one node cannot train and validate, and the sentence says so in other words",
}


def nodes_for(estimator, X, X_test=None, **_):
    """Samples as positions of nodes: what the tags of scikit-learn have no word for."""
    found = [np.arange(len(part))[:, None] for part in (X, X_test) if part is not None]
    return found[0] if X_test is None else tuple(found)


@pytest.mark.parametrize(
    ("kind", "failing", "passed"), [(GRANDClassifier, CLASSIFIER, 44), (GRANDRegressor, REGRESSOR, 44)]
)
def test_checks_of_scikit_learn(kind, failing, passed, monkeypatch):
    monkeypatch.setattr(estimator_checks, "_enforce_estimator_tags_X", nodes_for)
    monkeypatch.setattr(
        "graphdiffusion.estimator.fitting.read_preset", lambda name: {"epochs": 3, "hidden": 4}
    )
    generator = torch.Generator().manual_seed(0)
    graph = Data(
        x=torch.randn(NODES, 4, generator=generator),
        edge_index=torch.randint(0, NODES, (2, 2 * NODES), generator=generator),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = estimator_checks.check_estimator(
            kind(graph=graph, model="mlp"), expected_failed_checks=failing, on_fail=None, on_skip=None
        )
    wrong = {r["check_name"]: r["exception"] for r in found if r["status"] == "failed"}
    assert not wrong
    assert {r["check_name"] for r in found if r["status"] == "xfail"} == set(failing)
    for_pandas = sum(r["status"] == "skipped" and "pandas" in str(r["exception"]) for r in found)
    assert sum(r["status"] == "passed" for r in found) + for_pandas == passed
