"""Which configurations suit a stranger's graph, and how the default does beside the usual methods.

    python benchmarks/own.py measure --out DIR                    answers of all candidates of own_pool.py
    python benchmarks/own.py choose DIR --out FILE                a portfolio by regret
    python benchmarks/own.py table --out FILE                     grand train, LR, MLP, GCN, GAT
    python benchmarks/own.py table --strangers --out FILE         the same on graphs of own_strangers.py
    python benchmarks/own.py show FILE                            the table in words

A cell is a data set at a label rate: 5, 20 or 100 labels a class, or 60% of each class, where every class
leaves as many nodes for the test; of the heterophilous sets the ten fixed splits, whose training and
validation nodes have labels. In several draws all other nodes test. Every method has the same labels.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from own_cells import OTHERS, PAPER, RATES, Cell, opened, rates_of
from own_measure import measure, read
from own_pool import POOL, RIVALS
from own_strangers import STRANGERS
from own_table import measured

from graphdiffusion.ensemble.plan import SIZES, Size
from graphdiffusion.ensemble.weights import kept, stacked
from graphdiffusion.training.problem import pick_device
from graphdiffusion.training.summary import half_interval
from graphdiffusion.training.tasks import Classification

METHODS = ("default", "lr", *RIVALS)
Loaded = dict[tuple[str, int], dict[str, Any]]


def cells(chosen: argparse.Namespace) -> Iterator[Cell]:
    device = pick_device(chosen.device)
    for name in chosen.data:
        data = opened(name, chosen.root)
        for rate in rates_of(data):
            if rate in chosen.rates:
                yield Cell(data, rate, chosen.draws, device)


def accuracy(found: dict[str, Any], names: list[str], draw: int, rule: Size) -> float:
    """Test accuracy of what the race of some candidates chooses, as ``grand train`` does it."""
    places = [found["names"].index(name) for name in names][: rule.race[0]]
    y, out = torch.from_numpy(found["known"][draw]), torch.from_numpy(found["out"][places, draw])
    task = Classification(y, [str(k) for k in range(out.shape[-1])])
    first = torch.from_numpy(found["fold"][draw] == 0).nonzero().flatten()
    losses = [float(task.mean_loss(own[first], first)) for own in out]
    going = sorted(range(len(places)), key=lambda k: losses[k])[: rule.race[1]]
    weights = kept(stacked(task, torch.arange(len(y)), out[going]), rule.chosen)
    mean = sum(
        weight * (found["folds"][places[going[k]], draw] + found["fits"][places[going[k]], draw])
        for k, weight in weights.items()
    )
    return 100 * float((np.asarray(mean).argmax(-1) == found["test"][draw]).mean())


def scores(found: Loaded, names: list[str], rule: Size, cache: dict[Any, float]) -> dict[str, float]:
    """Mean accuracy of a portfolio on each data set, over its label rates and draws."""
    each: dict[str, list[float]] = {}
    for cell, own in found.items():
        for draw in range(len(own["known"])):
            key = (cell, draw, tuple(names))
            if key not in cache:
                cache[key] = accuracy(own, names, draw, rule)
            each.setdefault(cell[0], []).append(cache[key])
    return {data: fmean(values) for data, values in each.items()}


def greedy(
    found: Loaded, pool: list[str], size: int, rule: Size, cache: dict[Any, float]
) -> list[tuple[str, float]]:
    """A portfolio that grows by the candidate which helps most, every data set counting the same."""
    rest, chosen = list(pool), []
    grown: list[tuple[str, float]] = []
    while rest and len(chosen) < size:
        value = {n: fmean(scores(found, [*chosen, n], rule, cache).values()) for n in rest}
        best = max(rest, key=lambda n: value[n])
        rest.remove(best)
        chosen.append(best)
        grown.append((best, value[best]))
    return grown


def choose(folder: Path, size: int, rule: Size, without: list[str]) -> dict[str, Any]:
    found = {(own["data"], own["rate"]): own for own in map(read, sorted(folder.glob("*.npz")))}
    cache: dict[Any, float] = {}
    everywhere = set.intersection(*(set(own["names"]) for own in found.values()))
    names = [name for name in POOL if name in everywhere and name not in without]
    alone = {name: scores(found, [name], rule, cache) for name in names}
    best = {data: max(own[data] for own in alone.values()) for data in next(iter(alone.values()))}
    chosen = greedy(found, names, size, rule, cache)
    stranger = {}
    for data in best if len(best) > 1 else ():  # of one set alone nothing is left to choose from
        rest = {cell: own for cell, own in found.items() if cell[0] != data}
        own = [name for name, _ in greedy(rest, names, size, rule, cache)]
        mine = {cell: found[cell] for cell in found if cell[0] == data}
        stranger[data] = {"portfolio": own, "accuracy": scores(mine, own, rule, cache)[data]}
    whole = scores(found, [name for name, _ in chosen], rule, cache)
    return {
        "cells": [f"{data} {rate}" for data, rate in found],
        "draws": {f"{data} {rate}": len(own["known"]) for (data, rate), own in found.items()},
        "without": without,
        "portfolio": [{"name": name, "accuracy": value} for name, value in chosen],
        "alone": {name: fmean(own.values()) for name, own in alone.items()},
        "best_single": best,
        "chosen": whole,
        "left_out": stranger,
    }


def show(file: Path) -> None:
    """The table in words: first, tied within the paired interval, behind."""
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    rows: dict[tuple[str, int], dict[str, list[float]]] = {}
    for line in lines:
        rows.setdefault((line["data"], line["rate"]), {})[line["method"]] = line["test"]
    first = near = tied = 0
    methods = [m for m in METHODS if any(m in own for own in rows.values())]
    print("data          rate " + " ".join(f"{m:>8}" for m in methods) + "   ahead of the best rival")
    for (data, rate), own in rows.items():
        means = {m: 100 * fmean(own[m]) for m in methods if m in own}
        best = max((m for m in means if m != "default"), key=lambda m: means[m])
        each = [100 * (a - b) for a, b in zip(own["default"], own[best], strict=True)]
        gap, half = fmean(each), half_interval(each) if len(each) > 1 else 0.0
        first, near, tied = first + (gap >= 0), near + (gap >= -0.5), tied + (abs(gap) <= half)
        cells = " ".join(f"{means[m]:8.2f}" if m in means else " " * 8 for m in methods)
        print(f"{data:12} {rate or 'fixed':>5} {cells}   {gap:+.2f} ± {half:.2f} ({best})")
    print(
        f"{len(rows)} cells: first in {first}, first or within half a point of it in {near}; in {tied} the "
        "difference to the best rival lies within its paired 95% interval"
    )
    for m in methods:
        print(f"{m}: {sum(line['seconds'] for line in lines if line['method'] == m):.0f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    for name, draws in (("measure", 5), ("table", 10)):
        command = commands.add_parser(name)
        command.add_argument("--root", default=None, help="folder with raw data files")
        command.add_argument("--out", type=Path, required=True)
        command.add_argument("--data", nargs="*", default=[*PAPER, *OTHERS])
        command.add_argument("--rates", nargs="*", type=int, default=[0, *RATES])
        command.add_argument("--draws", type=int, default=draws)
        command.add_argument("--device", default="auto")
        command.add_argument(
            "--strangers",
            dest="data",
            action="store_const",
            const=[*STRANGERS],
            help="graphs that chose nothing",
        )
    commands.choices["measure"].add_argument("--only", nargs="*", default=list(POOL), help="candidates")
    commands.choices["table"].add_argument("--only", nargs="*", default=list(METHODS), help="methods")
    choosing = commands.add_parser("choose")
    choosing.add_argument("folder", type=Path)
    choosing.add_argument("--out", type=Path, required=True)
    choosing.add_argument("--size", type=int, default=8)
    choosing.add_argument("--without", nargs="*", default=[], help="candidates that are left out")
    commands.add_parser("show").add_argument("file", type=Path)
    chosen = parser.parse_args()
    if chosen.command == "choose":
        rule = replace(SIZES[0], race=(chosen.size, SIZES[0].race[1]))
        found = choose(chosen.folder, chosen.size, rule, chosen.without)
        chosen.out.write_text(json.dumps(found, indent=1) + "\n")
        print(json.dumps(found, indent=1))
    elif chosen.command == "show":
        show(chosen.file)
    elif chosen.command == "measure":
        for cell in cells(chosen):
            measure(cell, {name: POOL[name] for name in chosen.only}, chosen.out)
    else:
        with chosen.out.open("a") as out:
            for cell in cells(chosen):
                for record in measured(cell, chosen.only):
                    print(json.dumps(record), file=out, flush=True)
                print(f"{cell.data.name} {cell.rate} is done", flush=True)


if __name__ == "__main__":
    main()
