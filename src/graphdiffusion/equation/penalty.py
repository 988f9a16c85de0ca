r"""Penalties on the learnt dynamics, integrated along the trajectory.

Kinetic energy and the Frobenius norm of the Jacobian (Finlay et al. 2020, Kelly et al. 2020) keep the
learnt equation easy to integrate. The integrals are taken by Gauss-Legendre quadrature at output times of
the solver, so they work with every solver.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..ops.noise import random_bits
from ..partition.whole import mean_square, node_places
from .equation import Flow


@dataclass(frozen=True)
class Quadrature:
    """Gauss-Legendre nodes and weights on [0, 1]."""

    points: int = 4

    @property
    def nodes(self) -> list[float]:
        return [float(v) / 2 + 0.5 for v in np.polynomial.legendre.leggauss(self.points)[0]]

    @property
    def weights(self) -> list[float]:
        return [float(v) / 2 for v in np.polynomial.legendre.leggauss(self.points)[1]]


def kinetic_energy(flow: Flow, t: Tensor, x: Tensor) -> Tensor:
    r""":math:`\frac1{nd}\lVert f(t, x) \rVert_F^2`, for each member: ``(..., n, d)`` → ``(...)``."""
    return mean_square(flow(t, x))


def jacobian_norm(flow: Flow, t: Tensor, x: Tensor, key: Tensor) -> Tensor:
    r"""Hutchinson's estimate of :math:`\frac1{nd}\lVert \partial f/\partial x \rVert_F^2` → ``(...)``.

    With ε of independent signs, :math:`E\lVert \epsilon^\top J \rVert^2 = \lVert J \rVert_F^2`.

    Args:
        key: int64 ``(...)``: the source of ε, one for each member.
    """
    if not x.requires_grad:
        x = x.detach().requires_grad_()
    with torch.enable_grad():
        change = flow(t, x)
        rows, width = x.shape[-2:]
        places = node_places(rows, width)
        signs = (random_bits(key, rows * width if places is None else places) & 1) * 2 - 1
        signs = signs.to(x.dtype).reshape(*key.shape, *x.shape[-2:]).expand_as(x)
        (product,) = torch.autograd.grad(change, x, signs, create_graph=True)
    return mean_square(product)


def path_penalty(
    flow: Flow,
    states: Tensor,
    times: Tensor,
    span: Tensor,
    quadrature: Quadrature,
    key: Tensor,
    *,
    kinetic: bool,
    jacobian: bool,
) -> tuple[Tensor, Tensor]:
    r"""The two integrals :math:`\int_0^T \ldots\,dt`, each ``(...)``; zero where not asked for.

    Args:
        states: x at the quadrature nodes, ``(points, ..., n, d)``.
        times: The nodes, ``(points, ...)`` in units of time.
        span: T, ``(...)``.
    """
    zero = states.new_zeros(states.shape[1:-2])
    energy, norm = zero, zero
    for weight, t, x in zip(quadrature.weights, times[..., None, None], states, strict=True):
        share = (weight * span).to(x.dtype)
        if kinetic:
            energy = energy + share * kinetic_energy(flow, t, x)
        if jacobian:
            norm = norm + share * jacobian_norm(flow, t, x, key)
    return energy, norm
