"""Which part each node belongs to: few edges between parts, and as many edges in each."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from numbers import Integral

import numpy as np
import torch
from torch import Tensor

from ..errors import ArgumentError
from ..graph import Graph
from ..options import nearest
from .metis import metis
from .neighbours import Array, Neighbours
from .streaming import ldg


def at_random(lists: Neighbours, parts: int, seed: int) -> Array:
    """A random order of the nodes, in pieces with as many edges each: what other cuts are measured by."""
    order = np.random.default_rng(seed).permutation(lists.num_nodes)
    ends = lists.edges[order].cumsum(dtype=np.int64)
    found = np.empty(len(order), dtype=np.int64)
    found[order] = (ends - lists.edges[order]) * parts // max(int(ends[-1]), 1)
    return found


METHODS: dict[str, Callable[[Neighbours, int, int], Array]] = {
    "metis": metis,
    "ldg": ldg,
    "random": at_random,
}


def cut(graph: Graph, parts: int, method: str = "auto", seed: int = 0) -> Tensor:
    """The part of each node, ``(n,)`` int64: few edges between parts, as many edges in each.

    Every part has a node. The same seed gives the same cut.

    Args:
        graph: The whole graph; a directed one is cut as A + Aᵀ.
        parts: Their number, at most the number of nodes.
        method: ``metis``: the fewest edges cut, for graphs that fit in memory; needs the extra ``parts``.
            ``ldg``: a streaming method, which needs no memory for edges. ``random``: nodes in a random
            order. ``auto``: metis where it is installed, otherwise ldg.
        seed: Of the method's random numbers.
    """
    return torch.from_numpy(cut_lists(Neighbours.of(graph), parts, method, seed))


def cut_lists(lists: Neighbours, parts: int, method: str, seed: int) -> Array:
    """:func:`cut` of lists of neighbours."""
    name = chosen(method)
    check_numbers(parts, lists.num_nodes, seed)
    return _filled(METHODS[name](lists, parts, seed), parts)


def chosen(method: str) -> str:
    """The name of a method; that of ``auto`` depends on what is installed."""
    if method == "auto":
        return next(iter(METHODS)) if find_spec("pymetis") else list(METHODS)[1]
    if method not in METHODS:
        known = ", ".join(("auto", *METHODS))
        raise ArgumentError(
            f"there is no method {method!r} of cutting.{nearest(method, METHODS)} Known are {known}."
        )
    return method


def check_numbers(parts: int, nodes: int, seed: int) -> None:
    if not isinstance(parts, Integral) or not 1 <= parts <= nodes:
        raise ArgumentError(
            f"a graph of {nodes} nodes can be cut into 1 to {nodes} parts, each with a node, got {parts!r}."
        )
    if not isinstance(seed, Integral) or seed < 0:
        raise ArgumentError(f"the seed of a cut must be a whole number from 0, got {seed!r}.")


def _filled(found: Array, parts: int) -> Array:
    """The same cut without empty parts: each is given a node of those parts that have most nodes."""
    counts = np.bincount(found, minlength=parts)
    empty = np.flatnonzero(counts == 0)
    if len(empty):
        order = np.argsort(found, kind="stable")
        rank = np.arange(len(found)) - (counts.cumsum() - counts)[found[order]]
        # those of the highest rank: the largest parts shrink to one size, and each keeps its first node
        moved = order[np.argsort(-rank, kind="stable")[: len(empty)]]
        found = found.copy()
        found[moved] = empty
    return found
