"""The sparse kernels on stock torch: any device, float32 and float64, deterministic on CPU.

Every kernel takes one flattened leading dimension ``L`` (members, heads) and no autograd: the rules of
differentiation are in :mod:`graphdiffusion.ops.functions`.
"""

# ruff: noqa: F401

from .groups import group_max, group_sum, normalise, normalise_backward, spread
from .masks import dropout
from .pooling import match, pool
from .products import sddmm, spmm
from .series import horner, power_dots, power_sums, powers
from .states import combine, combine_backward, dots
