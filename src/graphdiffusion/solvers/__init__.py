"""Time integration: one verb, :func:`integrate`, and a family of schemes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ..dynamics import Flow
from ..errors import ArgumentError, DtypeError, NonFiniteError, ShapeError
from .adaptive import Adaptive, BogackiShampine, DormandPrince, HeunEuler
from .explicit import RK4, AdamsBashforth4, Euler, Heun, Midpoint, RK4ThreeEighths
from .exponential import Exponential
from .gradients import Adjoint
from .multistep import AdamsMoulton4
from .semi_implicit import SemiImplicitEuler
from .solution import BoundField, Field, ModuleField, Solution, Stats
from .stepping import FixedStep, Solver, warn_if_unstable

__all__ = [
    "RK4",
    "AdamsBashforth4",
    "AdamsMoulton4",
    "Adaptive",
    "Adjoint",
    "BogackiShampine",
    "DormandPrince",
    "Euler",
    "Exponential",
    "FixedStep",
    "Heun",
    "HeunEuler",
    "Midpoint",
    "RK4ThreeEighths",
    "SemiImplicitEuler",
    "Solution",
    "Solver",
    "Stats",
    "integrate",
    "warn_if_unstable",
]

Gradient = Literal["backprop", "checkpoint", "adjoint"] | Adjoint


def integrate(
    dynamics: Flow | nn.Module | Field,
    x0: Tensor,
    time: float | Tensor,
    solver: Solver | Exponential | None = None,
    *,
    at: Sequence[float] | Tensor | None = None,
    gradient: Gradient = "backprop",
    check: bool = True,
) -> Solution:
    r"""Integrate :math:`\dot x = f(t, x)` from x(0) to x(T).

    Args:
        dynamics: A :class:`~graphdiffusion.dynamics.Flow`, a module called as ``f(t, x)``, or any
            function of t and x.
        x0: Initial state ``(..., n, d)``.
        time: T > 0: a number, or a tensor with one entry for each member, whose gradient is computed.
        solver: The scheme; by default :class:`Exponential` for a linear flow, else
            :class:`DormandPrince`.
        at: Times at which the state is wanted besides, increasing, in (0, T]: ``(m,)``, or
            ``(m, *members)``.
        gradient: ``"backprop"`` through the scheme; ``"checkpoint"``, the same numbers with memory for
            only √N states; ``"adjoint"`` or :class:`Adjoint`, the continuous adjoint. The exponential
            solver has an exact backward pass of its own and takes ``"adjoint"`` for ``"checkpoint"``.
        check: Check the times, look for NaN in input and result, and warn of unstable steps. Off, a NaN
            stays in its member and nothing waits for the device.

    Returns:
        :class:`Solution` with ``state`` ``(..., n, d)``, ``states`` ``(m, ..., n, d)`` and ``stats``.
    """
    if solver is None:
        linear = isinstance(dynamics, Flow) and dynamics.is_linear
        solver = Exponential() if linear else DormandPrince()
    _check_state(dynamics, x0, check)
    end = _checked_time(time, x0, check)
    times = _checked_outputs(at, end, check)
    if not isinstance(solver, Solver | Exponential):
        raise ArgumentError(f"solver must be a solver object such as RK4(step_size=0.5), got {solver!r}.")
    if gradient not in ("backprop", "checkpoint", "adjoint") and not isinstance(gradient, Adjoint):
        raise ArgumentError(
            f"gradient must be 'backprop', 'checkpoint', 'adjoint' or an Adjoint, got {gradient!r}."
        )
    stops = end.unsqueeze(0) if times is None else torch.cat([times, end.expand_as(times[:1])])
    if check and isinstance(solver, FixedStep):
        warn_if_unstable(solver, _rate(dynamics))
        solver.check_capacity(stops.diff(dim=0, prepend=torch.zeros_like(stops[:1])))
    stats = Stats()
    if isinstance(solver, Exponential):
        states = solver.solve(_flow(dynamics), x0, stops, stats, gradient != "backprop")
        if times is None:
            solution = Solution(states.squeeze(0), stats)
        else:
            solution = Solution(states[-1], stats, states[:-1])
    else:
        solution = _march(dynamics, x0, end, times, solver, gradient, stats)
    if check:
        _check_result(solution, end)
    # a copy: what the backward pass recomputes is no part of it
    return replace(solution, stats=replace(stats))


def _march(
    dynamics: Any,
    x: Tensor,
    end: Tensor,
    times: Tensor | None,
    solver: Solver,
    gradient: Gradient,
    stats: Stats,
) -> Solution:
    field = ModuleField(dynamics) if isinstance(dynamics, nn.Module) else dynamics
    if gradient != "backprop" and isinstance(field, BoundField):
        field = field.rebound(field.tensors)  # parameters may be swapped out before the backward pass
    adjoint = Adjoint() if gradient == "adjoint" else gradient
    if isinstance(adjoint, Adjoint) and not isinstance(field, BoundField):
        raise ArgumentError(
            "the adjoint needs to know what f depends on: pass Diffusion(...).bind(graph, x0) or an "
            f"nn.Module called as f(t, x), got {type(dynamics).__name__}."
        )
    start, states = torch.zeros_like(end), []
    for stop in (*(times if times is not None else ()), end):
        if isinstance(adjoint, Adjoint):
            x = adjoint.advance(solver, field, x, start, stop, stats)
        else:
            x = solver.advance(field, x, start, stop, stats, gradient == "checkpoint")
        states.append(x)
        start = stop
    return Solution(x, stats, None if times is None else torch.stack(states[:-1]))


def _checked_time(time: float | Tensor, x0: Tensor, check: bool) -> Tensor:
    end = torch.as_tensor(time, dtype=torch.float64, device=x0.device)
    if check and not bool((torch.isfinite(end) & (end > 0)).all()):
        raise ArgumentError(f"the time T must be positive and finite, got {time}.")
    members = x0.shape[:-2]
    if any(a != b and 1 not in (a, b) for a, b in zip(end.shape[::-1], members[::-1], strict=False)):
        raise ShapeError(
            f"the time T must be a number or have one entry for each member, {tuple(members)}, "
            f"got {tuple(end.shape)}."
        )
    return end[..., None, None]


def _checked_outputs(at: Sequence[float] | Tensor | None, end: Tensor, check: bool) -> Tensor | None:
    if at is None:
        return None
    times = torch.as_tensor(at, dtype=torch.float64, device=end.device)
    if times.dim() == 0 or len(times) == 0:
        raise ShapeError(f"at must be a sequence of at least one time, got {at}.")
    times = times[..., None, None]
    if times.dim() == 3:
        times = times.reshape(-1, *[1] * end.dim())
    times, end = torch.broadcast_tensors(times, end)
    end = end[0]
    steps = torch.cat([times[:1], times.diff(dim=0), end - times[-1:]])
    if check and not bool(((steps[:-1] > 0).all()) and (steps[-1] >= -1e-9 * end).all()):
        raise ArgumentError(
            f"the output times must increase, in (0, T], with T = {end.flatten().tolist()}."
        )
    return times


def _check_state(dynamics: Any, x0: Tensor, check: bool) -> None:
    if not isinstance(x0, Tensor) or x0.dim() < 2:
        raise ShapeError(f"x0 must be a tensor (..., n, d), got {getattr(x0, 'shape', type(x0).__name__)}.")
    if x0.dtype not in (torch.float32, torch.float64):
        raise DtypeError(f"x0 must be float32 or float64, got {x0.dtype}.")
    if isinstance(dynamics, Flow) and x0.shape[-2] != dynamics.graph.num_nodes:
        raise ShapeError(
            f"x0 must have a row for each node, (..., {dynamics.graph.num_nodes}, d), got "
            f"{tuple(x0.shape)}."
        )
    if check and not bool(torch.isfinite(x0).all()):
        where = (~torch.isfinite(x0)).nonzero()[0].tolist()
        raise NonFiniteError(
            f"x0 holds {float(x0.detach()[tuple(where)])} at {where}: clean the input features."
        )


def _check_result(solution: Solution, end: Tensor) -> None:
    if bool(torch.isfinite(solution.state).all()):
        return
    lost = solution.stats.lost
    if math.isfinite(lost):
        raise NonFiniteError(
            f"the state became NaN or infinite at t = {lost:g}. Check the inputs for extreme values, lower "
            "the learning rate, or bound α."
        )
    raise NonFiniteError(
        f"the state at the end, T = {float(end.detach().max()):g}, holds NaN or infinity after "
        f"{solution.stats}. An unstable step (theorem 1) or a diverged training does this: take a smaller "
        "step, SemiImplicitEuler or Exponential."
    )


def _flow(dynamics: Any) -> Flow:
    if not isinstance(dynamics, Flow):
        raise ArgumentError(
            "Exponential needs the structure of the equation: pass Diffusion(..., linear=True)"
            f".bind(graph, x0), got {type(dynamics).__name__}."
        )
    return dynamics


def _rate(dynamics: Any) -> float:
    return float(dynamics.rate.max()) if isinstance(dynamics, Flow) else 1.0
