"""The diffusion layer: it drops into any PyG model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self, get_args

import torch
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing

from ..diffusivity import DIFFUSIVITIES, Diffusivity
from ..equation import EQUATIONS, TERMS, Coefficient, Equation, Flow, Term
from ..errors import ArgumentError, DtypeError, ShapeError, SolverError
from ..graph import SELF_LOOPS, Graph, as_graph
from ..ops.tracing import traced, vectorised
from ..options import Bounds, Named, create
from ..solvers import SOLVERS, Adjoint, Room, Solution, Solver, instability, integrate
from ..solvers.base import refuse_adjoint
from ..solvers.dormand_prince import DormandPrince
from ..solvers.series import refuse_channels
from .assembly import (
    ALPHA,
    check_options,
    idle_options,
    make_diffusivity,
    make_solver,
    make_terms,
    rewiring_rule,
)
from .memory import step_bytes
from .modules import reset_children, shallow

SHORTEST = 1e-3  # a learnt T goes no lower: steps of an adaptive scheme need a positive T

Variant = Literal["linear", "nonlinear", "nonlinear-rewired"]


@dataclass(frozen=True)
class Trajectory:
    """What a layer can return besides its output.

    Attributes:
        solution: State at the end and at the times asked for, with the solver's statistics.
        flow: The bound equation, which knows the graph and, for the linear model, the attention.
    """

    solution: Solution
    flow: Flow


class GraphDiffusion(MessagePassing):
    r"""Graph neural diffusion of `"GRAND: Graph Neural Diffusion" <https://arxiv.org/abs/2106.10934>`_,

    .. math:: \mathbf{X}(T) = \mathbf{X}(0) + \int_0^T \alpha(\mathbf{A} - \mathbf{I})\mathbf{X}
        + \beta \mathbf{X}(0)\,dt

    with a learnt stochastic matrix :math:`\mathbf{A}`, fixed by X(0) or following X(t).

    Args:
        channels: Width of the node features, in and out.
        time: Integration time T, the depth of the model; 0: the features are left as they are.
        variant: GRAND-l (linear: A from X(0)), GRAND-nl (nonlinear: A from X(t)) or GRAND-nl-rw
            (nonlinear-rewired: as nonlinear, on the edges that the attention at t = 0 selects).
        equation: Equation by name, or an :class:`~graphdiffusion.equation.Equation`.
        diffusivity: What makes A, by name, or a :class:`~graphdiffusion.diffusivity.Diffusivity`.
        terms: What is added to diffusion: names with commas between them, or a sequence of
            :class:`~graphdiffusion.equation.Term`.
        alpha: Start of α, which is learnt in (0, 1); 1: fixed at 1, as the paper writes.
        coefficients: α and β for all channels (scalar), or for each (channel).
        theta_terms: Parameters of the attention as polynomials in time with so many terms; 1: constant.
        keep: Share of the edges kept by their attention at t = 0 (equation 12); 0: 0.9 for
            nonlinear-rewired, all for the others.
        threshold: Keep the edges of attention above this instead; 0: off.
        mass: Keep in each group the fewest edges that hold this share of its attention instead; 0: off.
        learn_time: Learn T.
        channel_rates: Learn a rate of the equation for each channel: a time of its own.
        solver: Scheme by name, or a :class:`~graphdiffusion.solvers.Solver`; auto: the closed form where
            the equation has one, else dopri5.
        gradient: How gradients are computed; also an :class:`~graphdiffusion.solvers.Adjoint`.
        adjoint_rtol: Relative tolerance of the adjoint.
        adjoint_atol: Absolute tolerance of the adjoint.
        self_loops: Weight of the self-loop that every node is given, in place of those of the graph;
            ``None`` leaves them as they are.
        options: Of the classes that are named: of the diffusivity (``heads``, ``attention_dim``,
            ``normaliser``, ``over``, ...), of the terms, the equation and the solver (``step_size``,
            ``rtol``, ...).

    Shapes:
        - **input:** node features ``(n, channels)``, edge indices ``(2, E)``, edge weights ``(E,)``, edge
          attributes ``(E, k)``
        - **output:** node features ``(n, channels)``
    """

    group = "model"
    given = ("self_loops",)
    time: Tensor
    solver: Solver

    def __init__(
        self,
        channels: int,
        time: Annotated[float, Bounds(0)] = 18.3,
        *,
        variant: Variant = "linear",
        equation: Annotated[str | Equation, Named(EQUATIONS)] = "diffusion",
        diffusivity: Annotated[str | Diffusivity, Named(DIFFUSIVITIES)] = "scaled-dot",
        terms: Annotated[str | Sequence[Term], Named(TERMS, several=True)] = "source",
        alpha: Annotated[float, Bounds(0, 1, above=True)] = ALPHA,
        coefficients: Literal["scalar", "channel"] = "scalar",
        theta_terms: Annotated[int, Bounds(1)] = 1,
        keep: Annotated[float, Bounds(0, 1)] = 0.0,
        threshold: Annotated[float, Bounds(0, 1)] = 0.0,
        mass: Annotated[float, Bounds(0, 1)] = 0.0,
        learn_time: bool = False,
        channel_rates: bool = False,
        solver: Annotated[
            str | Solver | None, Named(SOLVERS, automatic=("exponential", "dopri5"))
        ] = "auto",
        gradient: Literal["backprop", "checkpoint", "adjoint"] | Adjoint = "backprop",
        adjoint_rtol: Annotated[float, Bounds(0)] = 1e-4,
        adjoint_atol: Annotated[float, Bounds(0)] = 1e-6,
        self_loops: float | None = SELF_LOOPS,
        **options: Any,
    ) -> None:
        super().__init__()
        check_options(GraphDiffusion, locals(), options)
        if variant not in get_args(Variant):
            raise ArgumentError(f"variant must be one of {', '.join(get_args(Variant))}, got {variant!r}.")
        if not 0 <= time < float("inf"):
            raise ArgumentError(f"time must be finite and not negative, got {time}.")
        if learn_time and time < SHORTEST:
            raise ArgumentError(f"a time that is learnt must start at {SHORTEST:g} or more, got {time}.")
        self.channels, self.variant, self.self_loops = channels, variant, self_loops
        wide = channels if coefficients == "channel" else None
        self.idle: list[str] = []
        if not isinstance(equation, Equation):
            self.idle = idle_options(equation, alpha, channel_rates)
            equation = create(
                EQUATIONS[equation],
                options,
                channels=channels,
                diffusivity=make_diffusivity(diffusivity, channels, time, theta_terms, options),
                linear=variant == "linear",
                alpha=1.0 if alpha == 1 else Coefficient(alpha, bounded=True, channels=wide),
                terms=make_terms(terms, channels, wide, options),
                rates=Coefficient(1.0, channels=channels) if channel_rates else None,
                rule=rewiring_rule(variant, keep, threshold, mass),
                wide=wide,
            )
        self.equation = equation
        self.learn_time = learn_time
        start = torch.tensor(float(time))
        if learn_time:
            self.time = nn.Parameter(start)
        else:
            self.register_buffer("time", start)
        self.initial_time = float(time)
        self.solver = make_solver(solver, equation, channels, options)
        own = getattr(equation, "rates", None) is not None  # of channels, also those that adc has by itself
        if self.solver.rounded and (coefficients == "channel" or own):
            refuse_channels()
        if gradient == "adjoint":
            gradient = Adjoint(DormandPrince(adjoint_rtol, adjoint_atol))
        if isinstance(gradient, Adjoint):
            refuse_adjoint(self.solver)
        self.gradient = gradient
        self.roomy = self._make_room()
        self.register_load_state_dict_post_hook(_note_time)

    def reset_parameters(self) -> None:
        reset_children(self)
        with torch.no_grad():
            self.time.fill_(self.initial_time)

    @property
    def span(self) -> Tensor:
        """T as it is used; a learnt T stays positive."""
        return self.time.clamp_min(SHORTEST) if self.learn_time else self.time

    def graph(
        self,
        edge_index: Tensor | Graph,
        num_nodes: int,
        edge_weight: Tensor | None = None,
        edge_attr: Tensor | None = None,
    ) -> Graph:
        """The graph the layer works on: self-loops added, checked, sorted; remembered."""
        return as_graph(edge_index, num_nodes, edge_weight, self.self_loops, edge_attr)

    def bind(
        self, x: Tensor, graph: Graph, mask: Tensor | None = None, observed: Tensor | None = None
    ) -> Flow:
        """The equation from the features x."""
        return self.equation.bind(graph, x, mask, observed)

    def diffuse(
        self, flow: Flow, x: Tensor, time: Tensor, at: Tensor | Sequence[float] | None, check: bool
    ) -> Solution:
        """Integrate a bound equation from the features x; states are those of the equation."""
        x0 = self.equation.initial(x, flow.context)
        how: dict[str, Any] = {"at": at, "gradient": self.gradient, "check": check}
        if not traced():
            return integrate(flow, x0, time, self.solver, **how)
        how["check"] = False  # nothing can be read
        if self.roomy.get("of") is self.solver:
            return integrate(flow, x0, time, self.roomy[x0.dtype], **how)
        if torch.compiler.is_exporting() or vectorised(x0, time, *self.equation.parameters()):
            raise ArgumentError(
                f"torch.export and torch.func.vmap cannot follow {self.solver!r}: how many steps it takes "
                "depends on numbers. Take the closed form or an explicit fixed-step scheme, with a time "
                "that is not learnt and coefficients that are bounded."
            )
        return _eagerly(flow, x0, time, self.solver, **how)

    def _make_room(self) -> dict[Any, Solver]:
        """The solver with room for T whatever the parameters are, by dtype; empty where none is enough."""
        solver = self.solver
        if self.time.is_meta or self.learn_time or not solver.captures or self.gradient != "backprop":
            return {}
        rate = self.equation.bound(math.inf).detach().double().max().reshape(1)
        if solver.follows_rate and bool(torch.isinf(rate)):
            return {}
        time = self.time.double().reshape(1)
        try:
            rooms = {dtype: solver.capacity(time, rate, dtype) for dtype in (torch.float32, torch.float64)}
        except SolverError:  # too many: the integral itself says so
            return {}
        return {"of": solver, **{dtype: solver.with_capacity(room) for dtype, room in rooms.items()}}

    def with_capacity(self, room: Room) -> Self:
        """The layer with a solver of that capacity; all tensors are shared."""
        other = shallow(self)
        other.solver = self.solver.with_capacity(room)
        return other

    def memory(self, nodes: int, edges: int) -> int:
        """Estimate of what a training step of one member holds, in bytes."""
        return step_bytes(
            self.equation, self.solver, self.gradient, self.initial_time, nodes, edges, self.channels
        )

    def warnings(self) -> list[str]:
        """Sentences about options without effect, and a step that is too long for the equation."""
        size = getattr(self.solver, "step_size", None)
        if size is None:
            return self.idle
        rate = float(self.equation.rate().max())
        sentence = instability(self.solver, size, rate, self.equation.stable())
        return self.idle if sentence is None else [*self.idle, sentence]

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor | Graph,
        edge_weight: Tensor | None = None,
        edge_attr: Tensor | None = None,
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
            edge_attr: ``(E, k)``, for diffusivities that use them.
            return_attention_weights: Also return ``(edge_index, attention)`` at t = 0, with the
                self-loops, as PyG's ``GATConv`` does.
            return_trajectory: Also return a :class:`Trajectory`.
            at: Times in [0, T] for the trajectory.
            check: Look for NaN, and warn of unstable steps. Off inside ``torch.compile``, ``torch.export``
                and the transforms of ``torch.func``, which cannot read numbers.
        """
        if at is not None and not return_trajectory:
            raise ArgumentError("at asks for states on the way: add return_trajectory=True.")
        x = self._checked(x)
        check = check and not traced()
        with torch.autocast(x.device.type, enabled=False):
            graph = self.graph(edge_index, x.shape[-2], edge_weight, edge_attr)
            flow = self.bind(x, graph, self._explained(edge_index, x.shape[-2], edge_weight))
            solution = self.diffuse(flow, x, self.span, at, check)
        out = self.equation.read(solution.state)
        extras: list[Any] = []
        if return_attention_weights:
            extras.append((graph.edge_index, flow.attention(None, flow.x0)))
        if return_trajectory:
            extras.append(Trajectory(solution, flow))
        return (out, *extras) if extras else out

    def _checked(self, x: Any) -> Tensor:
        if isinstance(x, (tuple, list)):  # as PyG calls a layer on a graph with several kinds of nodes
            if len(x) != 2 or x[0] is not x[1]:
                shapes = " and ".join(str(tuple(part.shape)) for part in x if isinstance(part, Tensor))
                raise ArgumentError(
                    "GraphDiffusion works on one set of nodes, and its edges must not lead to another: got "
                    f"two sets, {shapes}. Join the kinds of nodes into one graph "
                    "(HeteroData.to_homogeneous)."
                )
            x = x[0]
        if not isinstance(x, Tensor) or x.dim() < 2:
            raise ShapeError(
                f"x must be a tensor (..., n, channels), got {getattr(x, 'shape', type(x).__name__)}."
            )
        if x.shape[-1] != self.channels:
            raise ShapeError(f"x must have {self.channels} channels, as the layer has, got {x.shape[-1]}.")
        own = next(self.equation.parameters(), self.time).dtype
        if torch.is_autocast_enabled(x.device.type) and x.is_floating_point():
            return x.to(own)
        if x.dtype != own:
            raise DtypeError(f"x must be {own}, as the layer is, got {x.dtype}: convert one.")
        return x

    def _explained(self, edge_index: Any, nodes: int, edge_weight: Tensor | None) -> Tensor | None:
        """The edge mask of a PyG explainer as an edge field: it multiplies edges before the normaliser."""
        if not self.explain or self._edge_mask is None:
            return None
        if isinstance(edge_index, Graph):
            raise ArgumentError("an explainer's edge mask needs an edge_index, got a Graph.")
        mask = self._edge_mask.sigmoid() if self._apply_sigmoid else self._edge_mask
        # self-loops that the layer adds are not explained: their factor is 1
        placed = self.graph(edge_index, nodes, edge_weight, (mask - 1).unsqueeze(1)).edge_attr
        assert placed is not None
        return placed.squeeze(1) + 1

    def __repr__(self) -> str:
        shown = f"{self.channels}, T={self.initial_time:g}, {self.variant}, solver={self.solver!r}"
        return f"{type(self).__name__}({shown})"


# outside the compiled program: the number of steps depends on what the tensors hold
_eagerly = torch.compiler.disable(integrate)


def _note_time(layer: GraphDiffusion, keys: Any) -> None:
    """A state that is loaded may have another T."""
    if not layer.time.is_meta:
        layer.initial_time = float(layer.time.detach())
        layer.roomy = layer._make_room()
