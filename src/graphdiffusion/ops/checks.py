"""Checks of arguments: shapes, types and choices."""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import ArgumentError, DtypeError, ShapeError
from ..graph import Graph
from ..pattern import Pattern

_DTYPES = (torch.float32, torch.float64)


def check_edge_field(graph: Graph, values: Tensor, name: str) -> None:
    if values.dim() < 1 or values.shape[-1] != graph.num_edges:
        raise ShapeError(
            f"{name} must have shape (..., {graph.num_edges}), one value for each edge of {graph}, "
            f"got {tuple(values.shape)}."
        )
    _check_dtype(values, name)


def check_node_field(
    graph: Pattern, x: Tensor, name: str, dtypes: tuple[torch.dtype, ...] = _DTYPES
) -> None:
    if x.dim() < 2 or x.shape[-2] != graph.cols:
        raise ShapeError(
            f"{name} must have shape (..., {graph.cols}, d), one row for each node of {graph}, "
            f"got {tuple(x.shape)}."
        )
    if x.dtype not in dtypes:
        _check_dtype(x, name)


def check_node_values(graph: Graph, nodes: Tensor) -> None:
    if nodes.dim() < 1 or nodes.shape[-1] != graph.num_nodes:
        raise ShapeError(f"nodes must have shape (..., {graph.num_nodes}), got {tuple(nodes.shape)}.")


def check_state(graph: Graph, x: Tensor, partner: Tensor, name: str) -> None:
    """x has the dtype of its partner, or is bfloat16 beside float32."""
    if x.dtype != torch.bfloat16:
        check_node_field(graph, x, "x")
        _check_same_dtype(partner, name, x, "x")
        return
    check_node_field(graph, x, "x", (torch.bfloat16,))
    if partner.dtype != torch.float32:
        raise DtypeError(f"{name} must be float32 beside a bfloat16 x, got {partner.dtype}.")


def check_pair(graph: Graph, q: Tensor, k: Tensor) -> None:
    check_node_field(graph, q, "q")
    check_node_field(graph, k, "k")
    _check_same_dtype(q, "q", k, "k")
    if q.shape[-1] != k.shape[-1]:
        raise ShapeError(f"q and k must have the same width, got {q.shape[-1]} and {k.shape[-1]}.")


def check_heads(graph: Graph, q: Tensor, k: Tensor, weight: Tensor | None) -> None:
    check_pair(graph, q, k)
    for name, field in (("q", q), ("k", k)):
        if field.dim() < 3:
            raise ShapeError(f"{name} must have shape (..., heads, n, d_k), got {tuple(field.shape)}.")
    if weight is not None:
        check_edge_field(graph, weight, "weight")


def check_choice(value: str, choices: tuple[str, ...], name: str) -> None:
    if value not in choices:
        raise ArgumentError(f"{name} must be one of {', '.join(choices)}, got {value!r}.")


def _check_dtype(tensor: Tensor, name: str) -> None:
    if tensor.dtype not in _DTYPES:
        raise DtypeError(f"{name} must be float32 or float64, got {tensor.dtype}.")


def _check_same_dtype(a: Tensor, a_name: str, b: Tensor, b_name: str) -> None:
    if a.dtype != b.dtype:
        raise DtypeError(f"{a_name} and {b_name} must have one dtype, got {a.dtype} and {b.dtype}.")
