"""A diffusivity with parameters that depend on time."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.func import functional_call

from ..errors import ArgumentError
from ..graph import Graph
from .base import Diffusivity
from .timebasis import combine, legendre


class TimeVarying(Diffusivity):
    r"""A diffusivity with parameters that depend on time, :math:`\theta(t) = \sum_b P_b(t)\,\theta_b`.

    P are the first Legendre polynomials on ``[0, horizon]``. Training starts from constant parameters:
    those of ``base`` for the constant polynomial, zero for the others. The paper names θ(t) as future
    work (section 6, limitations). In the linear model A(x(0), θ(t)) is computed at every evaluation.
    """

    varies = True
    horizon: Tensor

    def __init__(self, base: Diffusivity, horizon: float, terms: int = 3) -> None:
        super().__init__(normaliser=base.normaliser, over=base.over, reweight=base.reweight)
        if terms < 2 or not horizon > 0:
            raise ArgumentError(f"need terms ≥ 2 and horizon > 0, got {terms} and {horizon}.")
        self.terms, self.members, self.capturable = terms, base.members, base.capturable
        self.takes_parts = base.takes_parts
        # a buffer, so that members may differ in it
        self.register_buffer("horizon", torch.full((1, 1), float(horizon)), persistent=False)
        base.requires_grad_(False)  # only the shape of the computation is taken from it
        object.__setattr__(self, "base", base)
        self.names = {name.replace(".", "_"): name for name, _ in base.named_parameters()}
        self.coefficients = nn.ParameterDict(
            {
                short: nn.Parameter(torch.cat([p[None], p.new_zeros(terms - 1, *p.shape)]))
                for short, name in self.names.items()
                for p in [base.get_parameter(name).detach()]
            }
        )
        self.base: Diffusivity

    def reset_parameters(self) -> None:
        """Initialise all parameters anew."""
        reset = getattr(self.base, "reset_parameters", None)
        if reset is not None:
            reset()
        with torch.no_grad():
            for short, name in self.names.items():
                self.coefficients[short].zero_()[0] = self.base.get_parameter(name)

    def parameters_at(self, t: Tensor) -> dict[str, Tensor]:
        """The parameters of the base at time t (a number, or ``(..., 1, 1)`` for members)."""
        basis = legendre(t, self.horizon, self.terms)
        return {
            name: combine(basis, self.coefficients[short], self.base.get_parameter(name).dim())
            for short, name in self.names.items()
        }

    def forward(
        self, graph: Graph, x: Tensor, mask: Tensor | None = None, t: Tensor | None = None
    ) -> Tensor:
        return self._at(t, x, _Attention(self.base), graph, mask)

    def diffuse(
        self, graph: Graph, x: Tensor, mask: Tensor | None = None, t: Tensor | None = None
    ) -> Tensor:
        return self._at(t, x, _Diffuse(self.base), graph, mask)

    def _at(
        self, t: Tensor | None, x: Tensor, face: nn.Module, graph: Graph, mask: Tensor | None
    ) -> Tensor:
        time = x.new_zeros(()) if t is None else t
        named = {f"base.{name}": p for name, p in self.parameters_at(time).items()}
        return functional_call(face, named, (graph, x, mask))


class _Attention(nn.Module):
    """A face of a diffusivity for ``functional_call``, which knows only ``forward``."""

    def __init__(self, base: Diffusivity) -> None:
        super().__init__()
        self.base = base

    def forward(self, graph: Graph, x: Tensor, mask: Tensor | None) -> Tensor:
        return self.base(graph, x, mask)


class _Diffuse(_Attention):
    def forward(self, graph: Graph, x: Tensor, mask: Tensor | None) -> Tensor:
        return self.base.diffuse(graph, x, mask)
