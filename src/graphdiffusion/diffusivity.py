r"""Diffusivities :math:`a(x_i, x_j)`: attention that turns node features into a stochastic matrix.

Every one here has the form :math:`a_{ij} = \operatorname{normalise}(\varphi(\langle q_i, k_j \rangle))`
with node features q, k for each head, a pointwise φ, and the mean over heads (section 4 and appendix
B). A diffusivity therefore only says what q and k are.

Parameters broadcast over leading member dimensions: stack them, and the module works on a population.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from . import ops
from .errors import ArgumentError
from .graph import Graph
from .ops.dense import affine, affines


class Diffusivity(nn.Module):
    """Base class.

    Args:
        normaliser: ``"softmax"`` or ``"squareplus"``.
        over: Make ``"rows"`` sum to one, as in the paper, or ``"columns"``.
        reweight: Multiply by the edge weights of the graph before normalising, so that an edge of
            weight 2 counts like two.
    """

    activation: ops.Activation = "identity"
    varies = False  # whether A depends on t beside x

    def __init__(
        self,
        *,
        normaliser: ops.Normaliser = "softmax",
        over: ops.Over = "rows",
        reweight: bool = False,
    ) -> None:
        super().__init__()
        self.normaliser, self.over, self.reweight = normaliser, over, reweight

    def features(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """q and k, each ``(..., heads, n, d_k)``, of node features ``(..., n, channels)``."""
        raise NotImplementedError

    def forward(
        self, graph: Graph, x: Tensor, mask: Tensor | None = None, t: Tensor | None = None
    ) -> Tensor:
        """The matrix A(x) as an edge field ``(..., E)``.

        Args:
            mask: Edge field of zeros and ones; an edge with 0 is left out (rewiring, equation 12).
            t: Time; only :class:`~graphdiffusion.timevarying.TimeVarying` looks at it.
        """
        q, k = self.features(x)
        return ops.attention(graph, q, k, self.weight(graph, mask), **self.how)

    def diffuse(
        self, graph: Graph, x: Tensor, mask: Tensor | None = None, t: Tensor | None = None
    ) -> Tensor:
        """``(A(x) − I) x``, equation (2), without A in memory where the backend can."""
        q, k = self.features(x)
        return ops.diffuse(graph, q, k, x, self.weight(graph, mask), **self.how)

    @property
    def how(self) -> dict[str, Any]:
        return {"activation": self.activation, "kind": self.normaliser, "over": self.over}

    def weight(self, graph: Graph, mask: Tensor | None) -> Tensor | None:
        if not self.reweight or graph.weight is None:
            return mask
        return graph.weight if mask is None else graph.weight * mask

    def extra_repr(self) -> str:
        return f"{self.normaliser} over {self.over}" + (", reweighted" if self.reweight else "")


class Projection(nn.Module):
    """Linear map of node features to every head: ``(..., n, c)`` → ``(..., heads, n, d_k)``.

    The weights start constant, so that training starts from uniform diffusion, a well-conditioned
    system (section 5, implementation details); random biases tell the heads apart.
    """

    def __init__(
        self, channels: int, heads: int, dim: int, constant: float = 1e-5, bias: bool = True
    ) -> None:
        super().__init__()
        self.heads, self.constant = heads, constant
        self.weight = nn.Parameter(torch.empty(heads * dim, channels))
        self.bias = nn.Parameter(torch.empty(heads * dim)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.constant_(self.weight, self.constant)
        if self.bias is not None:
            bound = 1 / math.sqrt(self.weight.shape[-1])
            nn.init.uniform_(self.bias, -bound, bound)

    def forward(self, x: Tensor) -> Tensor:
        return affine(x, self.weight, self.bias).unflatten(-1, (self.heads, -1)).transpose(-2, -3)


def head_width(heads: int, attention_dim: int) -> int:
    """:math:`d_k`, the share of one head."""
    if heads < 1 or attention_dim < heads or attention_dim % heads:
        raise ArgumentError(
            f"attention_dim must be a positive multiple of heads, got attention_dim={attention_dim} "
            f"and heads={heads}."
        )
    return attention_dim // heads


class QueryKey(Diffusivity):
    r"""Base of diffusivities that compare :math:`q_i = W_K x_i` with :math:`k_j = W_Q x_j`.

    Args:
        channels: Width of the node features.
        heads: Number of heads; their matrices are averaged.
        attention_dim: Width of all heads together, a multiple of ``heads``: :math:`h \cdot d_k`.
        constant: Initial value of all entries of the two matrices.
    """

    def __init__(
        self,
        channels: int,
        heads: int = 1,
        attention_dim: int = 16,
        *,
        constant: float = 1e-5,
        **how: Any,
    ) -> None:
        super().__init__(**how)
        self.dim = head_width(heads, attention_dim)
        self.factor = 1.0  # of every inner product
        self.query = Projection(channels, heads, self.dim, constant, bias=self.idle_bias() != "query")
        self.key = Projection(channels, heads, self.dim, constant, bias=self.idle_bias() != "key")

    def idle_bias(self) -> str | None:
        """The projection whose bias would have no effect, if any."""
        return None

    def reset_parameters(self) -> None:
        self.query.reset_parameters()
        self.key.reset_parameters()

    def features(self, x: Tensor) -> tuple[Tensor, Tensor]:
        # the factor stands on the small side of the product
        bias = None if self.query.bias is None else self.query.bias * self.factor
        both = affines(x, [(self.query.weight * self.factor, bias), (self.key.weight, self.key.bias)])
        q, k = (y.unflatten(-1, (self.query.heads, self.dim)).transpose(-2, -3) for y in both)
        return q, k

    def extra_repr(self) -> str:
        return f"heads={self.query.heads}, d_k={self.dim}, {super().extra_repr()}"


class ScaledDotProduct(QueryKey):
    r""":math:`\operatorname{softmax}(\langle W_K x_i, W_Q x_j\rangle / d_k)`, equation (10).

    Args:
        scale: Divide by :math:`d_k` (``"dim"``, as the paper writes) or :math:`\sqrt{d_k}` (``"sqrt"``).
    """

    def __init__(self, *args: Any, scale: Literal["dim", "sqrt"] = "sqrt", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if scale not in ("dim", "sqrt"):
            raise ArgumentError(f"scale must be 'dim' or 'sqrt', got {scale!r}.")
        self.factor = 1 / self.dim if scale == "dim" else 1 / math.sqrt(self.dim)

    def idle_bias(self) -> str | None:
        # ⟨q_i, b⟩ is the same along a row, and softmax does not see what is the same along its group
        if self.normaliser != "softmax":
            return None
        return "key" if self.over == "rows" else "query"


class Cosine(QueryKey):
    r""":math:`\cos(W_K x_i, W_Q x_j)`."""

    def features(self, x: Tensor) -> tuple[Tensor, Tensor]:
        q, k = super().features(x)
        return normalize(q, dim=-1), normalize(k, dim=-1)


class Pearson(QueryKey):
    """Correlation of the entries of ``W_K x_i`` and ``W_Q x_j``: the cosine after centring."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.dim < 3:
            raise ArgumentError(
                f"Pearson correlation needs at least 3 entries a head, got d_k={self.dim} (of 2 entries it "
                "is always 1 or −1): raise attention_dim or lower heads."
            )

    def features(self, x: Tensor) -> tuple[Tensor, Tensor]:
        q, k = super().features(x)
        return (
            normalize(q - q.mean(-1, keepdim=True), dim=-1),
            normalize(k - k.mean(-1, keepdim=True), dim=-1),
        )


class ExponentialKernel(QueryKey):
    r""":math:`\sigma^2 \exp(-\lVert W_K x_i - W_Q x_j \rVert^2 / 2\ell^2)`, σ and ℓ learnt for each head.

    The squared distance is an inner product of features widened by two entries. Both sides are measured
    from their common mean over the nodes, which changes no distance and keeps an offset of the features
    from cancelling.
    """

    activation: ops.Activation = "exp"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.log_amplitude = nn.Parameter(torch.zeros(self.query.heads, 1, 1))
        self.log_length = nn.Parameter(torch.zeros(self.query.heads, 1, 1))

    def reset_parameters(self) -> None:
        super().reset_parameters()
        nn.init.zeros_(self.log_amplitude)
        nn.init.zeros_(self.log_length)

    def features(self, x: Tensor) -> tuple[Tensor, Tensor]:
        q, k = super().features(x)
        # no gradient: moving both sides changes nothing
        centre = (q.detach().mean(-2, keepdim=True) + k.detach().mean(-2, keepdim=True)) / 2
        q, k = (q - centre) * torch.exp(-self.log_length), (k - centre) * torch.exp(-self.log_length)
        one = torch.ones_like(q[..., :1])
        q_norm = 2 * self.log_amplitude - q.square().sum(-1, keepdim=True) / 2
        k_norm = -k.square().sum(-1, keepdim=True) / 2
        return torch.cat([q, q_norm, one], -1), torch.cat([k, one, k_norm], -1)


class Bahdanau(Diffusivity):
    r""":math:`\operatorname{LeakyReLU}(a^\top [W x_i \Vert W x_j])`, the attention of GAT (appendix B).

    Splitting a into its halves, the score is :math:`u_i + v_j`: an inner product of width two.
    """

    activation: ops.Activation = "leaky_relu"

    def __init__(
        self, channels: int, heads: int = 1, attention_dim: int = 16, *, constant: float = 1e-5, **how: Any
    ) -> None:
        super().__init__(**how)
        dim = head_width(heads, attention_dim)
        self.project = Projection(channels, heads, dim, constant, bias=False)
        self.vector = nn.Parameter(torch.empty(heads, dim, 2))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        self.project.reset_parameters()
        nn.init.xavier_uniform_(self.vector)

    def features(self, x: Tensor) -> tuple[Tensor, Tensor]:
        both = self.project(x) @ self.vector
        u, v = both[..., :1], both[..., 1:]
        one = torch.ones_like(u)
        return torch.cat([u, one], -1), torch.cat([one, v], -1)


class ConstantLaplacian(Diffusivity):
    """No attention: each edge gets its weight over the sum of its row (or column)."""

    def __init__(self, *, over: ops.Over = "rows", reweight: bool = True) -> None:
        super().__init__(over=over, reweight=reweight)

    def forward(
        self, graph: Graph, x: Tensor, mask: Tensor | None = None, t: Tensor | None = None
    ) -> Tensor:
        zeros = x.new_zeros(graph.num_edges)
        return ops.normalise(graph, zeros, self.weight(graph, mask), over=self.over)

    def diffuse(
        self, graph: Graph, x: Tensor, mask: Tensor | None = None, t: Tensor | None = None
    ) -> Tensor:
        return ops.propagate(graph, self(graph, x, mask), x) - x
