"""Shares by distance: how much of the last state of a node comes from nodes k edges away."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from ...equation import Diffusion, Flow, Source
from ...graph import Graph
from ...nn.trajectory import ModelTrajectory
from ...solvers.exponential import coefficients, fewest_terms

Floats = NDArray[np.float64]

FURTHEST = 6  # edges; all that is further is one share
TOLERANCE = 1e-8
SAMPLE = 1 << 19  # numbers of a state that are compared
BLOCK = 1 << 22  # numbers of the matrix that are computed at a time


@dataclass(frozen=True, eq=False)
class Step:
    """x ← Σ_k powers_k A^k x + Σ_k sources_k A^k x(0), over a part of [0, T]."""

    matrix: sparse.csr_array
    powers: Floats
    sources: Floats


@dataclass(frozen=True, eq=False)
class Reach:
    """The matrix M of x(T) = M x(0), as the steps that make it.

    Attributes:
        steps: One in closed form where A is constant, else one for each part between two times.
        pattern: A one at (j, i) where there is an edge (i, j).
        exact: Whether A is constant, so that M is known in closed form.
        error: ‖M x(0) − x(T)‖ / ‖x(T)‖; ``None`` where channels have rates of their own, and M is the mean.
    """

    steps: list[Step]
    pattern: sparse.csr_array
    exact: bool
    error: float | None

    @property
    def work(self) -> float:
        """Multiplications for the shares of one node."""
        return float(sum(len(step.powers) * step.matrix.nnz for step in self.steps))

    def rows(self, nodes: NDArray[np.int64]) -> Floats:
        """Rows of M, ``(len(nodes), n)``."""
        state = np.zeros((self.pattern.shape[0], len(nodes)))
        state[nodes, np.arange(len(nodes))] = 1.0
        total = np.zeros_like(state)
        for step in reversed(self.steps):
            back = step.matrix.T
            power, own = state, step.powers[0] * state
            total += step.sources[0] * state
            for p, s in zip(step.powers[1:], step.sources[1:], strict=True):
                power = back @ power
                own += p * power
                total += s * power
            state = own
        return (total + state).T

    def shares(self, nodes: NDArray[np.int64]) -> Floats:
        """Shares of Σ_j |M_ij| by the distance of j, ``(len(nodes), FURTHEST + 2)``; the last: further."""
        count = self.pattern.shape[0]
        found = np.zeros((len(nodes), FURTHEST + 2))
        size = max(1, BLOCK // count)
        for start in range(0, len(nodes), size):
            block = nodes[start : start + size]
            weight = np.abs(self.rows(block)).T
            total = np.maximum(weight.sum(0), np.finfo(float).tiny)
            front = np.zeros((count, len(block)), np.float32)
            front[block, np.arange(len(block))] = 1
            seen = front > 0
            for k in range(FURTHEST + 1):
                found[start : start + size, k] = (weight * (front > 0)).sum(0) / total
                front = np.where(seen, 0, self.pattern @ front)
                seen |= front > 0
            rest = 1 - found[start : start + size, :-1].sum(1)
            found[start : start + size, -1] = rest.clip(0)
        return found


def reach_of(found: ModelTrajectory, attention: Tensor | None) -> Reach | None:
    """M of a trajectory; ``None`` where there is none.

    Args:
        found: The trajectory.
        attention: A at its times, ``(m, E)``, or ``(1, E)`` where it is constant.
    """
    flow = found.flow
    if flow is None or attention is None or float(found.times[-1]) <= 0:
        return None
    if type(flow.equation) is not Diffusion:
        return None
    equation = cast(Diffusion, flow.equation)
    if any(type(term) is not Source for term in equation.terms):
        return None
    terms = [cast(Source, term) for term in equation.terms]
    scalar = all(c.raw.shape[-1] == 1 for c in (equation.alpha, *(term.beta for term in terms)))
    scalar, constant = scalar and equation.rates is None, len(attention) == 1
    if not scalar and not constant:  # M would differ between channels
        return None
    steps = _closed_form(flow, found.times) if constant else _steps(flow, terms, found.times, attention)
    if steps is None:
        return None
    ones = torch.ones(flow.graph.num_edges)
    pattern = matrix_of(flow.graph, ones).T.tocsr().astype(np.float32)
    error = _error(steps, found) if scalar else None
    return Reach(steps, pattern, constant, error)


def matrix_of(graph: Graph, values: Tensor) -> sparse.csr_array:
    """An edge field ``(E,)`` as a matrix, a_ij in row i and column j."""
    row, col, own = (v.cpu().numpy() for v in (graph.row, graph.col, values.double()))
    return sparse.coo_array((own, (row, col)), shape=(graph.num_nodes, graph.num_nodes)).tocsr()


def _closed_form(flow: Flow, times: Tensor) -> list[Step] | None:
    affine = flow.affine()
    if affine is None or affine.values is None or set(affine.powers) != {1}:
        return None
    if any(source.field is not flow.x0 for source in affine.sources):
        return None
    beta = [source.coefficient for source in affine.sources]
    step = _step(matrix_of(flow.graph, affine.values), affine.powers[1], beta, float(times[-1]))
    return None if step is None else [step]


def _steps(flow: Flow, terms: list[Source], times: Tensor, attention: Tensor) -> list[Step] | None:
    """A step for each part between two times, with the mean of A at its ends."""
    found, equation = [], cast(Diffusion, flow.equation)
    for k in range(len(times) - 1):
        middle = (times[k] + times[k + 1]) / 2
        mean = matrix_of(flow.graph, (attention[k] + attention[k + 1]) / 2)
        betas = [term.beta(middle) for term in terms]
        step = _step(mean, equation.alpha(middle), betas, float(times[k + 1] - times[k]))
        if step is None:
            return None
        found.append(step)
    return found


def _step(matrix: sparse.csr_array, rate: Tensor, betas: list[Tensor], time: float) -> Step | None:
    """The closed form of α(A − I)x + Σβ x(0) over a time; coefficients of channels are averaged."""
    scale = rate.detach().cpu().double() * time
    if not bool((scale >= 0).all()):
        return None
    terms = fewest_terms(float(scale.max()), TOLERANCE)
    span = torch.tensor(time, dtype=torch.float64).reshape(1, 1, 1)
    powers, sources = coefficients(scale.unsqueeze(-1), span, terms, TOLERANCE)
    beta = sum((b.detach().cpu().double() for b in betas), torch.zeros(1, 1, dtype=torch.float64))
    fed = beta.unsqueeze(-1) * sources
    return Step(matrix, powers.mean((0, 1)).numpy(), fed.mean((0, 1)).numpy())


def _error(steps: list[Step], found: ModelTrajectory) -> float:
    """How far M x(0) is from x(T), relative; of large graphs in the first channels."""
    assert found.flow is not None and found.solution is not None
    some = slice(0, max(1, SAMPLE // found.flow.nodes))
    first = found.flow.x0[:, some].detach().cpu().double().numpy()
    last = found.solution.state[:, some].detach().cpu().double().numpy()
    state = first
    for step in steps:
        power, source = state, first
        own = step.powers[0] * power + step.sources[0] * source
        for p, s in zip(step.powers[1:], step.sources[1:], strict=True):
            power, source = step.matrix @ power, step.matrix @ source
            own = own + p * power + s * source
        state = own
    return float(np.linalg.norm(state - last)) / max(float(np.linalg.norm(last)), 1e-300)
