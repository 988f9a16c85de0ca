"""Powers of A in bfloat16: against a dense formula that rounds likewise, among members, and on parts."""

from __future__ import annotations

import pytest
import torch
from processes import group
from test_parts_ops import own, part_of, whole_graph
from torch import Tensor
from torch.testing import assert_close

from graphdiffusion import GraphDiffusion, ops
from graphdiffusion.errors import ArgumentError, DtypeError
from graphdiffusion.partition import use_part
from graphdiffusion.solvers import Exponential, ExponentialTwoStep
from graphdiffusion.solvers.series import power_series

UNIT = 2.0**-8  # largest relative error of rounding to bfloat16


def rounded(x: Tensor) -> Tensor:
    """Rounded to bfloat16, in its own type; the gradient is that of x."""
    return x + (x.detach().float().bfloat16().to(x.dtype) - x.detach())


def problem(members: int = 2, d: int = 5, terms: int = 6, seed: int = 0):
    graph = whole_graph(directed=False, n=40, edges=120)
    generator = torch.Generator().manual_seed(seed)
    values = ops.normalise(graph, torch.randn(members, graph.num_edges, generator=generator))
    x = torch.randn(members, graph.num_nodes, d, generator=generator) + 1
    c = torch.rand(3, members, 1, 1, terms + 1, generator=generator)
    return graph, values, x, c


def by_formula(graph, values, x, c):
    """``Σ c_k y_k`` with ``y_0`` and every product rounded, in float64 and by a dense matrix."""
    dense = torch.stack([graph.dense(v) for v in values])
    y = rounded(x)
    total = c[..., 0] * y
    for k in range(1, c.shape[-1]):
        y = rounded(dense @ y)
        total = total + c[..., k] * y
    return total


@pytest.mark.parametrize("checkpoint", [False, True])
def test_against_the_formula(checkpoint):
    """Values and gradients. A power may be rounded to the other side where float32 and float64 differ."""
    graph, *fields = problem()
    weight = torch.randn(3, 2, 40, 5, generator=torch.Generator().manual_seed(9))
    given = [f.clone().requires_grad_() for f in fields]
    exact = [f.double().requires_grad_() for f in fields]
    out = torch.stack(power_series(graph, *given, given[2], checkpoint, True))
    right = by_formula(graph, *exact)
    assert out.dtype == torch.float32
    found = torch.autograd.grad((out * weight).sum(), given)
    wanted = torch.autograd.grad((right * weight.double()).sum(), exact)
    for a, b in zip([out, *found], [right, *wanted], strict=True):
        assert a.dtype == torch.float32
        assert float((a - b).detach().norm() / b.detach().norm()) < 1e-5
    # and it is not what float32 gives
    plain = torch.stack(power_series(graph, *fields, fields[2], checkpoint))
    assert 1e-4 < float((out.detach() - plain).norm() / plain.norm()) < UNIT


def test_the_bound():
    """‖A‖∞ = 1: power k has at most k + 1 errors of rounding, each of at most 2⁻⁸ of the largest entry."""
    graph, values, x, c = problem(terms=30)
    out = torch.stack(power_series(graph, values, x, c, c, False, True))
    exact = torch.stack(power_series(graph, values.double(), x.double(), c.double(), c.double(), False))
    errors = torch.arange(1, c.shape[-1] + 1) * UNIT * (1 + UNIT) ** c.shape[-1]
    bound = (c * errors).sum(-1) * x.abs().amax((-2, -1), keepdim=True)
    assert bool(((out - exact).abs() <= bound).all())


def test_products_round_once():
    graph, values, x, _ = problem()
    exact = torch.stack([graph.dense(v) for v in values]).double() @ x.bfloat16().double()
    found = ops.propagate(graph, values, x.bfloat16())
    assert found.dtype == torch.bfloat16
    assert bool(((found.double() - exact).abs() <= UNIT * exact.abs() + 1e-6).all())
    scores = ops.propagate(graph, values.requires_grad_(), x.bfloat16())
    (grad,) = torch.autograd.grad(scores.float().sum(), values)
    assert grad.dtype == torch.float32
    ones = torch.ones(2, 40, 5)
    assert_close(grad, ops.score(graph, ones, x.bfloat16().float()), rtol=1e-6, atol=1e-6)


LAYERS = {
    "closed form": {},
    "learnt time, rows": {"learn_time": True, "over": "rows"},
    "checkpoint": {"gradient": "checkpoint"},
    "two-step": {"variant": "nonlinear", "solver": "exponential-two-step"},
    "euler checkpoint": {"variant": "nonlinear", "solver": "exponential-euler", "gradient": "checkpoint"},
    "cf4": {"variant": "nonlinear", "solver": "exponential-cf4"},
}


def layer_of(name: str, precision: str = "bfloat16", **more) -> GraphDiffusion:
    torch.manual_seed(3)
    layer = GraphDiffusion(
        6, time=4.0, heads=2, attention_dim=4, precision=precision, **LAYERS[name], **more
    )
    with torch.no_grad():
        for p in layer.parameters():
            p.add_(0.3 * torch.randn_like(p))
    return layer


@pytest.mark.parametrize("name", LAYERS)
def test_near_float32_alone_and_among_members(name):
    graph = whole_graph(directed=False, n=40, edges=120)
    x = torch.randn(3, 40, 6, generator=torch.Generator().manual_seed(1)).requires_grad_()
    half, full = layer_of(name), layer_of(name, "full")
    out = half(x, graph)
    assert out.dtype == torch.float32
    assert float((out - full(x, graph)).detach().norm() / out.detach().norm()) < UNIT
    with torch.no_grad():  # validation sees the states of the training
        seen = half(x, graph)
    if "solver" in LAYERS[name]:  # up to roundings to the other side, after sums in another order
        assert float((seen - out).norm() / out.norm()) < UNIT / 10
    else:
        assert_close(seen, out, rtol=1e-6, atol=1e-6)
    for k in range(3):
        assert torch.equal(half(x[k : k + 1], graph)[0], out[k])
    weight = torch.randn(3, 40, 6, generator=torch.Generator().manual_seed(2))
    grads = [
        torch.autograd.grad((layer(x, graph) * weight).sum(), [x, *layer.parameters()], allow_unused=True)
        for layer in (half, full)
    ]
    for a, b in zip(*grads, strict=True):
        if a is not None and b is not None and float(b.norm()) > 1e-2:
            assert float((a - b).norm() / b.norm()) < 0.05


def test_checkpoints_give_the_same_numbers():
    graph = whole_graph(directed=False, n=40, edges=120)
    x = torch.randn(40, 6, generator=torch.Generator().manual_seed(1))
    found = []
    for name in ("closed form", "checkpoint"):
        layer = layer_of(name)
        grads = torch.autograd.grad(layer(x, graph).square().sum(), list(layer.parameters()))
        found.append([layer(x, graph), *grads])
    for a, b in zip(*found, strict=True):
        assert_close(a, b, rtol=1e-5, atol=1e-6)


def test_after_a_long_diffusion():
    """Neighbours are nearly equal at the end; the attention learns from their differences."""
    graph = whole_graph(directed=False, n=300, edges=3000)
    generator = torch.Generator().manual_seed(1)
    x, weight = (torch.randn(300, 8, generator=generator) + 1 for _ in range(2))
    found = []
    for precision in ("full", "bfloat16"):
        torch.manual_seed(0)
        layer = GraphDiffusion(8, 18.0, alpha=1, heads=2, attention_dim=8, over="rows", precision=precision)
        torch.nn.init.normal_(layer.equation.diffusivity.query.weight)
        out = layer(x, graph)
        loss = (out * weight).sum()
        found.append((out, *torch.autograd.grad(loss, [layer.equation.diffusivity.query.weight])))
    state, gradient = (
        float((b - a).detach().norm() / a.detach().norm()) for a, b in zip(*found, strict=True)
    )
    assert state < UNIT and gradient < 2 * UNIT


def test_refusals():
    graph, values, y, c = problem()
    x = torch.randn(40, 6)
    cases = [
        (lambda: layer_of("closed form", coefficients="channel"), ArgumentError, "all channels share"),
        (lambda: layer_of("two-step", channel_rates=True), ArgumentError, "all channels share"),
        (lambda: layer_of("closed form", equation="adc"), ArgumentError, "all channels share"),
        (lambda: layer_of("two-step", equation="adc"), ArgumentError, "all channels share"),
        (lambda: layer_of("two-step", gradient="adjoint"), ArgumentError, "saves nothing with the adjoint"),
        (lambda: GraphDiffusion(6, variant="nonlinear", precision="bfloat16"), ArgumentError, "got dopri5"),
        (lambda: GraphDiffusion(6, solver="rk4", precision="bfloat16"), ArgumentError, "precision"),
        (lambda: GraphDiffusion(6, precision="half"), ArgumentError, "full, bfloat16, got 'half'"),
        (lambda: Exponential(precision="half"), ArgumentError, "full, bfloat16, got 'half'"),  # type: ignore[arg-type]
        (lambda: ExponentialTwoStep(precision="half"), ArgumentError, "got 'half'"),  # type: ignore[arg-type]
        (lambda: layer_of("closed form").double()(x.double(), graph), DtypeError, "model in float32"),
        (
            lambda: layer_of("closed form", terms="source,blurring-sharpening"),
            ArgumentError,
            "cancel each other",
        ),
        (
            lambda: GraphDiffusion(
                6, terms="source,blurring-sharpening", solver=Exponential(precision="bfloat16")
            )(x, graph),
            ArgumentError,
            "cancel each other",
        ),
        (
            lambda: torch.func.jvp(lambda v: power_series(graph, values, v, c, c, False, True), (y,), (y,)),
            ArgumentError,
            "transformed by torch.func",
        ),
    ]
    for act, error, says in cases:
        with pytest.raises(error, match=says):
            act()


def on_parts(rank, size, name):
    from graphdiffusion.partition.exchange import traffic

    graph = whole_graph(directed=False, n=40, edges=120)
    part = part_of(graph, rank, size)
    generator = torch.Generator().manual_seed(1)
    x, weight = (torch.randn(2, 40, 6, generator=generator) for _ in range(2))
    sent = []

    def result(layer, on, x, weight):
        start = traffic.bytes
        x = x.clone().requires_grad_()
        out = layer(x, on)
        sent.append(traffic.bytes - start)
        start = traffic.bytes
        grads = torch.autograd.grad(
            (out * weight).sum(), [x, *layer.parameters()], allow_unused=True, materialize_grads=True
        )
        sent.append(traffic.bytes - start)
        return out, grads

    layer = layer_of(name)
    wanted, gradients = result(layer, graph, x, weight)
    shape = (2, "n", 6)
    with use_part(part):
        from graphdiffusion.partition.whole import total

        out, found = result(layer, part, own(part, x, shape), own(part, weight, shape))
        summed = [total(g) for g in found[1:]]
        result(layer_of(name, "full"), part, own(part, x, shape), own(part, weight, shape))
    # float32 sums in another order may be rounded to the other side: to bfloat16 in a few powers
    wanted, gradients = own(part, wanted, shape), [own(part, gradients[0], shape), *gradients[1:]]
    for a, b in zip([out, found[0], *summed], [wanted, *gradients], strict=True):
        if float(b.norm()) > 1e-2:
            assert float((a - b).norm() / b.norm()) < 2e-3
    return sent[2:], len(part.send), traffic.exchanges


@pytest.mark.parametrize("size", [2, 3])
def test_parts(size):
    for (forward, backward, full, full_backward), send, _ in group(size).run(on_parts, "closed form"):
        products = (full - forward) // (
            2 * 2 * 6 * send
        )  # a power of 2 members and 6 channels: 2 bytes less
        assert products > 10 and full - forward == products * 2 * 2 * 6 * send
        # on the way back the powers are read once more, and gradients are float32
        assert full_backward - backward == products * 2 * 2 * 6 * send


def test_parts_nonlinear():
    group(2).run(on_parts, "two-step")
