"""Ordinary differential equations on graph networks."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import elu, relu

from ...equation import Context, Equation
from ...errors import ArgumentError
from ...graph import Graph
from ...ops import propagate
from ...ops.noise import derive
from ...options import Bounds, check_arguments
from ..base import MODELS, Output, checked, drawn_key
from ..modules import Dropout, Features, Linear
from .gat import Attention
from .gcn import Convolution, symmetric_weights
from .ode import GraphODE

Kind = Literal["gcn", "gat", "chebyshev"]
Coupling = Literal["additive", "linear-sigmoid"]


@MODELS.register("gode")
class GODE(GraphODE):
    r"""Graph ordinary differential equation (GODE) with bijective blocks.

    From `"Ordinary differential equations on graph networks"
    <https://openreview.net/forum?id=SJg9z6VFDr>`_, with the state cut into two halves,

    .. math:: \frac{d}{dt} \begin{pmatrix} \mathbf{Z}_1 \\ \mathbf{Z}_2 \end{pmatrix} =
        \begin{pmatrix} \mathbf{Y}_1 \\ \mathbf{Y}_2 \end{pmatrix}, \quad
        \mathbf{Y}_2 = \psi(\mathbf{Z}_2, F(\mathbf{Z}_1)), \quad
        \mathbf{Y}_1 = \psi(\mathbf{Z}_1, G(\mathbf{Y}_2)),

    where F and G are layers of GCN, GAT or ChebNet, and ψ(α, β) is α + β or α sigmoid(β): the six models of
    the paper's table. An initial and a final layer of the same kind are the encoder and the decoder. All
    but the first layer begin with ReLU, for GAT with ELU. ChebNet's polynomials are those of
    :math:`-\hat{\mathbf{D}}^{-1/2} \hat{\mathbf{A}} \hat{\mathbf{D}}^{-1/2}`, with the self-loops that the
    graph is given.

    Args:
        in_channels: Width of the features.
        out_channels: Number of classes.
        hidden: Channels of the state, an even number.
        convolution: Layers of GCN, GAT or ChebNet.
        coupling: The function ψ.
        heads: Attention heads of GAT; the channels of a half are shared out among them.
        hops: Degree of the polynomials of ChebNet.
        dropout: Dropout before encoder and decoder, for GAT also of their attention.
        field_dropout: Likewise inside the right-hand side; a mask is the same for all times.
        how: Further arguments of :class:`~graphdiffusion.nn.baselines.ode.GraphODE`.
    """

    per_member: ClassVar[tuple[str, ...]] = (*GraphODE.per_member, "field_dropout")

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        hidden: Annotated[int, Bounds(2)] = 64,
        convolution: Kind = "gcn",
        coupling: Coupling = "additive",
        heads: Annotated[int, Bounds(1)] = 8,
        hops: Annotated[int, Bounds(1, 100)] = 3,
        dropout: Annotated[float, Bounds(0, 0.999)] = 0.5,
        field_dropout: Annotated[float, Bounds(0, 0.999)] = 0.0,
        **how: Any,
    ) -> None:
        check_arguments(GODE, locals())
        parts = 2 * heads if convolution == "gat" else 2
        if hidden % parts:
            raise ArgumentError(
                f"hidden must be a multiple of {parts}, two halves{' of all heads' * (parts > 2)}, got "
                f"{hidden}."
            )
        more: dict[str, Any] = {"heads": heads, "hops": hops}
        first, second = (Layer(convolution, hidden // 2, hidden // 2, field_dropout, **more) for _ in "FG")
        super().__init__(hidden, Bijective(first, second, coupling), **how)
        self.encoder = Layer(convolution, in_channels, hidden, dropout, **more)
        self.decoder = Layer(convolution, hidden, out_channels, dropout, **more | {"heads": 1})

    def prepare(self, graph: Graph) -> Tensor:
        return symmetric_weights(graph, self.encoder.map.bias)

    def run(
        self, x: Features, graph: Graph, *, prepared: Any = None, key: Tensor | None = None,
        check: bool = True, **more: Any,
    ) -> Output:  # fmt: skip
        first = self.encoder.map.linear.weight
        state: Any = checked(x, first)
        key = drawn_key(state, self.training, first) if key is None else key
        matrix = self.prepare(graph) if prepared is None else prepared
        state = self.encoder(state, graph, matrix, derive(key, 0))
        solution = self.integral(state, graph, matrix, derive(key, 1), check)
        logits = self.decoder(solution.state, graph, matrix, derive(key, 2), activate=True)
        return Output(logits, None, solution.stats.evaluations, solution.stats.failures)

    def memory(self, nodes: int, edges: int, entries: int) -> int:
        outside = (self.encoder.memory(nodes, edges), self.decoder.memory(nodes, edges))
        return super().memory(nodes, edges, entries) + sum(outside)

    def work(self, nodes: int, edges: int, entries: int) -> float:
        field, wide = cast(Bijective, self.diffusion.equation), self.diffusion.channels
        outside = self.encoder.work(entries, edges) + self.decoder.work(nodes * wide, edges)
        inside = sum(layer.work(nodes * wide // 2, edges) for layer in (field.first, field.second))
        return float(outside + self.evaluations * inside)


class Bijective(Equation):
    """Equation 11 of the paper as a right-hand side."""

    members = capturable = takes_parts = True

    def __init__(self, first: Layer, second: Layer, coupling: Coupling) -> None:
        super().__init__()
        self.first, self.second, self.coupling = first, second, coupling  # F, G and ψ

    def derivative(self, context: Context) -> Tensor:
        assert context.attention is not None and context.key is not None
        graph, matrix = context.graph, context.attention
        first, second = context.x.chunk(2, -1)
        second = self._coupled(second, self.first(first, graph, matrix, derive(context.key, 0), True))
        first = self._coupled(first, self.second(second, graph, matrix, derive(context.key, 1), True))
        return torch.cat([first, second], -1)

    def _coupled(self, a: Tensor, b: Tensor) -> Tensor:
        return a + b if self.coupling == "additive" else a * torch.sigmoid(b)

    def rate(self, reach: Tensor | float = 0.0) -> Tensor:
        """No diffusion: theorem 1 says nothing about its steps."""
        return torch.zeros(1, 1)

    def stacked(self) -> bool:
        return self.first.map.bias.dim() > 1

    def memory(self, nodes: int, edges: int, channels: int) -> int:
        own = 0 if self.coupling == "additive" else 8 * nodes * channels
        return own + self.first.memory(nodes, edges) + self.second.memory(nodes, edges)


class Layer(nn.Module):
    """Activation, dropout, and the convolution of GCN, GAT or ChebNet."""

    def __init__(
        self, kind: Kind, in_channels: int, out_channels: int, dropout: float, *, heads: int, hops: int
    ) -> None:
        super().__init__()
        self.kind, self.heads = kind, heads
        # attention drops its inputs itself
        self.dropout = None if kind == "gat" else Dropout(dropout)
        if kind == "gat":
            self.map: Any = Attention(in_channels, out_channels // heads, heads, dropout)
        elif kind == "chebyshev":
            self.map = Chebyshev(in_channels, out_channels, hops)
        else:
            self.map = Convolution(in_channels, out_channels)

    def forward(
        self, x: Features, graph: Graph, matrix: Tensor, key: Tensor, activate: bool = False
    ) -> Tensor:
        if activate:
            x = elu(x) if self.kind == "gat" else relu(x)  # type: ignore[arg-type]
        if self.dropout is None:
            return self.map(x, graph, key)
        return self.map(self.dropout(x, key) if self.training else x, graph, matrix)

    def work(self, entries: int, edges: int) -> int:
        """Multiplications for an input of so many entries."""
        wide = self.map.linear.weight.shape[-2]
        # softmax and dropout cost as much as some tens of multiplications an edge and head
        return entries * wide + edges * (3 * wide + 64 * self.heads if self.kind == "gat" else wide)

    def memory(self, nodes: int, edges: int) -> int:
        wide = self.map.linear.weight.shape[-2]
        return 4 * 6 * nodes * wide + (24 * edges * self.heads if self.kind == "gat" else 0)


class Chebyshev(nn.Module):
    r"""One layer of ChebNet, :math:`\sum_k T_k(-\mathbf{S}) \mathbf{X} \mathbf{W}_k^\top + \mathbf{b}`.

    The maps come first, as one product, and the polynomials are summed by Clenshaw's recurrence.
    """

    def __init__(self, in_channels: int, out_channels: int, hops: int) -> None:
        super().__init__()
        self.hops = hops
        self.linear = Linear(in_channels, (hops + 1) * out_channels, bias=False)
        self.bias = nn.Parameter(torch.empty(out_channels))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for weight in self.linear.weight.chunk(self.hops + 1):
            nn.init.xavier_uniform_(weight)
        nn.init.zeros_(self.bias)

    def forward(self, x: Features, graph: Graph, matrix: Tensor) -> Tensor:
        zeroth, *terms, last = self.linear(x).chunk(self.hops + 1, -1)
        now, before = last, torch.zeros_like(last)
        for term in reversed(terms):
            now, before = term - 2 * propagate(graph, matrix, now) - before, now
        return zeroth - propagate(graph, matrix, now) - before + self.bias.unsqueeze(-2)
