"""The graph neural ordinary differential equation."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import relu, softplus

from ...equation import Context, Equation
from ...graph import Graph
from ...ops.noise import derive
from ...options import Bounds, Named, check_arguments
from ...solvers import SOLVERS, Solver
from ..base import MODELS, Output, checked, drawn_key
from ..modules import Dropout, Features
from .gcn import Convolution, symmetric_weights
from .ode import GraphODE


@MODELS.register("gde")
class GDE(GraphODE):
    r"""Graph neural ordinary differential equation (GDE) with graph convolutions.

    From `"Graph Neural Ordinary Differential Equations" <https://arxiv.org/abs/1911.07532>`_,

    .. math:: \frac{d\mathbf{H}}{dt} = C_2(\operatorname{softplus}(C_1(\mathbf{H}))), \quad
        \mathbf{H}(0) = \operatorname{ReLU}(C_0(\mathbf{X})), \quad \mathbf{Y} = C_3(\mathbf{H}(T)),

    with the convolutions :math:`C_k` of GCN. The three models of the paper's table differ in the scheme
    alone: one step of a scheme of order 2 (``midpoint``) or 4 (``rk4``), or ``dopri5``. The authors' code
    draws the dropout of the field anew at each evaluation; here a mask is the same in the whole integral,
    so that there is an equation to solve.

    Args:
        in_channels: Width of the features.
        out_channels: Number of classes.
        hidden: Channels of the state.
        time: Integration time T.
        solver: Scheme by name, or a :class:`~graphdiffusion.solvers.Solver`; auto: dopri5.
        dropout: Dropout of the input features.
        field_dropout: Dropout before both convolutions of the right-hand side, the same for all times.
        how: Further arguments of :class:`~graphdiffusion.nn.baselines.ode.GraphODE`.
    """

    per_member: ClassVar[tuple[str, ...]] = (*GraphODE.per_member, "field_dropout")

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        hidden: Annotated[int, Bounds(1)] = 64,
        time: Annotated[float, Bounds(0)] = 1.0,
        solver: Annotated[str | Solver, Named(SOLVERS, automatic=("dopri5",))] = "rk4",
        dropout: Annotated[float, Bounds(0, 0.999)] = 0.4,
        field_dropout: Annotated[float, Bounds(0, 0.999)] = 0.9,
        **how: Any,
    ) -> None:
        check_arguments(GDE, locals())
        super().__init__(hidden, ConvolutionField(hidden, field_dropout), time=time, solver=solver, **how)
        self.dropout = Dropout(dropout)
        self.encoder = Convolution(in_channels, hidden)
        self.decoder = Convolution(hidden, out_channels)

    def prepare(self, graph: Graph) -> Tensor:
        return symmetric_weights(graph, self.encoder.bias)

    def run(
        self, x: Features, graph: Graph, *, prepared: Any = None, key: Tensor | None = None,
        check: bool = True, **more: Any,
    ) -> Output:  # fmt: skip
        first = self.encoder.linear.weight
        state: Any = checked(x, first)
        key = drawn_key(state, self.training, first) if key is None else key
        weights = self.prepare(graph) if prepared is None else prepared
        if self.training:
            state = self.dropout(state, derive(key, 0))
        state = relu(self.encoder(state, graph, weights))
        solution = self.integral(state, graph, weights, derive(key, 1), check)
        logits = self.decoder(solution.state, graph, weights)
        return Output(logits, None, solution.stats.evaluations, solution.stats.failures)

    def work(self, nodes: int, edges: int, entries: int) -> float:
        classes, wide = self.decoder.linear.weight.shape
        outside = entries * wide + nodes * wide * classes + edges * (wide + classes)
        return float(outside + self.evaluations * 2 * wide * (nodes * wide + edges))


class ConvolutionField(Equation):
    """Two convolutions with softplus between them, as a right-hand side."""

    members = capturable = takes_parts = True

    def __init__(self, channels: int, dropout: float) -> None:
        super().__init__()
        self.dropout = Dropout(dropout)
        self.layers = nn.ModuleList(Convolution(channels, channels) for _ in range(2))

    def derivative(self, context: Context) -> Tensor:
        state = context.x
        for place, layer in enumerate(self.layers):
            state = softplus(state) if place else state
            if self.training:
                assert context.key is not None
                state = self.dropout(state, derive(context.key, place))
            state = layer(state, context.graph, context.attention)
        return state

    def rate(self, reach: Tensor | float = 0.0) -> Tensor:
        """No diffusion: theorem 1 says nothing about its steps."""
        return torch.zeros(1, 1)

    def stacked(self) -> bool:
        return cast(Convolution, self.layers[0]).bias.dim() > 1

    def memory(self, nodes: int, edges: int, channels: int) -> int:
        return 4 * 10 * nodes * channels  # of each layer: input, softplus, mask, their product, its map
