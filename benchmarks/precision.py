"""Powers of A in bfloat16 against float32: states, gradients, accuracy, seconds.

    python benchmarks/precision.py [--data cora-embedded citeseer] [--splits 10] [--out precision.json]

Each line is a data set with the published settings of the linear or the nonlinear model, trained twice on
the same splits with the same seeds: in float32, and with --precision bfloat16. Differences of the test
accuracy are paired by split. The other errors compare the two at the same parameters, those of the training
in float32 on the first split: of the state x(T) and of the gradient of the loss, both relative in the
2-norm, and the share of nodes that get another class. Seconds are those of the processor. Lines of an
earlier run with the same --out stay, unless they are measured again. Memory: benchmarks/memory.py.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphdiffusion.configs import find_preset, read_preset
from graphdiffusion.training import Config, Population, Problem, Trainer, load_problem, protocol

PRECISIONS = ("full", "bfloat16")
SAME = ("data", "variant")  # what names a line


def configured(data: str, variant: str, splits: int, epochs: int) -> Config:
    preset = find_preset(data, variant, "auto", "auto")
    given = {"data": data, "variant": variant, "device": "cpu", "splits": splits}
    given |= {"epochs": epochs} if epochs else {}
    return Config.from_dict(given, {} if preset is None else read_preset(preset))


def seen(population: Population) -> tuple[Tensor, Tensor, Tensor]:
    """State x(T) of the best epoch in evaluation, the gradient of the loss at the last one, the answers."""
    found: dict[str, Tensor] = {}
    update = population.optimiser.update
    population.optimiser.update = lambda parameters, gradients: found.update(gradients)  # type: ignore
    population._train(population.seeds)
    population.optimiser.update = update  # type: ignore[method-assign]
    states = []
    layer = population.stack.model.diffusion
    diffuse = layer.diffuse

    def watched(*args: Any) -> Any:
        solution = diffuse(*args)
        states.append(solution.state)
        return solution

    layer.diffuse = watched
    logits = population.outputs(population.best)
    layer.diffuse = diffuse
    return states[-1], torch.cat([g.flatten() for g in found.values()]), logits


def apart(problem: Problem, config: Config) -> dict[str, float]:
    """The two precisions at the same parameters, after a training in float32."""
    member = protocol(config, problem.data)[:1]
    population = Population(problem, config, member)
    for _ in range(config.epochs):
        population.step()
    both = []
    for precision in PRECISIONS:
        other = Population(problem, config.replace(precision=precision), member)
        other.load({name: value.clone() for name, value in population.state().items()})
        both.append(seen(other))
    (x, gradient, logits), (half, rounded, guessed) = both
    return {
        "state": float((half - x).norm() / x.norm()),
        "gradient": float((rounded - gradient).norm() / gradient.norm()),
        "classes": float((logits.argmax(-1) != guessed.argmax(-1)).double().mean()),
    }


def measured(data: str, variant: str, splits: int, epochs: int) -> dict[str, Any]:
    config = configured(data, variant, splits, epochs)
    problem = load_problem(config)
    row: dict[str, Any] = {"data": data, "variant": variant, "splits": splits}
    row |= {"tests": {}, "seconds_epoch": {}}
    for precision in PRECISIONS:
        own = config.replace(precision=precision)
        started = time.process_time()
        results = Trainer(problem, own, protocol(own, problem.data)).run()
        seconds = time.process_time() - started
        row["tests"][precision] = [100 * (r.test or 0.0) for r in results]
        row["seconds_epoch"][precision] = seconds / sum(r.epochs for r in results)
    return row | apart(problem, config)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", nargs="+", default=["cora-embedded"])
    parser.add_argument("--variants", nargs="+", default=["linear", "nonlinear"])
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--epochs", type=int, default=0, help="0: those of the published settings")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    for data in args.data:
        for variant in args.variants:
            row = measured(data, variant, args.splits, args.epochs)
            paired = np.subtract(row["tests"]["bfloat16"], row["tests"]["full"])
            print(
                f"{data:14} {variant:10} x(T) {row['state']:.1e}  gradient {row['gradient']:.1e}  classes "
                f"{row['classes']:.2%}  float32 {np.mean(row['tests']['full']):.2f}  difference "
                f"{paired.mean():+.2f} ± {paired.std(ddof=1) if len(paired) > 1 else 0:.2f}",
                flush=True,
            )
            if args.out is not None:
                found = json.loads(args.out.read_text())["rows"] if args.out.exists() else []
                found = [old for old in found if any(old[name] != row[name] for name in SAME)]
                args.out.write_text(json.dumps({"rows": [*found, row]}, indent=1) + "\n")


if __name__ == "__main__":
    main()
