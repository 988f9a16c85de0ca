"""Candidates and rivals of ``own.py``."""

from __future__ import annotations

from typing import Any

_ADAM: dict[str, Any] = {"optimiser": "adam", "rate": 0.01, "decay": 5e-4}
_STRONG = {"decay": 5e-3}
_GRAND = {"model": "grand", "hidden": 64, "input_dropout": 0.5, "dropout": 0.5, **_ADAM}
_LAPLACIAN = {**_GRAND, "diffusivity": "laplacian"}
_ROWS = {**_LAPLACIAN, "over": "rows", "time": 4.0}
_SYMMETRIC = {**_LAPLACIAN, "over": "symmetric", "time": 10.0}
_TWICE = {**_ROWS, "time": 2.0, "readout": 2, "self_loops": 0.0}
_ATTENTION = {**_GRAND, "diffusivity": "scaled-dot", "heads": 2, "attention_dim": 16}
_MLP = {"model": "mlp", "hidden": 64, "dropout": 0.5, **_ADAM}

# of 54 configurations those that stood out at 5 labels a class, and of each kind at least one
POOL: dict[str, dict[str, Any]] = {
    "laplacian": {**_SYMMETRIC, **_STRONG},
    "laplacian-light": _SYMMETRIC,
    "rows": _ROWS,
    "rows-mlp": {**_ROWS, "mlp": True},
    "rows-mlp-strong": {**_ROWS, "mlp": True, **_STRONG},
    "rows-mlp-norm": {**_ROWS, "mlp": True, "batch_norm": True},
    "rows-plain-strong": {**_ROWS, "terms": "", **_STRONG},
    "symmetric-labels": {**_SYMMETRIC, "time": 4.0, "label_rate": 0.5},
    "several-times-linear": _TWICE,
    "several-times": {**_TWICE, "mlp": True},
    "attention-symmetric": {**_ATTENTION, "over": "symmetric", "time": 4.0},
    "attention": {**_ATTENTION, "over": "columns", "time": 10.0, **_STRONG},
    "features": {**_MLP, **_STRONG},
    "features-light": _MLP,
    "logistic": {**_MLP, "layers": 1, "dropout": 0.0, "rate": 0.05, "decay": 0.01},
    "gcn": {**_MLP, "model": "gcn"},
    "gat": {**_MLP, "model": "gat", "hidden": 8},
}

_USUAL = {**_ADAM, "epochs": 200}
RIVALS: dict[str, dict[str, Any]] = {
    "mlp": {"model": "mlp", "hidden": 64, "dropout": 0.5, **_USUAL},
    "gcn": {"model": "gcn", "hidden": 64, "dropout": 0.5, **_USUAL},
    "gat": {"model": "gat", **_USUAL, "rate": 0.005},
}
