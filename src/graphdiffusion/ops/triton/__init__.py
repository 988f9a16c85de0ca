"""The sparse kernels in Triton: the same signatures as in :mod:`graphdiffusion.ops.torch`.

They run on CUDA tensors, or on CPU tensors under Triton's interpreter (``TRITON_INTERPRET=1``). float64
is computed in float64, float32 and bfloat16 in float32; edge fields of a bfloat16 state are float32. No
kernel uses atomics: a sum is taken in the same order in every run. All leading dimensions are flattened
into one, ``L``, and consecutive programs work on one member, whose state stays in cache.
"""

# ruff: noqa: F401

from .attention import attend
from .attention_backward import attend_backward
from .groups import group_max, group_sum, spread
from .linear import affine, weight_gradient
from .masks import dropout
from .normaliser import normalise, normalise_backward
from .pooling import match, pool
from .products import spmm
from .scores import sddmm
from .states import combine, combine_backward, dots
