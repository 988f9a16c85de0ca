"""Diffusion happening on a small graph."""

from __future__ import annotations

import os
from pathlib import Path

import torch
from torch import Tensor

from ..diffusivity.exponential import ExponentialKernel
from ..equation.diffusion import Diffusion
from ..graph import Graph
from ..solvers import integrate
from .style import new_figure, save

TIMES = (0.0, 1.0, 4.0, 16.0)


def communities(
    sizes: tuple[int, ...], inside: int, between: int, seed: int
) -> tuple[Graph, Tensor, Tensor]:
    """A stochastic block model drawn in the plane: graph, positions ``(n, 2)``, community ``(n,)``."""
    generator = torch.Generator().manual_seed(seed)
    group = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    angle = 2 * torch.pi * group / len(sizes) + 0.5
    centre = torch.stack([1.15 * angle.cos(), angle.sin()], 1)
    turn, radius = torch.rand(2, len(group), generator=generator)
    spot = torch.stack([(2 * torch.pi * turn).cos(), (2 * torch.pi * turn).sin()], 1)
    place = centre + 0.78 * radius.sqrt()[:, None] * spot
    for _ in range(60):  # push nodes apart until each can be seen
        apart = place[:, None] - place
        size = apart.norm(dim=-1, keepdim=True).clamp_min(1e-3)
        place = place + (apart / size * (0.26 - size).clamp_min(0)).sum(1) / 2
    distance = torch.cdist(place, place).fill_diagonal_(torch.inf)
    pairs = []
    for k in range(len(sizes)):  # near neighbours inside, a few bridges to other communities
        own = (group == k).nonzero().flatten()
        near = distance[own][:, own].topk(inside, largest=False).indices
        pairs.append(torch.stack([own.repeat_interleave(inside), own[near.flatten()]]))
    other = distance.masked_fill(group[:, None] == group, torch.inf)
    bridge = other.flatten().topk(2 * between, largest=False).indices
    pairs.append(torch.stack([bridge // len(group), bridge % len(group)]))
    edges = torch.cat(pairs, 1)
    return (
        Graph.from_edge_index(torch.cat([edges, edges.flip(0)], 1), len(group), self_loops=0.0),
        place,
        group,
    )


def plot_diffusion(path: str | os.PathLike[str], *, seed: int = 1) -> Path:
    """Four moments of nonlinear diffusion: nodes by their state, edges by their attention.

    The state starts as the community plus noise. Attention is a Gaussian kernel of the difference of
    two states, so that like diffuses with like: the noise goes first, the communities last.
    """
    graph, place, group = communities((20, 20, 20), 4, 6, seed)
    generator = torch.Generator().manual_seed(seed)
    value = group[:, None] - 1.0
    x = value + 0.6 * torch.randn(len(group), 1, generator=generator)
    kernel = ExponentialKernel(1, heads=1, attention_dim=1, start=1.0, normaliser="softmax", over="rows")
    with torch.no_grad():
        for side in (kernel.query, kernel.key):
            if side.bias is not None:
                side.bias.zero_()
        kernel.log_length.fill_(-0.4)
        kernel.log_amplitude.fill_(1.0)
        flow = Diffusion(kernel).bind(graph, x)
        states = integrate(flow, x, TIMES[-1], at=TIMES[1:]).states
        assert states is not None
        moments = [x, *states]
        figure, axes = new_figure(figsize=(12, 3.1), ncols=len(TIMES))
        for axis, t, state in zip(axes, TIMES, moments, strict=True):
            attention = flow.attention(None, state)
            assert attention is not None
            colours = _draw(axis, graph, place, state.flatten(), attention)
            axis.set_title(f"t = {t:g}", fontsize=13)
    bar = figure.colorbar(colours, ax=axes, shrink=0.8, pad=0.01, aspect=25)
    bar.set_label("state of a node", fontsize=11)
    return save(figure, path)


def _draw(axis, graph: Graph, place: Tensor, state: Tensor, attention: Tensor):  # type: ignore[no-untyped-def]
    from matplotlib.collections import LineCollection

    # one line for the two directions of an edge, as dark as the stronger of them
    dense = graph.dense(attention)
    strength = torch.maximum(dense, dense.T)[graph.row.long(), graph.col.long()]
    once = graph.row < graph.col
    ends = torch.stack([place[graph.row.long()], place[graph.col.long()]], 1)[once].numpy()
    share = (strength[once] / 0.5).clamp(0.04, 1).numpy()
    lines = LineCollection(
        list(ends), colors=[(0.15, 0.15, 0.15, a) for a in share], linewidths=0.4 + 1.4 * share
    )
    axis.add_collection(lines)
    points = axis.scatter(
        *place.T.numpy(), c=state.numpy(), cmap="viridis", vmin=-1.6, vmax=1.6, s=52, edgecolors="white",
        linewidths=0.7, zorder=2,
    )  # fmt: skip
    axis.set_aspect("equal")
    axis.margins(0.05)
    axis.set_axis_off()
    return points
