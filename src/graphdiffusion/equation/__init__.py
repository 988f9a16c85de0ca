r"""The right-hand side dx/dt: equations, the terms they are made of, and their coefficients.

One file a term, one file an equation. :meth:`Equation.bind` ties an equation to a graph and a start, and
gives the :class:`Flow` that a solver integrates. Every registered class can be imported from here.
"""

from typing import Any

from .coefficient import Coefficient
from .context import Context
from .equation import EQUATIONS, Equation, Flow, Stiff
from .mask import attention_mask
from .term import TERMS, Affine, Forcing, Term

__all__ = [
    "EQUATIONS",
    "TERMS",
    "Affine",
    "Coefficient",
    "Context",
    "Equation",
    "Flow",
    "Forcing",
    "Stiff",
    "Term",
    "attention_mask",
]


def __getattr__(name: str) -> Any:
    try:
        return EQUATIONS.exported(name)
    except AttributeError:
        return TERMS.exported(name)
