"""Answers of candidates on the cells of ``own.py``, from which rules and portfolios can be compared later.

Kept for every draw: out-of-fold answers of known nodes, and the mean answers on test nodes of the models of
five folds and of several fits on all labels. At most ``NODES`` nodes of each kind are kept; a probability p
is kept as the byte 255 √p.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from own_cells import Cell, train
from torch import Tensor

from graphdiffusion import Config
from graphdiffusion.data import Split, stack_splits
from graphdiffusion.data.shares import FOLDS, share_split
from graphdiffusion.ensemble.portfolio import EPOCHS, PATIENCE
from graphdiffusion.training import Member

NODES, FITS = 1200, 4


def measure(cell: Cell, pool: dict[str, dict[str, Any]], folder: Path) -> None:
    """Train all candidates of a pool on a cell and keep their answers in a file, one after the other."""
    folds, y = FOLDS["none"], cell.data.y
    pairs = [(d, f) for d in range(cell.draws) for f in range(folds)]
    each = [share_split(cell.labels(d), f, d, test="none") for d, f in pairs]
    split = stack_splits(
        [Split(s.train, s.val, cell.test[d]) for s, (d, _) in zip(each, pairs, strict=True)]
    )
    members = [Member(k, f, 7_000_000 + k) for k, (_, f) in enumerate(pairs)]
    generator = torch.Generator().manual_seed(0)
    known, test = (_some(mask, generator) for mask in (cell.known, cell.test))
    fold = torch.stack([
        split.val[d * folds : (d + 1) * folds, known[d]].byte().argmax(0) for d in range(cell.draws)
    ])  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{cell.data.name}-{cell.rate}.npz"
    found: dict[str, Any] = {"data": cell.data.name, "rate": cell.rate, "names": [], "options": []}
    found |= {"known": y[known].numpy(), "test": y[test].numpy(), "fold": fold.numpy()}
    if file.exists():  # an interrupted measurement goes on
        with np.load(file) as stored:
            if not all(np.array_equal(found[key], stored[key]) for key in ("known", "test", "fold")):
                raise SystemExit(f"{file} has other draws or splits: name another --out.")
            found |= dict(stored)
            found["names"], found["options"] = stored["names"].tolist(), stored["options"].tolist()
    for name, options in pool.items():
        if name in found["names"]:
            if found["options"][found["names"].index(name)] != repr(options):
                raise SystemExit(f"{file} has {name} with other options: name another --out.")
            continue
        above = {"scaling": "auto", "epochs": EPOCHS, "patience": PATIENCE, **options}
        config = Config.from_dict({**cell.base, **above})
        crossed = train(cell, config, members, split)
        epochs = crossed["epochs"].view(cell.draws, folds).double().mean(1).round().long().clamp_min(1)
        ends = epochs.repeat_interleave(FITS).tolist()
        last = config.replace(patience=0, epochs=max(ends))
        fits = train(cell, last, *cell.whole(range(cell.draws), FITS), ends)["outputs"]
        outputs = crossed["outputs"].view(cell.draws, folds, len(y), -1)
        draws = range(cell.draws)
        found[f"out.{name}"] = _bytes(torch.stack([outputs[d][fold[d], known[d]] for d in draws]))
        found[f"folds.{name}"] = _bytes(torch.stack([outputs[d].mean(0)[test[d]] for d in draws]))
        means = fits.view(cell.draws, FITS, len(y), -1).mean(1)
        found[f"fits.{name}"] = _bytes(torch.stack([means[d][test[d]] for d in draws]))
        found["names"], found["options"] = [*found["names"], name], [*found["options"], repr(options)]
        with TemporaryDirectory(dir=folder) as part:
            np.savez_compressed(whole := Path(part, "whole.npz"), **found)
            whole.replace(file)
        print(cell.data.name, cell.rate, name, flush=True)


def _some(masks: Tensor, generator: torch.Generator) -> Tensor:
    """At most ``NODES`` nodes of each row, as many of all: ``(rows, nodes)``."""
    size = min(NODES, int(masks.sum(1).min()))
    each = [mask.nonzero().flatten() for mask in masks]
    drawn = [nodes[torch.randperm(len(nodes), generator=generator)[:size]] for nodes in each]
    return torch.stack([nodes.sort().values for nodes in drawn])


def _bytes(p: Tensor) -> NDArray[np.uint8]:
    return (255 * p.clamp(0, 1).sqrt()).round().byte().numpy()


def read(file: Path) -> dict[str, Any]:
    """The content of a file of :func:`measure`; answers are ``(candidates, draws, nodes, classes)``."""
    with np.load(file) as stored:
        names = [str(name) for name in stored["names"]]
        found: dict[str, Any] = {key: stored[key] for key in ("known", "test", "fold")}
        for part in ("out", "folds", "fits"):
            p = np.stack([np.square(stored[f"{part}.{name}"].astype(np.float64) / 255) for name in names])
            found[part] = p / p.sum(-1, keepdims=True)
        return found | {"names": names, "data": str(stored["data"]), "rate": int(stored["rate"])}
