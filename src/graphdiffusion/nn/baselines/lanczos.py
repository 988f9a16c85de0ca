"""Lanczos' algorithm, and the layer of the two nets that are built on it."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import relu

from ...errors import ArgumentError
from ...graph import Graph
from ...ops import propagate
from ...options import split_names
from ..modules import Features, Linear

LARGEST = 1000  # of the scales


def lanczos(product: Callable[[Tensor], Tensor], starts: Tensor) -> tuple[Tensor, Tensor]:
    r"""Q with orthonormal columns ``(..., n, K)`` and a tridiagonal T with :math:`Q^\top S Q = T`.

    Every vector is made orthogonal to all earlier ones, twice. Where the space of a start is exhausted
    (breakdown), the next start takes its place and β is 0: T is then made of blocks. K vectors are found
    whatever S is, without a look at the device, and K = n gives S itself.

    Args:
        product: :math:`q \mapsto S q` for ``(..., n, 1)``, S symmetric with a norm of at most 1.
        starts: ``(n, K)``, of full rank, with K ≤ n.
    """
    # the rounding of a residual over the smallest β so far; the gradient of a direction grows like 1/β
    tolerance = math.sqrt(torch.finfo(starts.dtype).eps)
    basis = _unit(starts[:, :1])
    diagonal, beside = [], []
    for k in range(starts.shape[-1]):
        q = basis[..., -1:]
        z = product(q)
        diagonal.append((q * z).sum(-2))
        if k + 1 < starts.shape[-1]:
            z = _orthogonal(z, basis)
            length = torch.linalg.vector_norm(z, dim=-2, keepdim=True)
            broken = length <= tolerance
            z = torch.where(broken, _orthogonal(starts[:, k + 1 : k + 2], basis), z)
            beside.append(torch.where(broken, 0.0, length)[..., 0])
            basis = torch.cat([basis.expand(*z.shape[:-1], -1), _unit(z)], -1)
    matrix = torch.diag_embed(torch.cat(diagonal, -1))
    if beside:
        edge = torch.cat(beside, -1)
        matrix = matrix + torch.diag_embed(edge, 1) + torch.diag_embed(edge, -1)
    return basis, matrix


def _orthogonal(z: Tensor, basis: Tensor) -> Tensor:
    for _ in range(2):
        z = z - basis @ (basis.mT @ z)
    return z


def _unit(z: Tensor) -> Tensor:
    return z / torch.linalg.vector_norm(z, dim=-2, keepdim=True)


def starting_vectors(graph: Graph, steps: int, dtype: torch.dtype) -> Tensor:
    """``(n, K)`` normal numbers, the same at all times; K is at most n."""
    generator = torch.Generator().manual_seed(0)
    size = (graph.num_nodes, min(steps, graph.num_nodes))
    return torch.randn(*size, generator=generator, dtype=torch.float64).to(graph.device, dtype)


def symmetric_product(graph: Graph, values: Tensor) -> Callable[[Tensor], Tensor]:
    """:math:`x \\mapsto (S + S^\\top) x / 2`, which is S x on an undirected graph."""
    if graph.is_symmetric:
        return lambda x: propagate(graph, values, x)
    return lambda x: (propagate(graph, values, x) + propagate(graph, values, x, transpose=True)) / 2


class MultiScale(nn.Module):
    """One layer: powers of S, and filters on a basis. The maps of all scales come first, as one product.

    Args:
        short: Powers of S.
        count: Number of filters.
    """

    def __init__(self, in_channels: int, out_channels: int, short: tuple[int, ...], count: int) -> None:
        super().__init__()
        self.short, self.count = short, count
        self.linear = Linear(in_channels, (len(short) + count) * out_channels, bias=False)
        self.bias = nn.Parameter(torch.empty(out_channels))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        # Glorot's, for the map that the paper writes: from all scales side by side
        inputs = (len(self.short) + self.count) * self.linear.weight.shape[-1]
        bound = math.sqrt(6 / (inputs + self.bias.shape[-1]))
        nn.init.uniform_(self.linear.weight, -bound, bound)
        nn.init.zeros_(self.bias)

    def forward(self, x: Features, graph: Graph, values: Tensor, basis: Tensor, filters: Tensor) -> Tensor:
        """``(..., n, out)`` from S ``(..., E)``, a basis ``(..., n, K)`` and filters ``(..., N, K, K)``."""
        mapped, wide = self.linear(x), self.bias.shape[-1]
        parts = dict(zip(self.short, mapped.split(wide, -1), strict=False))
        state = parts[self.short[-1]]
        for power in range(self.short[-1] - 1, -1, -1):  # Horner's scheme
            state = propagate(graph, values, state)
            state = state + parts[power] if power in parts else state
        seen = basis.mT @ mapped[..., len(self.short) * wide :]
        seen = (filters @ seen.unflatten(-1, (self.count, wide)).transpose(-2, -3)).sum(-3)
        return state + basis @ seen + self.bias.unsqueeze(-2)


class Perceptron(nn.Module):
    """One hidden layer with ReLU."""

    def __init__(self, in_channels: int, hidden: int, out_channels: int) -> None:
        super().__init__()
        self.first, self.second = Linear(in_channels, hidden), Linear(hidden, out_channels)

    def forward(self, x: Features) -> Tensor:
        return self.second(relu(self.first(x)))


def scales(text: str, name: str) -> tuple[int, ...]:
    """Different whole numbers, with commas between them, in order."""
    given = split_names(text)
    found = {int(part) for part in given if part.isdecimal() and len(part) <= 4}
    if not found or len(found) < len(given) or max(found) > LARGEST:
        raise ArgumentError(
            f"{name} must be different whole numbers from 0 to {LARGEST} with commas between them, got "
            f"{text!r}."
        )
    return tuple(sorted(found))
