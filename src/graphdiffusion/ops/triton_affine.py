r"""Linear maps of node features in Triton, on the matrix units and as accurate as float32.

The matrix units multiply numbers of 11 significant bits (TF32). A float32 is, up to its last bit or two,
the sum of two of them, :math:`x = x_1 + x_2`, and :math:`x_1 w_1 + x_1 w_2 + x_2 w_1` leaves out only
:math:`x_2 w_2`, a share of at most :math:`2^{-22}`. Sums are float32. The small factor is split beforehand.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from .triton_launch import launch, member_stride, rows_in_place

BLOCK = 1024
CHUNK = 1024  # nodes that one program adds up for the gradient of a weight


@triton.jit
def _round(x):
    """The nearest number of 11 significant bits; what is not finite stays as it is."""
    near = ((x.to(tl.int32, bitcast=True) + 0x1000) & -0x2000).to(tl.float32, bitcast=True)
    return tl.where(tl.abs(x) < 3.4e38, near, x)


@triton.jit
def _split_kernel(high, low, w, size, cols, w_member, w_row, w_col, blocks, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    member = (pid // blocks).to(tl.int64)
    at = (pid % blocks) * BLOCK + tl.arange(0, BLOCK)
    ok = at < size
    x = tl.load(w + member * w_member + (at // cols) * w_row + (at % cols) * w_col, mask=ok, other=0.0)
    first = _round(x)
    tl.store(high + member * size + at, first, mask=ok)
    tl.store(low + member * size + at, _round(x - first), mask=ok)


def _split(w: Tensor) -> tuple[Tensor, Tensor]:
    """Two contiguous tensors of 11-bit numbers that add up to w ``(L, a, b)``."""
    high = torch.empty(w.shape, dtype=w.dtype, device=w.device)
    low = torch.empty_like(high)
    size = w[0].numel()
    blocks = triton.cdiv(size, BLOCK)
    launch(
        _split_kernel, blocks * len(w), w, high, low, w, size, w.shape[2], member_stride(w),
        *w.stride()[1:], blocks, BLOCK=BLOCK, num_warps=4,
    )  # fmt: skip
    return high, low


@triton.jit
def _multiply(
    acc, x, high, low, row, col, n, x_row, K: tl.constexpr, N: tl.constexpr, BK: tl.constexpr
):  # fmt: skip
    """``acc + x wᵀ`` for a block of rows of x and of w."""
    at_row = row.to(tl.int64)[:, None] * x_row
    for first in range(0, K, BK):
        k = first + tl.arange(0, BK)
        a = tl.load(x + at_row + k[None, :], mask=(row < n)[:, None] & (k < K)[None, :], other=0.0)
        w_ok = (col < N)[None, :] & (k < K)[:, None]
        w1 = tl.load(high + col[None, :] * K + k[:, None], mask=w_ok, other=0.0)
        w2 = tl.load(low + col[None, :] * K + k[:, None], mask=w_ok, other=0.0)
        a1 = _round(a)
        a2 = _round(a - a1)
        acc = tl.dot(a2, w1, acc, input_precision="tf32")
        acc = tl.dot(a1, w2, acc, input_precision="tf32")
        acc = tl.dot(a1, w1, acc, input_precision="tf32")
    return acc


@triton.jit
def _affine_kernel(
    out, bias, x, high, low, y, y_high, y_low, n, blocks, x_member, x_row, y_member, y_row,
    K: tl.constexpr, N: tl.constexpr, BIAS: tl.constexpr, TWO: tl.constexpr, BM: tl.constexpr,
    BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """``x wᵀ``, with TWO plus the same of y, with BIAS plus b: a block of rows and of columns."""
    tiles: tl.constexpr = (N + BN - 1) // BN
    pid = tl.program_id(0)
    member = (pid // tiles // blocks).to(tl.int64)
    row = ((pid // tiles) % blocks) * BM + tl.arange(0, BM)
    col = (pid % tiles) * BN + tl.arange(0, BN)
    w = member * N * K
    acc = tl.zeros([BM, BN], tl.float32)
    acc = _multiply(acc, x + member * x_member, high + w, low + w, row, col, n, x_row, K, N, BK)
    if TWO:
        acc = _multiply(acc, y + member * y_member, y_high + w, y_low + w, row, col, n, y_row, K, N, BK)
    if BIAS:
        acc += tl.load(bias + member * N + col, mask=col < N, other=0.0)[None, :]
    place = member * n * N + row.to(tl.int64)[:, None] * N + col[None, :]
    tl.store(out + place, acc, mask=(row < n)[:, None] & (col < N)[None, :])


def _product(
    pairs: Sequence[tuple[Tensor, Tensor]], bias: Tensor | None, tile: tuple[int, int, int]
) -> Tensor:
    """``Σ x wᵀ + b`` over one or two pairs x ``(L, n, K)``, w ``(L, N, K)`` → ``(L, n, N)``."""
    (x, w), (y, v) = pairs[0], pairs[-1]
    x, y = rows_in_place(x), rows_in_place(y)
    split = _split(w)
    other = split if len(pairs) == 1 else _split(v)
    members, n, width = x.shape
    bm, widest, bk = tile
    cols = w.shape[1]
    bn = min(max(triton.next_power_of_2(cols), 16), widest)
    out = torch.empty(members, n, cols, dtype=x.dtype, device=x.device)
    blocks = triton.cdiv(n, bm)
    launch(
        _affine_kernel, members * blocks * triton.cdiv(cols, bn), x, out,
        out if bias is None else bias.contiguous(), x, *split, y, *other, n, blocks, member_stride(x),
        x.stride(1), member_stride(y), y.stride(1), K=width, N=cols, BIAS=bias is not None,
        TWO=len(pairs) == 2, BM=bm, BN=bn, BK=bk, num_warps=8 if bm * bn > 8192 else 4, num_stages=3,
    )  # fmt: skip
    return out


def affine(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """``x Wᵀ + b``: x ``(L, n, i)``, weight ``(L, o, i)``, bias ``(L, o)`` → ``(L, n, o)``, float32."""
    return _product([(x, weight)], bias, (128, 64, 16))


def affine_backward(grads: Sequence[Tensor], weights: Sequence[Tensor]) -> Tensor:
    """``Σ g W`` over the maps of one x: g ``(L, n, o)``, weights ``(L, o, i)`` → ``(L, n, i)``."""
    pairs = [(g, w.mT) for g, w in zip(grads, weights, strict=True)]
    tile = (128, 128, 16)
    same = len({g.shape for g in grads}) == 1
    steps = [pairs[k : k + 2] for k in range(0, len(pairs), 2)] if same else [[pair] for pair in pairs]
    total = _product(steps[0], None, tile)
    for step in steps[1:]:
        total += _product(step, None, tile)
    return total


@triton.jit
def _weight_gradient_kernel(
    d_w, d_b, g, x, n, chunks, g_member, g_row, x_member, x_row, OUT: tl.constexpr, IN: tl.constexpr,
    CHUNK: tl.constexpr, BO: tl.constexpr, BI: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """``gᵀ x`` and the sum of g, over a chunk of the nodes."""
    tiles_i: tl.constexpr = (IN + BI - 1) // BI
    tiles_o: tl.constexpr = (OUT + BO - 1) // BO
    pid = tl.program_id(0)
    tile_i = pid % tiles_i
    slot = (pid // tiles_i // tiles_o).to(tl.int64)
    member = slot // chunks
    o = ((pid // tiles_i) % tiles_o) * BO + tl.arange(0, BO)
    i = tile_i * BI + tl.arange(0, BI)
    g += member * g_member
    x += member * x_member
    acc = tl.zeros([BO, BI], tl.float32)
    total = tl.zeros([BO], tl.float32)
    begin = (slot % chunks).to(tl.int32) * CHUNK
    for first in range(begin, tl.minimum(begin + CHUNK, n), BK):
        k = first + tl.arange(0, BK)
        at = k.to(tl.int64)
        a = tl.load(
            g + at[None, :] * g_row + o[:, None], mask=(k < n)[None, :] & (o < OUT)[:, None], other=0.0
        )
        b = tl.load(
            x + at[:, None] * x_row + i[None, :], mask=(k < n)[:, None] & (i < IN)[None, :], other=0.0
        )
        acc = tl.dot(a, b, acc, input_precision="tf32x3")
        total += tl.sum(a, axis=1)
    place = slot * OUT * IN + o[:, None] * IN + i[None, :]
    tl.store(d_w + place, acc, mask=(o < OUT)[:, None] & (i < IN)[None, :])
    if tile_i == 0:
        tl.store(d_b + slot * OUT + o, total, mask=o < OUT)


def weight_gradient(grad: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """``gᵀ x`` and ``Σ_n g``: g ``(L, n, o)``, x ``(L, n, i)`` → ``(L, o, i)`` and ``(L, o)``."""
    grad, x = rows_in_place(grad), rows_in_place(x)
    (members, n, o), i = grad.shape, x.shape[-1]
    chunks = max(triton.cdiv(n, CHUNK), 1)
    d_w = torch.empty(members, chunks, o, i, dtype=x.dtype, device=x.device)
    d_b = torch.empty(members, chunks, o, dtype=x.dtype, device=x.device)
    bo = min(max(triton.next_power_of_2(o), 16), 128)
    bi = min(max(triton.next_power_of_2(i), 16), 32)
    launch(
        _weight_gradient_kernel, members * chunks * triton.cdiv(o, bo) * triton.cdiv(i, bi), x, d_w, d_b,
        grad, x, n, chunks, member_stride(grad), grad.stride(1), member_stride(x), x.stride(1), OUT=o, IN=i,
        CHUNK=CHUNK, BO=bo, BI=bi, BK=32, num_warps=4, num_stages=3,
    )  # fmt: skip
    # the pieces are added up in a fixed order
    return (d_w[:, 0], d_b[:, 0]) if chunks == 1 else (d_w.sum(1), d_b.sum(1))
