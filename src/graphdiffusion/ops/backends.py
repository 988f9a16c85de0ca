"""Which kernels a tensor gets: stock torch everywhere; Triton on CUDA arrives through this door."""

from __future__ import annotations

from types import ModuleType

from torch import Tensor

from . import torch_backend


def backend(tensor: Tensor) -> ModuleType:
    """The module of kernels for this tensor's device."""
    return torch_backend
