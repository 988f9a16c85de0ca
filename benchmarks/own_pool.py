"""Candidates and rivals of ``own.py``."""

from __future__ import annotations

from typing import Any

_GRAND: dict[str, Any] = {
    "model": "grand", "hidden": 64, "input_dropout": 0.5, "dropout": 0.5, "optimiser": "adam", "rate": 0.01,
    "decay": 5e-4,
}  # fmt: skip
_LAPLACIAN = {**_GRAND, "diffusivity": "laplacian"}
_ATTENTION = {**_GRAND, "diffusivity": "scaled-dot", "heads": 2, "attention_dim": 16}

POOL: dict[str, dict[str, Any]] = {}


def _add(name: str, base: dict[str, Any], **more: Any) -> None:
    POOL[name] = {**base, **more}


for _over in ("rows", "columns", "symmetric"):
    for _time in (2.0, 4.0, 10.0):
        _add(f"lap-{_over[:3]}-T{_time:g}", _LAPLACIAN, over=_over, time=_time)
_add("lap-sym-T4-strong", _LAPLACIAN, over="symmetric", time=4.0, decay=5e-3)
_add("lap-sym-T4-nosource", _LAPLACIAN, over="symmetric", time=4.0, terms="")
_add("lap-sym-T4-rows", _LAPLACIAN, over="symmetric", time=4.0, scaling="rows", decay=5e-3)
_add("lap-sym-T4-columns", _LAPLACIAN, over="symmetric", time=4.0, scaling="columns")
_add("lap-row-T4-columns", _LAPLACIAN, over="rows", time=4.0, scaling="columns")
_add("lap-sym-T2-read2", _LAPLACIAN, over="symmetric", time=2.0, readout=2)
_add("lap-sym-T4-read4", _LAPLACIAN, over="symmetric", time=4.0, readout=4)
_add("lap-row-T4-read4", _LAPLACIAN, over="rows", time=4.0, readout=4)
_add("lap-row-T2-read2-columns", _LAPLACIAN, over="rows", time=2.0, readout=2, scaling="columns")
_add("lap-row-T2-read2-noloops", _LAPLACIAN, over="rows", time=2.0, readout=2, self_loops=0.0)
_add("lap-sym-T4-mlp", _LAPLACIAN, over="symmetric", time=4.0, mlp=True)
_add("lap-sym-T4-labels", _LAPLACIAN, over="symmetric", time=4.0, label_rate=0.5)
_add("lap-row-T4-labels-read4", _LAPLACIAN, over="rows", time=4.0, label_rate=0.5, readout=4)
_add("lap-sym-T4-norm", _LAPLACIAN, over="symmetric", time=4.0, batch_norm=True)
_add("lap-sym-T4-h32", _LAPLACIAN, over="symmetric", time=4.0, hidden=32)
_add("lap-sym-T4-h16", _LAPLACIAN, over="symmetric", time=4.0, hidden=16)
_add("lap-sym-T4-h16-mlp", _LAPLACIAN, over="symmetric", time=4.0, hidden=16, mlp=True)
_add("lap-row-T2-read2-h32", _LAPLACIAN, over="rows", time=2.0, readout=2, hidden=32)
_add("att-row-T4", _ATTENTION, over="rows", normaliser="softmax", time=4.0)
_add("att-col-T4", _ATTENTION, over="columns", time=4.0)
_add("att-sym-T4", _ATTENTION, over="symmetric", time=4.0)
_add("att-col-T10-strong", _ATTENTION, over="columns", time=10.0, decay=5e-3)
_add("att-row-T3-read3", _ATTENTION, over="rows", normaliser="softmax", time=3.0, readout=3)
_DENSE = {"input_dropout": 0.0, "dropout": 0.2, "scaling": "columns", "mlp": True}
_add("lap-sym-T4-dense", _LAPLACIAN, over="symmetric", time=4.0, **_DENSE)
_add("lap-row-T2-read2-dense", _LAPLACIAN, over="rows", time=2.0, readout=2, **_DENSE)
_add("att-row-T3-read3-dense", _ATTENTION, over="rows", normaliser="softmax", time=3.0, readout=3, **_DENSE)
_add("zero-dense", _LAPLACIAN, time=0.0, **_DENSE)
_add("zero", _LAPLACIAN, time=0.0, mlp=True)
_add(
    "mlp", {"model": "mlp", "hidden": 64, "dropout": 0.5, "optimiser": "adam", "rate": 0.01, "decay": 5e-4}
)
_add("mlp-strong", POOL["mlp"], decay=5e-3)
_add("mlp-columns", POOL["mlp"], scaling="columns")
_add("logistic", POOL["mlp"], layers=1, dropout=0.0, decay=5e-3)
_add("x-row-T4-mlp", _LAPLACIAN, over="rows", time=4.0, mlp=True)
_add("x-row-T4-mlp-strong", _LAPLACIAN, over="rows", time=4.0, mlp=True, decay=5e-3)
_add("x-row-T4-strong-nosource", _LAPLACIAN, over="rows", time=4.0, decay=5e-3, terms="")
_add("x-row-T4-mlp-fast", _LAPLACIAN, over="rows", time=4.0, mlp=True, rate=0.02)
_add("x-row-T4-norm-mlp", _LAPLACIAN, over="rows", time=4.0, mlp=True, batch_norm=True)
_add("x-sym-T10-strong", _LAPLACIAN, over="symmetric", time=10.0, decay=5e-3)
_add("x-row-T10-mlp", _LAPLACIAN, over="rows", time=10.0, mlp=True)
_add("x-row-T2-noloops-mlp-read2", _LAPLACIAN, over="rows", time=2.0, readout=2, self_loops=0.0, mlp=True)
_add("x-sym-T2-noloops-read2", _LAPLACIAN, over="symmetric", time=2.0, readout=2, self_loops=0.0)
_add(
    "x-row-T2-noloops-read2-nosource",
    _LAPLACIAN,
    over="rows",
    time=2.0,
    readout=2,
    self_loops=0.0,
    terms="",
)
_add(
    "x-row-T2-read2-noloops-lessdrop",
    _LAPLACIAN,
    over="rows",
    time=2.0,
    readout=2,
    self_loops=0.0,
    input_dropout=0.2,
    dropout=0.2,
)
_add("gcn", POOL["mlp"], model="gcn")
_add("gat", POOL["mlp"], model="gat", hidden=8)

_USUAL: dict[str, Any] = {"optimiser": "adam", "rate": 0.01, "decay": 5e-4, "epochs": 200}
RIVALS: dict[str, dict[str, Any]] = {
    "mlp": {"model": "mlp", "hidden": 64, "dropout": 0.5, **_USUAL},
    "gcn": {"model": "gcn", "hidden": 64, "dropout": 0.5, **_USUAL},
    "gcn16": {"model": "gcn", "hidden": 16, "dropout": 0.5, **_USUAL, "scaling": "rows"},
    "gat": {"model": "gat", **_USUAL, "rate": 0.005},
}
