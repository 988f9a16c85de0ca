"""The diffusion layer: it drops into any PyG model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from ..diffusivity import (
    Bahdanau,
    ConstantLaplacian,
    Cosine,
    Diffusivity,
    ExponentialKernel,
    Pearson,
    ScaledDotProduct,
)
from ..dynamics import Coefficient, Diffusion, Flow, Source
from ..errors import ArgumentError, DtypeError
from ..graph import Graph, as_graph
from ..rewiring import attention_mask
from ..solvers import Exponential, Gradient, Solution, Solver, integrate
from .modules import reset_children

SHORTEST = 1e-3  # a learnt T goes no lower

Variant = Literal["linear", "nonlinear", "nonlinear-rewired"]

DIFFUSIVITIES: dict[str, type[Diffusivity]] = {
    "scaled-dot": ScaledDotProduct,
    "bahdanau": Bahdanau,
    "cosine": Cosine,
    "pearson": Pearson,
    "exponential": ExponentialKernel,
    "laplacian": ConstantLaplacian,
}


@dataclass(frozen=True)
class Trajectory:
    """What a layer can return besides its output.

    Attributes:
        solution: State at the end and at the times asked for, with the solver's statistics.
        flow: The bound equation, which knows the graph and, for the linear model, the attention.
    """

    solution: Solution
    flow: Flow


class GraphDiffusion(nn.Module):
    r"""Graph neural diffusion of `"GRAND: Graph Neural Diffusion" <https://arxiv.org/abs/2106.10934>`_,

    .. math:: \mathbf{X}(T) = \mathbf{X}(0) + \int_0^T \alpha(\mathbf{A} - \mathbf{I})\mathbf{X}
        + \beta \mathbf{X}(0)\,dt

    with a learnt stochastic matrix :math:`\mathbf{A}`, fixed by X(0) or following X(t).

    Args:
        channels: Width of the node features, in and out.
        time: T, the depth of the layer.
        variant: ``"linear"`` (A from X(0)), ``"nonlinear"`` (A from X(t)) or ``"nonlinear-rewired"``
            (as nonlinear, on the edges that the attention at t = 0 selects).
        diffusivity: A name (``"scaled-dot"``, ``"bahdanau"``, ``"cosine"``, ``"pearson"``,
            ``"exponential"``, ``"laplacian"``) or a :class:`~graphdiffusion.diffusivity.Diffusivity`.
        heads, attention_dim: Number of heads, and width of all of them together.
        scale: For ``"scaled-dot"``: divide by :math:`\sqrt{d_k}` or by :math:`d_k` (``"dim"``).
        normaliser: ``"softmax"`` or ``"squareplus"``.
        over: Make ``"rows"`` or ``"columns"`` sum to one.
        reweight: Multiply the attention by the edge weights, if there are any; a self-loop weight other
            than 1 is one.
        alpha: Start of α, kept in (0, 1) and learnt; ``None`` fixes it at 1, as the paper writes.
        source: Add :math:`\beta X(0)` with β learnt, starting at 0.
        detach_source: Cut the gradient through the X(0) of the source.
        keep, threshold, mass: At most one: rewire at the start of every forward pass, keeping the share
            ``keep`` of the edges, those with attention above ``threshold`` (ρ of equation 12), or in each
            group the fewest that hold the share ``mass`` of its attention. ``"nonlinear-rewired"`` keeps
            0.9 of the edges unless told otherwise; the other variants keep all.
        learn_time: Make T a parameter.
        solver: Any of :mod:`graphdiffusion.solvers`; by default the closed form for the linear model
            and Dormand-Prince for the others.
        gradient: ``"backprop"``, ``"checkpoint"``, ``"adjoint"`` or an
            :class:`~graphdiffusion.solvers.Adjoint`.
        self_loops: Weight of the self-loop that every node is given; ``None`` leaves them as they are.

    Shapes:
        - **input:** node features ``(n, channels)``, edge indices ``(2, E)``, edge weights ``(E,)``
        - **output:** node features ``(n, channels)``
    """

    time: Tensor

    def __init__(
        self,
        channels: int,
        time: float = 3.0,
        *,
        variant: Variant = "linear",
        diffusivity: str | Diffusivity = "scaled-dot",
        heads: int = 4,
        attention_dim: int = 64,
        scale: Literal["sqrt", "dim"] = "sqrt",
        normaliser: Literal["softmax", "squareplus"] = "softmax",
        over: Literal["rows", "columns"] = "rows",
        reweight: bool = True,
        alpha: float | None = 0.5,
        source: bool = True,
        detach_source: bool = False,
        keep: float | None = None,
        threshold: float | None = None,
        mass: float | None = None,
        learn_time: bool = False,
        solver: Solver | Exponential | None = None,
        gradient: Gradient = "backprop",
        self_loops: float | None = 1.0,
    ) -> None:
        super().__init__()
        if variant not in get_args(Variant):
            raise ArgumentError(f"variant must be one of {', '.join(get_args(Variant))}, got {variant!r}.")
        if not 0 < time < float("inf"):
            raise ArgumentError(f"time must be positive and finite, got {time}.")
        rules = {"keep": keep, "threshold": threshold, "mass": mass}
        rule = {name: value for name, value in rules.items() if value is not None}
        if len(rule) > 1:
            raise ArgumentError(f"give at most one of keep, threshold and mass, got {rule}.")
        for name, value in rule.items():
            if not 0 < value <= 1:
                raise ArgumentError(f"{name} must lie in (0, 1], got {value}.")
        if isinstance(diffusivity, str):
            how: dict[str, Any] = {"over": over, "reweight": reweight}
            if diffusivity != "laplacian":
                how |= {
                    "channels": channels,
                    "heads": heads,
                    "attention_dim": attention_dim,
                    "normaliser": normaliser,
                }
            if diffusivity == "scaled-dot":
                how["scale"] = scale
            diffusivity = _diffusivity(diffusivity)(**how)
        self.channels, self.variant = channels, variant
        self.rule = rule or ({"keep": 0.9} if variant == "nonlinear-rewired" else {})
        self.self_loops, self.solver, self.gradient = self_loops, solver, gradient
        self.equation = Diffusion(
            diffusivity,
            linear=variant == "linear",
            alpha=1.0 if alpha is None else Coefficient(alpha, bounded=True),
            terms=[Source(0.0, detach=detach_source)] if source else [],
        )
        self.learn_time = learn_time
        start = torch.tensor(float(time))
        if learn_time:
            self.time = nn.Parameter(start)
        else:
            self.register_buffer("time", start)
        self.initial_time = float(time)

    def reset_parameters(self) -> None:
        reset_children(self)
        with torch.no_grad():
            self.time.fill_(self.initial_time)

    @property
    def span(self) -> Tensor:
        """T as it is used: a learnt T stays positive."""
        return self.time.clamp_min(SHORTEST) if self.learn_time else self.time

    def graph(self, edge_index: Tensor | Graph, num_nodes: int, edge_weight: Tensor | None = None) -> Graph:
        """The graph the layer works on: self-loops added, checked, sorted; remembered."""
        return as_graph(edge_index, num_nodes, edge_weight, self.self_loops)

    def bind(self, x: Tensor, graph: Graph) -> Flow:
        """The equation from the initial state x; with rewiring, on the edges that x selects (eq. 12)."""
        mask = None
        if self.rule:
            with torch.no_grad():
                values = self.equation.diffusivity(graph, x)
            mask = attention_mask(graph, values, over=self.equation.diffusivity.over, **self.rule)
        return self.equation.bind(graph, x, mask)

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor | Graph,
        edge_weight: Tensor | None = None,
        *,
        return_attention_weights: bool = False,
        return_trajectory: bool = False,
        at: Sequence[float] | Tensor | None = None,
        check: bool = True,
    ) -> Any:
        r"""Diffuse node features.

        Args:
            x: ``(..., n, channels)``.
            edge_index: ``(2, E)``, or a :class:`~graphdiffusion.graph.Graph` (taken as it is).
            edge_weight: ``(E,)``.
            return_attention_weights: Also return ``(edge_index, attention)`` at t = 0, with the
                self-loops, as PyG's ``GATConv`` does.
            return_trajectory: Also return a :class:`Trajectory`.
            at: Times in (0, T] for the trajectory.
            check: Look for NaN, and warn of unstable steps.
        """
        if at is not None and not return_trajectory:
            raise ArgumentError("at asks for states on the way: add return_trajectory=True.")
        if x.dtype != self.equation.alpha.raw.dtype:
            raise DtypeError(
                f"x must be {self.equation.alpha.raw.dtype}, as the layer is, got {x.dtype}: convert one."
            )
        graph = self.graph(edge_index, x.shape[-2], edge_weight)
        flow = self.bind(x, graph)
        solution = integrate(flow, x, self.span, self.solver, at=at, gradient=self.gradient, check=check)
        extras: list[Any] = []
        if return_attention_weights:
            extras.append((graph.edge_index, flow.attention(None, x)))
        if return_trajectory:
            extras.append(Trajectory(solution, flow))
        return (solution.state, *extras) if extras else solution.state

    def extra_repr(self) -> str:
        return f"{self.channels}, T={self.initial_time:g}, {self.variant}, solver={self.solver}"


def _diffusivity(name: str) -> type[Diffusivity]:
    if name not in DIFFUSIVITIES:
        raise ArgumentError(f"diffusivity must be one of {', '.join(DIFFUSIVITIES)}, got {name!r}.")
    return DIFFUSIVITIES[name]
