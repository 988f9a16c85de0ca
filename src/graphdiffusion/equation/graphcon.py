"""Oscillators that are coupled along the edges: an equation of second order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import torch
from torch import Tensor, nn

from ..diffusivity import Diffusivity
from ..ops import combine, propagate
from ..options import Bounds
from .context import Context
from .diffusion import Diffusion
from .equation import EQUATIONS, Equation
from .term import Term

_ACTIVATIONS = {"relu": torch.relu, "tanh": torch.tanh, "identity": lambda x: x}


@EQUATIONS.register("graphcon")
class GraphCON(Diffusion):
    r"""Coupled damped oscillators of `"Graph-Coupled Oscillator Networks" <https://arxiv.org/abs/2202.02296>`_.

    .. math:: \ddot x = \sigma(A x W) - \gamma x - \delta\dot x + \sum_m f_m

    The state is position x and velocity v side by side; x is read out. A is the attention, from x(0)
    (``linear``) or x(t); with ``diffusivity`` laplacian it is GCN's matrix. Waves carry features along the
    edges instead of making them alike.

    For W = I, no terms and a symmetric A, :math:`E = \tfrac12(\lVert v\rVert^2 + \gamma\lVert x\rVert^2)`
    stays below :math:`E(0)\,e^{t/\sqrt\gamma}`. If besides σ is the identity, nothing grows from rest for
    γ ≥ 1 and δ ≥ 0, and ``symplectic-euler`` is stable for :math:`\tau^2(\gamma + 1) < 4 - 2\tau\delta`.
    With ``velocity`` features they grow at most like 1 + t, and do so for γ = 1 and δ = 0 where A leaves
    them as they are.

    Args:
        diffusivity: Gives the matrix A.
        linear: Compute A from the initial features or from those of now.
        terms: What is added to the force, such as the source; they see x.
        rule: At most one of keep, threshold and mass, with its value (equation 12).
        channels: Width of the node features.
        activation: σ.
        stiffness: γ, which pulls features to 0.
        damping: δ.
        mix: Learn the matrix W of the channels, which starts at the identity.
        velocity: What v starts from: rest, or x(0).
    """

    given = ("linear",)

    def __init__(
        self,
        diffusivity: Diffusivity,
        *,
        channels: int,
        linear: bool = False,
        terms: Sequence[Term] = (),
        rule: dict[str, float] | None = None,
        activation: Literal["relu", "tanh", "identity"] = "relu",
        stiffness: Annotated[float, Bounds(0)] = 1.0,
        damping: Annotated[float, Bounds(0)] = 1.0,
        mix: bool = False,
        velocity: Literal["zero", "features"] = "zero",
    ) -> None:
        super().__init__(diffusivity, linear=linear, terms=terms, rule=rule)
        self.activation, self.velocity = activation, velocity
        self.stiffness, self.damping = stiffness, damping
        self.mix = nn.Parameter(torch.eye(channels)) if mix else None

    def reset_parameters(self) -> None:
        if self.mix is not None:
            with torch.no_grad():
                self.mix.copy_(torch.eye(self.mix.shape[-1]))

    def lift(self, x0: Tensor) -> Tensor:
        return torch.cat([x0, x0 if self.velocity == "features" else torch.zeros_like(x0)], -1)

    def read(self, state: Tensor) -> Tensor:
        return state[..., : state.shape[-1] // 2]

    def parts(self, channels: int) -> tuple[slice, slice]:
        return slice(channels // 2), slice(channels // 2, channels)

    def attention(self, context: Context) -> Tensor:
        if context.x.shape[-1] == 2 * context.x0.shape[-1]:
            context = context.at(x=self.read(context.x))
        return super().attention(context)

    def derivative(self, context: Context) -> Tensor:
        x, v = context.x.chunk(2, -1)
        c = self._with_attention(context.at(x=x), True)
        assert c.attention is not None
        pushed = propagate(c.graph, c.attention, x)
        pushed = _ACTIVATIONS[self.activation](pushed if self.mix is None else pushed @ self.mix)
        scales, changes = self._terms(c)
        fixed = [x.new_full((1, 1), value) for value in (1.0, -self.stiffness, -self.damping)]
        return torch.cat([v, combine([*fixed, *scales], [pushed, x, v, *changes])], -1)

    # these are not those of diffusion
    bound, learns_rate = Equation.bound, Equation.learns_rate

    def rate(self, reach: Tensor | float = 0.0) -> Tensor:
        """The fastest angular frequency for W = I, or δ where it is larger."""
        return torch.full((1, 1), max((1 + self.stiffness) ** 0.5, self.damping), dtype=torch.float64)

    def memory(self, nodes: int, edges: int, channels: int) -> int:
        return super().memory(nodes, edges, channels) + 16 * nodes * channels
