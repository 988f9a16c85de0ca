"""The Triton kernels on a GPU: accuracy at real sizes, determinism, capture in a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor, func

from graphdiffusion import ops
from graphdiffusion.graph import Graph
from graphdiffusion.ops import torch as torch_backend
from graphdiffusion.ops.backends import backend
from graphdiffusion.ops.functions import transposed
from graphdiffusion.solvers.series import composed, power_series

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
MEMBERS, NODES, EDGES, WIDTH, HEADS, DK = 8, 2485, 10_000, 80, 8, 16


@pytest.fixture(scope="module")
def graph() -> Graph:
    """Cora's size, a degree distribution with a long tail, and one node that everybody hears and one that
    hears everybody (rows and columns that are cut into segments)."""
    torch.manual_seed(0)
    u = (torch.rand(EDGES) ** 3 * NODES).long()
    v = torch.randint(NODES, (EDGES,))
    everybody = torch.arange(NODES)
    edges = torch.cat(
        [
            torch.stack([u, v]),
            torch.stack([v, u]),
            torch.stack([everybody, torch.full_like(everybody, 7)]),
            torch.stack([torch.full_like(everybody, 11), everybody]),
        ],
        dim=1,
    )
    return Graph.from_edge_index(edges, NODES, self_loops=1.0).to("cuda")


def draw(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, device="cuda").to(dtype)


def heads(dtype: torch.dtype = torch.float32) -> Tensor:
    return (
        draw(MEMBERS, NODES, HEADS * DK, dtype=dtype).unflatten(-1, (HEADS, DK)).transpose(1, 2) / DK**0.5
    )


def close(a: Tensor, exact: Tensor, tolerance: float = 1e-5) -> None:
    a, exact = a.detach().double(), exact.detach().double()
    assert a.shape == exact.shape
    error = float((a - exact).norm() / exact.norm())
    assert error < tolerance, f"relative error {error:.2e}"


def kernels() -> object:
    return pytest.importorskip("graphdiffusion.ops.triton")


def test_cuda_tensors_get_the_triton_backend(graph: Graph) -> None:
    assert backend(draw(1)) is kernels()
    with ops.use_backend("torch"):
        assert backend(draw(1)) is torch_backend


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("d", [1, 5, 16, 80, 128])
@pytest.mark.parametrize("members", [1, MEMBERS, 100])
def test_spmm(graph: Graph, members: int, d: int, transpose: bool) -> None:
    values, x = draw(members, graph.num_edges), draw(members, NODES, d)
    c, z = draw(members), draw(members, NODES, d)
    pattern, entries = transposed(graph, values) if transpose else (graph, values)
    exact = torch_backend.spmm(pattern, entries.double(), x.double())
    close(kernels().spmm(pattern, entries, x), exact)
    added = kernels().spmm(pattern, entries, x, (c, z))
    close(added, exact + c.double()[:, None, None] * z.double())
    halved = kernels().spmm(pattern, entries, x.bfloat16())
    assert halved.dtype == torch.bfloat16
    close(halved, exact, 1e-2)


@pytest.mark.parametrize("d", [1, 5, 16, 80, 128])
def test_sddmm(graph: Graph, d: int) -> None:
    q, k = draw(MEMBERS, NODES, d), draw(MEMBERS, NODES, d)
    exact = torch_backend.sddmm(graph, q.double(), k.double())
    before = draw(MEMBERS, graph.num_edges)
    close(kernels().sddmm(graph, q, k), exact)
    close(kernels().sddmm(graph, q, k, before.clone()), before.double() + exact)
    close(kernels().sddmm(graph, q.bfloat16(), k.bfloat16()), exact, 2e-2)


@pytest.mark.parametrize("over", ["rows", "columns"])
def test_groups(graph: Graph, over: str) -> None:
    values, nodes = draw(MEMBERS, graph.num_edges), draw(MEMBERS, NODES)
    for name, field in (("group_sum", values), ("group_max", values), ("spread", nodes)):
        exact = getattr(torch_backend, name)(graph, field.double(), over)
        close(getattr(kernels(), name)(graph, field, over), exact)


@pytest.mark.parametrize("d", [1, 5, 16, 80, 128])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_pooling(graph: Graph, d: int, dtype: torch.dtype) -> None:
    """With ties, empty rows and NaN; both kinds of kernels on the device, against torch's on the CPU."""
    pattern = graph.neighbours
    x, z = (draw(MEMBERS, NODES, d).to(dtype).mul(2).round() for _ in range(2))
    x[0, 4, 0] = torch.nan
    here, own, field = pattern.to("cpu"), x.cpu(), z.cpu()
    exact = torch_backend.pool(here, own)
    for made in (kernels(), torch_backend):
        y = made.pool(pattern, x)
        assert torch.equal(y.cpu().nan_to_num(99), exact.nan_to_num(99))
        assert torch.equal(made.match(pattern, y, x, z).cpu(), torch_backend.match(here, exact, own, field))
        back = made.match(pattern.transposed, x, y, z).cpu()
        assert torch.equal(back, torch_backend.match(here.transposed, own, exact, field))


@pytest.mark.parametrize("over", ["rows", "columns"])
@pytest.mark.parametrize("kind", ["softmax", "squareplus"])
@pytest.mark.parametrize("weighted", [False, True])
def test_normalise(graph: Graph, weighted: bool, kind: str, over: str) -> None:
    scores, grad = 3 * draw(MEMBERS, graph.num_edges), draw(MEMBERS, graph.num_edges)
    weight = _weight(graph) if weighted else None
    wide = weight.double() if weight is not None else None
    exact = torch_backend.normalise(graph, scores.double(), wide, kind, over)
    values = kernels().normalise(graph, scores, weight, kind, over)
    close(values, exact)
    slope = torch_backend.normalise_backward(graph, grad.double(), exact, scores.double(), kind, over)
    close(kernels().normalise_backward(graph, grad, values, scores, kind, over), slope, 1e-4)


def _weight(graph: Graph) -> Tensor:
    weight = torch.rand(graph.num_edges, device="cuda")
    kept = (weight > 0.3) | (graph.row == graph.col)
    return torch.where(kept, weight, 0.0).expand(MEMBERS, -1)


@pytest.mark.parametrize("over", ["rows", "columns", "symmetric"])
@pytest.mark.parametrize("kind", ["softmax", "squareplus"])
@pytest.mark.parametrize("activation", ["identity", "leaky_relu", "exp"])
@pytest.mark.parametrize("weighted", [False, True])
def test_step(graph: Graph, activation: str, kind: str, over: str, weighted: bool) -> None:
    q, k = heads(), heads()
    # where a score is rounded to the other side of 0, leaky ReLU has another slope
    while activation == "leaky_relu" and float(ops.score(graph, q.double(), k.double()).abs().min()) < 1e-7:
        q, k = heads(), heads()
    inputs = [t.requires_grad_() for t in (q, k, draw(MEMBERS, NODES, WIDTH))]
    weight = _weight(graph) if weighted else None
    how = {"activation": activation, "kind": kind, "over": over}
    grad = draw(MEMBERS, NODES, WIDTH)
    out = ops.diffuse(graph, *inputs, weight, **how)
    slopes = torch.autograd.grad(out, inputs, grad)
    wide = [t.detach().double().requires_grad_() for t in inputs]
    with ops.use_backend("torch"):
        exact = ops.diffuse(graph, *wide, weight.double() if weight is not None else None, **how)
        exact_slopes = torch.autograd.grad(exact, wide, grad.double())
    close(out, exact)
    for slope, exact_slope in zip(slopes, exact_slopes, strict=True):
        close(slope, exact_slope, 1e-4)


@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("terms", [3, 17])
def test_series_of_products(graph: Graph, outputs: int, terms: int) -> None:
    """States and gradients of Σ c_k A^k x, with all powers, with some, and without gradient."""
    values = draw(MEMBERS, graph.num_edges).abs() / 30
    leaves = [values, draw(MEMBERS, NODES, WIDTH), torch.rand(outputs, MEMBERS, 1, 1, terms + 1).cuda()]
    wide = [t.double().requires_grad_() for t in leaves]
    exact = composed(partial(ops.propagate, graph, wide[0]), wide[1], wide[2], wide[2])
    grad = draw(*exact.shape)
    slopes = torch.autograd.grad(exact, wide, grad.double())
    with torch.no_grad():
        close(torch.stack(power_series(graph, leaves[0], leaves[1], leaves[2], leaves[2], False)), exact)
    for checkpoint in (False, True):
        own = [t.clone().requires_grad_() for t in leaves]
        found = torch.stack(power_series(graph, own[0], own[1], own[2], own[2], checkpoint))
        close(found, exact)
        for slope, exact_slope in zip(torch.autograd.grad(found, own, grad), slopes, strict=True):
            close(slope, exact_slope)


def test_step_in_half_precision(graph: Graph) -> None:
    q, k, x = heads(), heads(), draw(MEMBERS, NODES, WIDTH)
    close(ops.diffuse(graph, q, k, x.bfloat16()), ops.diffuse(graph, q, k, x), 1e-2)


@pytest.mark.parametrize("over", ["rows", "columns"])
def test_two_runs_are_equal_bit_for_bit(graph: Graph, over: str) -> None:
    inputs = [t.requires_grad_() for t in (heads(), heads(), draw(MEMBERS, NODES, WIDTH))]
    grad = draw(MEMBERS, NODES, WIDTH)

    def run() -> list[Tensor]:
        out = ops.diffuse(graph, *inputs, over=over)
        values = ops.attention(graph, *inputs[:2], over=over)
        return [out, *torch.autograd.grad(out, inputs, grad), ops.propagate(graph, values, inputs[2])]

    first = run()
    for _ in range(3):
        for a, b in zip(first, run(), strict=True):
            assert torch.equal(a, b)


def test_a_member_alone_is_equal_bit_for_bit(graph: Graph) -> None:
    q, k, x = heads(), heads(), draw(MEMBERS, NODES, WIDTH)
    together = ops.diffuse(graph, q, k, x)
    assert torch.equal(together[3], ops.diffuse(graph, q[3], k[3], x[3]))
    values, x = draw(100, graph.num_edges), draw(100, NODES, WIDTH)  # enough to keep tiles in cache
    assert torch.equal(ops.propagate(graph, values, x)[42], ops.propagate(graph, values[42], x[42]))


def test_capture(graph: Graph) -> None:
    inputs = [t.requires_grad_() for t in (heads(), heads(), draw(MEMBERS, NODES, WIDTH))]
    values, grad = draw(MEMBERS, graph.num_edges), draw(MEMBERS, NODES, WIDTH)

    def product() -> list[Tensor]:
        return [ops.propagate(graph, values, inputs[2].detach())]

    def step() -> list[Tensor]:
        out = ops.diffuse(graph, *inputs)
        return [out.detach(), *torch.autograd.grad(out, inputs, grad)]

    for run in (product, step):
        _replays(run, inputs)


def _replays(run: Callable[[], list[Tensor]], inputs: list[Tensor]) -> None:
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            run()
    torch.cuda.current_stream().wait_stream(stream)
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        outputs = run()
    with torch.no_grad():
        for t in inputs:
            t.mul_(0.5).add_(0.1)
    captured.replay()
    torch.cuda.synchronize()
    for a, b in zip(outputs, run(), strict=True):
        assert torch.equal(a, b)


def _step(graph: Graph) -> tuple[Callable[..., Tensor], tuple[Tensor, ...]]:
    """A function of q, k, x and edge weights, and its inputs for two members."""
    weight = torch.rand(2, graph.num_edges, device="cuda") + 0.5
    inputs = (heads()[:2], heads()[:2], draw(2, NODES, WIDTH), weight)
    return lambda q, k, x, w: ops.diffuse(graph, q, k, x, w), inputs


def _wide(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return tuple(t.double() for t in tensors)


def test_forward_mode(graph: Graph) -> None:
    step, inputs = _step(graph)
    tangents = tuple(torch.randn_like(t) for t in inputs)
    out, moved = func.jvp(step, inputs, tangents)
    with ops.use_backend("torch"):
        exact, exact_moved = func.jvp(step, _wide(inputs), _wide(tangents))
    close(out, exact)
    close(moved, exact_moved, 1e-4)
    values = ops.attention(graph, *inputs[:2])
    product = func.jvp(lambda v, x: ops.propagate(graph, v, x), (values, inputs[2]), (values, tangents[2]))
    close(product[1], ops.propagate(graph, values, inputs[2] + tangents[2]))


def test_attention_without_weights_in_forward_mode(graph: Graph) -> None:
    """The kernels in one piece: the tangent comes from the verbs."""
    inputs = (heads()[:2], heads()[:2])
    tangents = tuple(torch.randn_like(t) for t in inputs)

    def attention(*both: Tensor) -> Tensor:
        return ops.attention(graph, *both, kind="squareplus", over="columns")

    _, moved = func.jvp(attention, inputs, tangents)
    with ops.use_backend("torch"):
        close(moved, func.jvp(attention, _wide(inputs), _wide(tangents))[1], 1e-4)


def test_vmap_and_gradients_of_members(graph: Graph) -> None:
    step, inputs = _step(graph)
    close(func.vmap(step)(*inputs), step(*inputs), 1e-6)

    def loss(*tensors: Tensor) -> Tensor:
        return step(*tensors).square().sum()

    slopes = func.vmap(func.grad(loss, argnums=(0, 1, 2, 3)))(*inputs)
    with ops.use_backend("torch"):
        exact = func.vmap(func.grad(loss, argnums=(0, 1, 2, 3)))(*_wide(inputs))
    for slope, exact_slope in zip(slopes, exact, strict=True):
        close(slope, exact_slope, 1e-4)


def test_statistics_shared_by_mapped_gradients(graph: Graph) -> None:
    """Many gradients of one attention: a row of the Jacobian for each."""
    inputs = (heads()[:1], heads()[:1])
    out, pull = func.vjp(lambda *both: ops.attention(graph, *both), *inputs)
    many = draw(3, *out.shape)
    found = func.vmap(pull)(many)
    for k in range(3):
        for all_of_them, alone in zip(found, pull(many[k]), strict=True):
            close(all_of_them[k], alone)


def test_autocast(graph: Graph) -> None:
    inputs = [t.bfloat16().requires_grad_() for t in (heads(), heads(), draw(MEMBERS, NODES, WIDTH))]
    with torch.autocast("cuda", dtype=torch.bfloat16):
        out = ops.diffuse(graph, *inputs)
    exact = ops.diffuse(graph, *(t.float() for t in inputs))
    assert out.dtype == torch.float32 and torch.equal(out, exact)
    assert all(g.dtype == torch.bfloat16 for g in torch.autograd.grad(out.sum(), inputs))


@pytest.mark.parametrize("compiler", ["aot_eager", "inductor"])
def test_compile(graph: Graph, compiler: str) -> None:
    torch.compiler.reset()
    inputs = [t.requires_grad_() for t in (heads(), heads(), draw(MEMBERS, NODES, WIDTH))]
    found = []
    for function in (ops.diffuse, torch.compile(ops.diffuse, backend=compiler, fullgraph=True)):
        out = function(graph, *inputs)
        found.append([out, *torch.autograd.grad(out.square().sum(), inputs)])
    for ours, theirs in zip(*found, strict=True):
        close(theirs, ours)


def test_export(graph: Graph) -> None:
    class Step(torch.nn.Module):
        def forward(self, q: Tensor, k: Tensor, x: Tensor) -> Tensor:
            return ops.diffuse(graph, q, k, x)

    inputs = (heads(), heads(), draw(MEMBERS, NODES, WIDTH))
    close(torch.export.export(Step(), inputs).module()(*inputs), Step()(*inputs))
