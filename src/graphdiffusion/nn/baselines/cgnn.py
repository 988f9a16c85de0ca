"""The continuous graph neural network."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import relu

from ...equation import Context, Equation
from ...errors import ShapeError
from ...graph import Graph
from ...ops import normalise, propagate
from ...ops.noise import derive
from ...options import Bounds, check_arguments
from ..base import MODELS, Output, checked, drawn_key
from ..modules import Dropout, Features, Linear
from .ode import GraphODE

ORTHOGONAL = 0.5  # β of U ← (1 + β)U − βUUᵀU, which the authors take after every update


@MODELS.register("cgnn")
class CGNN(GraphODE):
    r"""Continuous graph neural network (CGNN).

    From `"Continuous Graph Neural Networks" <https://arxiv.org/abs/1912.00967>`_, without and with weights,

    .. math:: \frac{d\mathbf{H}}{dt} = \tfrac12 \boldsymbol\alpha (\hat{\mathbf{A}} - \mathbf{I}) \mathbf{H}
        + \mathbf{E} \quad\text{and}\quad \ldots + \mathbf{H}(\mathbf{W} - \mathbf{I}), \quad
        \mathbf{W} = \mathbf{U} \operatorname{diag}(\mathbf{m}) \mathbf{U}^\top,

    from :math:`\mathbf{H}(0) = \mathbf{E}`, a linear map of the features. :math:`\hat{\mathbf{A}}` is the
    symmetric normaliser, α a number in (0, 1) for each node, :math:`\mathbf{m}` is clamped to [0, 1], and U
    is brought towards an orthogonal matrix after every update.

    This is the equation of the `authors' code <https://github.com/DeepGraphLearning/ContinuousGNN>`_, which
    the figures in the tables of GRAND's paper come from. As there, no gradient goes through the source E.
    The zero channels that the code adds are left out: U starts as the identity, so that they stay zero and
    have no gradient.

    Args:
        in_channels: Width of the features.
        out_channels: Number of classes.
        num_nodes: Nodes of the graph, each with an α of its own: such a model fits no graph of another
            size. ``None``: one α for all.
        hidden: Channels of the state.
        weights: Mix the channels by W.
        alpha: Start of α, which is learnt in (0, 1).
        time: Integration time T.
        input_dropout: Dropout of the input features.
        dropout: Dropout before the decoder.
        how: Further arguments of :class:`~graphdiffusion.nn.baselines.ode.GraphODE`.
    """

    per_member: ClassVar[tuple[str, ...]] = (*GraphODE.per_member, "alpha", "input_dropout")

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        num_nodes: int | None = None,
        hidden: Annotated[int, Bounds(1)] = 16,
        weights: bool = False,
        alpha: Annotated[float, Bounds(0, 0.999, above=True)] = 0.715,
        time: Annotated[float, Bounds(0)] = 12.1,
        input_dropout: Annotated[float, Bounds(0, 0.999)] = 0.5,
        dropout: Annotated[float, Bounds(0, 0.999)] = 0.0,
        **how: Any,
    ) -> None:
        check_arguments(CGNN, locals())
        super().__init__(hidden, Propagation(hidden, num_nodes, weights, alpha), time=time, **how)
        self.input_dropout, self.dropout = Dropout(input_dropout), Dropout(dropout)
        self.encoder, self.decoder = Linear(in_channels, hidden), Linear(hidden, out_channels)

    @property
    def equation(self) -> Propagation:
        return cast(Propagation, self.diffusion.equation)

    def prepare(self, graph: Graph) -> Tensor:
        zeros = torch.zeros(graph.num_edges, dtype=self.encoder.weight.dtype, device=graph.device)
        return normalise(graph, zeros, graph.weight, over="symmetric")

    def after_step(self, parameters: Mapping[str, Tensor]) -> None:
        basis = parameters.get("diffusion.equation.basis")
        if basis is not None:
            basis.copy_((1 + ORTHOGONAL) * basis - ORTHOGONAL * basis @ (basis.mT @ basis))

    def run(
        self, x: Features, graph: Graph, *, prepared: Any = None, key: Tensor | None = None,
        check: bool = True, **more: Any,
    ) -> Output:  # fmt: skip
        state: Any = checked(x, self.encoder.weight)
        known = self.equation.alpha.shape[-2]
        if known not in (1, graph.num_nodes):
            raise ShapeError(
                f"the model has an α for each of {known} nodes, and the graph has {graph.num_nodes}: CGNN "
                "fits only the graph that it was trained on."
            )
        key = drawn_key(state, self.training, self.encoder.weight) if key is None else key
        matrix = self.prepare(graph) if prepared is None else prepared
        if self.training:
            state = self.input_dropout(state, derive(key, 0))
        solution = self.integral(self.encoder(state), graph, matrix, key, check)
        state = relu(solution.state)
        if self.training:
            state = self.dropout(state, derive(key, 1))
        return Output(self.decoder(state), None, solution.stats.evaluations, solution.stats.failures)

    def work(self, nodes: int, edges: int, entries: int) -> float:
        classes, wide = self.decoder.weight.shape
        mixing = 0 if self.equation.basis is None else nodes * wide * wide
        return float(entries * wide + nodes * wide * classes + self.evaluations * (edges * wide + mixing))


class Propagation(Equation):
    """The equation of CGNN."""

    members = capturable = True

    def __init__(self, channels: int, nodes: int | None, weights: bool, alpha: float) -> None:
        super().__init__()
        self.start = math.log(alpha / (1 - alpha))
        self.alpha = nn.Parameter(torch.empty(nodes or 1, 1))  # before the sigmoid
        self.basis = nn.Parameter(torch.empty(channels, channels)) if weights else None  # U
        self.scales = nn.Parameter(torch.empty(channels)) if weights else None  # m
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.constant_(self.alpha, self.start)
        if self.basis is not None and self.scales is not None:
            nn.init.eye_(self.basis)
            nn.init.ones_(self.scales)

    def derivative(self, context: Context) -> Tensor:
        x, matrix = context.x, context.attention
        assert matrix is not None
        change = torch.sigmoid(self.alpha) / 2 * (propagate(context.graph, matrix, x) - x)
        change = change + context.x0.detach()
        if self.basis is None or self.scales is None:
            return change
        mixing = (self.basis * self.scales.clamp(0, 1).unsqueeze(-2)) @ self.basis.mT
        return change + x @ mixing - x

    def rate(self, reach: Tensor | float = 0.0) -> Tensor:
        """½α for diffusion, and ½ for W − I, which has its spectrum in [−1, 0]."""
        largest = torch.sigmoid(self.alpha.detach().double() + reach).amax(-2, keepdim=True)
        return largest / 2 if self.basis is None else (largest + 1) / 2

    def learns_rate(self) -> bool:
        return True

    def stacked(self) -> bool:
        return self.alpha.dim() > 2

    def memory(self, nodes: int, edges: int, channels: int) -> int:
        mixing = 0 if self.basis is None else 4 * channels**2
        return 4 * (nodes * (channels + 2) + mixing)  # the change before α, and W
