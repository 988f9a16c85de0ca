r"""Differential operators on a graph (section 3.1 of the paper).

Node fields are ``(..., n, d)``, edge fields ``(..., E, d)``. An edge field lives on the directed edges
of an undirected graph and is *alternating*, :math:`X_{ji} = -X_{ij}`; gradients are. Self-loops have
gradient zero and count for nothing.

The paper calls gradient and divergence adjoint; with its own definitions they are so up to a sign,
:math:`\langle\!\langle \nabla x, X \rangle\!\rangle = -\langle x, \operatorname{div} X \rangle`, as in
the continuous case. The sign of the diffusion equation is the paper's.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .errors import GraphError, ShapeError
from .graph import Graph
from .ops import group_sum, spread


def gradient(graph: Graph, x: Tensor) -> Tensor:
    r""":math:`(\nabla x)_{ij} = x_j - x_i`: ``(..., n, d)`` → ``(..., E, d)``."""
    channels = x.mT
    return (spread(graph, channels, "columns") - spread(graph, channels, "rows")).mT


def divergence(graph: Graph, field: Tensor) -> Tensor:
    r""":math:`(\operatorname{div} X)_i = \sum_j w_{ij} X_{ij}`: ``(..., E, d)`` → ``(..., n, d)``."""
    if field.dim() < 2 or field.shape[-2] != graph.num_edges:
        raise ShapeError(
            f"an edge field must have shape (..., {graph.num_edges}, d), got {tuple(field.shape)}."
        )
    return group_sum(graph, field.mT * _weight(graph, field), "rows").mT


def laplacian(graph: Graph, x: Tensor) -> Tensor:
    r""":math:`\Delta x = \operatorname{div} \nabla x`: :math:`(\Delta x)_i = \sum_j w_{ij}(x_j - x_i)`."""
    return divergence(graph, gradient(graph, x))


def inner_nodes(x: Tensor, y: Tensor) -> Tensor:
    r""":math:`\langle x, y \rangle = \sum_i x_i y_i`, summed over nodes and channels → ``(...)``."""
    return (x * y).sum((-2, -1))


def inner_edges(graph: Graph, a: Tensor, b: Tensor) -> Tensor:
    r""":math:`\langle\!\langle X, Y \rangle\!\rangle = \sum_{i>j} w_{ij} X_{ij} Y_{ij}` → ``(...)``."""
    if not graph.is_symmetric:
        raise GraphError(
            "the inner product of edge fields needs an undirected graph: "
            "give every edge in both directions, with the same weight."
        )
    once = (graph.row > graph.col).to(a.dtype) * _weight(graph, a)
    return torch.einsum("...ed,...ed,e->...", a, b, once)


def dirichlet_energy(graph: Graph, x: Tensor) -> Tensor:
    r""":math:`\tfrac12 \langle\!\langle \nabla x, \nabla x \rangle\!\rangle` → ``(...)``.

    Its negative gradient is the Laplacian: diffusion descends it.
    """
    slope = gradient(graph, x)
    return inner_edges(graph, slope, slope) / 2


def _weight(graph: Graph, like: Tensor) -> Tensor:
    if graph.weight is None:
        return like.new_ones(graph.num_edges)
    return graph.weight.to(like.dtype)
