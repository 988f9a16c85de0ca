"""An experiment integrated by the library's solvers, with the exact solution beside it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from ...equation import Flow
from ...errors import ArgumentError, SolverError
from ...solvers import DormandPrince, Exponential, FixedStep, integrate
from .experiment import Experiment
from .theory import Bound, bound

Array = NDArray[np.float64]
FRAMES = 200  # moments that are shown, besides t = 0
PATIENCE = 20.0  # seconds of one integral; half of it for the exact solution
LARGEST = 1e30  # a state beyond it is not shown: it fits no float32


@dataclass(frozen=True)
class Result:
    """States of an experiment and what was measured of them.

    Attributes:
        times: ``(m,)``, from 0 on; they end early where the state left the numbers.
        states: ``(m, n)``.
        exact: The exact solution there, or ``None`` where it could not be had.
        attention: Of each pair of neighbours the larger of its two entries of A, ``(m, e)`` or ``(1, e)``.
        pairs: These neighbours, ``(e, 2)``.
        step: The τ that was taken; ``None``: a scheme without one.
        failure: Why the scheme did not get to the end.
        cost: Steps in words.
        lost: The time after which no state is shown, else ∞.
    """

    experiment: Experiment
    flow: Flow
    times: Array
    states: Array
    exact: Array | None
    attention: Array
    pairs: NDArray[np.int64]
    step: float | None
    failure: str
    cost: str
    lost: float

    @property
    def error(self) -> Array | None:
        """Largest difference to the exact solution at each time."""
        return None if self.exact is None else np.abs(self.states - self.exact).max(1)

    @property
    def bound(self) -> Bound:
        return bound(self.experiment.over, self.states)


@torch.no_grad()
def simulate(experiment: Experiment, frames: int = FRAMES) -> Result:
    """Integrate an experiment.

    Args:
        frames: The most moments that are kept besides t = 0; of fixed steps these are ends of steps.
    """
    flow, x, solver = experiment.flow(PATIENCE), experiment.state(), experiment.solver()
    step, end = None, experiment.time
    if isinstance(solver, FixedStep):
        steps = experiment.steps(solver)
        step = end / steps
        shown = np.unique(np.round(np.linspace(0, steps, min(steps, frames) + 1)))
        times = shown * step
    else:
        times = np.linspace(0, end, min(frames, 100) + 1)
    times[-1] = end
    solution = integrate(flow, x, end, solver, at=times[1:].tolist(), check=False)
    assert solution.states is not None
    states = torch.cat([x[None], solution.states])[..., 0].numpy()
    fine = np.abs(states).max(1) < LARGEST  # NaN is not
    count = len(times) if fine.all() else int(np.argmin(fine))
    lost = math.inf if fine.all() else float(times[count])
    times, states = times[:count], states[:count]
    failures, stats = solution.stats.failures, solution.stats
    if step is not None:
        cost = f"{stats.accepted:,} steps of τ = {step:.4g}"
    elif isinstance(solver, Exponential):
        cost = f"{stats.evaluations:,} sparse products, no step"
    else:
        rejected = f", {stats.rejected:,} rejected" if stats.rejected else ""
        cost = f"{stats.accepted:,} steps{rejected}, {stats.evaluations:,} evaluations"
    flow = experiment.flow()  # without a limit of time
    attention, pairs = _attention(flow, states, experiment.linear)
    return Result(
        experiment, flow, times, states, exact_states(experiment, times), attention, pairs, step,
        str(failures[0]) if failures else "", cost, lost,
    )  # fmt: skip


def exact_states(experiment: Experiment, times: Array) -> Array | None:
    """x at some times ``(m, n)``: the closed form, or Dormand-Prince with a small tolerance."""
    flow, x = experiment.flow(PATIENCE / 2), experiment.state()
    if len(times) == 1:
        return x.T.numpy()
    solver = Exponential() if experiment.linear else DormandPrince(1e-8, 1e-10, max_evaluations=30_000)
    try:
        found = integrate(flow, x, float(times[-1]), solver, at=times[1:].tolist()).states
    except (SolverError, ArgumentError):  # too many evaluations, or too many seconds
        return None
    assert found is not None
    return torch.cat([x[None], found])[..., 0].numpy()


def _attention(flow: Flow, states: Array, linear: bool) -> tuple[Array, NDArray[np.int64]]:
    graph = flow.graph
    row, col = graph.row.long(), graph.col.long()
    ends, place = torch.stack([torch.minimum(row, col), torch.maximum(row, col)], 1)[row != col].unique(
        dim=0, return_inverse=True
    )
    found = []
    for state in states[: 1 if linear else None]:
        values = flow.attention(None, torch.from_numpy(state)[:, None])
        assert values is not None
        largest = torch.zeros(len(ends), dtype=values.dtype)
        found.append(largest.scatter_reduce(0, place, values[row != col], "amax").numpy())
    return np.stack(found), ends.numpy()
