"""The one verb: integrate an equation in time."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ..errors import ArgumentError, DtypeError, NonFiniteError, ShapeError, StabilityWarning
from ..partition.whole import everywhere
from .adjoint import Adjoint
from .base import Solver, instability, refuse_adjoint
from .dormand_prince import DormandPrince
from .exponential import Exponential
from .field import BoundField, Field, ModuleField
from .solution import Solution, Stats

Gradient = Literal["backprop", "checkpoint", "adjoint"] | Adjoint


def integrate(
    dynamics: nn.Module | Field,
    x0: Tensor,
    time: float | Tensor,
    solver: Solver | None = None,
    *,
    at: Sequence[float] | Tensor | None = None,
    gradient: Gradient = "backprop",
    check: bool = True,
) -> Solution:
    r"""Integrate :math:`\dot x = f(t, x)` from x(0) to x(T).

    Args:
        dynamics: A :class:`~graphdiffusion.equation.Flow`, a module called as ``f(t, x)``, or any
            function of t and x.
        x0: Initial state ``(..., n, d)``.
        time: T ≥ 0: a number, or a tensor with one entry for each member; its gradient is computed (at
            T = 0 by all but the adaptive schemes, which take no step there, and the fractional one, whose
            solution has no slope there).
        solver: The scheme; by default :class:`Exponential` where the equation has its closed form, else
            :class:`DormandPrince`.
        at: Times at which the state is wanted besides, in [0, T] and in order: ``(m,)``, or
            ``(m, *members)``. They do not change the steps: the state is interpolated.
        gradient: ``"backprop"`` through the scheme; ``"checkpoint"``, the same numbers with memory for
            only √N states; ``"adjoint"`` or :class:`Adjoint`, the continuous adjoint; its steps end at
            the output times. The exponential solver has an exact backward pass of its own and takes
            ``"adjoint"`` for ``"checkpoint"``.
        check: Check the times, look for NaN in input and result, warn of unstable steps, and raise what
            fails. Off, a member that fails is NaN and marked in ``solution.failed``, the others go on, and
            nothing is read from the device.

    Returns:
        :class:`Solution` with ``state`` ``(..., n, d)``, ``states`` ``(m, ..., n, d)`` and ``stats``.
    """
    if solver is None:
        solver = default_solver(dynamics)
    _check_state(dynamics, x0, check)
    end = _checked_time(time, x0, check)
    times = _checked_outputs(at, end, x0, check)
    if not isinstance(solver, Solver):
        raise ArgumentError(f"solver must be a solver object such as RK4(step_size=0.5), got {solver!r}.")
    if gradient not in ("backprop", "checkpoint", "adjoint") and not isinstance(gradient, Adjoint):
        raise ArgumentError(
            f"gradient must be 'backprop', 'checkpoint', 'adjoint' or an Adjoint, got {gradient!r}."
        )
    if check:
        _check_step(solver, dynamics, end)
    stats = Stats(strict=check)
    field = ModuleField(dynamics) if isinstance(dynamics, nn.Module) else dynamics
    if (gradient != "backprop" or solver.evaluates_again) and isinstance(field, BoundField):
        field = field.rebound(field.tensors)  # parameters may be swapped out before the backward pass
    start = torch.zeros_like(end)
    if gradient in ("backprop", "checkpoint") or isinstance(solver, Exponential):
        state, outputs = solver.solve(field, x0, start, end, times, stats, gradient != "backprop")
    else:
        state, outputs = _by_adjoint(gradient, field, x0, start, end, times, solver, stats)
    solution = Solution(state, stats, None if times is None else torch.stack(outputs))
    if check:
        _check_result(solution, end)
        return replace(solution, stats=replace(stats))  # what the backward pass recomputes is no part of it
    return solution


def default_solver(dynamics: Any) -> Solver:
    """The closed form where the equation has it, else Dormand-Prince."""
    return Exponential() if Exponential.accepts(dynamics) else DormandPrince()


def _by_adjoint(
    gradient: Any, field: Any, x: Tensor, start: Tensor, end: Tensor, times: Tensor | None, solver: Solver,
    stats: Stats,
) -> tuple[Tensor, list[Tensor]]:  # fmt: skip
    refuse_adjoint(solver)
    adjoint = gradient if isinstance(gradient, Adjoint) else Adjoint()
    refuse_adjoint(adjoint.solver)
    if not isinstance(field, BoundField):
        raise ArgumentError(
            "the adjoint needs to know what f depends on: pass Diffusion(...).bind(graph, x0) or an "
            f"nn.Module called as f(t, x), got {type(field).__name__}."
        )
    states = []
    for stop in (*(times if times is not None else ()), end):
        x = adjoint.solve(solver, field, x, start, stop, stats)
        states.append(x)
        start = stop
    return x, states[:-1]


def _check_step(solver: Solver, dynamics: Any, end: Tensor) -> None:
    """Warn of steps beyond the limit of stability, and refuse a capacity that is too small."""
    size = getattr(solver, "step_size", None)
    if size is None:
        return
    rate = float(dynamics.rate.max()) if hasattr(dynamics, "rate") else 1.0
    sentence = instability(solver, size, rate, getattr(dynamics, "stable", True))
    if sentence is not None:
        warnings.warn(sentence, StabilityWarning, stacklevel=3)
    solver.check_capacity(end)


def _checked_time(time: float | Tensor, x0: Tensor, check: bool) -> Tensor:
    end = torch.as_tensor(time, dtype=torch.float64, device=x0.device)
    if check and not bool((torch.isfinite(end) & (end >= 0)).all()):
        raise ArgumentError(f"the time T must be finite and not negative, got {time}.")
    members = x0.shape[:-2]
    if any(a != b and 1 not in (a, b) for a, b in zip(end.shape[::-1], members[::-1], strict=False)):
        raise ShapeError(
            f"the time T must be a number or have one entry for each member, {tuple(members)}, "
            f"got {tuple(end.shape)}."
        )
    return end[..., None, None]


def _checked_outputs(
    at: Sequence[float] | Tensor | None, end: Tensor, x0: Tensor, check: bool
) -> Tensor | None:
    if at is None:
        return None
    times = torch.as_tensor(at, dtype=torch.float64, device=end.device)
    if times.dim() == 0 or len(times) == 0:
        raise ShapeError(f"at must be a sequence of at least one time, got {at}.")
    times = times[..., None, None]
    if times.dim() == 3:
        times = times.reshape(-1, *[1] * max(end.dim(), x0.dim()))  # never align them with the members
    times, last = torch.broadcast_tensors(times, end)
    last = last[0]
    steps = torch.cat([times[:1], times.diff(dim=0), last - times[-1:]])
    if check and not bool(((steps[:-1] >= 0).all()) and (steps[-1] >= -1e-9 * last).all()):
        raise ArgumentError(
            f"the output times must not decrease, and lie in [0, T], with T = {last.flatten().tolist()}."
        )
    return torch.minimum(times, last)


def _check_state(dynamics: Any, x0: Tensor, check: bool) -> None:
    if not isinstance(x0, Tensor) or x0.dim() < 2:
        raise ShapeError(f"x0 must be a tensor (..., n, d), got {getattr(x0, 'shape', type(x0).__name__)}.")
    if x0.dtype not in (torch.float32, torch.float64):
        raise DtypeError(f"x0 must be float32 or float64, got {x0.dtype}.")
    nodes = getattr(dynamics, "nodes", None)
    if isinstance(nodes, int) and x0.shape[-2] != nodes:
        raise ShapeError(f"x0 must have a row for each node, (..., {nodes}, d), got {tuple(x0.shape)}.")
    if check and not bool(everywhere(torch.isfinite(x0).all())):
        where = (~torch.isfinite(x0)).nonzero()[:1].tolist()
        found = [f"{float(x0.detach()[tuple(place)])} at {place}" for place in where]
        raise NonFiniteError(
            f"x0 holds {(found or ['NaN or infinity on another part of the graph'])[0]}: clean the input "
            "features."
        )


def _check_result(solution: Solution, end: Tensor) -> None:
    if bool(everywhere(torch.isfinite(solution.state).all())):
        return
    lost = solution.stats.lost
    if math.isfinite(lost):
        raise NonFiniteError(
            f"the state became NaN or infinite at t = {lost:g}. Check the inputs for extreme values, lower "
            "the learning rate, or bound α."
        )
    stats = solution.stats
    raise NonFiniteError(
        f"the state at the end, T = {float(end.detach().max()):g}, holds NaN or infinity after "
        f"{stats.evaluations} evaluations in {stats.accepted} steps. An unstable step (theorem 1) or a "
        "diverged training does this: take a smaller step, SemiImplicitEuler or Exponential."
    )
