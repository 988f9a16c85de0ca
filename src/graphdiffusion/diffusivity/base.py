"""What a diffusivity is: a function of the features at the two ends of an edge that gives the matrix A."""

from __future__ import annotations

from typing import Any, Literal

from torch import Tensor, nn

from ..graph import Graph
from ..ops import Activation, Over, attention, diffuse, propagate, score, spread
from ..ops.torch.pointwise import activate
from ..registry import Registry
from ..subclasses import Declares
from .normaliser import normalise

Normaliser = Literal["softmax", "squareplus", "signed", "none"]


class Diffusivity(Declares, nn.Module, follows={"forward": ("diffuse",)}):
    r"""Base class: gives the entries :math:`a_{ij}` of A as an edge field.

    Most users start from :class:`Pairwise` (any function of :math:`x_i`, :math:`x_j` and edge attributes)
    or :class:`Bilinear` (:math:`\varphi(\langle q_i, k_j \rangle)`, which runs in one piece on a GPU).

    What holds for the diffusion :math:`\alpha(A - I)x` depends on the normaliser. For rows; for columns
    read sums of absolute values in place of maxima; symmetric see below:

    - ``"softmax"``, ``"squareplus"``: A is stochastic. No value leaves the range of the initial ones
      (equation 3), and the explicit Euler scheme is stable for τα < 1 (theorem 1).
    - ``"signed"``: :math:`\sum_j |a_{ij}| \le 1` with entries of both signs, which may repel. The largest
      absolute value does not grow, and theorem 1 holds in that norm; the range of values may be left.
    - ``"none"``: A as it is. The largest absolute value grows at most like
      :math:`e^{\alpha(\lVert A\rVert - 1)t}`, and no step size is stable where :math:`\lVert A\rVert > 1`.

    Symmetric, each head divides by the roots of both sums, of rows and of columns (with ``"signed"`` of
    absolute values). Then :math:`\lVert A\rVert_2 \le 1`: the Euclidean norm of a channel does not grow,
    and theorem 1 holds in that norm; the range of values may be left.

    Args:
        normaliser: What makes a matrix of the scores: softmax, squareplus, signed (divide by the sum of
            absolute values) or none.
        over: What sums to one: rows, as in the paper, or columns; symmetric: divide by the roots of both
            sums, as GCN does.
        reweight: Multiply by the edge weights of the graph before normalising, so that an edge of weight 2
            counts like two.
    """

    group = "attention"
    members: bool | None = None  # whether it takes leading member dimensions; None: found out on first use
    capturable = False  # whether it never reads from the device, so that a step may be captured
    takes_parts = False  # whether it works on one part of a graph, as terms declare it
    varies = False  # whether A depends on t beside x

    def __init__(
        self,
        *,
        normaliser: Normaliser = "squareplus",
        over: Over = "columns",
        reweight: bool = True,
    ) -> None:
        super().__init__()
        self.normaliser, self.over, self.reweight = normaliser, over, reweight

    def forward(
        self, graph: Graph, x: Tensor, mask: Tensor | None = None, t: Tensor | None = None
    ) -> Tensor:
        """The matrix A(x) as an edge field ``(..., E)``.

        Args:
            mask: Edge field of zeros and ones; an edge with 0 is left out (rewiring, equation 12).
            t: Time; only :class:`~graphdiffusion.diffusivity.TimeVarying` depends on it.
        """
        raise NotImplementedError

    def diffuse(
        self, graph: Graph, x: Tensor, mask: Tensor | None = None, t: Tensor | None = None
    ) -> Tensor:
        """``(A(x) − I) x``, equation (2)."""
        return propagate(graph, self(graph, x, mask, t), x) - x

    @property
    def contracts(self) -> bool:
        """Whether the norm of A is at most 1, so that theorem 1 holds."""
        return self.normaliser != "none"

    def weight(self, graph: Graph, mask: Tensor | None) -> Tensor | None:
        """What multiplies the edges before the normaliser."""
        if not self.reweight or graph.weight is None:
            return mask
        return graph.weight if mask is None else graph.weight * mask

    def memory(self, nodes: int, edges: int, channels: int) -> int:
        """Estimate of what one evaluation keeps for the backward pass, in bytes."""
        return 4 * edges * (4 * channels + 8)

    def extra_repr(self) -> str:
        return f"{self.normaliser} over {self.over}" + (", reweighted" if self.reweight else "")


DIFFUSIVITIES: Registry[Diffusivity] = Registry("diffusivity", "graphdiffusion.diffusivity")


class Pairwise(Diffusivity):
    r"""Base of diffusivities that are any function of the two ends of an edge.

    A subclass gives :meth:`scores`; the normaliser makes a matrix of each head, and the mean of the heads
    is A. The features of both ends lie in memory for every edge, ``(..., E, channels)`` each.
    """

    def scores(self, x_i: Tensor, x_j: Tensor, edge_attr: Tensor | None) -> Tensor:
        """Scores of every head.

        Args:
            x_i: Features at the row of each edge, the node that receives, ``(..., E, channels)``.
            x_j: Features at its column, the node that sends, likewise.
            edge_attr: Attributes of the edges ``(E, k)``, or ``None``.

        Returns:
            ``(..., E, heads)``.
        """
        raise NotImplementedError

    def forward(
        self, graph: Graph, x: Tensor, mask: Tensor | None = None, t: Tensor | None = None
    ) -> Tensor:
        x_i, x_j = (spread(graph, x.mT, over).mT for over in ("rows", "columns"))
        scores = self.scores(x_i, x_j, graph.edge_attr).mT
        return normalise(graph, scores, self.weight(graph, mask), self.normaliser, self.over)


class Bilinear(Diffusivity):
    r"""Base of diffusivities :math:`\varphi(\langle q_i, k_j \rangle)` with features q, k of each head.

    A subclass gives :meth:`features`, and a pointwise φ as ``activation``. The backend computes scores,
    normaliser and product in one piece where it can, without A in memory.
    """

    activation: Activation = "identity"
    members = True

    def features(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """q and k, each ``(..., heads, n, d_k)``, of node features ``(..., n, channels)``."""
        raise NotImplementedError

    def forward(
        self, graph: Graph, x: Tensor, mask: Tensor | None = None, t: Tensor | None = None
    ) -> Tensor:
        q, k = self.features(x)
        weight = self.weight(graph, mask)
        if self._stochastic:
            return attention(graph, q, k, weight, **self._how)
        scores = activate(score(graph, q, k), self.activation)
        return normalise(graph, scores, weight, self.normaliser, self.over)

    def diffuse(
        self, graph: Graph, x: Tensor, mask: Tensor | None = None, t: Tensor | None = None
    ) -> Tensor:
        if not self._stochastic:
            return super().diffuse(graph, x, mask, t)
        q, k = self.features(x)
        return diffuse(graph, q, k, x, self.weight(graph, mask), **self._how)

    @property
    def _stochastic(self) -> bool:
        return self.normaliser in ("softmax", "squareplus")

    @property
    def _how(self) -> dict[str, Any]:
        return {"activation": self.activation, "kind": self.normaliser, "over": self.over}
