"""Time integration: one verb, :func:`integrate`, and a family of schemes, one file each.

A scheme is a method (what one step is), a control of the step size, and a gradient mode, which compose.
Every registered class can be imported from here.
"""

from typing import Any

from .adaptive import Adaptive, rms
from .adjoint import Adjoint
from .base import SOLVERS, Marching, Room, Solver, State, Step, hermite, instability
from .field import BoundField, Field
from .fixed import FixedStep
from .integrate import Gradient, default_solver, integrate
from .runge_kutta import AdaptiveRungeKutta, FixedRungeKutta
from .solution import Solution, Stats
from .tableau import Tableau

__all__ = [
    "SOLVERS",
    "Adaptive",
    "AdaptiveRungeKutta",
    "Adjoint",
    "BoundField",
    "Field",
    "FixedRungeKutta",
    "FixedStep",
    "Gradient",
    "Marching",
    "Room",
    "Solution",
    "Solver",
    "State",
    "Stats",
    "Step",
    "Tableau",
    "default_solver",
    "hermite",
    "instability",
    "integrate",
    "rms",
]


def __getattr__(name: str) -> Any:
    return SOLVERS.exported(name)
