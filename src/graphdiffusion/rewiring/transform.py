"""The transform: densify with diffusion, sparsify, renormalise."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from scipy import sparse
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.transforms import BaseTransform

from ..errors import ArgumentError, DtypeError, GraphError
from . import cache as store
from . import exact, push
from .sparsify import sparsify
from .transition import Normalisation, adjacency, transition

EXACT_UP_TO = 5000  # nodes: a dense float64 matrix of 200 MB, solved in seconds


@dataclass(frozen=True, kw_only=True)
class Rewire(BaseTransform):
    r"""Replace the edges of a graph by the strongest ones of a diffusion (section 4 of the paper).

    After `Diffusion Improves Graph Learning <https://arxiv.org/abs/1911.05485>`_ (GDC): self-loops are
    added, weights become a transition matrix T (``normalise_in``), which is densified to

    .. math:: S = \alpha (I - (1-\alpha) T)^{-1} \quad\text{(ppr)} \qquad\text{or}\qquad
              S = e^{-t(I - T)} \quad\text{(heat)},

    sparsified by one of three rules, and normalised again (``normalise_out``). Entry :math:`S_{ij}` is
    the edge from j to i: rows hold the edges that enter a node, columns of PyG's GDC.

    ``data.edge_index`` and ``data.edge_weight`` are set, other attributes of the old edges are removed.
    Weights are read from ``data.edge_weight``; without it every edge weighs 1.

    The edges that are kept do not depend on the number of threads. Entries that differ by less than 1e-12
    are equal, and of equal ones those of the smaller nodes are kept: processors and libraries that round
    differently keep the same edges, unless two entries differ by 1e-12 up to rounding.

    Args:
        method: ``"ppr"`` (personalised PageRank) or ``"heat"``.
        alpha: Return probability of PPR, in (0, 1); commonly 0.05 to 0.2.
        t: Time of the heat kernel, > 0; commonly 2 to 10.
        top_k: Keep the K largest entries of each row, that is at most K edges into each node. This
            rule with K = 64 is used if none is given.
        eps: Keep the entries ≥ ε.
        avg_degree: Keep the ``avg_degree * n`` largest entries, ≥ 1.
            Under each rule a node keeps its largest incoming edge.
        normalise_in: ``"sym"`` (T = D^-½ A D^-½) or ``"rw"`` (T = D⁻¹ A).
        normalise_out: The same for the result; ``"rw"`` makes the weights that enter a node sum to 1.
        self_loops: Weight added to every self-loop before diffusion; 0 adds none.
        path: ``"exact"`` solves a dense system, ``"sparse"`` pushes locally and never builds an
            n × n array (:mod:`graphdiffusion.rewiring.push`); ``"auto"`` is exact up to 5000 nodes.
        tolerance: ε of the sparse path: for random-walk normalisation on an undirected graph no entry
            of S is off by more than ε times the degree of its column over the average degree.
            Choose it smaller than the entries to be kept.
        cache: Folder of the cache; ``None`` is ``$GRAND_CACHE/rewire`` or
            ``~/.cache/graphdiffusion/rewire``, ``False`` does without.

    Example:
        >>> data = Rewire(method="heat", t=3.0, top_k=32)(data)
    """

    method: Literal["ppr", "heat"] = "ppr"
    alpha: float = 0.15
    t: float = 5.0
    top_k: int | None = None
    eps: float | None = None
    avg_degree: float | None = None
    normalise_in: Normalisation = "sym"
    normalise_out: Normalisation = "rw"
    self_loops: float = 1.0
    path: Literal["auto", "exact", "sparse"] = "auto"
    tolerance: float = 5e-4
    cache: str | Path | Literal[False] | None = None

    def __post_init__(self) -> None:
        rules = {"top_k": self.top_k, "eps": self.eps, "avg_degree": self.avg_degree}
        given = {name: value for name, value in rules.items() if value is not None}
        if len(given) > 1:
            raise ArgumentError(f"choose one of top_k, eps and avg_degree, got {given}.")
        if not given:
            object.__setattr__(self, "top_k", 64)
        for name, choices in (
            ("method", ("ppr", "heat")),
            ("normalise_in", get_args(Normalisation)),
            ("normalise_out", get_args(Normalisation)),
            ("path", ("auto", "exact", "sparse")),
        ):
            if (value := getattr(self, name)) not in choices:
                raise ArgumentError(f"{name} must be one of {', '.join(choices)}, got {value!r}.")
        _require(0 < self.alpha < 1, "alpha must lie between 0 and 1", self.alpha)
        _require(0 < self.t <= 500, "t must lie in (0, 500]", self.t)  # e^-t must not underflow
        _require(0 < self.tolerance < 1, "tolerance must lie between 0 and 1", self.tolerance)
        _require(0 <= self.self_loops < np.inf, "self_loops must be a finite weight ≥ 0", self.self_loops)
        if self.top_k is not None:
            whole = isinstance(self.top_k, int) and self.top_k >= 1
            _require(whole, "top_k must be a whole number ≥ 1", self.top_k)
        if self.eps is not None:
            _require(0 < self.eps < np.inf, "eps must be positive and finite", self.eps)
        if self.avg_degree is not None:
            _require(1 <= self.avg_degree < np.inf, "avg_degree must be at least 1", self.avg_degree)

    def forward(self, data: Data) -> Data:
        """A copy of the graph with other edges, and their weights."""
        if not isinstance(data, Data):
            raise DtypeError(f"Rewire takes a torch_geometric Data, got {type(data).__name__}.")
        if data.edge_index is None:
            raise GraphError("data.edge_index is None: build a graph first, for example with knn_graph.")
        stale = [key for key in data.keys() if data.is_edge_attr(key)]  # noqa: SIM118
        edge_index, edge_weight = self.edges(data.edge_index, data.num_nodes, data.get("edge_weight"))
        for key in stale:
            del data[key]
        data.edge_index, data.edge_weight = edge_index, edge_weight
        return data

    def edges(
        self, edge_index: Tensor, num_nodes: int | None = None, edge_weight: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Rewired ``edge_index (2, E')`` and weights ``(E',)``, sorted by target, then source.

        On the device of ``edge_index``, in the dtype of ``edge_weight`` or torch's default.
        """
        weights = adjacency(edge_index, num_nodes, edge_weight, self.self_loops)
        if self.cache is False:
            matrix = self._matrix(weights)
        else:
            n = weights.shape[0]
            path = store.folder(self.cache) / f"{store.content_hash(weights, self._parameters(n))}.npz"
            matrix = store.cached(path, n, self._most(n), lambda: self._matrix(weights))
        coo = matrix.tocoo()
        dtype = torch.get_default_dtype() if edge_weight is None else edge_weight.dtype
        target, source, values = (torch.from_numpy(a) for a in (coo.row, coo.col, coo.data))
        device = edge_index.device
        return torch.stack([source.long(), target.long()]).to(device), values.to(dtype).to(device)

    def _matrix(self, weights: sparse.csr_array) -> sparse.csr_array:
        rows = self._exact(weights) if self._is_exact(weights.shape[0]) else self._sparse(weights)
        kept = sparsify(rows, top_k=self.top_k, eps=self.eps, avg_degree=self.avg_degree)
        return transition(kept, self.normalise_out)

    def _exact(self, weights: sparse.csr_array) -> Iterable[sparse.csr_array]:
        matrix = transition(weights, self.normalise_in)
        ppr = self.method == "ppr"
        return exact.row_blocks(exact.pagerank(matrix, self.alpha) if ppr else exact.heat(matrix, self.t))

    def _sparse(self, weights: sparse.csr_array) -> Iterator[sparse.csr_array]:
        walk, degree = transition(weights, "rw"), weights.sum(1)
        if self.method == "ppr":
            blocks = push.pagerank_blocks(walk, degree, self.alpha, self.tolerance)
        else:
            blocks = push.heat_blocks(walk, degree, self.t, self.tolerance)
        first = 0
        for block in blocks:
            if self.normalise_in == "sym":  # S_sym = D^½ S_rw D^-½
                own = degree[first : first + block.shape[0]]
                block.data *= np.sqrt(np.repeat(own, np.diff(block.indptr)) / degree[block.indices])
            first += block.shape[0]
            yield block

    def _is_exact(self, n: int) -> bool:
        return self.path == "exact" or (self.path == "auto" and n <= EXACT_UP_TO)

    def _most(self, n: int) -> int:
        """The largest number of edges that the rule leaves."""
        if self.top_k is not None:
            return n * min(n, self.top_k)
        return n * n if self.avg_degree is None else min(n * n, max(n, round(self.avg_degree * n)))

    def _parameters(self, n: int) -> dict[str, Any]:
        """All that the result depends on, besides the weights; they contain the self-loops."""
        exact_path = self._is_exact(n)
        return {
            "method": self.method,
            "strength": self.alpha if self.method == "ppr" else self.t,
            "rule": [self.top_k, self.eps, self.avg_degree],
            "normalise": [self.normalise_in, self.normalise_out],
            "tolerance": None if exact_path else self.tolerance,
        }


def _require(condition: bool, demand: str, value: object) -> None:
    if not condition:
        raise ArgumentError(f"{demand}, got {value!r}.")
