"""What ``grand train`` reaches on the cells of ``own.py``, and what others reach with the same labels.

The race, the weights and the last fits are those of :mod:`graphdiffusion.ensemble`. All draws of a cell
train together here; each member has the seed that it would have alone.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from own_cells import Cell, train
from own_pool import RIVALS
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from graphdiffusion import Config
from graphdiffusion.data import Split, stack_splits
from graphdiffusion.data.shares import FOLDS, Test, has_few_labels, share_split
from graphdiffusion.ensemble import Candidate, make_plan, portfolio
from graphdiffusion.ensemble.baselines import as_matrix
from graphdiffusion.ensemble.weights import kept, stacked
from graphdiffusion.training import Member
from graphdiffusion.training.tasks import Classification


@dataclass
class Crossed:
    """What one candidate has answered in one draw."""

    validated: list[tuple[Tensor, Tensor]] = field(default_factory=list)  # nodes and answers of each fold
    outputs: list[Tensor] = field(default_factory=list)
    epochs: list[int] = field(default_factory=list)

    def answers(self) -> tuple[Tensor, Tensor]:
        nodes = torch.cat([nodes for nodes, _ in self.validated])
        order = nodes.argsort()
        return nodes[order], torch.cat([answers for _, answers in self.validated])[order]


class Default:
    """The automatic choice on all draws of a cell."""

    def __init__(self, cell: Cell) -> None:
        self.cell = cell
        self.base = Config.from_dict({**cell.base})
        self.task = Classification(cell.data.y, [str(k) for k in range(int(cell.data.y.max()) + 1)])
        self.kind: Test = "turns" if has_few_labels(cell.labels(0)) else "apart"
        self.rounds = FOLDS[self.kind]
        problem = cell.problems.of(self.base)
        self.plan = make_plan(problem, self.base, portfolio(), self.rounds, refit=True)
        self.found: list[dict[str, Crossed]] = [defaultdict(Crossed) for _ in range(cell.draws)]

    def run(self) -> tuple[list[float], list[dict[str, float]]]:
        """Accuracies, and the weights of the chosen candidates, of each draw."""
        draws, candidates = range(self.cell.draws), self.plan.candidates
        for candidate in candidates:
            self._race(candidate, draws, range(1))
        ranks = [sorted(candidates, key=lambda c, d=d: self._loss(d, c)) for d in draws]
        going = [own[: self.plan.size.race[1]] for own in ranks]
        for candidate in candidates:
            self._race(candidate, [d for d in draws if candidate in going[d]], range(1, self.rounds))
        weights = [self._weights(d, going[d]) for d in draws]
        total = torch.zeros(len(draws), len(self.cell.data.y), self.task.outputs)
        for candidate in candidates:
            self._refit(candidate, [d for d in draws if candidate.name in weights[d]])
        for d in draws:
            for name, weight in weights[d].items():
                total[d] += weight * torch.stack(self.found[d][name].outputs).mean(0)
        return self.cell.accuracies(total), weights

    def _race(self, candidate: Candidate, draws: Sequence[int], rounds: Sequence[int]) -> None:
        if not draws or not rounds:
            return
        pairs = [(d, r) for d in draws for r in rounds]
        each = [share_split(self.cell.labels(d), r, 0, test=self.kind) for d, r in pairs]
        tests = [self.cell.test[d] for d, _ in pairs]
        split = stack_splits([Split(s.train, s.val, t) for s, t in zip(each, tests, strict=True)])
        members = [Member(k, r, 1000 * r) for k, (_, r) in enumerate(pairs)]
        found = train(self.cell, candidate.config(self.base), members, split)
        for k, (d, _) in enumerate(pairs):
            own, nodes = self.found[d][candidate.name], split.val[k].nonzero().flatten()
            own.validated.append((nodes, found["outputs"][k, nodes].double()))
            own.outputs.append(found["outputs"][k])
            own.epochs.append(int(found["epochs"][k]))

    def _loss(self, draw: int, candidate: Candidate) -> float:
        nodes, answers = self.found[draw][candidate.name].answers()
        return float(self.task.mean_loss(answers, nodes))

    def _weights(self, draw: int, going: Sequence[Candidate]) -> dict[str, float]:
        order = sorted(going, key=lambda c: self._loss(draw, c))
        nodes = self.found[draw][order[0].name].answers()[0]
        each = torch.stack([self.found[draw][c.name].answers()[1] for c in order])
        chosen = kept(stacked(self.task, nodes, each), self.plan.size.chosen)
        return {order[place].name: weight for place, weight in chosen.items()}

    def _refit(self, candidate: Candidate, draws: Sequence[int]) -> None:
        if not draws:
            return
        fits = self.plan.size.fits
        epochs = [self.found[d][candidate.name].epochs for d in draws]
        ends = [max(1, round(sum(own) / len(own))) for own in epochs]
        config = candidate.config(self.base).replace(patience=0, epochs=max(ends))
        members, split = self.cell.whole(draws, fits)
        outputs = train(self.cell, config, members, split, [end for end in ends for _ in range(fits)])[
            "outputs"
        ]
        for place, d in enumerate(draws):
            self.found[d][candidate.name].outputs += outputs[place * fits : (place + 1) * fits].unbind()


def rival(cell: Cell, name: str) -> list[float]:
    """Accuracies of a method with its usual settings, which learns from all labels of each draw."""
    base = {**cell.base, "scaling": "auto"}
    if name == "lr":
        return _regression(cell, base)
    config = Config.from_dict({**base, **RIVALS[name], "patience": 0})
    members, split = cell.whole(range(cell.draws), 1)
    return cell.accuracies(train(cell, config, members, split, [config.epochs] * len(members))["outputs"])


def _regression(cell: Cell, base: dict) -> list[float]:
    y, scores = cell.data.y.numpy(), []
    matrix = as_matrix(cell.problems.of(Config.from_dict(base)).x)
    for known, test in zip(cell.known.numpy(), cell.test.numpy(), strict=True):
        model = LogisticRegression(max_iter=1000).fit(matrix[known], y[known])
        scores.append(float((model.predict(matrix[test]) == y[test]).mean()))
    return scores


def measured(cell: Cell, names: Sequence[str]) -> list[dict]:
    """A record for each method."""
    found = []
    for name in names:
        started = time.perf_counter()
        more: dict = {}
        if name == "default":
            default = Default(cell)
            scores, more["weights"] = default.run()
            more["plan"] = str(default.plan)
        else:
            scores = rival(cell, name)
        about = {"data": cell.data.name, "rate": cell.rate, "method": name, "test": scores, **more}
        found.append(about | {"seconds": time.perf_counter() - started})
    return found
