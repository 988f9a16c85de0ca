"""What an equation is, and what a solver is given: an equation bound to a graph and an initial state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from ..graph import Graph
from ..ops import Over
from ..registry import Registry
from ..subclasses import Declares
from .context import Context
from .term import Affine


@dataclass(frozen=True, eq=False)
class Stiff:
    r"""A right-hand side :math:`\alpha(A - I)x + f`, taken apart for semi-implicit and exponential schemes.

    Attributes:
        values: A ``(..., E)``, not negative: rows or columns sum to one, or the 2-norm is at most 1.
        over: Which of the three.
        coefficient: α, ``(..., 1, 1)`` or ``(..., 1, d)``.
        rest: f at the time and state of now, or ``None``.
    """

    values: Tensor
    over: Over
    coefficient: Tensor
    rest: Tensor | None


class Equation(
    Declares,
    nn.Module,
    follows={"derivative": ("affine", "stiff", "after", "remainder", "diagonal")},
):
    """Base of all equations: gives dx/dt, and declares what it is.

    A subclass gives :meth:`derivative`. One of second order also gives how a state is made of features
    (:meth:`lift`), which part of it is read out (:meth:`read`), and which channels are its positions and
    velocities (:meth:`parts`): ordinary schemes see one tensor, a partitioned scheme needs the parts.

    Attributes:
        members: Whether leading member dimensions are taken; ``None``: found out on first use.
        capturable: Whether it never reads from the device, so that a training step may be captured.
        takes_parts: Whether it works on one part of a graph, as terms declare it.
    """

    group = "equation"
    members: bool | None = None
    capturable = takes_parts = False
    needs_observed = False  # whether the labels of the context are used

    def derivative(self, context: Context) -> Tensor:
        """dx/dt ``(..., n, d)``."""
        raise NotImplementedError

    def prepare(self, context: Context) -> Context:
        """What is computed once, at the initial state: a mask, or the attention of a linear model."""
        return context

    def lift(self, x0: Tensor) -> Tensor:
        """The initial state, of features ``(..., n, d)``."""
        return x0

    def initial(self, x: Tensor, context: Context) -> Tensor:
        """The initial state of features x, where it takes more than :meth:`lift`, such as the graph."""
        return self.lift(x)

    def read(self, state: Tensor) -> Tensor:
        """The features ``(..., n, d)`` of a state."""
        return state

    def parts(self, channels: int) -> tuple[slice, slice] | None:
        """Channels of position and velocity in a state of so many; ``None`` for first order."""
        return None

    def attention(self, context: Context) -> Tensor | None:
        """The matrix A ``(..., E)``; ``None`` if there is none."""
        return None

    def affine(self, context: Context) -> Affine | None:
        """The equation with constant coefficients, where it is affine in x and A is fixed."""
        return None

    def stiff(self, context: Context) -> Stiff | None:
        """The equation taken apart for semi-implicit and exponential schemes, where it can be."""
        return None

    def after(self, context: Context, time: Tensor, backwards: bool = False) -> Tensor:
        """The state after a time under the terms alone that are solved, one after the other.

        Args:
            context: Its x is the state before.
            time: ``(..., 1, 1)``.
            backwards: Take the last of these terms first.
        """
        raise NotImplementedError

    def remainder(self, context: Context) -> Tensor:
        """dx/dt ``(..., n, d)`` without the terms that are solved."""
        raise NotImplementedError

    def offers(self, what: str) -> bool:
        """Whether it has what a scheme needs beside dx/dt: ``"parts"``, ``"stiff"`` or ``"after"``."""
        if what == "parts":
            return self.parts(2) is not None
        return getattr(type(self), what) is not getattr(Equation, what)

    def diagonal(self, context: Context) -> Tensor | None:
        """An estimate of the diagonal of ∂f/∂x, ``(..., n, 1)`` or ``(..., n, d)``: a preconditioner."""
        return None

    def rate(self, reach: Tensor | float = 0.0) -> Tensor:
        """A bound of the scale α of diffusion at all times, ``(..., 1, 1)``: how fast the equation is.

        Args:
            reach: How far each entry of a learnt parameter may still move.
        """
        return torch.ones(1, 1)

    def stable(self) -> bool:
        """Whether theorem 1 holds for steps up to 1 / :meth:`rate`."""
        return True

    def bound(self, reach: Tensor | float = 0.0) -> Tensor:
        """A bound of the coefficient of A − I in the closed form, ``(..., 1, 1)``; ∞: not known."""
        return self.rate(reach)

    def learns_rate(self) -> bool:
        """Whether training changes :meth:`rate`."""
        return False

    def stacked(self) -> bool:
        """Whether the parameters are those of several members, each with its own."""
        return False

    def memory(self, nodes: int, edges: int, channels: int) -> int:
        """Estimate of what one evaluation keeps for the backward pass beside the state, in bytes."""
        return 4 * (3 * nodes * channels + 4 * edges)

    def kept(self, nodes: int, edges: int, channels: int) -> int:
        """Estimate of what is made once and kept for the backward pass, such as a constant A, in bytes."""
        return 0

    def forward(self, *arguments: Any, part: str = "derivative") -> Any:
        """A method by name, so that ``functional_call`` reaches each of them."""
        return getattr(self, part)(*arguments)

    def bind(
        self, graph: Graph, x0: Tensor, mask: Tensor | None = None, observed: Tensor | None = None
    ) -> Flow:
        """Tie the equation to a graph and to features ``(..., n, d)``.

        Args:
            mask: Edge field of zeros and ones; the edges with 0 are left out for the whole integral.
            observed: Labels that terms may use, as :class:`~graphdiffusion.equation.Context` has them.
        """
        return Flow(self, self.prepare(Context(graph, x0, x0, mask=mask, observed=observed)))


EQUATIONS: Registry[Equation] = Registry("equation", "graphdiffusion.equation")


@dataclass(frozen=True, eq=False)
class Flow:
    """dx/dt = f(t, x), bound to a graph and an initial state: what a solver integrates.

    A Flow names every tensor it depends on besides t and x (:attr:`tensors`), among them the attention
    of a linear model and learnt edge weights, which are computed outside the integral: the adjoint method
    would otherwise lose their gradient.
    """

    equation: Equation
    context: Context
    parameters: dict[str, Tensor] | None = None  # and buffers, in place of the equation's own

    def __call__(self, t: Tensor | None, x: Tensor) -> Tensor:
        return self._ask("derivative", self.context.at(t=t, x=x))

    @property
    def graph(self) -> Graph:
        """The graph that the equation is bound to."""
        return self.context.graph

    @property
    def x0(self) -> Tensor:
        """The state at t = 0."""
        return self.context.x0

    @property
    def nodes(self) -> int:
        """Rows of a state."""
        return self.graph.num_nodes

    def attention(self, t: Tensor | None, x: Tensor) -> Tensor | None:
        """The matrix A at time t and state x, ``(..., E)``."""
        return self._ask("attention", self.context.at(t=t, x=x))

    def affine(self) -> Affine | None:
        """The equation with constant coefficients, where it has them, else ``None``."""
        return self._ask("affine", self.context)

    def stiff(self, t: Tensor | None, x: Tensor) -> Stiff | None:
        """The equation taken apart for semi-implicit and exponential schemes, else ``None``."""
        return self._ask("stiff", self.context.at(t=t, x=x))

    def after(self, t: Tensor | None, x: Tensor, time: Tensor, backwards: bool = False) -> Tensor:
        """The state after a time under the terms alone that are solved."""
        return self._ask("after", self.context.at(t=t, x=x), time, backwards)

    def remainder(self, t: Tensor | None, x: Tensor) -> Tensor:
        """dx/dt without these terms."""
        return self._ask("remainder", self.context.at(t=t, x=x))

    def offers(self, what: str) -> bool:
        """Whether the equation has what a scheme needs beside dx/dt."""
        return self.equation.offers(what)

    def diagonal(self, t: Tensor | None, x: Tensor) -> Tensor | None:
        """An estimate of the diagonal of ∂f/∂x, which broadcasts to x, else ``None``."""
        return self._ask("diagonal", self.context.at(t=t, x=x))

    @property
    def rate(self) -> Tensor:
        """A bound of the scale of diffusion at all times, ``(..., 1, 1)``."""
        return self._ask("rate")

    @property
    def stable(self) -> bool:
        """Whether theorem 1 holds for steps up to 1 / :attr:`rate`."""
        return self.equation.stable()

    @property
    def stacked(self) -> bool:
        """Whether no two members share a tensor on which the gradient depends."""
        outside = self._outside().values()
        shared = any(v is not None and v.requires_grad and v.dim() == own for v, own in outside)
        return self._ask("stacked") and not shared

    def parts(self, channels: int) -> tuple[slice, slice] | None:
        """Channels of position and velocity, for an equation of second order."""
        return self.equation.parts(channels)

    def _ask(self, part: str, *arguments: Any) -> Any:
        if self.parameters is None:
            return self.equation(*arguments, part=part)
        return functional_call(self.equation, self.parameters, arguments, {"part": part})

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """Everything differentiable that f depends on besides t and x."""
        own = tuple(p for p in self.equation.parameters() if p.requires_grad)
        return (*own, *(v for v, _ in self._outside().values() if v is not None and v.requires_grad))

    def _outside(self) -> dict[str, tuple[Tensor | None, int]]:
        """Tensors that were computed before the integral, and their dimensions besides those of members."""
        c = self.context
        found = {
            "attention": (c.attention, 1),
            "x0": (c.x0, 2),
            "mask": (c.mask, 1),
            "observed": (c.observed, 2),
        }
        return found | {"weight": (c.graph.weight, 1), "edge_attr": (c.graph.edge_attr, 2)}

    def rebound(self, tensors: Sequence[Tensor]) -> Flow:
        """The same flow on other values of :attr:`tensors`, given in the same order."""
        left = iter(tensors)
        learnt = {name: next(left) for name, p in self.equation.named_parameters() if p.requires_grad}
        # buffers too: in a population they are those of the members, and swapped out like parameters
        own = {**dict(self.equation.named_parameters()), **dict(self.equation.named_buffers())}
        parameters = (self.parameters or own) | learnt
        changed = {
            name: next(left)
            for name, (v, _) in self._outside().items()
            if v is not None and v.requires_grad
        }
        graph = self.graph
        weight = changed.pop("weight", graph.weight)
        edge_attr = changed.pop("edge_attr", graph.edge_attr)
        if weight is not graph.weight or edge_attr is not graph.edge_attr:
            graph = replace(graph, weight=weight, edge_attr=edge_attr)
        return Flow(self.equation, self.context.at(graph=graph, **changed), parameters)
