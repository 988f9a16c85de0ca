"""A module with a graph under ``torch.compile`` and ``torch.export``, and what they refuse."""

from __future__ import annotations

import io
import subprocess
import sys

import pytest
import torch
from conftest import normal
from torch import Tensor, func, nn
from torch.autograd import forward_ad

from graphdiffusion import ops
from graphdiffusion.errors import ArgumentError
from graphdiffusion.graph import Graph


class Step(nn.Module):
    """A step of diffusion with learnt attention."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.graph = graph
        self.query, self.key = (nn.Linear(3, 4, dtype=torch.float64) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        q, k = (part(x).unflatten(-1, (2, 2)).transpose(-2, -3) for part in (self.query, self.key))
        slope = ops.diffuse(self.graph, q, k, x, self.graph.weight)
        return ops.combine([x.new_full((1, 1), 0.5)], [slope], x)


@pytest.fixture
def step(small: Graph) -> Step:
    torch.compiler.reset()
    torch.manual_seed(0)
    return Step(small)


def results(function: nn.Module, step: Step, x: Tensor) -> list[Tensor]:
    x = x.clone().requires_grad_()
    out = function(x)
    return [out, *torch.autograd.grad(out.sin().sum(), (x, *step.parameters()))]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compile_without_a_graph_break(step: Step, backend: str) -> None:
    x = normal(step.graph.num_nodes, 3)
    compiled = torch.compile(step, backend=backend, fullgraph=True)
    torch.testing.assert_close(results(compiled, step, x), results(step, step, x), rtol=1e-12, atol=1e-12)


def test_inductor(small: Graph) -> None:
    torch.compiler.reset()
    inputs = [normal(small.num_edges).requires_grad_(), normal(small.num_nodes, 3).requires_grad_()]
    found = []
    for function in (ops.propagate, torch.compile(ops.propagate, backend="inductor", fullgraph=True)):
        out = function(small, *inputs)
        found.append((out, *torch.autograd.grad(out.square().sum(), inputs)))
    torch.testing.assert_close(*found, rtol=1e-12, atol=1e-12)


def test_an_exported_program_is_loaded_and_differentiated(step: Step) -> None:
    x = normal(step.graph.num_nodes, 3)
    file = io.BytesIO()
    torch.export.save(torch.export.export(step, (x,)), file)
    file.seek(0)
    loaded = torch.export.load(file).module()
    leaf = x.clone().requires_grad_()
    out = loaded(leaf)
    exact = results(step, step, x)
    assert torch.equal(out, exact[0])
    torch.testing.assert_close(torch.autograd.grad(out.sin().sum(), leaf)[0], exact[1])


def test_forward_mode_of_a_compiled_function_is_refused(step: Step) -> None:
    """``torch.library`` would return zeros."""
    x = normal(step.graph.num_nodes, 3)
    compiled = torch.compile(step, backend="eager")
    with (
        forward_ad.dual_level(),
        pytest.raises(ArgumentError, match="no forward-mode derivative where it is compiled"),
    ):
        compiled(forward_ad.make_dual(x, x))


def test_transforms_of_torch_func_are_not_traced(step: Step) -> None:
    x = normal(2, step.graph.num_nodes, 3)
    mapped = func.vmap(step)

    class Mapped(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return mapped(x)

    with pytest.raises(ArgumentError, match=r"with a transform of torch\.func"):
        torch.export.export(Mapped(), (x,))
    with pytest.raises(Exception, match=r"with a transform of torch\.func"):
        torch.compile(mapped, backend="eager", fullgraph=True)(x)


def test_the_compiler_is_not_imported_before_it_is_used() -> None:
    code = "import sys, graphdiffusion.ops; sys.exit('torch._dynamo' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
