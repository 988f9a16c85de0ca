"""Which configurations suit a stranger's graph: candidates measured on many graphs at several label rates.

    python benchmarks/own.py measure --root DATA --out measured.jsonl
    python benchmarks/own.py choose measured.jsonl

A cell is a data set at a label rate: 5, 20 or 100 labels a class, or 60% of each class; of the
heterophilous sets the ten fixed splits. For each of several draws of the labels, every candidate is
cross-validated on them and trained again on all of them; all other nodes test. All trainings of a candidate
on a cell are one population. Accuracies of pairs and triples of candidates, averaged, are kept too: so
``choose`` can compare rules of selection without further training.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from pathlib import Path
from typing import Any

import torch
from own_pool import POOL, RIVALS
from torch import Tensor
from torch_geometric.data import Data

from graphdiffusion import Config
from graphdiffusion.data import Split, load_data, number_of_splits, stack_splits
from graphdiffusion.data.shares import share_split
from graphdiffusion.ensemble.baselines import as_matrix
from graphdiffusion.training import Member, Population
from graphdiffusion.training.memory import chunk_size, free_memory
from graphdiffusion.training.problem import Problems, pick_device

PAPER = ("cora", "citeseer", "pubmed", "coauthor-cs", "computers", "photo")
OTHERS = ("actor", "chameleon", "squirrel", "texas", "wisconsin", "cornell")
RATES = (5, 20, 100, 60)  # the last one in percent
FOLDS = 5
FITS = 2  # trainings of a candidate on all labels of a draw


def labels_of(data: Data, rate: int, draw: int) -> tuple[Tensor, Tensor]:
    """Nodes with a known label, and test nodes, each (n,) bool."""
    if number_of_splits(data) > 1:
        return (data.train_mask | data.val_mask)[:, draw], data.test_mask[:, draw]
    y = data.y
    generator = torch.Generator().manual_seed(1000 + draw)
    known = torch.zeros(len(y), dtype=torch.bool)
    for k in y[y >= 0].unique().tolist():
        nodes = (y == k).nonzero().flatten()
        count = round(0.6 * len(nodes)) if rate == 60 else rate
        known[nodes[torch.randperm(len(nodes), generator=generator)[:count]]] = True
    return known, (y >= 0) & ~known


def rates_of(data: Data) -> tuple[int, ...]:
    """Label rates at which every class leaves as many nodes for the test."""
    if number_of_splits(data) > 1:
        return (0,)
    smallest = int(data.y[data.y >= 0].bincount().min())
    return tuple(rate for rate in RATES if rate == 60 or smallest >= 2 * rate)


class Cell:
    """A data set at a label rate, with several draws of the labels."""

    def __init__(self, data: Data, rate: int, draws: int, device: torch.device) -> None:
        self.data, self.rate, self.draws = data, rate, draws
        self.problems = Problems(data, device)
        self.known, self.test = (
            torch.stack(part)
            for part in zip(*(labels_of(data, rate, d) for d in range(draws)), strict=True)
        )

    def folds(self) -> Split:
        """The splits of all draws and folds, (draws × folds, n)."""
        found = []
        for d in range(self.draws):
            y = torch.where(self.known[d], self.data.y, -1)
            for fold in range(FOLDS):
                own = share_split(y, fold, d, test=False)
                found.append(Split(own.train, own.val, self.test[d]))
        return stack_splits(found)

    def whole(self) -> Split:
        """All labels of each draw train, (draws × fits, n)."""
        none = torch.zeros_like(self.known[0])
        each = [Split(self.known[d], none, self.test[d]) for d in range(self.draws)]
        return stack_splits([split for split in each for _ in range(FITS)])


def run(cell: Cell, config: Config, split: Split, ends: list[int] | None) -> dict[str, Any]:
    """Train one population; with ``ends`` each member for so many epochs, else by validation."""
    problem = cell.problems.of(config)
    size = len(split.train)
    fit = chunk_size(problem, config, size) if problem.y.device.type == "cuda" else size
    parts = []
    for first in range(0, size, fit):
        chosen = slice(first, first + fit)
        members = [Member(k, k, 7_000_000 + k) for k in range(size)[chosen]]
        own = Split(split.train[chosen], split.val[chosen], split.test[chosen])
        parts.append(_population(problem, config, members, own, None if ends is None else ends[chosen]))
        free_memory()
    return {key: torch.cat([part[key] for part in parts]) for key in parts[0]}


def _population(
    problem: Any, config: Config, members: list[Member], split: Split, ends: list[int] | None
) -> dict[str, Tensor]:
    population = Population(problem, config, members, split)
    last = config.epochs if ends is None else max(ends)
    outputs: Tensor | None = None
    for epoch in range(1, last + 1):
        failure = population.step()
        if failure is not None:
            raise failure
        if ends is not None and epoch in ends:
            now = population.outputs(population.stack.tensors).softmax(-1)
            which = torch.tensor([end == epoch for end in ends], device=now.device)
            outputs = now if outputs is None else torch.where(which[:, None, None], now, outputs)
        if ends is None and epoch % 10 == 0 and bool(population.finished().all()):
            break
    if outputs is None:
        state, val, _ = population.final()
        outputs = population.outputs(state).softmax(-1)
    else:
        val = torch.full((len(members),), torch.nan)
    return {"outputs": outputs.float().cpu(), "val": val.cpu(), "epochs": population.best_epoch.cpu() + 1}


def measure_cell(cell: Cell, pool: dict[str, dict[str, Any]], base: dict[str, Any], out: Any) -> None:
    y, folds = cell.data.y, cell.folds()
    answers: dict[str, Tensor] = {}
    about = {"data": cell.data.name, "rate": cell.rate, "draws": cell.draws}
    for name, options in pool.items():
        started = time.perf_counter()
        try:
            config = Config.from_dict({**base, **options})
            crossed = run(cell, config, folds, None)
            found = crossed["epochs"].view(cell.draws, FOLDS).double().mean(1).round().long().clamp_min(1)
            ends = found.repeat_interleave(FITS).tolist()
            whole = run(cell, config.replace(patience=0, epochs=max(ends)), cell.whole(), ends)
        except Exception as error:
            line = about | {
                "kind": "failure",
                "name": name,
                "error": f"{type(error).__name__}: {error}"[:300],
            }
            print(json.dumps(line), file=out, flush=True)
            free_memory()
            continue
        n = len(y)
        mean = whole["outputs"].view(cell.draws, FITS, n, -1).mean(1)
        several = crossed["outputs"].view(cell.draws, FOLDS, n, -1)
        answers[name] = mean
        line = about | {
            "kind": "candidate",
            "name": name,
            "val": crossed["val"].view(cell.draws, FOLDS).tolist(),
            "val_loss": [_loss(several[d], y, folds, d) for d in range(cell.draws)],
            "epochs": found.tolist(),
            "test": _accuracies(mean, y, cell.test),
            "test_one": _accuracies(whole["outputs"].view(cell.draws, FITS, n, -1)[:, 0], y, cell.test),
            "test_folds": _accuracies(several.mean(1), y, cell.test),
            "seconds": time.perf_counter() - started,
        }
        print(json.dumps(line), file=out, flush=True)
    for many in (2, 3):
        together = {
            "+".join(names): _accuracies(sum(answers[name] for name in names), y, cell.test)  # type: ignore[arg-type]
            for names in itertools.combinations(answers, many)
        }
        print(json.dumps(about | {"kind": f"together{many}", "test": together}), file=out, flush=True)


def _loss(outputs: Tensor, y: Tensor, folds: Split, draw: int) -> float:
    """Log-loss of the answers for nodes that validate, over all folds of a draw."""
    total, count = 0.0, 0
    for fold in range(FOLDS):
        nodes = folds.val[draw * FOLDS + fold].nonzero().flatten()
        total += float(-outputs[fold, nodes, y[nodes]].clamp_min(1e-9).log().sum())
        count += len(nodes)
    return total / count


def _accuracies(answers: Tensor, y: Tensor, test: Tensor) -> list[float]:
    right = answers.argmax(-1) == y
    return [float(right[d][test[d]].double().mean()) for d in range(len(test))]


def measure_rivals(cell: Cell, base: dict[str, Any], out: Any) -> None:
    """Usual settings, all labels of a draw for training."""
    from sklearn.linear_model import LogisticRegression

    y = cell.data.y
    about = {"data": cell.data.name, "rate": cell.rate, "draws": cell.draws, "kind": "rival"}
    matrix = as_matrix(cell.problems.of(Config.from_dict(base)).x)
    started, scores = time.perf_counter(), []
    for d in range(cell.draws):
        known, test = cell.known[d].numpy(), cell.test[d].numpy()
        model = LogisticRegression(max_iter=1000).fit(matrix[known], y.numpy()[known])
        scores.append(float((model.predict(matrix[test]) == y.numpy()[test]).mean()))
    line = about | {"name": "lr", "test": scores, "seconds": time.perf_counter() - started}
    print(json.dumps(line), file=out, flush=True)
    for name, options in RIVALS.items():
        started = time.perf_counter()
        try:
            config = Config.from_dict({**base, **options, "patience": 0})
            found = run(cell, config, cell.whole(), [config.epochs] * (cell.draws * FITS))
        except Exception as error:
            print(
                json.dumps(about | {"kind": "failure", "name": name, "error": str(error)[:300]}), file=out
            )
            continue
        one = found["outputs"].view(cell.draws, FITS, len(y), -1)[:, 0]
        line = about | {"name": name, "test": _accuracies(one, y, cell.test)}
        print(json.dumps(line | {"seconds": time.perf_counter() - started}), file=out, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--root", default=None, help="folder with raw data files")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--data", nargs="*", default=[*PAPER, *OTHERS])
    parser.add_argument("--rates", nargs="*", type=int, default=[0, *RATES])
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--patience", type=int, default=50)
    parser.add_argument("--only", nargs="*", default=None, help="names of candidates")
    parser.add_argument("--rivals", action="store_true")
    parser.add_argument("--device", default="auto")
    chosen = parser.parse_args()
    device = pick_device(chosen.device)
    pool = {k: v for k, v in POOL.items() if chosen.only is None or k in chosen.only}
    with chosen.out.open("a") as out:
        for name in chosen.data:
            data = load_data(name, chosen.root)
            for rate in rates_of(data):
                if rate not in chosen.rates:
                    continue
                cell = Cell(data, rate, chosen.draws, device)
                base = {
                    "data": name,
                    "split": "folds",
                    "epochs": chosen.epochs,
                    "patience": chosen.patience,
                }
                started = time.perf_counter()
                if chosen.rivals:
                    measure_rivals(cell, {"data": name, "split": "folds"}, out)
                if pool:
                    measure_cell(cell, pool, base, out)
                print(f"{name} {rate}: {time.perf_counter() - started:.1f} s", flush=True)


if __name__ == "__main__":
    main()
