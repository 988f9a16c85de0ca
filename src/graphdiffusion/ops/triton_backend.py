"""The sparse kernels in Triton: the same signatures as :mod:`graphdiffusion.ops.torch_backend`.

They run on CUDA tensors, or on CPU tensors under Triton's interpreter (``TRITON_INTERPRET=1``). float64
is computed in float64, float32 and bfloat16 in float32; edge fields of a bfloat16 state are float32. No
kernel uses atomics: a sum is taken in the same order in every run. All leading dimensions are flattened
into one, ``L``, and consecutive programs work on one member, whose state stays in cache.
"""

from __future__ import annotations

from .triton_affine import affine, weight_gradient
from .triton_attention import attend
from .triton_attention_backward import attend_backward
from .triton_dense import combine, combine_backward, dots, dropout
from .triton_edges import group_max, group_sum, normalise, normalise_backward, spread
from .triton_sddmm import sddmm
from .triton_spmm import spmm

__all__ = [
    "affine",
    "attend",
    "attend_backward",
    "combine",
    "combine_backward",
    "dots",
    "dropout",
    "group_max",
    "group_sum",
    "normalise",
    "normalise_backward",
    "sddmm",
    "spmm",
    "spread",
    "weight_gradient",
]
