"""What rivals that integrate an equation of their own have in common."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from torch import Tensor

from ...equation import Context, Equation, Flow
from ...graph import Graph
from ...options import Bounds, Named
from ...solvers import SOLVERS, Adjoint, Solution, Solver
from ..continuous import Continuous
from ..diffusion import GraphDiffusion


class GraphODE(Continuous):
    """Base of models with an encoder, the integral of an equation from 0 to T, and a decoder.

    Args:
        channels: Width of the state.
        equation: The right-hand side.
        time: Integration time T.
        solver: Scheme by name, or a :class:`~graphdiffusion.solvers.Solver`; auto: dopri5.
        gradient: How gradients are computed.
        adjoint_rtol: Relative tolerance of the adjoint.
        adjoint_atol: Absolute tolerance of the adjoint.
        options: Of the solver.
    """

    takes_sparse = True
    per_member: ClassVar[tuple[str, ...]] = ("time", "dropout")

    def __init__(
        self,
        channels: int,
        equation: Equation,
        *,
        time: Annotated[float, Bounds(0)] = 1.0,
        solver: Annotated[str | Solver, Named(SOLVERS, automatic=("dopri5",))] = "auto",
        gradient: Literal["backprop", "checkpoint", "adjoint"] | Adjoint = "backprop",
        adjoint_rtol: Annotated[float, Bounds(0)] = 1e-4,
        adjoint_atol: Annotated[float, Bounds(0)] = 1e-6,
        **options: Any,
    ) -> None:
        super().__init__()
        self.diffusion = GraphDiffusion(
            channels, time, equation=equation, solver=solver, gradient=gradient,
            adjoint_rtol=adjoint_rtol, adjoint_atol=adjoint_atol, **options,
        )  # fmt: skip

    def integral(
        self, state: Tensor, graph: Graph, matrix: Tensor | None, key: Tensor, check: bool
    ) -> Solution:
        """The equation from a state ``(..., n, d)``, with a fixed matrix ``(..., E)`` where it uses one."""
        layer = self.diffusion
        context = Context(graph, state, state, attention=matrix, key=key)
        return layer.diffuse(Flow(layer.equation, context), state, layer.span, None, check)

    def memory(self, nodes: int, edges: int, entries: int) -> int:
        weights = sum(p.numel() for p in self.parameters())
        return self.diffusion.memory(nodes, edges) + 4 * (3 * entries + 6 * weights + 4 * edges)

    @property
    def evaluations(self) -> int:
        """Evaluations of the right-hand side in a forward pass, roughly."""
        return self.diffusion.solver.held(self.diffusion.initial_time)
