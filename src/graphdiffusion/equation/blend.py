"""Features and positions that diffuse together."""

from __future__ import annotations

from typing import Annotated, Any

import torch
from torch import Tensor, nn

from ..diffusivity import Diffusivity
from ..errors import ArgumentError
from ..graph import Graph
from ..ops import propagate, spread
from ..options import Bounds
from .context import Context
from .diffusion import Diffusion
from .equation import EQUATIONS
from .mask import attention_mask

EXACT = 20_000  # nodes up to which return probabilities are computed for each node
_COLUMNS = 512  # of the identity at once, and the number of random vectors for larger graphs


@EQUATIONS.register("blend")
class Blend(Diffusion):
    r"""Features and positional encodings that evolve together, of
    `"Beltrami Flow and Neural Diffusion on Graphs" <https://arxiv.org/abs/2110.09443>`_.

    .. math:: \dot z = \alpha\,(A(z) - I)\,z + \sum_m f_m, \quad z = (x, u), \quad u(0) = u_x + E W

    The last channels of the state are positions u. They start from encodings E of the graph, by a learnt
    map W: the probabilities that a random walk is back after 1, 2, … steps, standardised. A is computed
    from features and positions. With ``--augment`` of the same number the positions have channels of their
    own, which are dropped after the diffusion; otherwise E W is added to the last features. All that holds
    for diffusion holds for z: the range of values, theorem 1, the closed form of the linear model.

    ``near`` rewires the graph by distance: of all edges, or of the denser candidates of ``--rewire``, the
    share with the smallest :math:`\lVert u_i - u_j\rVert` at t = 0 is kept, in each member with its own W;
    every node keeps an edge.

    Args:
        diffusivity: Gives the matrix A.
        channels: Width of the state, features and positions.
        positions: Channels of the positions.
        walks: Steps of the random walk, the number of encodings.
        near: Share of the edges kept, by distance of their ends; 0: all.
        more: As in :class:`Diffusion`: ``linear``, ``alpha``, ``terms``, ``rates``, ``rule``.
    """

    def __init__(
        self,
        diffusivity: Diffusivity,
        channels: int,
        *,
        positions: Annotated[int, Bounds(1)] = 8,
        walks: Annotated[int, Bounds(1, 64)] = 8,
        near: Annotated[float, Bounds(0, 1)] = 0.0,
        **more: Any,
    ) -> None:
        super().__init__(diffusivity, **more)
        if positions > channels:
            raise ArgumentError(
                f"{positions} positions do not fit into a state of {channels} channels: give at least as "
                "many with augment, or fewer positions."
            )
        self.positions, self.walks, self.near = positions, walks, near
        self.embed = nn.Parameter(torch.empty(walks, positions))
        self.reset_parameters()

    @property
    def capturable(self) -> bool:  # type: ignore[override]
        return False  # encodings of a new graph are computed on first use

    @property
    def takes_parts(self) -> bool:  # type: ignore[override]
        return False  # encodings follow from the whole graph

    def reset_parameters(self) -> None:
        nn.init.normal_(self.embed, std=self.walks**-0.5)

    def prepare(self, context: Context) -> Context:
        encodings = walk_encodings(context.graph, self.walks).to(context.x0)
        features, rest = context.x0[..., : -self.positions], context.x0[..., -self.positions :]
        positions = rest + encodings @ self.embed
        lead = positions.shape[:-2]
        x0 = torch.cat([features.expand(*lead, *features.shape[-2:]), positions], -1)
        context = context.at(x0=x0, x=x0)
        if self.near:
            with torch.no_grad():
                i, j = (spread(context.graph, positions.mT, over) for over in ("rows", "columns"))
                near = attention_mask(context.graph, -(i - j).square().sum(-2), keep=self.near)
            context = context.at(mask=near if context.mask is None else near * context.mask)
        return super().prepare(context)

    def initial(self, x: Tensor, context: Context) -> Tensor:
        return context.x0  # with its positions


def walk_encodings(graph: Graph, walks: int) -> Tensor:
    """Return probabilities of a random walk after 1, 2, … steps, standardised: ``(n, walks)`` in float64.

    Every edge of a node is as likely as the others. On graphs of more than ``EXACT`` nodes they are
    estimated with random signs (Hutchinson), the same at every call; a column that is mostly noise is 0, as
    is one that is constant.
    """

    def make() -> Tensor:
        count = (graph.rowptr[1:] - graph.rowptr[:-1]).double()
        values = spread(graph, 1 / count, "rows")
        n = graph.num_nodes
        if n > EXACT:
            generator = torch.Generator().manual_seed(0)
            signs = (
                torch.randint(0, 2, (n, _COLUMNS), generator=generator).double().to(count.device) * 2 - 1
            )
            one, other = (2 * _returns(graph, values, s, walks) / _COLUMNS for s in signs.chunk(2, 1))
            found = (one + other) / 2
            # a column that the two halves do not agree on is noise
            common = ((one - one.mean(0)) * (other - other.mean(0))).mean(0)
            found = torch.where(common > 0.1 * found.var(0), found, 0.0)
        else:
            found = count.new_zeros(n, walks)
            for first in range(0, n, _COLUMNS):
                start = count.new_zeros(n, min(_COLUMNS, n - first))
                start[first : first + start.shape[1]].fill_diagonal_(1.0)
                found += _returns(graph, values, start, walks)
        deviation = found.std(0, correction=0)
        return (found - found.mean(0)) / torch.where(deviation < 1e-12, 1.0, deviation)

    with torch.no_grad():
        return graph.once(f"walks-{walks}", make)


def _returns(graph: Graph, values: Tensor, start: Tensor, walks: int) -> Tensor:
    """``Σ_c start ⊙ P^k start`` for k = 1, …, walks: ``(n, walks)``."""
    found, state = [], start
    for _ in range(walks):
        state = propagate(graph, values, state)
        found.append((start * state).sum(1))
    return torch.stack(found, 1)
