"""Sums of powers of a sparse matrix: values and gradients against single products."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from conftest import D, make_graph, normal
from torch import Tensor

from graphdiffusion.ops import propagate
from graphdiffusion.ops.torch import products
from graphdiffusion.solvers.series import composed, power_series

GRAPH = make_graph("random")


def inputs(outputs: int, members: tuple[int, ...], terms: int, dtype: Any = D) -> list[Tensor]:
    """Values, x and coefficients."""
    values = normal(*members, GRAPH.num_edges, dtype=dtype).abs() / 3
    return [values, normal(*members, 9, 8, dtype=dtype), normal(outputs, *members, 1, 1, terms + 1)]


def stacked(*args: Any) -> Tensor:
    return torch.stack(power_series(GRAPH, *args))


def gradients(found: Tensor, leaves: list[Tensor], wanted: tuple[int, ...]) -> tuple[Tensor, ...]:
    weights = normal(*found.shape, seed=3, dtype=found.dtype)
    return torch.autograd.grad((found * weights).sum(), [leaves[k] for k in wanted])


@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("members", [(), (1,), (3,), (2, 2)])
@pytest.mark.parametrize("terms", [0, 1, 7, 11])
def test_sums_of_powers(
    outputs: int, members: tuple[int, ...], terms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(products, "TOGETHER", 2 * GRAPH.num_edges)  # members in several pieces
    leaves = inputs(outputs, members, terms)
    values, x, c = leaves
    exact = composed(partial(propagate, GRAPH, values), x, c, c)
    torch.testing.assert_close(stacked(values, x, c, c, False), exact)
    some = [(1,), (2,), (1, 2)] + ([(0,), (0, 1, 2), (0, 2)] if terms else [])
    for wanted in some:
        for k, leaf in enumerate(leaves):
            leaf.requires_grad_(k in wanted)
        for kept in (False, True):  # all powers, or some
            found = stacked(values, x, c, c, kept)
            torch.testing.assert_close(found, exact)
            own = gradients(found, leaves, wanted)
            other = gradients(composed(partial(propagate, GRAPH, values), x, c, c), leaves, wanted)
            torch.testing.assert_close(own, other)


@pytest.mark.parametrize("outputs", [1, 2])
def test_what_the_gradient_of_x_does_not_see(outputs: int) -> None:
    leaves = inputs(outputs, (2,), 5)
    values, x, c = leaves
    through = normal(*c.shape, seed=9)
    for leaf in leaves:
        leaf.requires_grad_()
    found = gradients(stacked(values, x, c, through, False), leaves, (0, 1))
    exact = gradients(composed(partial(propagate, GRAPH, values), x, c, through), leaves, (0, 1))
    torch.testing.assert_close(found, exact)


@pytest.mark.parametrize("checkpoint", [False, True])
@pytest.mark.parametrize("read", [(0,), (2,), (0, 2)])
def test_outputs_that_nothing_reads(read: tuple[int, ...], checkpoint: bool) -> None:
    leaves = inputs(3, (2,), 7)
    values, x, c = leaves
    through = normal(*c.shape, seed=9)
    for leaf in leaves:
        leaf.requires_grad_()
    exact = composed(partial(propagate, GRAPH, values), x, c, through)
    added = normal(2, 9, 8, seed=5).requires_grad_()
    leaves = [*leaves, added]
    exact = exact + added
    found = power_series(GRAPH, values, x, c, through, checkpoint, added=added)
    own, other = ([out[m].square().sum() for m in read] for out in (found, exact))
    right = torch.autograd.grad(sum(other), leaves)
    torch.testing.assert_close(torch.autograd.grad(sum(own), leaves), right)
    unread = [m for m in range(3) if m not in read]
    assert not right[2][unread].any()


@pytest.mark.parametrize("outputs", [1, 2])
def test_a_member_alone_and_among_others(outputs: int) -> None:
    """Bit for bit in float32: state and gradients."""

    def run(leaves: list[Tensor]) -> tuple[Tensor, ...]:
        leaves = [leaf.detach().clone().requires_grad_() for leaf in leaves]
        found = stacked(*leaves, leaves[2], False)
        grads = torch.autograd.grad(found.square().sum(), leaves)
        return (found.movedim(0, 1), grads[0], grads[1], grads[2].movedim(0, 1))

    values, x, c = inputs(outputs, (5,), 7, torch.float32)
    together = run([values, x, c.float()])
    for k in range(5):
        alone = run([values[k : k + 1], x[k : k + 1], c[:, k : k + 1].float()])
        for one, all_ in zip(alone, together, strict=True):
            assert torch.equal(one[0], all_[k])
