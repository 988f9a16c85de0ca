"""Many trainings at once: the same modules with stacked parameters.

Every tensor of a member has a leading index: its parameters, dropout masks, split, learning rate, time,
and what it has found so far. A single training is a population of one.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..data import Split
from ..errors import ArgumentError, ConfigError, SolverError
from ..nn import Output
from ..ops.noise import derive, random_bits
from ..partition.part import Part
from ..partition.whole import node_places, shared_gradient, somewhere, summed, total
from .batches import Batch, Batches, View, padded
from .capture import CapturedStep, can_capture
from .config import Config
from .optimisers import Optimiser
from .problem import Member, Problem, member_configs, member_splits
from .stack import Stack
from .tasks import Task
from .template import TASK, build_model

log = logging.getLogger("graphdiffusion")

_LABELS = 7  # salt of the keys that choose label features


class Population:
    """P members in training.

    Args:
        problem: Data, already on the device.
        config: What the members share.
        members: What they do not: seeds, and options named in ``config.per_member``.
        split: Masks ``(P, n)``; by default those of the members.
    """

    def __init__(
        self, problem: Problem, config: Config, members: Sequence[Member], split: Split | None = None
    ) -> None:
        self.problem, self.config, self.members = problem, config, list(members)
        device = problem.y.device
        each = member_configs(config, members)
        models = [
            build_model(c, problem.in_channels, problem.out_channels, m.init, problem.num_nodes)
            for c, m in zip(each, members, strict=True)
        ]
        self.stack = Stack(models, device, config.model_key)
        if isinstance(problem.graph, Part) and not self.stack.model.takes_parts:
            raise ConfigError(needs_whole_graph(config))
        if not self.parameters:
            raise ConfigError(f"the model {config.model} has no parameters to train.")
        model = self.stack.model
        x, prepared = model.features(problem.x), problem.prepared(config, model)
        self.view = View(problem.graph, x, prepared, problem.task)
        self.batches = Batches(problem, config, model) if config.batches else None

        def column(option: str) -> Tensor:
            return torch.tensor([getattr(c, option) for c in each], device=device)

        self.label_rate = column("label_rate")
        self.optimiser = Optimiser(
            config.optimiser, self.parameters, column("rate"), column("decay"), self.stack.model.decay
        )
        split = problem.own_split(split or member_splits(config, problem.data, members)).to(device)
        self.train, self.val, self.test = split.train, split.val, split.test
        self.statistics = problem.task.statistics(self.train)
        self.seeds = derive(torch.tensor([m.init for m in members], device=device), 0)
        size = len(members)
        self.epoch = torch.zeros((), dtype=torch.int64, device=device)
        self.loss = torch.zeros(size, device=device)
        self.score = torch.zeros(size, dtype=torch.float64, device=device)
        self.best: dict[str, Tensor] = {
            name: value.detach().clone() for name, value in self.stack.tensors.items()
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
        self.train_nodes, weight = padded(self.train)
        dtype = next(iter(self.parameters.values())).dtype
        if self.config.class_weights == "balanced":
            weight = weight * self.problem.task.weights(self.train_nodes, weight)
        self.train_weight = weight.to(dtype)
        # without validation nodes nothing tells which epoch is best: the last one counts
        self.unvalidated = ~somewhere(self.val.any(1))
        self.sweep_times = torch.tensor(self.fractions or [1.0], dtype=torch.float64, device=weight.device)
        self.captured = None

    @property
    def parameters(self) -> dict[str, Tensor]:
        """What is learnt, stacked."""
        return self.stack.parameters

    def run(self, key: Tensor, state: dict[str, Tensor], view: View | None = None, **more: Any) -> Output:
        """One forward pass of all members with these parameters, on the graph or on a ``view`` of it."""
        view = view or self.view
        output = self.stack.run(state, view.x, view.graph, key, prepared=view.prepared, check=False, **more)
        wanted = (view.graph.num_nodes, self.problem.out_channels)
        if output.logits.shape[-2:] != wanted:
            raise ArgumentError(
                f"the model {self.config.model} must give logits of shape (..., {wanted[0]}, {wanted[1]}), "
                f"a row for each node and a column for each class, got {tuple(output.logits.shape)}."
            )
        return output

    def step(self) -> SolverError | None:
        """One epoch of every member: train, validate, and keep what is best.

        Returns what failed, with the mask of its members, ``(P,)``: they are as they were before the step.
        """
        if self.captured is None and can_capture(self):
            self.captured = CapturedStep(self)
        failure = None
        if self.captured is None or not self.captured.replay():
            failure = self._step()
        self.epochs_done += 1
        return failure

    def _step(self) -> SolverError | None:
        """A step that is not captured."""
        before = {name: value.clone() for name, value in self.state().items()}
        failures = self.compute()
        if not failures:
            return None
        failed = torch.zeros(len(self), dtype=torch.bool, device=self.loss.device)
        for error in failures:
            # solvers name members wherever there are several: otherwise this is the only one
            failed |= True if error.members is None else error.members.to(failed.device)
        own = self.state()
        with torch.no_grad():
            for name, value in own.items():
                if value.dim() and name not in _SHARED:
                    mask = failed.view(-1, *[1] * (value.dim() - 1))
                    value.copy_(torch.where(mask, before[name], value))
        return type(failures[0])(str(failures[0]), failed)

    def compute(self) -> list[SolverError]:
        """The work of one step, on tensors that stay in place; returns what failed."""
        key = derive(self.seeds, self.epoch)
        failures = [*self._train(key), *self._validate(key)]
        self.epoch += 1
        return failures

    def _train(self, key: Tensor) -> list[SolverError]:
        self.stack.face.train()
        shown, weight = self._shown(key)
        every = total(weight.sum(1))
        whole = Batch(self.view, key, self.train_nodes, weight, shown, torch.where(every > 0, every, 1.0))
        self.evaluations = 0
        if self.batches is None:
            loss, failures = self._update(whole)
            self.loss.copy_(loss)
            return failures
        found = [self._update(batch) for batch in self.batches.of(whole, self.train, self.epochs_done)]
        self.loss.copy_(torch.stack([loss for loss, _ in found]).mean(0))
        return [error for _, failures in found for error in failures]

    def _update(self, batch: Batch) -> tuple[Tensor, list[SolverError]]:
        """One step of the optimiser; the loss of each member before it, and what failed."""
        task = batch.view.task
        output = self.run(
            batch.key, self.stack.tensors, batch.view, **self._label_inputs(batch.shown, task)
        )
        self.evaluations = max(self.evaluations, output.evaluations)
        index = batch.nodes.unsqueeze(-1).expand(-1, -1, self.problem.out_channels)
        each = task.losses(output.logits.gather(1, index), batch.nodes, self.statistics)
        loss = total((each * batch.weight).sum(1)) / batch.total
        if output.penalty is not None:
            loss = loss + output.penalty
        # members share no parameter, so the gradient of the sum is the gradient of each
        names = list(self.parameters)
        # where all members have diverged, some parameters are not used
        found = torch.autograd.grad(
            shared_gradient(loss).sum(),
            [self.parameters[k] for k in names],
            allow_unused=True,
            materialize_grads=True,
        )
        self.optimiser.update(self.parameters, dict(zip(names, summed(found), strict=True)))
        self.stack.after_step()
        return loss.detach(), list(output.failures)  # also of the backward pass

    def _shown(self, key: Tensor) -> tuple[Tensor, Tensor]:
        """Training nodes with labels that the model may see, and weights of the nodes in the loss.

        With labels as features these are a random share, and the loss is over the others.
        """
        if self.config.label_rate == 0:
            return self.train, self.train_weight
        rows = self.train.shape[1]
        places = node_places(rows, 1)
        bits = random_bits(derive(key, _LABELS), rows if places is None else places)
        shown = self.train & (bits < (self.label_rate[:, None].double() * 2**24).to(torch.int32))
        hidden = 1 - shown.gather(1, self.train_nodes).to(self.train_weight.dtype)
        return shown, self.train_weight * hidden

    def _label_inputs(self, shown: Tensor, task: Task | None = None) -> dict[str, Tensor]:
        """The labels of some nodes, in the forms that the model uses."""
        task, dtype, found = task or self.problem.task, self.train_weight.dtype, {}
        if self.config.label_rate > 0:
            found["labels"] = task.shown(shown, self.statistics).to(dtype)
        if self.stack.model.needs_observed:
            found["observed"] = task.observed(shown, self.statistics).to(dtype)
        return found

    @property
    def fractions(self) -> list[float] | None:
        """Times of the sweep, as fractions of T; 1 is always among them."""
        if self.config.sweep == 0:
            return None
        points = torch.linspace(0, self.config.sweep, self.config.sweep_points + 1)[1:].tolist()
        return sorted({round(p, 6) for p in points} | {1.0})

    @torch.no_grad()
    def _validate(self, key: Tensor) -> list[SolverError]:
        self.stack.face.eval()
        state = self.stack.tensors
        fractions = self.fractions
        more: dict[str, Any] = self._label_inputs(self.train)
        output = self.run(
            key, state, self.view, **more, **({} if fractions is None else {"sweep": fractions})
        )
        logits = output.logits
        task = self.problem.task
        right = task.score(logits, self.val, self.statistics)
        # the loss only decides between equals
        score = right - 1e-5 * task.surprise(logits, self.val, self.statistics)
        fraction = torch.ones_like(self.best_fraction)
        if fractions is not None:
            score, at = score.max(0)
            right = right.gather(0, at[None])[0]
            fraction = torch.where(self.unvalidated, 1.0, self.sweep_times[at])
        self.score.copy_(right)
        improved = (score > self.best_score) | (self.unvalidated & self.loss.isfinite())
        if self.config.patience:  # a member out of patience changes no more, whenever it is removed
            improved &= (self.epoch - self.best_epoch <= self.config.patience) | self.unvalidated
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
        return list(output.failures)

    @torch.no_grad()
    def final(self) -> tuple[dict[str, Tensor], Tensor, Tensor]:
        """The best state of every member, its validation and its test accuracy.

        The test nodes are looked at here and nowhere else. The time of the best validation score
        becomes the time of the model.
        """
        state = {name: value.clone() for name, value in self.best.items()}
        if self.config.sweep:
            state = self.stack.model.at_fraction(state, self.best_fraction)
        val, test = self.accuracies(state)
        return state, torch.where(self.best_epoch < 0, val, self.best_val), test

    @torch.no_grad()
    def accuracies(self, state: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Validation and test accuracy of every member with the tensors ``state``.

        A member that cannot be integrated gives no right answer.
        """
        task, logits = self.problem.task, self.outputs(state)
        val, test = (task.score(logits, mask, self.statistics) for mask in (self.val, self.test))
        return val, test

    @torch.no_grad()
    def outputs(self, state: dict[str, Tensor]) -> Tensor:
        """Outputs ``(P, n, outputs)`` of every member with the tensors ``state``; NaN where one fails."""
        self.stack.face.eval()
        output = self.run(self.seeds, state, self.view, **self._label_inputs(self.train))
        for error in output.failures:
            failed = torch.ones(len(self), dtype=torch.bool) if error.members is None else error.members
            names = self.numbers(failed)
            log.warning("members %s cannot be integrated and give no right answer: %s", names, error)
        return output.logits

    def saved(self, state: dict[str, Tensor], member: int) -> dict[str, Tensor]:
        """The state of one member as a model file keeps it."""
        found = {name: state[own][member] for name, own in self.stack.saved.items()}
        found |= {f"{TASK}{name}": value[member] for name, value in self.statistics.items()}
        return {name: value.cpu() for name, value in found.items()}

    def numbers(self, which: Tensor) -> list[int]:
        """The numbers of some members, ``which`` ``(P,)`` bool."""
        return [self.members[k].number for k in which.nonzero().flatten().tolist()]

    def finished(self) -> Tensor:
        """Boolean mask ``(P,)`` of the members out of patience or with a loss that is not finite."""
        done = ~torch.isfinite(self.loss)
        if self.config.patience:
            done |= self.epochs_done - 1 - self.best_epoch >= self.config.patience
        return done

    def select(self, keep: Tensor) -> None:
        """Leave out all members but those at the indices ``keep``."""
        self.members = [self.members[k] for k in keep.tolist()]
        self.stack.select(keep)
        self.best = {name: value[keep] for name, value in self.best.items()}
        self.optimiser.select(keep)
        self.statistics = {name: value[keep] for name, value in self.statistics.items()}
        for name in _PER_MEMBER_TENSORS:
            setattr(self, name, getattr(self, name)[keep])
        if self.members:
            self._prepare()

    def state(self) -> dict[str, Tensor]:
        """Everything that changes in training, for a checkpoint."""
        tensors = {f"now/{k}": v.detach() for k, v in self.stack.tensors.items()}
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


def needs_whole_graph(config: Config) -> str:
    """Why a model cannot be trained on parts."""
    options = config.to_dict()
    chosen = ", ".join(f"{k} {options[k]}" for k in ("equation", "terms", "diffusivity") if options.get(k))
    return (
        f"the model {config.model}{f' ({chosen})' if chosen else ''} does not declare that it works on "
        "parts of a graph (takes_parts): train it in one process, without --parts."
    )


_CHANGING = ("epoch", "loss", "score", "best_score", "best_epoch", "best_fraction", "best_val")
_PER_MEMBER_TENSORS = (
    "label_rate", "train", "val", "test", "seeds", *_CHANGING[1:],
)  # fmt: skip
_SHARED = ("self/epoch", "optimiser/step")  # of all members
