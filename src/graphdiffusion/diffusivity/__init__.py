r"""Diffusivities :math:`a(x_i, x_j)`: what turns node features into the matrix A, one file a family.

Parameters broadcast over leading member dimensions: stack them, and the module works on a population. Every
registered class can be imported from here.
"""

from typing import Any

from .base import DIFFUSIVITIES, Bilinear, Diffusivity, Pairwise
from .bilinear import QueryKey
from .time_varying import TimeVarying

__all__ = ["DIFFUSIVITIES", "Bilinear", "Diffusivity", "Pairwise", "QueryKey", "TimeVarying"]


def __getattr__(name: str) -> Any:
    return DIFFUSIVITIES.exported(name)
