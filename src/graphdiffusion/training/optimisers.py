"""Optimisers with a rate and a decay that may differ from member to member.

The formulas are those of :mod:`torch.optim` with its default constants; the tests hold them together.
Parameters carry leading member dimensions, hyperparameters one entry for each member.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from ..errors import ArgumentError

State = dict[str, Tensor]
EPS = 1e-8


class Optimiser:
    """State and update of a dictionary of stacked parameters.

    Args:
        kind: ``"adam"``, ``"adamax"``, ``"rmsprop"`` or ``"sgd"`` (momentum 0.9).
        rate, decay: ``(P,)``; decay is added to the gradient, as torch does.
        factor: Of the decay, for a parameter by its name.
    """

    def __init__(
        self,
        kind: str,
        parameters: dict[str, Tensor],
        rate: Tensor,
        decay: Tensor,
        factor: Callable[[str], float] = lambda name: 1.0,
    ) -> None:
        if kind not in RULES:
            raise ArgumentError(f"optimiser must be one of {', '.join(RULES)}, got {kind!r}.")
        slots, self.rule = RULES[kind]
        self.rate, self.decay = rate, decay
        self.factors = {name: factor(name) for name in parameters}
        self.step = torch.zeros((), dtype=torch.float64, device=rate.device)
        self.moments: dict[str, State] = {
            name: {slot: torch.zeros_like(p) for slot in slots} for name, p in parameters.items()
        }

    @torch.no_grad()
    def update(self, parameters: dict[str, Tensor], gradients: dict[str, Tensor]) -> None:
        """Change the parameters in place."""
        self.step += 1
        for name, p in parameters.items():
            shape = (-1, *[1] * (p.dim() - 1))
            gradient = torch.addcmul(gradients[name], p, self.decay.view(shape), value=self.factors[name])
            direction, factor = self.rule(gradient, self.moments[name], self.step)
            p.addcmul_(direction, (self.rate.to(p.dtype) * factor).view(shape), value=-1)

    def select(self, members: Tensor) -> None:
        """Keep only these members."""
        self.rate, self.decay = self.rate[members], self.decay[members]
        self.moments = {
            name: {slot: m[members] for slot, m in own.items()} for name, own in self.moments.items()
        }

    def state(self) -> State:
        """Step and moments under flat names."""
        flat = {f"{name}/{slot}": m for name, own in self.moments.items() for slot, m in own.items()}
        return {"step": self.step, **flat}

    def load(self, state: State) -> None:
        """Take over what :meth:`state` gave."""
        self.step.copy_(state["step"])
        for name, own in self.moments.items():
            for slot, moment in own.items():
                moment.copy_(state[f"{name}/{slot}"])


# Each rule may use the memory of g, and gives a direction and a factor: the parameters move by their
# product and the rate, the other way. A factor costs no pass over the parameters.


def _adam(g: Tensor, m: State, step: Tensor) -> tuple[Tensor, Tensor | float]:
    m["mean"].lerp_(g, 1 - 0.9)
    m["square"].mul_(0.999).addcmul_(g, g, value=1 - 0.999)
    size = m["square"].sqrt().div_((1 - 0.999**step).sqrt()).add_(EPS)
    return m["mean"] / size, 1 / (1 - 0.9**step)


def _adamax(g: Tensor, m: State, step: Tensor) -> tuple[Tensor, Tensor | float]:
    m["mean"].lerp_(g, 1 - 0.9)
    torch.maximum(m["largest"].mul_(0.999), g.abs_().add_(EPS), out=m["largest"])
    return m["mean"] / m["largest"], 1 / (1 - 0.9**step)


def _rmsprop(g: Tensor, m: State, step: Tensor) -> tuple[Tensor, Tensor | float]:
    m["square"].mul_(0.99).addcmul_(g, g, value=1 - 0.99)
    return g / m["square"].sqrt().add_(EPS), 1.0


def _sgd(g: Tensor, m: State, step: Tensor) -> tuple[Tensor, Tensor | float]:
    return m["velocity"].mul_(0.9).add_(g), 1.0


# The longest step of one parameter, in rates, whatever the gradients were. Adam: by Cauchy-Schwarz,
# |Σ 0.1·0.9ᵏ g_k| ≤ 0.1 (Σ (0.81/0.999)ᵏ)^½ (Σ 0.999ᵏ g_k²)^½. Adamax: |g_k| ≤ 0.999⁻ᵏ times its largest.
# RMSprop: the mean square holds 0.01 g². SGD has no bound.
REACH = {
    "adam": 0.1 / math.sqrt(0.001 * (1 - 0.81 / 0.999)),
    "adamax": 0.1 / (1 - 0.9 / 0.999),
    "rmsprop": 10.0,
    "sgd": math.inf,
}

Rule = Callable[[Tensor, State, Tensor], tuple[Tensor, Tensor | float]]

RULES: dict[str, tuple[tuple[str, ...], Rule]] = {
    "adam": (("mean", "square"), _adam),
    "adamax": (("mean", "largest"), _adamax),
    "rmsprop": (("square",), _rmsprop),
    "sgd": (("velocity",), _sgd),
}
