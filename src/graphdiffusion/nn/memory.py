"""How much memory a training step of the diffusion layer takes, estimated before it is made."""

from __future__ import annotations

import math
from typing import Any

from ..equation import Equation
from ..solvers import Adjoint, Solver
from ..solvers.exponential import Exponential


def step_bytes(
    equation: Equation, solver: Solver, gradient: Any, time: float, nodes: int, edges: int, channels: int
) -> int:
    """Estimate of what a training step of one member holds, in bytes.

    Args:
        equation: What is integrated up to T = ``time``.
        solver: The scheme.
        gradient: ``"backprop"``, ``"checkpoint"`` or an :class:`Adjoint`.
        time: T.
        nodes: Of the graph.
        edges: Likewise, self-loops included.
        channels: Of the features.
    """
    # the gradient of a matrix that is made once takes as much again, when all else is given back
    constant = 2 * equation.kept(nodes, edges, channels)
    return max(constant, _integral(equation, solver, gradient, time, nodes, edges, channels))


def _integral(
    equation: Equation, solver: Solver, gradient: Any, time: float, nodes: int, edges: int, channels: int
) -> int:
    state = 4 * nodes * channels
    power = state // 2 if solver.rounded else state
    closed = isinstance(solver, Exponential)
    kept = power if closed else state
    # the closed form keeps powers of the matrix times x alone
    each = 0 if closed else equation.memory(nodes, edges, channels)
    if isinstance(gradient, Adjoint) and not closed:
        # the ends of segments; stages of Dormand-Prince for state, adjoint and source; one evaluation
        ends = math.ceil(time) * state + 12 * (3 * state + 4 * edges) + 2 * each
        return ends + 16 * state
    held, products = solver.held(time), solver.products(time)
    if gradient == "backprop":
        return held * (kept + each) + products * power + 16 * state
    # states between √N segments, and the segment at work
    steps = solver.marks(time)
    length = math.isqrt(steps - 1) + 1 if steps else 1
    held, products = (math.ceil(v * length / max(steps, 1)) for v in (held, products))
    ends = math.ceil(steps / length)
    return held * (kept + each) + products * power + ends * kept + 16 * state
