"""How many kernels the verbs call, forward, backward and in forward mode."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from conftest import normal
from torch import Tensor, func

from graphdiffusion import ops
from graphdiffusion.graph import Graph
from graphdiffusion.ops.backends import backend

KERNELS = ("spmm", "sddmm", "normalise", "normalise_backward", "group_sum", "group_max", "spread")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """The kernels called so far."""
    module, found = backend(torch.zeros(1)), Counter()

    def counted(name: str, kernel: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            found[name] += 1
            return kernel(*args, **options)

        return call

    for name in KERNELS:
        monkeypatch.setattr(module, name, counted(name, getattr(module, name)))
    return found


def verbs(graph: Graph) -> dict[str, tuple[Callable[..., Tensor], list[Tensor]]]:
    n = graph.num_nodes
    values, q, k, x = normal(graph.num_edges), normal(2, n, 2), normal(2, n, 2), normal(n, 3)
    return {
        "propagate": (lambda *t: ops.propagate(graph, *t), [values, x]),
        "attention": (lambda *t: ops.attention(graph, *t), [q, k]),
        "diffuse": (lambda *t: ops.diffuse(graph, *t), [q, k, x]),
    }


FORWARD = {
    "propagate": {"spmm": 1},
    "attention": {"sddmm": 1, "normalise": 1},
    "diffuse": {"sddmm": 1, "normalise": 1, "spmm": 1},
}
BACKWARD = {
    "propagate": {"spmm": 1, "sddmm": 1},
    "attention": {"normalise_backward": 1, "spmm": 2},
    "diffuse": {"spmm": 3, "sddmm": 1, "normalise_backward": 1},
}
TANGENT = {  # beside the kernels of the forward pass
    "propagate": {"spmm": 2},
    "attention": {"sddmm": 2, "normalise_backward": 1},
    "diffuse": {"sddmm": 2, "normalise_backward": 1, "spmm": 2},
}


@pytest.mark.parametrize("name", FORWARD)
def test_forward_and_backward(small: Graph, calls: Counter[str], name: str) -> None:
    verb, inputs = verbs(small)[name]
    leaves = [t.requires_grad_() for t in inputs]
    out = verb(*leaves)
    assert calls == FORWARD[name]
    calls.clear()
    torch.autograd.grad(out.sum(), leaves)
    assert calls == BACKWARD[name]


@pytest.mark.parametrize("name", TANGENT)
def test_forward_mode(small: Graph, calls: Counter[str], name: str) -> None:
    verb, inputs = verbs(small)[name]
    func.jvp(verb, tuple(inputs), tuple(inputs))
    assert calls == Counter(FORWARD[name]) + Counter(TANGENT[name])


@pytest.mark.parametrize("name", FORWARD)
def test_a_mapped_dimension_is_not_a_loop(small: Graph, calls: Counter[str], name: str) -> None:
    verb, inputs = verbs(small)[name]
    func.vmap(verb)(*(t.expand(5, *t.shape) for t in inputs))
    assert calls == FORWARD[name]
