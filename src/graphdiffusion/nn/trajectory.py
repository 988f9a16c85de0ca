"""The states of the nodes on their way through a trained model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..equation import Flow
from ..graph import Graph
from ..solvers import Solution
from .base import Model
from .continuous import Continuous
from .modules import Features, shallow


@dataclass(frozen=True)
class ModelTrajectory:
    """States of all nodes at several times.

    Attributes:
        times: ``(m,)``; of a model without an integral the number 0 alone.
        states: ``(m, n, d)``; of a model without an integral the state that its last layer reads.
        logits: Class scores at these times, ``(m, n, classes)``; ``None`` where the model cannot be read
            out before its end.
        solution: What the integral cost, and its state at the end; ``None`` without an integral.
        flow: The equation that was integrated, which knows the attention; likewise.
    """

    times: Tensor
    states: Tensor
    logits: Tensor | None
    solution: Solution | None = None
    flow: Flow | None = None


@torch.no_grad()
def trajectory(
    model: Model, x: Features, graph: Graph, fractions: Sequence[float], **more: Any
) -> ModelTrajectory:
    """The states of the nodes on their way through a model in evaluation mode.

    Args:
        model: Which; members are not taken.
        x: Features ``(n, in_channels)``.
        graph: The graph.
        fractions: Of the model's time, rising from 0 to 1.
        more: Further arguments of :meth:`Model.run`.
    """
    x = model.features(x)
    if not isinstance(model, Continuous):
        state, logits = last_state(model, x, graph, **more)
        # a single layer reads the features, which may be many
        state = state if isinstance(state, Tensor) else logits
        return ModelTrajectory(torch.zeros(1), state[None], logits[None])
    bound: list[tuple[Flow, Tensor]] = []
    layer = shallow(model.diffusion)

    def diffuse(flow: Flow, start: Tensor, *how: Any) -> Solution:
        bound.append((flow, start))
        return model.diffusion.diffuse(flow, start, *how)

    layer.__dict__["diffuse"] = diffuse
    watched = shallow(model)
    watched.diffusion = layer
    swept: dict[str, Any] = {"sweep": fractions} if model.takes_sweep else {}
    output = watched.run(x, graph, **swept, **more)
    flow, start = bound[-1]
    span = model.diffusion.span
    times = torch.stack([f * span.double() for f in fractions])
    solution = model.diffusion.diffuse(flow, start, span, times, True)
    assert solution.states is not None
    read_out = output.logits if swept else None
    return ModelTrajectory(times, model.diffusion.equation.read(solution.states), read_out, solution, flow)


@torch.no_grad()
def last_state(model: Model, x: Features, graph: Graph, **more: Any) -> tuple[Features, Tensor]:
    """What the last layer of a model reads, ``(n, d)``, and the class scores.

    The last layer is its ``decoder``, or the last of its ``layers``; of a model with neither the class
    scores stand for its state.
    """
    found: list[Features] = []
    layers: Any = getattr(model, "layers", None)
    last = getattr(model, "decoder", None) or (layers[-1] if layers else None)
    handle = last and last.register_forward_pre_hook(lambda module, inputs: found.append(inputs[0]))
    try:
        logits = model.run(model.features(x), graph, **more).logits
    finally:
        if handle is not None:
            handle.remove()
    return (found[-1] if found else logits), logits
