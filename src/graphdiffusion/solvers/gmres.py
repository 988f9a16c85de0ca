"""GMRES, restarted, every member a system of its own (Saad and Schultz, 1986)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ..partition.whole import norm, total

RESTART = 20  # vectors of the basis: the memory of a solve
ROUNDING = 8.0  # relative residual that rounding leaves, in units of eps · ‖A‖


@dataclass(frozen=True, eq=False)
class Found:
    """What a solve gives for each member.

    Attributes:
        x: The solution ``(..., n, d)``; the best that was found where it failed.
        failed: Whether the goal was missed, ``(..., 1, 1)``.
        products: Products with A, ``(..., 1, 1)``, as if alone.
        size: A lower bound of ‖A‖ from the products, ``(..., 1, 1)``.
        iterations: Of the member that needs most.
    """

    x: Tensor
    failed: Tensor
    products: Tensor
    size: Tensor
    iterations: int


def gmres(apply: Callable[[Tensor], Tensor], b: Tensor, goal: Tensor, most: int) -> Found:
    """Solve A x = b.

    A member stands still once its residual is at most its goal or what rounding leaves. Members that are
    NaN are returned as zeros.

    Args:
        apply: A as a function of ``(..., n, d)`` that keeps members apart.
        b: Right-hand side ``(..., n, d)``.
        goal: 2-norm of the residual, ``(..., 1, 1)``.
        most: Iterations allowed.
    """
    x, r = torch.zeros_like(b), b
    start = norm(b)
    going = (start > goal) & torch.isfinite(start)
    products, size = (torch.zeros_like(start) for _ in range(2))
    iterations = 0
    while bool(going.any()) and iterations < most:
        if iterations:  # a new cycle, from the true residual
            r = b - apply(x)
            products = products + going
        cycle = _Cycle(r, going, goal, start, min(RESTART, most - iterations))
        x = torch.where(going, x + cycle.run(apply), x)
        going, size = cycle.going, torch.maximum(size, cycle.size)
        products, iterations = products + cycle.count, iterations + cycle.steps
    return Found(x, going, products, size, iterations)


class _Cycle:
    """Arnoldi's process from a residual, and the least-squares problem by Givens rotations."""

    def __init__(self, r: Tensor, going: Tensor, goal: Tensor, start: Tensor, most: int) -> None:
        self.going, self.goal, self.start, self.most = going, goal, start, most
        self.beta = norm(r)
        self.basis = r.new_empty(most + 1, *r.shape)
        self.basis[0] = torch.where(going, r / _nonzero(self.beta), 0.0)
        self.count, self.size = torch.zeros_like(self.beta), torch.zeros_like(self.beta)
        self.steps = 0
        lead = r.shape[:-2]
        unit = torch.eye(most + 1, dtype=torch.float64, device=r.device).expand(*lead, -1, -1)
        self.rotations, self.triangle = unit.clone(), unit[..., :-1, :-1].clone()

    def run(self, apply: Callable[[Tensor], Tensor]) -> Tensor:
        """The correction of x."""
        while self.steps < self.most and bool(self.going.any()):
            self._extend(apply)
        kept = self.count[..., 0] > torch.arange(self.most, device=self.count.device)
        right = self.beta[..., 0].double() * torch.where(kept, self.rotations[..., :-1, 0], 0.0)
        y = torch.linalg.solve_triangular(self.triangle, right.unsqueeze(-1), upper=True)
        weights = y[..., : self.steps, 0].to(self.basis.dtype).movedim(-1, 0)[..., None, None]
        return (weights * self.basis[: self.steps]).sum(0)

    def _extend(self, apply: Callable[[Tensor], Tensor]) -> None:
        j, going = self.steps, self.going
        w = torch.where(going, apply(self.basis[j]), 0.0)
        self.size = torch.maximum(self.size, norm(w))
        column = self.rotations.new_zeros(*w.shape[:-2], self.most + 1)
        for _ in range(2):  # Gram-Schmidt twice: orthogonal to rounding
            shares = total((self.basis[: j + 1] * w).sum((-2, -1)))
            column[..., : j + 1] += shares.movedim(0, -1)
            w = w - (shares[..., None, None] * self.basis[: j + 1]).sum(0)
        length = norm(w)
        column[..., j + 1] = length[..., 0, 0]
        self.basis[j + 1] = w / _nonzero(length)
        turned = (self.rotations * column.unsqueeze(-2)).sum(-1)
        a, b = turned[..., j], turned[..., j + 1]
        rho = _nonzero(torch.hypot(a, b))
        c, s = (v.unsqueeze(-1) / rho.unsqueeze(-1) for v in (a, b))
        upper, lower = self.rotations[..., j, :], self.rotations[..., j + 1, :]
        rotated = torch.stack([c * upper + s * lower, c * lower - s * upper], -2)
        self.rotations[..., j : j + 2, :] = torch.where(going, rotated, self.rotations[..., j : j + 2, :])
        turned[..., j] = rho
        entries = torch.where(going[..., 0], turned[..., : j + 1], self.triangle[..., : j + 1, j])
        self.triangle[..., : j + 1, j] = entries
        self.count, self.steps = self.count + going, j + 1
        residual = (self.beta[..., 0, 0] * self.rotations[..., j + 1, 0].abs())[..., None, None]
        least = ROUNDING * torch.finfo(w.dtype).eps * self.size * self.start
        self.going = going & (residual > torch.maximum(self.goal, least))


def _nonzero(x: Tensor) -> Tensor:
    return torch.where(x == 0, 1.0, x)
