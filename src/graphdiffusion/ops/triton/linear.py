r"""Linear maps of node features in Triton, on the matrix units and as accurate as float32.

The matrix units multiply numbers of 11 significant bits (TF32). A float32 is, up to its last bit or two,
the sum of two of them, :math:`x = x_1 + x_2`, and :math:`x_1 w_1 + x_1 w_2 + x_2 w_1` leaves out only
:math:`x_2 w_2`, a share of at most :math:`2^{-22}`. Sums are float32. The small factor is split beforehand.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from .launch import launch, member_stride, pieces, power_of_2, rows_in_place

BLOCK = 1024
TILE = 64  # widest tile of columns
NODES = 128  # rows of x in a program
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
    blocks = pieces(size, BLOCK)
    launch(
        _split_kernel, blocks * len(w), w, high, low, w, size, w.shape[2], member_stride(w),
        *w.stride()[1:], blocks, BLOCK=BLOCK, num_warps=4,
    )  # fmt: skip
    return high, low


def _columns(width: int) -> tuple[int, int, int]:
    """A tile of columns, what the same program takes beyond it, and the number of tiles.

    Tiles are powers of two. 80 columns are 64 and 16 in one program, not two tiles of 64.
    """
    if width <= TILE:
        return max(power_of_2(width), 16), 0, 1
    if width < 2 * TILE:
        return TILE, max(power_of_2(width - TILE), 16), 1
    return TILE, 0, pieces(width, TILE)


@triton.jit
def _multiply(acc, a1, a2, high, low, k, col, K: tl.constexpr, N: tl.constexpr):
    """``acc + (a1 + a2) (high + low)ᵀ`` for the columns col and the entries k of the sum."""
    ok = (col < N)[None, :] & (k < K)[:, None]
    w1 = tl.load(high + col[None, :] * K + k[:, None], mask=ok, other=0.0)
    w2 = tl.load(low + col[None, :] * K + k[:, None], mask=ok, other=0.0)
    acc = tl.dot(a2, w1, acc, input_precision="tf32")
    acc = tl.dot(a1, w2, acc, input_precision="tf32")
    return tl.dot(a1, w1, acc, input_precision="tf32")


@triton.jit
def _store(out, bias, acc, row, col, n, N: tl.constexpr, BIAS: tl.constexpr):
    if BIAS:
        acc += tl.load(bias + col, mask=col < N, other=0.0)[None, :]
    place = row.to(tl.int64)[:, None] * N + col[None, :]
    tl.store(out + place, acc, mask=(row < n)[:, None] & (col < N)[None, :])


@triton.jit
def _affine_kernel(
    out, bias, x, high, low, n, blocks, x_member, x_row, K: tl.constexpr, N: tl.constexpr,
    BIAS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, MORE: tl.constexpr, TILES: tl.constexpr,
    BK: tl.constexpr,
):  # fmt: skip
    """``x wᵀ + b``: a block of rows, a tile of columns and perhaps MORE columns after it."""
    pid = tl.program_id(0)
    member = (pid // TILES // blocks).to(tl.int64)
    row = ((pid // TILES) % blocks) * BM + tl.arange(0, BM)
    col = (pid % TILES) * BN + tl.arange(0, BN)
    x += member * x_member
    high += member * N * K
    low += member * N * K
    acc = tl.zeros([BM, BN], tl.float32)
    if MORE > 0:
        more_col = BN + tl.arange(0, MORE)
        more = tl.zeros([BM, MORE], tl.float32)
    at_row = row.to(tl.int64)[:, None] * x_row
    for first in range(0, K, BK):
        k = first + tl.arange(0, BK)
        a = tl.load(x + at_row + k[None, :], mask=(row < n)[:, None] & (k < K)[None, :], other=0.0)
        a1 = _round(a)
        a2 = _round(a - a1)
        acc = _multiply(acc, a1, a2, high, low, k, col, K, N)
        if MORE > 0:
            more = _multiply(more, a1, a2, high, low, k, more_col, K, N)
    out += member * n * N
    bias += member * N
    _store(out, bias, acc, row, col, n, N, BIAS)
    if MORE > 0:
        _store(out, bias, more, row, more_col, n, N, BIAS)


def affine(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """``x Wᵀ + b``: x ``(L, n, i)``, weight ``(L, o, i)``, bias ``(L, o)`` → ``(L, n, o)``, float32."""
    x = rows_in_place(x)
    (members, n, width), cols = x.shape, weight.shape[1]
    tile, more, tiles = _columns(cols)
    out = torch.empty(members, n, cols, dtype=x.dtype, device=x.device)
    blocks = pieces(n, NODES)
    launch(
        _affine_kernel, members * blocks * tiles, x, out, out if bias is None else bias.contiguous(), x,
        *_split(weight), n, blocks, member_stride(x), x.stride(1), K=width, N=cols, BIAS=bias is not None,
        BM=NODES, BN=tile, MORE=more, TILES=tiles, BK=16, num_warps=4, num_stages=3,
    )  # fmt: skip
    return out


@triton.jit
def _weight_gradient_kernel(
    d_w, d_b, g, x, n, chunks, g_member, g_row, x_member, x_row, OUT: tl.constexpr, IN: tl.constexpr,
    CHUNK: tl.constexpr, BO: tl.constexpr, BI: tl.constexpr, MORE: tl.constexpr, TILES: tl.constexpr,
    BK: tl.constexpr,
):  # fmt: skip
    """``gᵀ x`` and the sum of g, over a chunk of the nodes."""
    tiles_o: tl.constexpr = (OUT + BO - 1) // BO
    pid = tl.program_id(0)
    tile = pid % TILES
    slot = (pid // TILES // tiles_o).to(tl.int64)
    member = slot // chunks
    o = ((pid // TILES) % tiles_o) * BO + tl.arange(0, BO)
    i = tile * BI + tl.arange(0, BI)
    g += member * g_member
    x += member * x_member
    acc = tl.zeros([BO, BI], tl.float32)
    if MORE > 0:
        more_i = BI + tl.arange(0, MORE)
        more = tl.zeros([BO, MORE], tl.float32)
    total = tl.zeros([BO], tl.float32)
    begin = (slot % chunks).to(tl.int32) * CHUNK
    for first in range(begin, tl.minimum(begin + CHUNK, n), BK):
        k = first + tl.arange(0, BK)
        k_ok = (k < n)[:, None]
        at = k.to(tl.int64)[:, None]
        a = tl.load(g + at * g_row + o[None, :], mask=k_ok & (o < OUT)[None, :], other=0.0)
        b = tl.load(x + at * x_row + i[None, :], mask=k_ok & (i < IN)[None, :], other=0.0)
        total += tl.sum(a, axis=0)
        acc = tl.dot(a.trans(), b, acc, input_precision="tf32x3")
        if MORE > 0:
            b = tl.load(x + at * x_row + more_i[None, :], mask=k_ok & (more_i < IN)[None, :], other=0.0)
            more = tl.dot(a.trans(), b, more, input_precision="tf32x3")
    place = slot * OUT * IN + o[:, None] * IN
    tl.store(d_w + place + i[None, :], acc, mask=(o < OUT)[:, None] & (i < IN)[None, :])
    if MORE > 0:
        tl.store(d_w + place + more_i[None, :], more, mask=(o < OUT)[:, None] & (more_i < IN)[None, :])
    if tile == 0:
        tl.store(d_b + slot * OUT + o, total, mask=o < OUT)


def weight_gradient(grad: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """``gᵀ x`` and ``Σ_n g``: g ``(L, n, o)``, x ``(L, n, i)`` → ``(L, o, i)`` and ``(L, o)``."""
    grad, x = rows_in_place(grad), rows_in_place(x)
    (members, n, o), i = grad.shape, x.shape[-1]
    chunks = max(pieces(n, CHUNK), 1)
    d_w = torch.empty(members, chunks, o, i, dtype=x.dtype, device=x.device)
    d_b = torch.empty(members, chunks, o, dtype=x.dtype, device=x.device)
    rows = min(max(power_of_2(o), 16), 128)
    tile, more, tiles = _columns(i)
    launch(
        _weight_gradient_kernel, members * chunks * pieces(o, rows) * tiles, x, d_w, d_b, grad, x, n,
        chunks, member_stride(grad), grad.stride(1), member_stride(x), x.stride(1), OUT=o, IN=i,
        CHUNK=CHUNK, BO=rows, BI=tile, MORE=more, TILES=tiles, BK=32, num_warps=4, num_stages=3,
    )  # fmt: skip
    # the pieces are added up in a fixed order
    return (d_w[:, 0], d_b[:, 0]) if chunks == 1 else (d_w.sum(1), d_b.sum(1))
