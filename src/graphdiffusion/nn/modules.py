"""Dense layers with parameters that may be stacked over members, and features that may be sparse."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor, nn

from ..errors import DataError
from ..ops.dense import affine, sparse_product
from ..ops.noise import dropout_scale
from ..partition.induced import row_entries
from ..partition.whole import all_rows, edge_places, node_places, variance_nodes
from ..pattern import Pattern


@dataclass(frozen=True, eq=False)
class SparseFeatures:
    """Node features with few non-zeros: they stay sparse until the encoder has multiplied them."""

    pattern: Pattern
    values: Tensor  # (nnz,), or (..., nnz) after a dropout for each member
    places: Tensor | None = None  # (nnz,) in the features of the whole graph, where this is a part of it

    @classmethod
    def from_tensor(cls, x: Tensor) -> SparseFeatures:
        """From a torch sparse matrix (CSR or COO) ``(n, F)``."""
        coo = (x if x.layout == torch.sparse_coo else x.to_sparse_coo()).coalesce()
        if coo.dim() != 2 or not coo.values().is_floating_point():
            raise DataError(
                f"sparse features must be a matrix of floats (n, F), got {tuple(x.shape)} {x.dtype}."
            )
        row, col = coo.indices()
        return cls(Pattern(**Pattern.indices(row, col, *coo.shape)), coo.values())

    @property
    def shape(self) -> tuple[int, int]:
        """Nodes and features."""
        return self.pattern.rows, self.pattern.cols

    def dense(self) -> Tensor:
        """The matrix ``(n, F)``."""
        out = self.values.new_zeros(self.shape)
        out[self.pattern.row.long(), self.pattern.col.long()] = self.values
        return out

    def to(self, device: torch.device | str) -> SparseFeatures:
        """The same on another device."""
        places = None if self.places is None else self.places.to(device)
        return SparseFeatures(self.pattern.to(device), self.values.to(device), places)


Features = Tensor | SparseFeatures


def as_features(x: Features) -> Features:
    """Sparse torch tensors become :class:`SparseFeatures`; all else is left alone."""
    if isinstance(x, Tensor) and x.layout != torch.strided:
        return SparseFeatures.from_tensor(x)
    return x


def own_rows(x: Features, nodes: Tensor) -> Features:
    """Some rows of the features, which know their places among all."""
    if not isinstance(x, SparseFeatures):
        return x[nodes]
    row, place = row_entries(x.pattern, nodes)
    col, cols = x.pattern.col[place].long(), x.pattern.cols
    own = Pattern(**Pattern.indices(row, col, len(nodes), cols))
    return SparseFeatures(own, x.values[place], place)


def reset_children(module: nn.Module) -> None:
    """Reset each part once: a part that resets itself also resets its own parts."""
    for child in module.children():
        reset = getattr(child, "reset_parameters", None)
        if callable(reset):
            reset()
        else:
            reset_children(child)


M = TypeVar("M", bound=nn.Module)


def shallow(module: M) -> M:
    """A copy with parts that can be exchanged without changing the original; all tensors are shared."""
    other = module.__class__.__new__(module.__class__)
    other.__dict__ = {**module.__dict__, "_modules": dict(module._modules)}
    return other


class Linear(nn.Module):
    """``x Wᵀ + b`` for dense or sparse x; parameters as in :class:`torch.nn.Linear`."""

    def __init__(self, in_channels: int, out_channels: int, bias: bool = True) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(out_channels, in_channels))
        self.bias = nn.Parameter(torch.empty(out_channels)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        bound = 1 / math.sqrt(self.weight.shape[-1])
        nn.init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            nn.init.uniform_(self.bias, -bound, bound)

    def forward(self, x: Features) -> Tensor:
        if isinstance(x, SparseFeatures):
            out = sparse_product(x.pattern, x.values.to(self.weight.dtype), self.weight)
            return out if self.bias is None else out + self.bias.unsqueeze(-2)
        return affine(x, self.weight, self.bias)

    def extra_repr(self) -> str:
        return f"{self.weight.shape[-1]} → {self.weight.shape[-2]}, bias={self.bias is not None}"


class Dropout(nn.Module):
    """Dropout from a key; the rate is a buffer, so that each member may have its own."""

    rate: Tensor

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.register_buffer("rate", torch.tensor(float(rate)))

    def forward(self, x: Features, key: Tensor, edges: bool = False) -> Features:
        """Dropout of a node field ``(..., n, d)``, or of edge fields of several heads ``(..., h, E)``."""
        if isinstance(x, SparseFeatures):
            scale = dropout_scale(key, x.values.shape[-1:], self.rate, x.places)
            return SparseFeatures(x.pattern, x.values * scale.to(x.values.dtype), x.places)
        rows, width = x.shape[-2:]
        places = edge_places(rows) if edges else node_places(rows, width)
        return x * dropout_scale(key, (rows, width), self.rate, places).to(x.dtype)


class BatchNorm(nn.Module):
    """Batch normalisation over the nodes, with running statistics for evaluation."""

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, channels: int, momentum: float = 0.1, eps: float = 1e-5) -> None:
        super().__init__()
        self.momentum, self.eps = momentum, eps
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_var", torch.ones(channels))

    def reset_parameters(self) -> None:
        nn.init.ones_(self.weight)
        nn.init.zeros_(self.bias)
        self.running_mean.zero_()
        self.running_var.fill_(1.0)

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            var, mean = variance_nodes(x)
            n, batch = all_rows(x), tuple(range(mean.dim() - self.running_mean.dim()))
            with torch.no_grad():  # what leads x beyond the members is a batch
                running = (v.mean(batch) if batch else v for v in (mean, var * (n / max(n - 1, 1))))
                self.running_mean.lerp_(next(running), self.momentum)
                self.running_var.lerp_(next(running), self.momentum)
        else:
            mean, var = self.running_mean, self.running_var
        scale = self.weight * torch.rsqrt(var + self.eps)
        return x * scale.unsqueeze(-2) + (self.bias - mean * scale).unsqueeze(-2)
