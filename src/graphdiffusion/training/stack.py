"""The models of all members as one: the same modules with stacked parameters."""

from __future__ import annotations

import logging
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from ..errors import ArgumentError, SolverError
from ..nn import Model, Output
from ..nn.modules import Features
from ..partition.whole import everywhere

log = logging.getLogger("graphdiffusion")

State = Mapping[str, Tensor]

# whether a model takes members, where its class does not declare it: by its class and options
_found: dict[Hashable, bool] = {}


class _Face(nn.Module):
    """The methods of a model for ``functional_call``, which calls only ``forward``."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model

    def forward(self, method: str, *args: Any, **more: Any) -> Any:
        return getattr(self.model, method)(*args, **more)


class Stack:
    """One computation for many members.

    Args:
        models: One for each member, alike but for the values of their tensors.
        device: Where the stacked tensors go.
        identity: Class and options of the models: what was found for one holds for all with the same.

    Attributes:
        model: The computation; its own parameters are never used.
        parameters: What is learnt, stacked.
        constants: All other tensors, stacked.
        saved: Names of the tensors that make up a saved state, and those by which they are known here: a
            tensor that a model has under two names is one.
    """

    def __init__(self, models: Sequence[Model], device: torch.device, identity: Hashable) -> None:
        self.face, self.identity = _Face(models[0]), identity
        self.parameters: dict[str, Tensor] = {}
        self.constants: dict[str, Tensor] = {}
        named = [dict(model.named_parameters()) | dict(model.named_buffers()) for model in models]
        for name, first in named[0].items():
            stacked = torch.stack([tensors[name].detach() for tensors in named]).to(device)
            home = self.parameters if first.requires_grad else self.constants
            home[name] = stacked.requires_grad_(first.requires_grad)
        own = {id(value): name for name, value in reversed(named[0].items())}
        kept = models[0].state_dict(keep_vars=True)
        self.saved = {name: own[id(value)] for name, value in kept.items()}

    @property
    def model(self) -> Model:
        return self.face.model

    @property
    def tensors(self) -> dict[str, Tensor]:
        return self.parameters | self.constants

    def call(self, method: str, state: State, *args: Any, **more: Any) -> Any:
        """A method of the model with the tensors of all members in place of its own."""
        return functional_call(
            self.face, {f"model.{k}": v for k, v in state.items()}, (method, *args), more
        )

    def run(self, state: State, x: Features, graph: Any, key: Tensor, **more: Any) -> Output:
        """Results of all members ``(P, n, classes)``; arguments as in :meth:`Model.run`."""
        if self._together(state, x, graph, key, more):
            return self._checked(self.call("run", state, x, graph, key=key, **more))
        each = [self._alone(k, state, x, graph, key, more) for k in range(len(key))]
        none = each[0].logits.new_zeros(())
        penalties = [none if o.penalty is None else o.penalty for o in each]
        return Output(
            torch.stack([o.logits for o in each], -3),
            torch.stack(penalties),
            max(o.evaluations for o in each),
            _Failures(each),
        )

    @torch.no_grad()
    def after_step(self) -> None:
        """The model's own hook, on the parameters in place."""
        if self.model.members:
            self.model.after_step(self.parameters)
            return
        for k in range(len(next(iter(self.parameters.values()), ()))):
            self.model.after_step({name: p[k] for name, p in self.parameters.items()})

    def select(self, members: Tensor) -> None:
        """Keep only these members."""
        for home in (self.parameters, self.constants):
            for name, value in home.items():
                home[name] = value.detach()[members].requires_grad_(value.requires_grad)

    def takes_members(self) -> bool | None:
        """Whether members are run together; ``None`` where it is not known yet."""
        return self.model.members if self.model.members is not None else _found.get(self.identity)

    def _together(self, state: State, x: Features, graph: Any, key: Tensor, more: dict[str, Any]) -> bool:
        known = self.takes_members()
        if known is not None:
            return known
        if len(key) == 1:  # a single member needs no check
            return False
        agree = torch.tensor(self._agrees(state, x, graph, key, more), device=key.device)
        _found[self.identity] = fits = bool(everywhere(agree))  # on all parts of the graph
        if not fits:
            name = getattr(type(self.model), "name", type(self.model).__name__)
            log.warning("the model %s does not take several members at once: they run one by one", name)
        return fits

    @torch.no_grad()
    def _agrees(self, state: State, x: Features, graph: Any, key: Tensor, more: dict[str, Any]) -> bool:
        """Whether two members together give what each gives alone, with dropout."""
        mode = self.face.training
        self.face.train()
        try:
            # values of their own for each, also where all members begin with the same
            two = {name: _apart(value[:2], name in self.parameters) for name, value in state.items()}
            pair = {name: v[:2] if _by_member(name, v) else v for name, v in more.items()}
            together = self.call("run", _copied(two), x, graph, key=key[:2], **pair).logits
            alone = [self._alone(k, _copied(two), x, graph, key, pair).logits for k in range(2)]
            wanted = torch.stack(alone, -3)
        except Exception as error:  # of foreign code, of any kind
            log.info("two members at once: %s: %s", type(error).__name__, error)
            return False
        finally:
            self.face.train(mode)
        if together.shape != wanted.shape:
            return False
        size = wanted.abs().nan_to_num(0.0).max().clamp_min(1e-30)
        return bool(((together - wanted).abs() <= 3e-5 * size).all())

    def _alone(
        self, k: int, state: State, x: Features, graph: Any, key: Tensor, more: dict[str, Any]
    ) -> Output:
        """The results of one member, without a member dimension; torch's generator follows its key."""
        own = {name: value[k] for name, value in state.items()}
        rest = {name: v[k] if _by_member(name, v) else v for name, v in more.items()}
        with _seeded(key[k]):
            return self._checked(self.call("run", own, x, graph, key=key[k], **rest))

    def _checked(self, output: Any) -> Output:
        if not isinstance(output, Output):
            name = type(self.model).__name__
            raise ArgumentError(f"run of {name} must give an Output, got {type(output).__name__}.")
        return output


class _Failures(list[SolverError]):
    """The failures of members that run one by one, each with a mask over all members."""

    def __init__(self, each: Sequence[Output]) -> None:
        super().__init__()
        self.each = each

    def __iter__(self) -> Iterator[SolverError]:
        for k, output in enumerate(self.each):
            mask = torch.arange(len(self.each), device=output.logits.device) == k
            for error in output.failures:
                yield type(error)(str(error), mask)


def _by_member(name: str, value: Any) -> bool:
    """Whether an argument of :meth:`Model.run` has an entry for each member."""
    return name != "prepared" and isinstance(value, Tensor)


def _apart(values: Tensor, learnt: bool) -> Tensor:
    """Values of two members, made to differ: parameters by numbers of order one, constants by little."""
    if not values.is_floating_point():
        return values
    generator = torch.Generator().manual_seed(values.numel())
    noise = torch.randn(values.shape, generator=generator).to(values.device, values.dtype)
    size = 0.3 if learnt else 0.01
    return values + size * noise * (values.abs() + 1 if learnt else values.abs())


def _copied(state: State) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in state.items()}


@contextmanager
def _seeded(key: Tensor) -> Iterator[None]:
    """Inside, torch's generators start from a key; outside they are left alone."""
    devices = [key.device] if key.device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(int(key))
        yield
