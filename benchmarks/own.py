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
from statistics import fmean
from typing import Any

import torch
from own_pool import POOL, RIVALS
from sklearn.decomposition import TruncatedSVD
from torch import Tensor
from torch_geometric.data import Data

from graphdiffusion import Config
from graphdiffusion.data import Split, load_data, number_of_splits, stack_splits
from graphdiffusion.data.shares import share_split
from graphdiffusion.ensemble.automatic import standard_error
from graphdiffusion.ensemble.baselines import as_matrix
from graphdiffusion.ensemble.plan import SIZES, Size
from graphdiffusion.nn import as_features
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


def opened(name: str, root: str | None) -> Data:
    """A data set by name; ``cora~16`` has its features reduced to 16 numbers, as own graphs often have."""
    plain, _, width = name.partition("~")
    data = load_data(plain, root)
    if width:
        matrix = as_matrix(as_features(data.x))
        data.x = torch.from_numpy(TruncatedSVD(int(width), random_state=0).fit_transform(matrix)).float()
        data.name = name
    return data


class Cell:
    """A data set at a label rate, with several draws of the labels."""

    def __init__(self, data: Data, rate: int, draws: int, device: torch.device) -> None:
        self.data, self.rate, self.draws, self.device = data, rate, draws, device
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
                own = share_split(y, fold, d, test="none")
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
    y, folds, device = cell.data.y, cell.folds(), cell.device
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
            "labels": cell.known.sum(1).tolist(),
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
        together = _together(answers, many, cell, device)
        print(json.dumps(about | {"kind": f"together{many}", "test": together}), file=out, flush=True)


def _together(answers: dict[str, Tensor], many: int, cell: Cell, device: torch.device) -> dict[str, list]:
    """Accuracies of the mean answers of all sets of so many candidates."""
    own = {name: mean.to(device) for name, mean in answers.items()}
    y, test = cell.data.y.to(device), cell.test.to(device)
    found = {}
    for names in itertools.combinations(own, many):
        right = (sum(own[name] for name in names).argmax(-1) == y) & test  # type: ignore[union-attr]
        found["+".join(names)] = right.sum(1).double() / test.sum(1)
    values = torch.stack(list(found.values())).tolist() if found else []
    return {names: [round(v, 5) for v in each] for names, each in zip(found, values, strict=True)}


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


def measure_rivals(cell: Cell, names: list[str], base: dict[str, Any], out: Any) -> None:
    """Usual settings, all labels of a draw for training."""
    about = {"data": cell.data.name, "rate": cell.rate, "draws": cell.draws, "kind": "rival"}
    for name in names:
        started = time.perf_counter()
        scores = _regression(cell, base) if name == "lr" else _network(cell, base | RIVALS[name])
        line = about | {"name": name, "test": scores, "seconds": time.perf_counter() - started}
        print(json.dumps(line), file=out, flush=True)


def _regression(cell: Cell, base: dict[str, Any]) -> list[float]:
    from sklearn.linear_model import LogisticRegression

    y, scores = cell.data.y.numpy(), []
    matrix = as_matrix(cell.problems.of(Config.from_dict(base)).x)
    for known, test in zip(cell.known.numpy(), cell.test.numpy(), strict=True):
        model = LogisticRegression(max_iter=1000).fit(matrix[known], y[known])
        scores.append(float((model.predict(matrix[test]) == y[test]).mean()))
    return scores


def _network(cell: Cell, options: dict[str, Any]) -> list[float]:
    config = Config.from_dict({**options, "patience": 0})
    found = run(cell, config, cell.whole(), [config.epochs] * (cell.draws * FITS))
    one = found["outputs"].view(cell.draws, FITS, len(cell.data.y), -1)[:, 0]
    return _accuracies(one, cell.data.y, cell.test)


class Measured:
    """What ``measure`` has found: validation and test accuracies by cell and draw."""

    def __init__(self, files: list[Path]) -> None:
        self.val: dict[tuple[str, int, int], dict[str, list[float]]] = {}
        self.labels: dict[tuple[str, int, int], int] = {}
        self.test: dict[tuple[str, int, int], dict[str, float]] = {}
        self.rivals: dict[tuple[str, int, int], dict[str, float]] = {}
        self.seconds: dict[str, float] = {}
        for file in files:
            for line in map(json.loads, file.read_text().splitlines()):
                for draw in range(line["draws"]):
                    self._take(line, (line["data"], line["rate"], draw), draw)

    def _take(self, line: dict[str, Any], cell: tuple[str, int, int], draw: int) -> None:
        test = self.test.setdefault(cell, {})
        if line["kind"] == "rival":
            self.rivals.setdefault(cell, {})[line["name"]] = line["test"][draw]
        elif line["kind"] == "candidate":
            self.val.setdefault(cell, {})[line["name"]] = line["val"][draw]
            self.labels[cell] = line["labels"][draw]
            test[line["name"]] = line["test"][draw]
            if draw == 0:
                self.seconds[line["name"]] = self.seconds.get(line["name"], 0.0) + line["seconds"]
        elif line["kind"].startswith("together"):
            for names, scores in line["test"].items():
                test["+".join(sorted(names.split("+")))] = scores[draw]

    def chosen(self, cell: tuple[str, int, int], names: list[str], size: Size) -> float:
        """Test accuracy of what the race of some candidates chooses, as ``grand train`` does it."""
        val = self.val[cell]
        order = [name for name in names if name in val]
        for many, folds in zip(size.race, (1, 2, FOLDS), strict=True):
            going = sorted(order[:many], key=lambda name: -fmean(val[name][:folds]))
            order = going + order[many:]
        last = order[: size.race[2]]
        best = fmean(val[last[0]])
        error = standard_error(best, self.labels[cell])
        near = [name for name in last[: size.chosen] if fmean(val[name]) >= best - error]
        return self.test[cell]["+".join(sorted(near))]

    def datasets(self) -> list[str]:
        return list(dict.fromkeys(cell[0] for cell in self.val))

    def cells(self, left_out: str | None = None) -> list[tuple[str, int, int]]:
        return [cell for cell in self.val if cell[0] != left_out]


def regret(found: Measured, names: list[str], left_out: str | None, rule: Size) -> float:
    """Mean distance to the best single candidate, in points; every data set counts the same."""
    each: dict[str, list[float]] = {}
    for cell in found.cells(left_out):
        singles = [value for name, value in found.test[cell].items() if "+" not in name]
        each.setdefault(cell[0], []).append(max(singles) - found.chosen(cell, names, rule))
    return 100 * sum(sum(own) / len(own) for own in each.values()) / max(1, len(each))


def greedy(found: Measured, size: int, left_out: str | None, rule: Size) -> list[str]:
    """A portfolio that grows by the candidate which lowers the regret most."""
    names = list(dict.fromkeys(name for own in found.val.values() for name in own))
    chosen: list[str] = []
    while len(chosen) < size:
        rest = [name for name in names if name not in chosen]
        if not rest:
            break
        chosen.append(min(rest, key=lambda name: regret(found, [*chosen, name], left_out, rule)))
    return chosen


def choose(files: list[Path], size: int, rule: Size) -> None:
    found = Measured(files)
    portfolio = greedy(found, size, None, rule)
    print("portfolio, and the regret of its first so many:")
    for count, name in enumerate(portfolio, 1):
        now = regret(found, portfolio[:count], None, rule)
        print(f"  {now:6.2f}  {name}  ({found.seconds[name]:.0f} s)")
    print("alone:")
    alone = {name: regret(found, [name], None, rule) for name in found.seconds}
    for name in sorted(alone, key=lambda name: alone[name]):
        print(f"  {alone[name]:6.2f}  {name}  ({found.seconds[name]:.0f} s)")
    print("what a stranger gets: the portfolio of the other data sets, on the one left out, in points")
    wins = near = total = 0
    for name in found.datasets():
        own = greedy(found, size, name, rule)
        for rate in dict.fromkeys(cell[1] for cell in found.val if cell[0] == name):
            cells = [cell for cell in found.val if cell[:2] == (name, rate)]
            ours = 100 * sum(found.chosen(c, own, rule) for c in cells) / len(cells)
            rivals = {
                r: 100 * sum(found.rivals[c][r] for c in cells) / len(cells)
                for r in found.rivals.get(cells[0], {})
            }
            best = max(rivals.values(), default=float("nan"))
            total, wins, near = total + 1, wins + (ours >= best), near + (ours >= best - 0.5)
            shown = ", ".join(f"{r} {value:.1f}" for r, value in rivals.items())
            print(f"  {name:12} {rate:4}  {ours:5.1f}  ({ours - best:+.1f})  {shown}")
    print(f"first in {wins} of {total} cells, within half a point of the first in {near}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    measuring = commands.add_parser("measure")
    measuring.add_argument("--root", default=None, help="folder with raw data files")
    measuring.add_argument("--out", type=Path, required=True)
    measuring.add_argument("--data", nargs="*", default=[*PAPER, *OTHERS])
    measuring.add_argument("--rates", nargs="*", type=int, default=[0, *RATES])
    measuring.add_argument("--draws", type=int, default=5)
    measuring.add_argument("--epochs", type=int, default=200)
    measuring.add_argument("--patience", type=int, default=50)
    measuring.add_argument("--only", nargs="*", default=None, help="names of candidates")
    measuring.add_argument("--rivals", nargs="*", default=[], choices=["lr", *RIVALS])
    measuring.add_argument("--device", default="auto")
    choosing = commands.add_parser("choose")
    choosing.add_argument("files", nargs="+", type=Path)
    choosing.add_argument("--size", type=int, default=8)
    choosing.add_argument("--rule", type=int, default=0, help="which of the sizes of a plan")
    chosen = parser.parse_args()
    if chosen.command == "choose":
        choose(chosen.files, chosen.size, SIZES[chosen.rule])
    else:
        measure(chosen)


def measure(chosen: argparse.Namespace) -> None:
    device = pick_device(chosen.device)
    pool = {k: v for k, v in POOL.items() if chosen.only is None or k in chosen.only}
    with chosen.out.open("a") as out:
        for name in chosen.data:
            data = opened(name, chosen.root)
            for rate in rates_of(data):
                if rate not in chosen.rates:
                    continue
                cell = Cell(data, rate, chosen.draws, device)
                base = {"data": name.partition("~")[0], "split": "folds", "scaling": "auto"}
                started = time.perf_counter()
                measure_rivals(cell, chosen.rivals, base, out)
                if pool:
                    measure_cell(
                        cell, pool, base | {"epochs": chosen.epochs, "patience": chosen.patience}, out
                    )
                print(f"{name} {rate}: {time.perf_counter() - started:.1f} s", flush=True)


if __name__ == "__main__":
    main()
