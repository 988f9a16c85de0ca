"""Many trainings at once: the same modules with stacked parameters.

Every tensor of a member has a leading index: its parameters, dropout masks, split, learning rate, time,
and what it has found so far. A single training is a population of one.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy, one_hot

from ..data import Split
from ..errors import SolverError
from ..nn import GRAND, Output
from ..ops.noise import derive, random_bits
from ..solvers import Adaptive
from .capture import CapturedStep, can_capture
from .config import Config
from .optimisers import Optimiser
from .problem import Member, Problem, build_model, build_solver, member_configs, member_splits
from .scores import accuracy, surprise

log = logging.getLogger("graphdiffusion")

_LABELS = 7  # salt of the keys that choose label features


class _Run(nn.Module):
    """A face of the model for ``functional_call``, which knows only ``forward``."""

    def __init__(self, model: GRAND) -> None:
        super().__init__()
        self.model = model

    def forward(self, *args: Any, **kwargs: Any) -> Output:
        return self.model.run(*args, **kwargs)


class Population:
    """P members in training.

    Args:
        problem: Data, already on the device.
        config: What the members share.
        members: What they do not: seeds, and options named in ``PER_MEMBER``.
        split: Masks ``(P, n)``; by default those of the members.
    """

    def __init__(
        self, problem: Problem, config: Config, members: Sequence[Member], split: Split | None = None
    ) -> None:
        self.problem, self.config, self.members = problem, config, list(members)
        device = problem.y.device
        each = member_configs(config, members)
        models = [
            build_model(c, problem.in_channels, problem.classes, m.init)
            for c, m in zip(each, members, strict=True)
        ]
        self.parameters: dict[str, Tensor] = {}
        self.constants: dict[str, Tensor] = {}
        named = [dict(model.named_parameters()) | dict(model.named_buffers()) for model in models]
        for name, first in named[0].items():
            stacked = torch.stack([tensors[name].detach() for tensors in named]).to(device)
            home = self.parameters if first.requires_grad else self.constants
            home[f"model.{name}"] = stacked.requires_grad_(first.requires_grad)
        self.face = _Run(models[0])  # the computation; its own parameters are never used

        def column(option: str) -> Tensor:
            return torch.tensor([getattr(c, option) for c in each], device=device)

        self.label_rate = column("label_rate")
        self.tolerance = torch.stack([column("rtol"), column("atol")], -1)
        self.optimiser = Optimiser(config.optimiser, self.parameters, column("rate"), column("decay"))
        split = (split or member_splits(config, problem.data, members)).to(device)
        self.train, self.val, self.test = split.train, split.val, split.test
        self.seeds = derive(torch.tensor([m.init for m in members], device=device), 0)
        size = len(members)
        self.epoch = torch.zeros((), dtype=torch.int64, device=device)
        self.loss = torch.zeros(size, device=device)
        self.score = torch.zeros(size, dtype=torch.float64, device=device)
        self.best: dict[str, Tensor] = {
            name: value.detach().clone() for name, value in (self.parameters | self.constants).items()
        }
        self.best_score = torch.full((size,), -torch.inf, dtype=torch.float64, device=device)
        self.best_epoch = torch.full((size,), -1, dtype=torch.int64, device=device)
        self.best_fraction = torch.ones(size, dtype=torch.float64, device=device)
        self.best_val = torch.zeros(size, dtype=torch.float64, device=device)
        self.evaluations = 0
        self.epochs_done = 0  # the same number as `epoch`, known without asking the device
        self.captured: CapturedStep | None = None
        self._prepare()

    def __len__(self) -> int:
        return len(self.members)

    def _prepare(self) -> None:
        """What follows from the masks: indices of the training nodes, padded to one length."""
        counts = self.train.sum(1)
        order = torch.argsort((~self.train).to(torch.int8), dim=1, stable=True)
        self.train_nodes = order[:, : int(counts.max())]
        places = torch.arange(self.train_nodes.shape[1], device=order.device)
        dtype = next(iter(self.parameters.values())).dtype
        self.train_weight = (places < counts[:, None]).to(dtype)
        self.targets = self.problem.y[self.train_nodes].clamp_min(0)
        self.sweep_times = torch.tensor(self.fractions or [1.0], dtype=torch.float64, device=order.device)
        layer = self.face.model.diffusion
        if isinstance(layer.solver, Adaptive):
            rtol, atol = (self.tolerance[:, k, None, None] for k in (0, 1))
            layer.solver = build_solver(self.config, rtol, atol)
        self.captured = None

    def run(self, key: Tensor, state: dict[str, Tensor], **more: Any) -> Output:
        return functional_call(
            self.face, state, (self.problem.x, self.problem.graph), {"key": key, "check": False, **more}
        )

    def step(self) -> None:
        """One epoch of every member: train, validate, and keep what is best.

        Where the integration of some fails (:meth:`failed` says of whom), nothing has changed for anybody.
        """
        if self.captured is None and can_capture(self):
            self.captured = CapturedStep(self)
        if self.captured is not None:
            self.captured.replay()
        else:
            before = {name: value.clone() for name, value in self.state().items()}
            try:
                self.compute()
            except SolverError:
                self.load(before)
                raise
        self.epochs_done += 1

    def compute(self) -> None:
        """The work of one step, on tensors that stay in place."""
        key = derive(self.seeds, self.epoch)
        self._train(key)
        self._validate(key)
        self.epoch += 1

    def _train(self, key: Tensor) -> None:
        self.face.train()
        labels, weight = self._label_inputs(key)
        output = self.run(key, self.parameters | self.constants, labels=labels)
        self.evaluations = output.stats.evaluations
        index = self.train_nodes.unsqueeze(-1).expand(-1, -1, self.problem.classes)
        logits = output.logits.gather(1, index)
        each = cross_entropy(logits.flatten(0, 1), self.targets.flatten(), reduction="none")
        loss = (each.view_as(weight) * weight).sum(1) / weight.sum(1).clamp_min(1) + output.penalty
        # members share no parameter, so the gradient of the sum is the gradient of each
        names = list(self.parameters)
        # where all members have diverged, some parameters are not used
        found = torch.autograd.grad(
            loss.sum(), [self.parameters[k] for k in names], allow_unused=True, materialize_grads=True
        )
        self.optimiser.update(self.parameters, dict(zip(names, found, strict=True)))
        self.loss.copy_(loss.detach())

    def _label_inputs(self, key: Tensor) -> tuple[Tensor | None, Tensor]:
        """Labels shown to the model, a random share of the training nodes, and weights of the others."""
        if self.config.label_rate == 0:
            return None, self.train_weight
        bits = random_bits(derive(key, _LABELS), self.train.shape[1])
        shown = self.train & (bits < (self.label_rate[:, None].double() * 2**24).to(torch.int32))
        hidden = 1 - shown.gather(1, self.train_nodes).to(self.train_weight.dtype)
        return self._one_hot(shown), self.train_weight * hidden

    def _one_hot(self, shown: Tensor) -> Tensor:
        classes = one_hot(self.problem.y.clamp_min(0), self.problem.classes)
        return (classes * shown.unsqueeze(-1)).to(self.train_weight.dtype)

    @property
    def fractions(self) -> list[float] | None:
        """Times of the sweep, as fractions of T; 1 is always among them."""
        if self.config.sweep == 0:
            return None
        points = torch.linspace(0, self.config.sweep, self.config.sweep_points + 1)[1:].tolist()
        return sorted({round(p, 6) for p in points} | {1.0})

    @torch.no_grad()
    def _validate(self, key: Tensor) -> None:
        self.face.eval()
        state = self.parameters | self.constants
        fractions = self.fractions
        labels = self._one_hot(self.train) if self.config.label_rate > 0 else None
        logits = self.run(key, state, labels=labels, sweep=fractions).logits
        right = accuracy(logits, self.problem.y, self.val)
        # the loss only decides between equals
        score = right - 1e-5 * surprise(logits, self.problem.y, self.val)
        fraction = torch.ones_like(self.best_fraction)
        if fractions is not None:
            score, at = score.max(0)
            right = right.gather(0, at[None])[0]
            fraction = self.sweep_times[at]
        self.score.copy_(right)
        improved = score > self.best_score
        if self.config.patience:  # a member out of patience changes no more, whenever it is let go
            improved &= self.epoch - self.best_epoch <= self.config.patience
        for name, value in state.items():
            shape = (-1, *[1] * (value.dim() - 1))
            torch.where(improved.view(shape), value, self.best[name], out=self.best[name])
        for best, now in (
            (self.best_score, score),
            (self.best_val, right),
            (self.best_fraction, fraction),
            (self.best_epoch, self.epoch.expand_as(self.best_epoch)),
        ):
            torch.where(improved, now, best, out=best)

    @torch.no_grad()
    def final(self) -> tuple[dict[str, Tensor], Tensor, Tensor]:
        """The best state of every member, its validation and its test accuracy.

        The test nodes are looked at here and nowhere else. The time of the best validation score
        becomes the time of the model.
        """
        state = {name: value.clone() for name, value in self.best.items()}
        time = state["model.diffusion.time"]
        time.mul_(self.best_fraction.to(time.dtype))
        val, test = self.accuracies(state)
        return state, torch.where(self.best_epoch < 0, val, self.best_val), test

    @torch.no_grad()
    def accuracies(self, state: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Validation and test accuracy of every member with the parameters and constants ``state``.

        A member that cannot be integrated gives no right answer.
        """
        self.face.eval()
        labels = self._one_hot(self.train) if self.config.label_rate > 0 else None
        try:
            logits = self.run(self.seeds, state, labels=labels).logits
        except SolverError as error:
            return self._accuracies_without(self.failed(error), state, error)
        return accuracy(logits, self.problem.y, self.val), accuracy(logits, self.problem.y, self.test)

    def _accuracies_without(
        self, failed: Tensor, state: dict[str, Tensor], error: SolverError
    ) -> tuple[Tensor, Tensor]:
        names = self.numbers(failed)
        log.warning("members %s cannot be integrated and give no right answer: %s", names, error)
        val, test = torch.zeros_like(self.best_val), torch.zeros_like(self.best_val)
        rest = (~failed).nonzero().flatten()
        if len(rest):
            split = Split(self.train[rest], self.val[rest], self.test[rest])
            others = [self.members[k] for k in rest.tolist()]
            alone = Population(self.problem, self.config, others, split)
            val[rest], test[rest] = alone.accuracies({name: v[rest] for name, v in state.items()})
        return val, test

    def failed(self, error: SolverError) -> Tensor:
        """Members whose integration failed, ``(P,)`` bool."""
        if error.members is None:  # solvers name members wherever there are several: this is the only one
            return torch.ones(len(self), dtype=torch.bool, device=self.loss.device)
        return error.members

    def numbers(self, which: Tensor) -> list[int]:
        """The numbers of some members, ``which`` ``(P,)`` bool."""
        return [self.members[k].number for k in which.nonzero().flatten().tolist()]

    def finished(self) -> Tensor:
        """Members that have run out of patience, or whose loss is no longer finite: ``(P,)`` bool."""
        done = ~torch.isfinite(self.loss)
        if self.config.patience:
            done |= self.epochs_done - 1 - self.best_epoch >= self.config.patience
        return done

    def select(self, keep: Tensor) -> None:
        """Leave out all members but those at the indices ``keep``."""
        self.members = [self.members[k] for k in keep.tolist()]
        for home in (self.parameters, self.constants, self.best):
            for name, value in home.items():
                home[name] = value.detach()[keep].requires_grad_(value.requires_grad)
        self.optimiser.select(keep)
        for name in _PER_MEMBER_TENSORS:
            setattr(self, name, getattr(self, name)[keep])
        if self.members:
            self._prepare()

    def state(self) -> dict[str, Tensor]:
        """Everything that changes in training, for a checkpoint."""
        tensors = {f"now/{k}": v.detach() for k, v in (self.parameters | self.constants).items()}
        tensors |= {f"best/{k}": v for k, v in self.best.items()}
        tensors |= {f"optimiser/{k}": v for k, v in self.optimiser.state().items()}
        return tensors | {f"self/{k}": getattr(self, k) for k in _CHANGING}

    @torch.no_grad()
    def load(self, tensors: dict[str, Tensor]) -> None:
        """Take over what :meth:`state` gave, for the same members."""
        own = self.state()
        moments = {
            k.removeprefix("optimiser/"): v for k, v in tensors.items() if k.startswith("optimiser/")
        }
        for name, value in own.items():
            if not name.startswith("optimiser/"):
                value.copy_(tensors[name])
        self.optimiser.load(moments)
        self.epochs_done = int(self.epoch)


_CHANGING = ("epoch", "loss", "score", "best_score", "best_epoch", "best_fraction", "best_val")
_PER_MEMBER_TENSORS = (
    "label_rate", "tolerance", "train", "val", "test", "seeds", *_CHANGING[1:],
)  # fmt: skip
