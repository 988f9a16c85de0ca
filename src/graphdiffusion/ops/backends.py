"""Which kernels a tensor gets: Triton's on CUDA where Triton is installed, stock torch everywhere else.

On a part of a graph they get what they read from other parts first (:mod:`graphdiffusion.ops.parts`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Literal

from torch import Tensor

from ..partition.part import Part, Transposed
from ..pattern import Pattern
from . import torch as torch_backend

Backend = Literal["torch", "triton"]

_INSTALLED = find_spec("triton") is not None
_forced: Backend | None = None  # not per thread: the backward pass runs in threads of its own


def has_triton(tensor: Tensor) -> bool:
    """Whether this tensor gets the Triton kernels."""
    return _INSTALLED and tensor.is_cuda if _forced is None else _forced == "triton"


def backend(tensor: Tensor, pattern: Pattern | None = None) -> ModuleType:
    """The module of kernels for this tensor's device, and for this graph or its part."""
    if isinstance(pattern, (Part, Transposed)):
        return import_module(".parts", __package__)
    return _triton_backend() if has_triton(tensor) else torch_backend


@contextmanager
def use_backend(name: Backend) -> Iterator[None]:
    """Use one backend for all tensors, whatever their device, to compare the two.

    The Triton kernels take CPU tensors only under Triton's interpreter: set ``TRITON_INTERPRET=1`` in the
    environment before Triton is first imported.
    """
    global _forced
    before, _forced = _forced, name
    try:
        yield
    finally:
        _forced = before


@cache
def _triton_backend() -> ModuleType:
    return import_module(".triton", __package__)
