"""Models with an integral in time: what the training harness needs to know of the integral."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

import torch
from torch import Tensor

from ..solvers import Room
from .base import Model
from .diffusion import SHORTEST, GraphDiffusion
from .modules import shallow


class Continuous(Model):
    """Base of models with one integral, that of the layer :attr:`diffusion`; all else takes members."""

    diffusion: GraphDiffusion

    @property
    def members(self) -> bool | None:  # type: ignore[override]
        """Encoder and decoder take members; the equation says whether it does."""
        return self.diffusion.equation.members

    @property
    def takes_parts(self) -> bool:  # type: ignore[override]
        return self.diffusion.equation.takes_parts

    @property
    def needs_observed(self) -> bool:  # type: ignore[override]
        return self.diffusion.equation.needs_observed

    @property
    def capturable(self) -> bool:  # type: ignore[override]
        """Whether the scheme needs no look at the device, nor the gradient; foreign equations may."""
        layer = self.diffusion
        own = bool(self.members) and layer.equation.capturable
        if layer.solver.follows_rate:
            own = own and bool(torch.isfinite(layer.equation.bound()).all())
        return own and layer.solver.captures and layer.gradient == "backprop"

    def capacity(self, reach: Tensor, furthest: float = 1.0) -> Room | None:
        layer = self.diffusion
        time = layer.time.detach().double()
        span = (time + reach).clamp_min(SHORTEST) if layer.learn_time else time
        rate = layer.equation.bound(reach[:, None, None])[..., 0, 0]
        return layer.solver.capacity(span * furthest, rate)

    def learns_capacity(self) -> bool:
        layer = self.diffusion
        return layer.learn_time or (layer.solver.follows_rate and layer.equation.learns_rate())

    def with_capacity(self, room: Room) -> Self:
        other = shallow(self)
        other.diffusion = self.diffusion.with_capacity(room)
        return other

    def at_fraction(self, state: Mapping[str, Tensor], fraction: Tensor) -> dict[str, Tensor]:
        time = state["diffusion.time"]
        return {**state, "diffusion.time": time * fraction.to(time.dtype)}

    def time_of(self, state: Mapping[str, Tensor]) -> float | None:
        return float(state["diffusion.time"])

    def warnings(self) -> list[str]:
        return self.diffusion.warnings()
