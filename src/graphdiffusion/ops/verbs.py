"""The sparse verbs on graphs: arguments are checked, leading dimensions broadcast and flattened."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from ..graph import Graph
from ..partition.part import Part
from ..pattern import Pattern
from .attention import Attend
from .autocast import single
from .backends import has_triton
from .checks import (
    check_choice,
    check_edge_field,
    check_heads,
    check_node_field,
    check_node_values,
    check_pair,
    check_state,
)
from .functions import GroupSum, Normalise, Propagate, Score, Spread, broadcast, flat
from .library import places, run
from .pooling import Pool
from .symmetric import Symmetric
from .torch.pointwise import activate

Normaliser = Literal["softmax", "squareplus"]
Side = Literal["rows", "columns"]
Over = Literal["rows", "columns", "symmetric"]
Activation = Literal["identity", "leaky_relu", "exp"]
_KINDS, _SIDES, _OVER, _ACTIVATIONS = map(get_args, (Normaliser, Side, Over, Activation))


def sides(over: Over) -> tuple[Side, ...]:
    """The groups of which a normaliser takes sums: rows, columns or both."""
    return ("rows", "columns") if over == "symmetric" else (over,)


def propagate(graph: Graph, values: Tensor, x: Tensor, *, transpose: bool = False) -> Tensor:
    r"""Sparse product :math:`y_i = \sum_j a_{ij} x_j` (or with :math:`A^\top`).

    Forward mode costs one product for each of values and x that has a tangent.

    Args:
        values: The entries of A as an edge field ``(..., E)``.
        x: Node field ``(..., n, d)``.
    """
    return _product(graph, values, x, transpose, less=False)


def _product(graph: Graph, values: Tensor, x: Tensor, transpose: bool, less: bool) -> Tensor:
    values, x = single(values, x)
    check_edge_field(graph, values, "values")
    check_state(graph, x, values, "values")
    lead = broadcast(values.shape[:-1], x.shape[:-2])
    out = run(Propagate, places(graph), flat(values, lead, 1), flat(x, lead, 2), transpose, less)
    return out.reshape(*lead, *x.shape[-2:])


def score(graph: Graph, q: Tensor, k: Tensor) -> Tensor:
    r"""Sampled product :math:`s_{ij} = \langle q_i, k_j \rangle` on every edge.

    Args:
        q: Node field ``(..., n, d)``, read at the row :math:`i` of an edge.
        k: Node field ``(..., n, d)``, read at its column :math:`j`.

    Returns:
        Edge field ``(..., E)``.
    """
    q, k = single(q, k)
    check_pair(graph, q, k)
    lead = broadcast(q.shape[:-2], k.shape[:-2])
    return run(Score, places(graph), flat(q, lead, 2), flat(k, lead, 2)).reshape(*lead, -1)


def normalise(
    graph: Graph,
    scores: Tensor,
    weight: Tensor | None = None,
    *,
    kind: Normaliser = "softmax",
    over: Over = "rows",
) -> Tensor:
    r"""Stochastic matrix :math:`a_{ij} = w_{ij}\varphi(s_{ij}) / \sum w\,\varphi(s)`.

    The symmetric one is :math:`w_{ij}\varphi(s_{ij}) / \sqrt{r_i c_j}` with the sums r of rows and c of
    columns. Its 2-norm is at most 1, but neither rows nor columns sum to one.

    Args:
        scores: Edge field ``(..., E)``.
        weight: Non-negative edge field that broadcasts with the scores, or ``None`` for 1 everywhere.
            An edge of weight 2 counts like two parallel edges, one of weight 0 is left out, and its
            gradient is 0. At least one weight of each group must be positive.
        kind: φ is exp (``"softmax"``) or :math:`(s + \sqrt{s^2+4})/2` (``"squareplus"``).
        over: Sum over the edges of each row (the matrix is right-stochastic, as in the paper) or of
            each column (left-stochastic: diffusion then keeps the total mass), or both (symmetric).
    """
    scores, weight = single(scores, weight)
    check_edge_field(graph, scores, "scores")
    check_choice(kind, _KINDS, "kind")
    check_choice(over, _OVER, "over")
    lead = scores.shape[:-1]
    if weight is not None:
        check_edge_field(graph, weight, "weight")
        lead = broadcast(lead, weight.shape[:-1])
        weight = flat(weight.to(scores.dtype), lead, 1)
    given = (places(graph), flat(scores, lead, 1), weight, kind)
    found = run(Symmetric, *given) if over == "symmetric" else run(Normalise, *given, over)
    return found.reshape(*lead, -1)


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
    r"""Mean of the heads' normalised matrices, :math:`A = \frac1h \sum_h A^h` → ``(..., E)``.

    Forward mode costs one score of all heads for each of q and k that has a tangent, and with the Triton
    kernels one more, for the scores themselves, which they do not keep.

    Args:
        q, k: Node fields ``(..., h, n, d_k)``, one for each head.
        weight: As in :func:`normalise`; ``(..., E)``, the same for all heads.
        activation: Pointwise function of the inner products, before the normaliser.
    """
    q, k, weight = single(q, k, weight)
    check_heads(graph, q, k, weight)
    check_choice(activation, _ACTIVATIONS, "activation")
    check_choice(kind, _KINDS, "kind")
    check_choice(over, _OVER, "over")
    # the kernels of the attention in one piece normalise one side, have no gradient of the edge weights,
    # and read no other part of the graph
    whole = not isinstance(graph, Part)
    if has_triton(q) and whole and over != "symmetric" and not (weight is not None and _learnt(weight)):
        q, k, weight, lead = _flat_heads(q, k, weight)
        return run(Attend, places(graph), q, k, weight, activation, kind, over, _learnt(q, k))[0].reshape(
            *lead, -1
        )
    q, k = q.contiguous(), k.contiguous()  # once, for the product and for its gradient
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
    r"""The right-hand side of equation (2), :math:`(A - I)x` with A from :func:`attention`.

    Forward mode costs that of :func:`attention` and :func:`propagate`.
    """
    q, k, x, weight = single(q, k, x, weight)
    check_state(graph, x, q, "q")
    values = attention(graph, q, k, weight, activation=activation, kind=kind, over=over)
    if has_triton(x):  # the kernel subtracts x before it writes
        return _product(graph, values, x, transpose=False, less=True)
    return propagate(graph, values, x) - x


def pool(graph: Pattern, x: Tensor) -> Tensor:
    r"""Largest entries :math:`y_i = \max_j x_j` over the edges of each row, channel by channel.

    Where several neighbours have the largest entry, the derivative is split evenly among them, as by
    ``torch.amax`` and by PyG without torch-scatter.

    Args:
        graph: The graph, or ``graph.neighbours``, where no node is its own neighbour. An empty row gives 0.
        x: Node field ``(..., n, d)``.
    """
    (x,) = single(x)
    check_node_field(graph, x, "x")
    out = run(Pool, places(graph), flat(x, x.shape[:-2], 2))
    return out.reshape(*x.shape[:-2], *out.shape[-2:])


def group_sum(graph: Graph, values: Tensor, over: Side = "rows") -> Tensor:
    """Sum of an edge field ``(..., E)`` over the edges of each row or column → ``(..., n)``."""
    (values,) = single(values)
    check_edge_field(graph, values, "values")
    check_choice(over, _SIDES, "over")
    lead = values.shape[:-1]
    return run(GroupSum, places(graph), flat(values, lead, 1), over).reshape(*lead, -1)


def spread(graph: Graph, nodes: Tensor, over: Side = "rows") -> Tensor:
    """Each edge takes the value ``(..., n)`` of its row or column → ``(..., E)``."""
    (nodes,) = single(nodes)
    check_node_values(graph, nodes)
    check_choice(over, _SIDES, "over")
    lead = nodes.shape[:-1]
    return run(Spread, places(graph), flat(nodes, lead, 1), over).reshape(*lead, -1)


def _learnt(*tensors: Tensor) -> bool:
    """Whether a gradient may be computed. Under ``torch.func`` a tensor does not always know."""
    if not torch.is_grad_enabled():
        return False
    return torch._C._are_functorch_transforms_active() or any(tensor.requires_grad for tensor in tensors)


def _flat_heads(
    q: Tensor, k: Tensor, weight: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None, torch.Size]:
    """Broadcast and flatten the dimensions before the heads; a view where it can be, for all strides."""
    heads = broadcast(q.shape[:-2], k.shape[:-2])
    lead = heads[:-1] if weight is None else broadcast(heads[:-1], weight.shape[:-1])
    q, k = q.expand(*heads, *q.shape[-2:]), k.expand(*heads, *k.shape[-2:])
    if weight is not None:
        weight = flat(weight.to(q.dtype), lead, 1)
    return flat(q, lead, 3), flat(k, lead, 3), weight, lead
