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
_APART = {**_ROWS, "mlp": True, "time": 2.0, "readout": 1}  # where neighbours differ
_NEAR = {**_ATTENTION, "over": "rows", "time": 4.0, **_STRONG}  # where they are alike, as own-*.toml
_STEPS = {"solver": "rk4", "step_size": 1.0}
_OSCILLATORS = {"equation": "graphcon", "solver": "symplectic-euler", "step_size": 0.5}
# with few labels, where neighbours are alike: as grand reproduce successors chose on Cora for both
_FEW = {**_NEAR, "time": 7.5, "alpha": 0.27, "input_dropout": 0.8, "dropout": 0.7, "decay": 8e-3}

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

# GRAND's successors, with the settings of own-*.toml and of what grand reproduce successors chose
SUCCESSORS: dict[str, dict[str, Any]] = {
    "adc": {**_NEAR, "equation": "adc"},
    "adc-laplacian": {**_SYMMETRIC, "equation": "adc", "terms": "", "time": 5.0, **_STRONG},
    "graphcon": {**_NEAR, **_OSCILLATORS},
    "graphcon-apart": {**_APART, **_OSCILLATORS},
    "adc-few": {**_FEW, "equation": "adc", "pace": 1.7},
    "graphcon-few": {**_FEW, **_OSCILLATORS},
    "sharpening": {**_NEAR, "terms": "source,blurring-sharpening"},
    "sharpening-apart": {**_APART, "terms": "source,blurring-sharpening", "reaction": 0.3},
    "labelled": {**_NEAR, "terms": "source,labelled-source"},
    "allen-cahn": {**_NEAR, "terms": "source,allen-cahn", **_STEPS},
    "allen-cahn-apart": {**_APART, "terms": "source,allen-cahn", "reaction": 0.3, **_STEPS},
    "fractional": {**_NEAR, "solver": "fractional", "step_size": 0.5, "derivative": 0.85},
    "fractional-apart": {**_APART, "solver": "fractional", "step_size": 0.5, "derivative": 0.85},
    "acmp": {
        **_NEAR,
        "equation": "acmp",
        "batch_norm": True,
        "solver": "dopri5",
    },  # in fixed steps infinite
    "acmp-apart": {**_APART, "equation": "acmp", "time": 1.0, "batch_norm": True, "solver": "dopri5"},
    "blend": {**_NEAR, "equation": "blend", "augment": 16, "positions": 16},
    "blend-apart": {**_APART, "equation": "blend", "augment": 16, "positions": 16},
}
POOL |= SUCCESSORS

_USUAL = {**_ADAM, "epochs": 200}
RIVALS: dict[str, dict[str, Any]] = {
    "mlp": {"model": "mlp", "hidden": 64, "dropout": 0.5, **_USUAL},
    "gcn": {"model": "gcn", "hidden": 64, "dropout": 0.5, **_USUAL},
    "gat": {"model": "gat", **_USUAL, "rate": 0.005},
}
