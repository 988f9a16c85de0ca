"""The sparse verbs: propagate, score, normalise, and the sums over rows and columns behind them.

All take leading member dimensions: node fields ``(..., n, d)``, edge fields ``(..., E)``. Leading
dimensions broadcast, so one matrix may act on many states and many matrices on one state. All are
differentiable, twice and more, in float32 and float64. With the Triton kernels (CUDA), the state x of
:func:`propagate` and :func:`diffuse` may be bfloat16 beside float32 values, queries and keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from ..errors import ArgumentError, DtypeError, ShapeError
from ..graph import Graph
from . import torch_backend
from .backends import backend, use_backend
from .functions import Combine, GroupSum, Normalise, Propagate, Score, Spread, broadcast, flat
from .fused import Attend, Diffuse
from .torch_backend import activate

Normaliser = Literal["softmax", "squareplus"]
Over = Literal["rows", "columns"]
Activation = Literal["identity", "leaky_relu", "exp"]

__all__ = [
    "Activation",
    "Normaliser",
    "Over",
    "attention",
    "combine",
    "diffuse",
    "group_sum",
    "normalise",
    "propagate",
    "score",
    "spread",
    "use_backend",
]


def propagate(graph: Graph, values: Tensor, x: Tensor, *, transpose: bool = False) -> Tensor:
    r"""Sparse product :math:`y_i = \sum_j a_{ij} x_j` (or with :math:`A^\top`).

    Args:
        values: The entries of A as an edge field ``(..., E)``.
        x: Node field ``(..., n, d)``.
    """
    _check_edge_field(graph, values, "values")
    _check_state(graph, x, values, "values")
    lead = broadcast(values.shape[:-1], x.shape[:-2])
    out = Propagate.apply(graph, flat(values, lead, 1), flat(x, lead, 2), transpose)
    return out.reshape(*lead, *x.shape[-2:])


def score(graph: Graph, q: Tensor, k: Tensor) -> Tensor:
    r"""Sampled product :math:`s_{ij} = \langle q_i, k_j \rangle` on every edge.

    Args:
        q: Node field ``(..., n, d)``, read at the row :math:`i` of an edge.
        k: Node field ``(..., n, d)``, read at its column :math:`j`.

    Returns:
        Edge field ``(..., E)``.
    """
    _check_node_field(graph, q, "q")
    _check_node_field(graph, k, "k")
    _check_same(q, "q", k, "k")
    if q.shape[-1] != k.shape[-1]:
        raise ShapeError(f"q and k must have the same width, got {q.shape[-1]} and {k.shape[-1]}.")
    lead = broadcast(q.shape[:-2], k.shape[:-2])
    return Score.apply(graph, flat(q, lead, 2), flat(k, lead, 2)).reshape(*lead, -1)


def normalise(
    graph: Graph,
    scores: Tensor,
    weight: Tensor | None = None,
    *,
    kind: Normaliser = "softmax",
    over: Over = "rows",
) -> Tensor:
    r"""Stochastic matrix :math:`a_{ij} = w_{ij}\varphi(s_{ij}) / \sum w\,\varphi(s)`.

    Args:
        scores: Edge field ``(..., E)``.
        weight: Non-negative edge field that broadcasts with the scores, or ``None`` for 1 everywhere.
            An edge of weight 2 counts like two parallel edges, one of weight 0 is left out, and its
            gradient is 0. At least one weight of each group must be positive.
        kind: φ is exp (``"softmax"``) or :math:`(s + \sqrt{s^2+4})/2` (``"squareplus"``).
        over: Sum over the edges of each row (the matrix is right-stochastic, as in the paper) or of
            each column (left-stochastic: diffusion then keeps the total mass).
    """
    _check_edge_field(graph, scores, "scores")
    _check_choice(kind, ("softmax", "squareplus"), "kind")
    _check_choice(over, ("rows", "columns"), "over")
    lead = scores.shape[:-1]
    if weight is not None:
        _check_edge_field(graph, weight, "weight")
        lead = broadcast(lead, weight.shape[:-1])
        weight = flat(weight.to(scores.dtype), lead, 1)
    return Normalise.apply(graph, flat(scores, lead, 1), weight, kind, over).reshape(*lead, -1)


def attention(
    graph: Graph,
    q: Tensor,
    k: Tensor,
    weight: Tensor | None = None,
    *,
    activation: Activation = "identity",
    kind: Normaliser = "softmax",
    over: Over = "rows",
) -> Tensor:
    r"""Mean of the heads' stochastic matrices, :math:`A = \frac1h \sum_h A^h` → ``(..., E)``.

    Args:
        q, k: Node fields ``(..., h, n, d_k)``, one for each head.
        weight: As in :func:`normalise`; ``(..., E)``, the same for all heads.
        activation: Pointwise function of the inner products, before the normaliser.
    """
    _check_attention(graph, q, k, weight, activation, kind, over)
    if _fused(q, weight):
        q, k, weight, lead = _flat_heads(q, k, weight, torch.Size())
        return Attend.apply(graph, q, k, weight, activation, kind, over, _learnt(q, k)).reshape(*lead, -1)
    scores = activate(score(graph, q, k), activation)
    weight = weight.unsqueeze(-2) if weight is not None else None
    return normalise(graph, scores, weight, kind=kind, over=over).mean(-2)


def diffuse(
    graph: Graph,
    q: Tensor,
    k: Tensor,
    x: Tensor,
    weight: Tensor | None = None,
    *,
    activation: Activation = "identity",
    kind: Normaliser = "softmax",
    over: Over = "rows",
) -> Tensor:
    r"""The right-hand side of equation (2), :math:`(A - I)x` with A from :func:`attention`."""
    _check_attention(graph, q, k, weight, activation, kind, over)
    _check_state(graph, x, q, "q")
    if _fused(x, weight):
        q, k, weight, lead = _flat_heads(q, k, weight, x.shape[:-2])
        out = Diffuse.apply(graph, q, k, flat(x, lead, 2), weight, activation, kind, over, _learnt(q, k))
        return out.reshape(*lead, *x.shape[-2:])
    values = attention(graph, q, k, weight, activation=activation, kind=kind, over=over)
    return propagate(graph, values, x) - x


def combine(
    coefficients: Sequence[Tensor], states: Sequence[Tensor], start: Tensor | None = None
) -> Tensor:
    r"""Linear combination :math:`x + \sum_k c_k x_k` in one pass.

    Args:
        coefficients: For each state a number for each member, ``(..., 1, 1)``.
        states: Node fields ``(..., n, d)``.
        start: The x to which they are added, or ``None`` for 0.
    """
    fields = states if start is None else (*states, start)
    lead = broadcast(*(x.shape[:-2] for x in fields), *(c.shape[:-2] for c in coefficients))
    c = torch.stack([v.to(states[0].dtype).expand(*lead, 1, 1).reshape(-1) for v in coefficients])
    start = None if start is None else flat(start, lead, 2)
    out = Combine.apply(c, start, *(flat(x, lead, 2) for x in states))
    return out.reshape(*lead, *states[0].shape[-2:])


def group_sum(graph: Graph, values: Tensor, over: Over = "rows") -> Tensor:
    """Sum of an edge field ``(..., E)`` over the edges of each row or column → ``(..., n)``."""
    _check_edge_field(graph, values, "values")
    _check_choice(over, ("rows", "columns"), "over")
    lead = values.shape[:-1]
    return GroupSum.apply(graph, flat(values, lead, 1), over).reshape(*lead, -1)


def spread(graph: Graph, nodes: Tensor, over: Over = "rows") -> Tensor:
    """Each edge takes the value ``(..., n)`` of its row or column → ``(..., E)``."""
    if nodes.dim() < 1 or nodes.shape[-1] != graph.num_nodes:
        raise ShapeError(f"nodes must have shape (..., {graph.num_nodes}), got {tuple(nodes.shape)}.")
    _check_choice(over, ("rows", "columns"), "over")
    lead = nodes.shape[:-1]
    return Spread.apply(graph, flat(nodes, lead, 1), over).reshape(*lead, -1)


def _learnt(*tensors: Tensor) -> bool:
    """Whether a gradient may be computed."""
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


def _fused(tensor: Tensor, weight: Tensor | None) -> bool:
    """Whether the kernels in one piece do it: they have no gradient of the edge weights."""
    return backend(tensor) is not torch_backend and not (weight is not None and _learnt(weight))


def _flat_heads(
    q: Tensor, k: Tensor, weight: Tensor | None, lead: torch.Size
) -> tuple[Tensor, Tensor, Tensor | None, torch.Size]:
    """Broadcast and flatten what leads the heads; a view where it can be, whatever the strides."""
    heads = broadcast(q.shape[:-2], k.shape[:-2])
    lead = broadcast(heads[:-1], lead, weight.shape[:-1] if weight is not None else heads[:-1])
    q, k = q.expand(*heads, *q.shape[-2:]), k.expand(*heads, *k.shape[-2:])
    if weight is not None:
        weight = flat(weight.to(q.dtype), lead, 1)
    return flat(q, lead, 3), flat(k, lead, 3), weight, lead


def _check_attention(
    graph: Graph, q: Tensor, k: Tensor, weight: Tensor | None, activation: str, kind: str, over: str
) -> None:
    for name, field in (("q", q), ("k", k)):
        _check_node_field(graph, field, name)
        if field.dim() < 3:
            raise ShapeError(f"{name} must have shape (..., heads, n, d_k), got {tuple(field.shape)}.")
    _check_same(q, "q", k, "k")
    if q.shape[-1] != k.shape[-1]:
        raise ShapeError(f"q and k must have the same width, got {q.shape[-1]} and {k.shape[-1]}.")
    if weight is not None:
        _check_edge_field(graph, weight, "weight")
    _check_choice(activation, ("identity", "leaky_relu", "exp"), "activation")
    _check_choice(kind, ("softmax", "squareplus"), "kind")
    _check_choice(over, ("rows", "columns"), "over")


def _check_state(graph: Graph, x: Tensor, partner: Tensor, name: str) -> None:
    """x has the dtype of its partner, or is bfloat16 beside float32 where kernels for that exist."""
    if x.dtype != torch.bfloat16:
        _check_node_field(graph, x, "x")
        _check_same(partner, name, x, "x")
        return
    _check_node_field(graph, x, "x", (torch.bfloat16,))
    if partner.dtype != torch.float32:
        raise DtypeError(f"{name} must be float32 beside a bfloat16 x, got {partner.dtype}.")
    if backend(x) is torch_backend:
        raise DtypeError(f"x must be float32 or float64 on {x.device}: bfloat16 needs the Triton kernels.")


def _check_edge_field(graph: Graph, values: Tensor, name: str) -> None:
    if values.dim() < 1 or values.shape[-1] != graph.num_edges:
        raise ShapeError(
            f"{name} must have shape (..., {graph.num_edges}), one value for each edge of {graph}, "
            f"got {tuple(values.shape)}."
        )
    _check_dtype(values, name)


_DTYPES = (torch.float32, torch.float64)


def _check_node_field(
    graph: Graph, x: Tensor, name: str, dtypes: tuple[torch.dtype, ...] = _DTYPES
) -> None:
    if x.dim() < 2 or x.shape[-2] != graph.num_nodes:
        raise ShapeError(
            f"{name} must have shape (..., {graph.num_nodes}, d), one row for each node of {graph}, "
            f"got {tuple(x.shape)}."
        )
    if x.dtype not in dtypes:
        _check_dtype(x, name)


def _check_dtype(tensor: Tensor, name: str) -> None:
    if tensor.dtype not in (torch.float32, torch.float64):
        raise DtypeError(f"{name} must be float32 or float64, got {tensor.dtype}.")


def _check_same(a: Tensor, a_name: str, b: Tensor, b_name: str) -> None:
    if a.dtype != b.dtype:
        raise DtypeError(f"{a_name} and {b_name} must have one dtype, got {a.dtype} and {b.dtype}.")


def _check_choice(value: str, choices: tuple[str, ...], name: str) -> None:
    if value not in choices:
        raise ArgumentError(f"{name} must be one of {', '.join(choices)}, got {value!r}.")
