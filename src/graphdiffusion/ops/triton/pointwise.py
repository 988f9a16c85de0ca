"""Functions of single scores in Triton: the activation, φ of the normaliser and its slope."""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def activate(s, ACTIVATION: tl.constexpr, SLOPE: tl.constexpr):
    if ACTIVATION == "leaky_relu":
        s = tl.where(s > 0, s, SLOPE * s)
    elif ACTIVATION == "exp":
        s = tl.exp(s)
    return s


@triton.jit
def squareplus(s):
    """``(s + √(s² + 4)) / 2`` as ``max(s, 0) + 2 / (|s| + √(s² + 4))``, which does not cancel for s < 0."""
    size = tl.abs(s)
    bounded = tl.minimum(size, 1e18)  # its square is finite, and the root is as large to the last digit
    return tl.maximum(s, 0.0) + 2 / (size + tl.sqrt(bounded * bounded + 4))


@triton.jit
def squareplus_slope(s):
    """``φ'(s) / φ(s) = 1 / √(s² + 4)`` for φ = squareplus."""
    bounded = tl.minimum(tl.abs(s), 1e18)
    return tl.rsqrt(bounded * bounded + 4)
