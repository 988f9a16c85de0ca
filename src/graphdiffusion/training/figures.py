"""Figures of predictions: what is asked of a classifier, a regression, several labels."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn import metrics
from torch import Tensor

from .tasks import Task, r_squared

BINS = 15  # of confidence, in the calibration error


def figures(task: Task, nodes: Tensor, answers: Tensor) -> dict[str, Any]:
    """Figures of answers ``(m, outputs)`` for nodes ``(m,)``; empty where there are none."""
    if not len(nodes):
        return {}
    wanted, found = task.y.cpu()[nodes], answers.cpu().double()
    if task.name == "classification":
        return {"nodes": len(nodes), **_classes(task.names, wanted.numpy(), found.numpy())}
    if task.name == "regression":
        return {"nodes": len(nodes), **_numbers(task.names, wanted.double(), found)}
    return {"nodes": len(nodes), **_labels(task.names, wanted.numpy() > 0, found.numpy())}


def _classes(names: list[str], wanted: NDArray, found: NDArray) -> dict[str, Any]:
    classes = np.arange(len(names))
    chosen = found.argmax(1)
    present = np.isin(classes, wanted)
    precision, recall, f1, support = metrics.precision_recall_fscore_support(
        wanted, chosen, labels=classes, zero_division=0
    )
    result: dict[str, Any] = {
        "accuracy": float((wanted == chosen).mean()),
        # over the classes that occur: what does not occur cannot be found
        "balanced_accuracy": float(recall[present].mean()),
        "macro_f1": float(f1[present].mean()),
        "weighted_f1": float((f1 * support).sum() / support.sum()),
        "log_loss": _log_loss(wanted, found),
        "calibration_error": calibration_error(wanted, found),
    }
    if len(names) == 2 and present.all():
        result["roc_auc"] = float(metrics.roc_auc_score(wanted, found[:, 1]))
    columns = zip(names, precision, recall, f1, support, strict=True)
    result["per_class"] = [
        {"class": name, "precision": float(p), "recall": float(r), "f1": float(f), "nodes": int(s)}
        for name, p, r, f, s in columns
    ]
    result["reliability"] = reliability(wanted, found)
    # scikit-learn's warns of a single class
    pairs = np.bincount(wanted * len(names) + chosen, minlength=len(names) ** 2)
    result["confusion"] = pairs.reshape(len(names), len(names)).tolist()
    return result


def _log_loss(wanted: NDArray, found: NDArray) -> float:
    own = found[np.arange(len(wanted)), wanted]
    return float(-np.log(np.clip(own, np.finfo(np.float64).tiny, None)).mean())


def reliability(wanted: NDArray, found: NDArray) -> list[dict[str, float]]:
    """Mean confidence, accuracy and number of nodes in each bin of confidence that has any."""
    confidence = found.max(1)
    right = found.argmax(1) == wanted
    place = np.minimum((confidence * BINS).astype(int), BINS - 1)
    return [
        {
            "confidence": float(confidence[own].mean()),
            "accuracy": float(right[own].mean()),
            "nodes": int(own.sum()),
        }
        for k in range(BINS)
        if (own := place == k).any()
    ]


def calibration_error(wanted: NDArray, found: NDArray) -> float:
    """Expected calibration error: mean distance of confidence and accuracy over bins of confidence.

    Guo et al., On Calibration of Modern Neural Networks, ICML 2017.
    """
    bins = reliability(wanted, found)
    return sum(b["nodes"] * abs(b["accuracy"] - b["confidence"]) for b in bins) / len(wanted)


def _numbers(names: list[str], wanted: Tensor, found: Tensor) -> dict[str, Any]:
    wanted = wanted.view(len(wanted), -1)
    error = found - wanted
    every = torch.ones(len(wanted), dtype=torch.bool)
    each = [
        {
            "target": name,
            "r2": float(r_squared(found[:, k : k + 1], wanted[:, k : k + 1], every)),
            "rmse": float(error[:, k].square().mean().sqrt()),
            "mae": float(error[:, k].abs().mean()),
        }
        for k, name in enumerate(names)
    ]
    return {
        "r2": float(r_squared(found, wanted, every)),
        "rmse": float(error.square().mean().sqrt()),
        "mae": float(error.abs().mean()),
        "per_target": each,
    }


def _labels(names: list[str], wanted: NDArray, found: NDArray) -> dict[str, Any]:
    chosen = found > 0.5
    # label by label: scikit-learn takes a single column for two classes
    each: list[dict[str, Any]] = []
    for name, own, said in zip(names, wanted.T, chosen.T, strict=True):
        precision, recall, f1, _ = metrics.precision_recall_fscore_support(
            own, said, average="binary", zero_division=0
        )
        shares = {"precision": float(precision), "recall": float(recall), "f1": float(f1)}
        each.append({"label": name, **shares, "nodes": int(own.sum())})
    result: dict[str, Any] = {
        "micro_f1": float(metrics.f1_score(wanted.ravel(), chosen.ravel(), zero_division=0)),
        "macro_f1": float(np.mean([entry["f1"] for entry in each])),
        "all_right": float((wanted == chosen).all(1).mean()),
    }
    varied = [k for k, own in enumerate(wanted.T) if own.any() and not own.all()]
    if varied:
        areas = [metrics.roc_auc_score(wanted[:, k], found[:, k]) for k in varied]
        result["roc_auc"] = float(np.mean(areas))
    result["per_label"] = each
    return result
