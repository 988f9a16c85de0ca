"""Autocast: the operators compute in float32, as torch's own operators that need it do."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

_HALF = (torch.bfloat16, torch.float16)


def single(*tensors: Tensor | None) -> tuple[Any, ...]:
    """Under autocast, tensors of half precision as float32; all others, and elsewhere all, as they are."""
    if not torch._C._is_any_autocast_enabled():
        return tensors
    return tuple(t.float() if t is not None and _is_cast(t) else t for t in tensors)


def _is_cast(tensor: Tensor) -> bool:
    return tensor.dtype in _HALF and torch.is_autocast_enabled(tensor.device.type)
