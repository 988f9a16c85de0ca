"""Every operator beside its formula on dense matrices, and what every operator must be able to do.

``OPERATORS`` are the rows and ``CHECKS`` the columns of a table. ``test_ops_table.py`` runs it with the
kernels of stock torch, ``test_ops_triton.py`` with those of Triton. The formulas are plain torch, which has
the same transforms.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, func
from torch.autograd import forward_ad

from graphdiffusion import ops
from graphdiffusion.graph import Graph
from graphdiffusion.ops.dense import affine, affines, sparse_product
from graphdiffusion.ops.noise import dropout_scale, random_bits

GRAPH = Graph.from_edge_index(torch.tensor([[0, 1, 2, 0, 3, 1], [1, 2, 0, 2, 3, 3]]), self_loops=1.0)
N, E = GRAPH.num_nodes, GRAPH.num_edges
PLACES = torch.zeros(E, N * N, dtype=torch.float64)  # edge e is entry (row, col) of a dense matrix
PLACES[torch.arange(E), GRAPH.row.long() * N + GRAPH.col.long()] = 1
KEY = torch.tensor(7)
PLACE = torch.tensor(0.1, dtype=torch.float64)

Function = Callable[..., Any]
Shapes = tuple[tuple[int, ...], ...]


def _dense(values: Tensor) -> Tensor:
    return (values @ PLACES.to(values.dtype)).unflatten(-1, (N, N))


def _on_edges(matrix: Tensor) -> Tensor:
    return matrix.flatten(-2) @ PLACES.to(matrix.dtype).T


def _normalised(scores: Tensor, weight: Tensor, kind: str, over: str) -> Tensor:
    phi = scores.exp() if kind == "softmax" else (scores + (scores**2 + 4).sqrt()) / 2
    matrix = _dense(phi * weight)
    if over == "symmetric":
        return _on_edges(matrix / (matrix.sum(-1, keepdim=True) * matrix.sum(-2, keepdim=True)).sqrt())
    return _on_edges(matrix / matrix.sum(-1 if over == "rows" else -2, keepdim=True))


def _attention(q: Tensor, k: Tensor, weight: Tensor, kind: str, over: str, act: str = "identity") -> Tensor:
    scores = _on_edges(q @ k.mT)
    scores = {"identity": lambda s: s, "exp": torch.exp, "leaky_relu": torch.nn.LeakyReLU(0.2)}[act](scores)
    return _normalised(scores, weight.unsqueeze(-2), kind, over).mean(-2)


def _largest(x: Tensor) -> Tensor:
    there = (PLACES.sum(0) > 0).unflatten(-1, (N, N))
    return torch.where(there.unsqueeze(-1), x.unsqueeze(-3), -torch.inf).amax(-2)


def _dropout(rate: Tensor) -> Tensor:
    kept = random_bits(KEY, 5) >= rate.unsqueeze(-1) * 2**24
    return kept / (1 - rate.unsqueeze(-1))


def _combined(c: Tensor, b: Tensor, x: Tensor, y: Tensor, start: Tensor) -> Tensor:
    return start + c * x + b * y


@dataclass(frozen=True)
class Row:
    """An operator as a function of tensors, the same as plain torch, and the shapes of one member."""

    run: Function
    formula: Function
    shapes: Shapes
    positive: tuple[int, ...] = ()  # which of the tensors must be between 0 and 1
    only_float32: bool = False  # for the Triton kernels

    def inputs(self, backend: str, *lead: int) -> list[Tensor]:
        """Random tensors with these leading dimensions."""
        random = torch.Generator().manual_seed(3)
        found = []
        for k, shape in enumerate(self.shapes):
            draw = torch.rand if k in self.positive else torch.randn
            found.append(draw((*lead, *shape), generator=random, dtype=torch.float64))
        found = [0.1 + 0.5 * t if k in self.positive else t for k, t in enumerate(found)]
        return [t.float() for t in found] if self.only_float32 and backend == "triton" else found


HEADS = (2, N, 2)
OPERATORS = {
    "propagate": Row(lambda v, x: ops.propagate(GRAPH, v, x), lambda v, x: _dense(v) @ x, ((E,), (N, 2))),
    "propagate transposed": Row(
        lambda v, x: ops.propagate(GRAPH, v, x, transpose=True),
        lambda v, x: _dense(v).mT @ x,
        ((E,), (N, 2)),
    ),
    "score": Row(lambda q, k: ops.score(GRAPH, q, k), lambda q, k: _on_edges(q @ k.mT), ((N, 2), (N, 2))),
    "group_sum": Row(lambda v: ops.group_sum(GRAPH, v), lambda v: _dense(v).sum(-1), ((E,),)),
    "spread": Row(lambda v: ops.spread(GRAPH, v, "columns"), lambda v: v[..., GRAPH.col.long()], ((N,),)),
    "pool": Row(lambda x: ops.pool(GRAPH, x), _largest, ((N, 2),)),
    "softmax": Row(
        lambda s, w: ops.normalise(GRAPH, s, w),
        lambda s, w: _normalised(s, w, "softmax", "rows"),
        ((E,), (E,)),
        positive=(1,),
    ),
    "squareplus": Row(
        lambda s, w: ops.normalise(GRAPH, s, w, kind="squareplus", over="columns"),
        lambda s, w: _normalised(s, w, "squareplus", "columns"),
        ((E,), (E,)),
        positive=(1,),
    ),
    "symmetric": Row(
        lambda s, w: ops.normalise(GRAPH, s, w, kind="squareplus", over="symmetric"),
        lambda s, w: _normalised(s, w, "squareplus", "symmetric"),
        ((E,), (E,)),
        positive=(1,),
    ),
    "diffuse, symmetric": Row(
        lambda q, k, x: ops.diffuse(GRAPH, q, k, x, over="symmetric"),
        lambda q, k, x: _dense(_attention(q, k, q.new_ones(E), "softmax", "symmetric")) @ x - x,
        (HEADS, HEADS, (N, 2)),
    ),
    "attention": Row(
        lambda q, k: ops.attention(GRAPH, q, k, activation="exp"),
        lambda q, k: _attention(q, k, q.new_ones(E), "softmax", "rows", "exp"),
        (HEADS, HEADS),
    ),
    "attention, weighted": Row(
        lambda q, k, w: ops.attention(GRAPH, q, k, w, kind="squareplus", over="columns"),
        lambda q, k, w: _attention(q, k, w, "squareplus", "columns"),
        (HEADS, HEADS, (E,)),
        positive=(2,),
    ),
    "diffuse": Row(
        lambda q, k, x: ops.diffuse(GRAPH, q, k, x, kind="squareplus"),
        lambda q, k, x: _dense(_attention(q, k, q.new_ones(E), "squareplus", "rows")) @ x - x,
        (HEADS, HEADS, (N, 2)),
    ),
    "diffuse, weighted": Row(
        lambda q, k, x, w: ops.diffuse(GRAPH, q, k, x, w, over="columns", activation="leaky_relu"),
        lambda q, k, x, w: _dense(_attention(q, k, w, "softmax", "columns", "leaky_relu")) @ x - x,
        (HEADS, HEADS, (N, 2), (E,)),
        positive=(3,),
    ),
    "combine": Row(
        lambda c, b, x, y, start: ops.combine([c, b], [x, y], start),
        _combined,
        ((1, 1), (1, 1), (N, 2), (N, 2), (N, 2)),
    ),
    "combine, channels": Row(
        lambda c, b, x, y, start: ops.combine([c, b], [x, y], start),
        _combined,
        ((1, 2), (1, 1), (N, 2), (N, 2), (N, 2)),
    ),
    "affine": Row(
        affine,
        lambda x, w, b: x @ w.mT + b.unsqueeze(-2),
        ((1, N, 3), (1, 2, 3), (1, 2)),
        only_float32=True,
    ),
    "affines": Row(
        lambda x, w, v: torch.cat([y.sin() for y in affines(x, [(w, None), (v, None)])], -1),
        lambda x, w, v: torch.cat([x @ w.mT, x @ v.mT], -1).sin(),
        ((1, N, 3), (1, 2, 3), (1, 1, 3)),
        only_float32=True,
    ),
    "sparse_product": Row(
        lambda v, w: sparse_product(GRAPH, v, w), lambda v, w: _dense(v) @ w.mT, ((E,), (2, N))
    ),
    "dropout": Row(
        lambda rate: dropout_scale(KEY.expand(rate.shape), (5,), rate), _dropout, ((),), positive=(0,)
    ),
}


def _near(found: Tensor, exact: Tensor, dtype: torch.dtype) -> None:
    """Equal to the rounding of a type."""
    tolerance = 1e-10 if dtype == torch.float64 else 2e-5
    assert found.shape == exact.shape
    error, size = (float(t.detach().norm()) for t in (found - exact, exact))
    assert error <= tolerance * max(1.0, size)


def _close(found: Any, exact: Any) -> None:
    """Equal to the rounding of the type of ``found``."""
    if isinstance(found, tuple):
        assert len(found) == len(exact)
        for one, other in zip(found, exact, strict=True):
            _close(one, other)
        return
    _near(found.double(), exact.double(), found.dtype)


def _double(tensors: list[Tensor]) -> list[Tensor]:
    return [t.double() for t in tensors]


def _loss(function: Function) -> Function:
    """A number that depends on all of the result, and not linearly."""

    def loss(*args: Tensor) -> Tensor:
        out = function(*args)
        return (out * torch.cos(torch.arange(out.numel(), dtype=out.dtype)).reshape(out.shape)).sin().sum()

    return loss


def _all(row: Row) -> tuple[int, ...]:
    return tuple(range(len(row.shapes)))


def _backward(row: Row, backend: str) -> None:
    found, exact = [], []
    for function, into, double in ((row.run, found, False), (row.formula, exact, True)):
        inputs = row.inputs(backend, 2)
        inputs = [t.requires_grad_() for t in (_double(inputs) if double else inputs)]
        out = function(*inputs)
        into += [out, *torch.autograd.grad(out.sin().sum(), inputs)]
    _close(tuple(found), tuple(exact))


def _double_backward(row: Row, backend: str) -> None:
    found = []
    for function, double in ((row.run, False), (row.formula, True)):
        inputs = row.inputs(backend, 2)
        inputs = [t.requires_grad_() for t in (_double(inputs) if double else inputs)]
        first = torch.autograd.grad(_loss(function)(*inputs), inputs, create_graph=True)
        bend = sum(slope.cos().sum() for slope in first)
        found.append(torch.autograd.grad(bend, inputs))
    _close(*found)


def _differences(row: Row, backend: str) -> None:
    """The first and second derivative along a line, by both modes, against differences in float64."""
    inputs = row.inputs(backend)
    if inputs[0].dtype != torch.float64:
        return  # kernels of float32 alone: differences would show their rounding
    line, step, place = _line(row.run, inputs), 1e-5, torch.zeros((), dtype=torch.float64)
    first = (line(place + step) - line(place - step)) / (2 * step)
    slope = func.jacrev(line)
    torch.testing.assert_close(func.jacfwd(line)(place), first, rtol=1e-7, atol=1e-7)
    torch.testing.assert_close(slope(place), first, rtol=1e-7, atol=1e-7)
    second = (slope(place + step) - slope(place - step)) / (2 * step)
    torch.testing.assert_close(func.hessian(line)(place), second, rtol=1e-7, atol=1e-7)


def _line(function: Function, inputs: list[Tensor]) -> Function:
    """Two numbers from the result, as functions of the place on a line through the inputs."""

    def numbers(place: Tensor) -> Tensor:
        place = place.to(inputs[0].dtype)
        out = function(*(t + place * t.cos() + place.square() * (2 * t).sin() for t in inputs)).flatten()
        count = torch.arange(out.numel(), dtype=out.dtype)
        return torch.stack([(out * count.cos()).sum(), (out * count.sin()).square().sum()])

    return numbers


def _vmap(row: Row, backend: str) -> None:
    inputs = row.inputs(backend, 3, 2)
    _close(func.vmap(row.run)(*inputs), row.formula(*_double(inputs)))
    inputs = row.inputs(backend, 3)
    last = [t.movedim(0, -1) for t in inputs]
    exact = row.formula(*_double(inputs)).movedim(0, -1)
    _close(func.vmap(row.run, in_dims=-1, out_dims=-1)(*last), exact)
    nested = row.inputs(backend, 2, 3)
    _close(func.vmap(func.vmap(row.run))(*nested), row.formula(*_double(nested)))
    single, many = row.inputs(backend), row.inputs(backend, 3)
    for k in range(len(many)) if len(many) > 1 else ():
        mixed = [m if i == k else s for i, (s, m) in enumerate(zip(single, many, strict=True))]
        dims = tuple(0 if i == k else None for i in range(len(many)))
        exact = func.vmap(row.formula, in_dims=dims)(*_double(mixed))
        _close(func.vmap(row.run, in_dims=dims)(*mixed), exact)


def _grad(row: Row, backend: str) -> None:
    both = [func.grad(_loss(f), argnums=_all(row)) for f in (row.run, row.formula)]
    one, many = row.inputs(backend), row.inputs(backend, 3)
    _close(both[0](*one), both[1](*_double(one)))
    _close(func.vmap(both[0])(*many), func.vmap(both[1])(*_double(many)))
    over = [func.grad(lambda *args, f=f: func.vmap(_loss(f))(*args).sum()) for f in (row.run, row.formula)]
    _close(over[0](*many), over[1](*_double(many)))
    out, pull = func.vjp(row.run, *one)
    exact, exact_pull = func.vjp(row.formula, *_double(one))
    _close((out, pull(out.cos())), (exact, exact_pull(exact.cos())))


def _tangents(tensors: list[Tensor]) -> list[Tensor]:
    return [(t + k).cos() for k, t in enumerate(tensors)]


def _jvp(row: Row, backend: str) -> None:
    one, many = row.inputs(backend), row.inputs(backend, 3)
    for tensors, wrap in ((one, lambda f: f), (many, func.vmap)):
        found = func.jvp(wrap(row.run), tuple(tensors), tuple(_tangents(tensors)))
        wide = _double(tensors)
        _close(found, func.jvp(wrap(row.formula), tuple(wide), tuple(_double(_tangents(tensors)))))
    with forward_ad.dual_level():  # and of each tensor alone
        for k in range(len(one)):
            found = []
            for function, double in ((row.run, False), (row.formula, True)):
                tensors = [t.double() if double else t for t in one]
                tensors[k] = forward_ad.make_dual(tensors[k], tensors[k].cos())
                found.append(tuple(forward_ad.unpack_dual(function(*tensors))))
            _close(*found)

    def each(f: Function) -> Any:
        return func.vmap(lambda *args: func.jvp(f, args[: len(one)], args[len(one) :])[1])

    _close(
        each(row.run)(*many, *_tangents(many)), each(row.formula)(*_double(many), *_double(_tangents(many)))
    )


def _jacobians(row: Row, backend: str) -> None:
    one = row.inputs(backend)
    if backend == "torch":  # Triton's interpreter is slow
        for transform in (func.jacfwd, func.jacrev):
            both = [transform(f, argnums=_all(row)) for f in (row.run, row.formula)]
            _close(both[0](*one), both[1](*_double(one)))
    for transform in (func.jacfwd, func.jacrev):
        exact = transform(_line(row.formula, _double(one)))(PLACE)
        _near(transform(_line(row.run, one))(PLACE), exact, one[0].dtype)


def _hessian(row: Row, backend: str) -> None:
    one = row.inputs(backend)
    exact = func.hessian(_line(row.formula, _double(one)))(PLACE)
    for outer, inner in (
        (func.jacfwd, func.jacrev),
        (func.jacrev, func.jacfwd),
        (func.jacfwd, func.jacfwd),
    ):
        _near(outer(inner(_line(row.run, one)))(PLACE), exact, one[0].dtype)


def _autocast(row: Row, backend: str) -> None:
    halves = [t.bfloat16().requires_grad_() for t in row.inputs(backend, 2)]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = row.run(*halves)
        assert out.dtype == torch.float32
    singles = [t.detach().float().requires_grad_() for t in halves]
    exact = row.run(*singles)
    _close(out, exact)
    found = torch.autograd.grad(out.sin().sum(), halves)
    right = torch.autograd.grad(exact.sin().sum(), singles)
    _close(found, tuple(t.bfloat16() for t in right))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert row.run(*row.inputs(backend, 2)).dtype == row.inputs(backend)[0].dtype


def _compile(row: Row, backend: str) -> None:
    torch.compiler.reset()
    compiled = torch.compile(row.run, backend="aot_eager", fullgraph=True)
    found = []
    for function in (compiled, row.run):
        inputs = [t.requires_grad_() for t in row.inputs(backend, 2)]
        out = function(*inputs)
        found.append((out, *torch.autograd.grad(out.sin().sum(), inputs)))
    _close(*found)


class Module(torch.nn.Module):
    def __init__(self, run: Function) -> None:
        super().__init__()
        self.run = run

    def forward(self, *tensors: Tensor) -> Tensor:
        return self.run(*tensors)


def _export(row: Row, backend: str) -> None:
    inputs = tuple(row.inputs(backend, 2))
    file = io.BytesIO()
    torch.export.save(torch.export.export(Module(row.run), inputs), file)
    file.seek(0)
    _close(torch.export.load(file).module()(*inputs), row.run(*inputs))


CHECKS: dict[str, Callable[[Row, str], None]] = {
    "backward": _backward,
    "double backward": _double_backward,
    "finite differences": _differences,
    "vmap": _vmap,
    "grad": _grad,
    "jvp": _jvp,
    "jacobians": _jacobians,
    "hessian": _hessian,
    "autocast": _autocast,
    "compile": _compile,
    "export": _export,
}

CELLS = [(row, check) for row in OPERATORS for check in CHECKS]
