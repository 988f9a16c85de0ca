"""Verbs, reductions and the random numbers of a part against those of the whole graph."""

from __future__ import annotations

import pytest
import torch
from processes import group
from torch.testing import assert_close

from graphdiffusion.graph import Graph
from graphdiffusion.ops import attention, diffuse, group_sum, normalise, pool, propagate, score, spread
from graphdiffusion.partition import split

SIZES = (2, 3)


def whole_graph(directed=True, n=29, edges=90, seed=0, weighted=False):
    generator = torch.Generator().manual_seed(seed)
    index = torch.randint(0, n, (2, edges), generator=generator)
    if not directed:
        index = torch.cat([index, index.flip(0)], 1)
    weight = (
        torch.rand(index.shape[1], generator=generator, dtype=torch.float64) + 0.5 if weighted else None
    )
    return Graph.from_edge_index(index, n, weight, self_loops=1.0)


def part_of(graph, rank, size, seed=0):
    """Parts of different sizes; some nodes of a part have no neighbour in it."""
    share = torch.rand(graph.num_nodes, generator=torch.Generator().manual_seed(seed))
    assignment = (share.square() * size).long()
    assignment[:size] = torch.arange(size)
    return split(graph, assignment)[rank]


def fields(graph, *shapes, seed=1):
    generator = torch.Generator().manual_seed(seed)
    sizes = {"n": graph.num_nodes, "E": graph.num_edges}
    return [
        torch.randn([sizes.get(s, s) for s in shape], generator=generator, dtype=torch.float64)
        for shape in shapes
    ]


def own(part, field, shape):
    """The rows or edges of a part."""
    if "n" in shape:
        return field.index_select(shape.index("n"), part.nodes)
    return field.index_select(shape.index("E"), part.places) if "E" in shape else field


CASES = {
    "propagate": (lambda g, a, x: propagate(g, a, x), [(2, "E"), (2, "n", 3)], (2, "n", 3)),
    "transposed": (
        lambda g, a, x: propagate(g, a, x, transpose=True), [(2, "E"), (2, "n", 3)], (2, "n", 3)
    ),
    "one matrix": (lambda g, a, x: propagate(g, a, x), [("E",), (4, "n", 3)], (4, "n", 3)),
    "score": (lambda g, q, k: score(g, q, k), [(2, "n", 3), (2, "n", 3)], (2, "E")),
    "rows": (lambda g, s: normalise(g, s), [(2, "E")], (2, "E")),
    "columns": (lambda g, s: normalise(g, s, over="columns"), [(2, "E")], (2, "E")),
    "squareplus": (
        lambda g, s, w: normalise(g, s, w.square(), kind="squareplus", over="columns"),
        [(2, "E"), (2, "E")],
        (2, "E"),
    ),
    "symmetric": (lambda g, s: normalise(g, s, over="symmetric"), [(2, "E")], (2, "E")),
    "attention": (
        lambda g, q, k: attention(g, q, k, over="columns"), [(2, 2, "n", 3), (2, 2, "n", 3)], (2, "E")
    ),
    "diffuse": (
        lambda g, q, k, x: diffuse(g, q, k, x, kind="squareplus"),
        [(2, 2, "n", 3), (2, 2, "n", 3), (2, "n", 4)],
        (2, "n", 4),
    ),
    "sum of rows": (lambda g, a: group_sum(g, a), [(2, "E")], (2, "n")),
    "sum of columns": (lambda g, a: group_sum(g, a, "columns"), [(2, "E")], (2, "n")),
    "spread rows": (lambda g, v: spread(g, v), [(2, "n")], (2, "E")),
    "spread columns": (lambda g, v: spread(g, v, "columns"), [(2, "n")], (2, "E")),
    "pool": (lambda g, x: pool(g, x), [(2, "n", 3)], (2, "n", 3)),
    "pool neighbours": (lambda g, x: pool(g.neighbours, x), [(2, "n", 3)], (2, "n", 3)),
}  # fmt: skip


def without_neighbours(graph, rank, size):
    """The last part reads nothing from others and nothing is read from it: a node with its self-loop."""
    assignment = torch.arange(graph.num_nodes) % (size - 1)
    assignment[-1] = size - 1
    return split(graph, assignment)[rank]


def verb(rank, size, name, lonely=False):
    from graphdiffusion.partition.whole import use_part

    function, shapes, result = CASES[name]
    graph = whole_graph()
    if lonely:
        one = torch.full((2, 1), graph.num_nodes)
        graph = Graph.from_edge_index(torch.cat([graph.edge_index, one], 1), graph.num_nodes + 1)
    part = without_neighbours(graph, rank, size) if lonely else part_of(graph, rank, size)
    given = fields(graph, *shapes)
    (cotangent,) = fields(graph, result, seed=2)
    tangents = fields(graph, *shapes, seed=3)

    def everything(on, inputs, weight, moved):
        inputs = [v.clone().requires_grad_() for v in inputs]
        out = function(on, *inputs)
        first = torch.autograd.grad((out.square() * weight).sum(), inputs, create_graph=True)
        twice = torch.autograd.grad(sum(g.square().sum() for g in first), inputs)
        plain = [v.detach() for v in inputs]
        jvp = torch.func.jvp(lambda *a: function(on, *a), tuple(plain), tuple(moved))[1]
        mapped = torch.vmap(lambda *a: function(on, *a))(*(torch.stack([v, 2 * v]) for v in plain))
        return out, first, twice, jvp, mapped

    wanted = everything(graph, given, cotangent, tangents)
    with use_part(part):
        mine = everything(
            part,
            [own(part, v, s) for v, s in zip(given, shapes, strict=True)],
            own(part, cotangent, result),
            [own(part, v, s) for v, s in zip(tangents, shapes, strict=True)],
        )
    close = {"rtol": 1e-11, "atol": 1e-12}
    assert_close(mine[0], own(part, wanted[0], result), **close)
    for order in (1, 2):
        for a, b, s in zip(mine[order], wanted[order], shapes, strict=True):
            assert_close(a, own(part, b, s), **close)
    assert_close(mine[3], own(part, wanted[3], result), **close)
    assert_close(mine[4], own(part, wanted[4], ("v", *result)), **close)


def order_of_work(rank, size):
    """What happens in a product and a score, in order; whether bytes move while nothing waits for them."""
    import time

    from graphdiffusion.ops import torch as kernels
    from graphdiffusion.partition import exchange
    from graphdiffusion.partition.whole import use_part

    graph = whole_graph()
    part = part_of(graph, rank, size)
    values, x = (
        own(part, f, s)
        for f, s in zip(fields(graph, (1, "E"), (1, "n", 3)), [(1, "E"), (1, "n", 3)], strict=True)
    )
    names = {part.inner[0]: "inner", part.outer[0]: "outer"}
    names |= {part.transposed.inner: "inner", part.transposed.outer: "outer", part.returned: "add"}
    seen = []
    with pytest.MonkeyPatch.context() as patch, use_part(part):
        for verb in ("spmm", "sddmm"):
            real = getattr(kernels, verb)

            def noted(pattern, *args, real=real, **more):
                seen.append(names[pattern])
                return real(pattern, *args, **more)

            patch.setattr(kernels, verb, noted)
        start, wait = exchange._exchange, exchange.Arriving.wait
        patch.setattr(exchange, "_exchange", lambda *args: seen.append("start") or start(*args))
        patch.setattr(exchange.Arriving, "wait", lambda self: seen.append("wait") or wait(self))
        found = []
        for act in (
            lambda: propagate(part, values, x),
            lambda: propagate(part, values, x, transpose=True),
            lambda: score(part, x, x),
        ):
            seen.clear()
            act()
            found.append(list(seen))
        arriving = exchange.fetch(part, x)
        deadline = time.monotonic() + 30
        while not arriving.work.is_completed() and time.monotonic() < deadline:
            time.sleep(0.01)  # nothing of torch is called here
        done = arriving.work.is_completed()
        arriving.wait()
    return found, done


def test_inner_rows_while_the_halo_is_on_its_way():
    for found, done in group(2).run(order_of_work):
        assert found == [
            ["start", "inner", "wait", "outer"],
            ["outer", "start", "inner", "wait", "add"],
            ["start", "inner", "wait", "outer"],
        ]
        assert done


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", CASES)
def test_verbs(name, size):
    group(size).run(verb, name)


@pytest.mark.parametrize("name", CASES)
def test_a_part_without_neighbours(name):
    group(2).run(verb, name, True)
