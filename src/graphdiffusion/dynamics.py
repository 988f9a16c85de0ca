r"""The right-hand side of the diffusion equation, as terms that add up.

.. math:: \frac{dx}{dt} = \alpha(t)\,(A - I)\,x + \sum_m f_m(t, x, x_0)

In the *linear* model A is computed from x(0), and only once if its parameters are constant in time; in
the *nonlinear* one it follows x(t). The source :math:`\beta x_0` is a term. :class:`Diffusion` holds the
parameters; :meth:`Diffusion.bind` ties it to a graph and an initial state and gives the :class:`Flow`
that a solver integrates.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from . import ops
from .diffusivity import Diffusivity
from .errors import ArgumentError
from .graph import Graph
from .timebasis import combine, legendre


class Coefficient(nn.Module):
    """A scalar of the equation: fixed or learnt, constant or a polynomial in time.

    Args:
        initial: Its value at the start.
        learn: Whether it is a parameter.
        bounded: Keep it in (0, 1) by a sigmoid; ``initial`` must lie there.
        terms: Number of Legendre polynomials on ``[0, horizon]``; 1 is a constant.
        horizon: Needed for more than one term.
    """

    def __init__(
        self,
        initial: float,
        *,
        learn: bool = True,
        bounded: bool = False,
        terms: int = 1,
        horizon: float | None = None,
    ) -> None:
        super().__init__()
        if bounded and not 0 < initial < 1:
            raise ArgumentError(f"a bounded coefficient starts between 0 and 1, got {initial}.")
        if not math.isfinite(initial):
            raise ArgumentError(f"a coefficient must start finite, got {initial}.")
        if terms < 1 or (terms > 1 and not (horizon and horizon > 0)):
            raise ArgumentError(
                f"need terms ≥ 1, and a horizon > 0 for more than one; got terms={terms}, "
                f"horizon={horizon}."
            )
        self.initial, self.bounded, self.terms, self.horizon = initial, bounded, terms, horizon
        # (terms, 1, 1): stacked over members, a term broadcasts against states (..., n, d)
        self.raw = nn.Parameter(torch.empty(terms, 1, 1), requires_grad=learn)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        start = math.log(self.initial / (1 - self.initial)) if self.bounded else self.initial
        with torch.no_grad():
            self.raw.zero_()[0] = start

    def forward(self, t: Tensor | None = None) -> Tensor:
        """Its value at time t, ``(..., 1, 1)``."""
        if self.terms == 1 or t is None:
            value = self.raw[..., 0, :, :]
        else:
            assert self.horizon is not None
            value = combine(legendre(t, self.horizon, self.terms), self.raw, 2)
        return torch.sigmoid(value) if self.bounded else value

    def largest(self, raw: Tensor) -> Tensor:
        """A bound of its absolute value at all times for the parameter ``raw``, ``(..., 1, 1)``."""
        first, rest = raw[..., 0, :, :], raw[..., 1:, :, :].abs().sum(-3)  # polynomials lie in [−1, 1]
        return torch.sigmoid(first + rest) if self.bounded else first.abs() + rest

    def extra_repr(self) -> str:
        return f"{self.initial}, learn={self.raw.requires_grad}, terms={self.terms}"


class Source(nn.Module):
    r"""The term :math:`\beta x_0`, which keeps the initial state from being forgotten.

    Args:
        beta: A number (learnt, starting there) or a :class:`Coefficient`.
        detach: Cut the gradient through this :math:`x_0` (not the one through the initial state).
    """

    def __init__(self, beta: float | Coefficient = 0.0, *, detach: bool = True) -> None:
        super().__init__()
        self.beta = beta if isinstance(beta, Coefficient) else Coefficient(beta)
        self.detach = detach

    def origin(self, x0: Tensor) -> Tensor:
        """The :math:`x_0` that is fed in."""
        return x0.detach() if self.detach else x0

    def forward(self, t: Tensor | None, x: Tensor, x0: Tensor) -> Tensor:
        return self.beta(t) * self.origin(x0)


class Diffusion(nn.Module):
    r"""Graph diffusion :math:`\alpha(A - I)x` plus further terms.

    Args:
        diffusivity: Gives the stochastic matrix A.
        linear: Compute A from the initial state (GRAND-l) or from the state of now (GRAND-nl).
        alpha: A number (fixed) or a :class:`Coefficient`.
        terms: Modules called as ``term(t, x, x0)`` and added, such as :class:`Source`.
    """

    def __init__(
        self,
        diffusivity: Diffusivity,
        *,
        linear: bool = False,
        alpha: float | Coefficient = 1.0,
        terms: Sequence[nn.Module] = (),
    ) -> None:
        super().__init__()
        self.diffusivity = diffusivity
        self.linear = linear
        self.alpha = alpha if isinstance(alpha, Coefficient) else Coefficient(alpha, learn=False)
        self.terms = nn.ModuleList(terms)

    def bind(self, graph: Graph, x0: Tensor, mask: Tensor | None = None) -> Flow:
        """Tie the equation to a graph and an initial state ``(..., n, d)``.

        Args:
            mask: Edge field of zeros and ones; the edges with 0 are left out for the whole integral.
        """
        fixed = self.linear and not self.diffusivity.varies
        values = self.diffusivity(graph, x0, mask) if fixed else None
        return Flow(self, graph, x0, values, mask)

    def forward(
        self,
        graph: Graph,
        t: Tensor | None,
        x: Tensor,
        x0: Tensor,
        values: Tensor | None,
        mask: Tensor | None,
    ) -> Tensor:
        if values is None and self.linear:
            values = self.diffusivity(graph, x0, mask, t)
        if values is None:
            change = self.diffusivity.diffuse(graph, x, mask, t)
        else:
            change = ops.propagate(graph, values, x) - x
        scales, changes = [self.alpha(t)], [change]
        for term in self.terms:
            if isinstance(term, Source):
                scales.append(term.beta(t))
                changes.append(term.origin(x0))
            else:
                scales.append(torch.ones_like(scales[0]))
                changes.append(term(t, x, x0))
        return ops.combine(scales, changes)


@dataclass(frozen=True, eq=False)
class Flow:
    """dx/dt = f(t, x), bound to a graph and an initial state. What a solver integrates.

    A Flow names every tensor it depends on besides t and x (:attr:`tensors`), among them the attention
    of the linear model, which is computed outside the integral: the adjoint method would otherwise
    lose its gradient.
    """

    equation: Diffusion
    graph: Graph
    x0: Tensor
    values: Tensor | None  # the matrix A of the linear model, (..., E)
    mask: Tensor | None = None
    parameters: dict[str, Tensor] | None = None  # in place of the equation's own

    def __call__(self, t: Tensor | None, x: Tensor) -> Tensor:
        arguments = (self.graph, t, x, self.x0, self.values, self.mask)
        if self.parameters is None:
            return self.equation(*arguments)
        return functional_call(self.equation, self.parameters, arguments)

    @property
    def is_linear(self) -> bool:
        """A is fixed, α is constant, and the only other terms are constant sources."""
        return (
            self.values is not None
            and self.equation.alpha.terms == 1
            and all(isinstance(s, Source) and s.beta.terms == 1 for s in self.equation.terms)
        )

    def attention(self, t: Tensor | None, x: Tensor) -> Tensor:
        """The matrix A at time t and state x, ``(..., E)``."""
        if self.values is not None:
            return self.values
        return self._part("diffusivity", self.graph, self.x0 if self.equation.linear else x, self.mask, t)

    def alpha(self, t: Tensor | None = None) -> Tensor:
        return self._part("alpha", t)

    @property
    def rate(self) -> Tensor:
        """A bound of α at all times, ``(..., 1, 1)``: how fast the diffusion is."""
        alpha = self.equation.alpha
        raw = alpha.raw if self.parameters is None else self.parameters["alpha.raw"]
        return alpha.largest(raw.detach())

    def forcing(self, t: Tensor | None, x: Tensor) -> Tensor | None:
        """Sum of all terms but diffusion; ``None`` if there are none."""
        total: Tensor | None = None
        for k in range(len(self.equation.terms)):
            change = self._part(f"terms.{k}", t, x, self.x0)
            total = change if total is None else total + change
        return total

    def _part(self, name: str, *arguments: Any) -> Tensor:
        """A submodule of the equation, on the parameters of this flow."""
        module = self.equation.get_submodule(name)
        if self.parameters is None:
            return module(*arguments)
        prefix = f"{name}."
        own = {k.removeprefix(prefix): p for k, p in self.parameters.items() if k.startswith(prefix)}
        return functional_call(module, own, arguments)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """Everything differentiable that f depends on besides t and x."""
        named = tuple(p for p in self.equation.parameters() if p.requires_grad)
        others = (self.values, self.x0, self.graph.weight)
        return (*named, *(v for v in others if v is not None and v.requires_grad))

    def rebound(self, tensors: Sequence[Tensor]) -> Flow:
        """The same flow on other values of :attr:`tensors`, given in the same order."""
        left = iter(tensors)
        own = self.equation.named_parameters()
        parameters = {name: next(left) if p.requires_grad else p for name, p in own}
        changed: dict[str, Any] = {
            name: next(left)
            for name in ("values", "x0")
            if (tensor := getattr(self, name)) is not None and tensor.requires_grad
        }
        if self.graph.weight is not None and self.graph.weight.requires_grad:
            changed["graph"] = replace(self.graph, weight=next(left))
        return replace(self, parameters=parameters, **changed)
