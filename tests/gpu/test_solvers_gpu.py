"""Solvers on a GPU: one that was made without a thought of devices integrates a state of any."""

from __future__ import annotations

import pytest
import torch
from conftest import D, make_equation, make_graph, normal

from graphdiffusion.solvers import SOLVERS, integrate

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
GRAPH = make_graph("random")


@pytest.mark.parametrize("members", [(), (3,)])
@pytest.mark.parametrize(
    "name", [None, *(name for name, cls in SOLVERS.classes().items() if cls.needs in (None, "stiff"))]
)
def test_the_end_on_both_devices(name: str | None, members: tuple[int, ...]) -> None:
    """By a solver that stays where it was made; without a name by the one that is taken unasked."""
    torch.manual_seed(0)
    equation, x = make_equation(linear=name == "exponential"), normal(*members, GRAPH.num_nodes, 3)
    found = []
    for device in ("cpu", "cuda"):
        solver = None if name is None else SOLVERS[name]()
        here = x.to(device)
        flow = equation.to(device).bind(GRAPH.to(device), here)
        time = torch.full(members, 0.1, dtype=D, device=device)
        found.append(integrate(flow, here, time, solver).state.cpu())
    torch.testing.assert_close(found[1], found[0], rtol=1e-6, atol=1e-8)
