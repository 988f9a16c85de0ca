"""Whether numbers can be read from tensors here: not in a program that is traced or vectorised."""

from __future__ import annotations

import torch
from torch import Tensor


def traced() -> bool:
    """Whether ``torch.compile``, ``torch.export`` or a transform of ``torch.func`` is at work."""
    return torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()


def vectorised(*tensors: Tensor) -> bool:
    """Whether ``torch.func.vmap`` maps one of the tensors, inside other transforms too."""
    for tensor in tensors:
        while torch._C._functorch.is_functorch_wrapped_tensor(tensor):
            if torch._C._functorch.is_batchedtensor(tensor):
                return True
            tensor = torch._C._functorch.get_unwrapped(tensor)
    return False
