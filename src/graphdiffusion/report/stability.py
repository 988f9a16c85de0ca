"""Error of fixed-step schemes against the step size, with the bound of theorem 1."""

from __future__ import annotations

import math
import os
import warnings
from pathlib import Path

import torch

from ..diffusivity.scaled_dot import ScaledDotProduct
from ..equation.diffusion import Diffusion
from ..errors import NonFiniteError, StabilityWarning
from ..graph import Graph
from ..solvers import FixedStep, integrate
from ..solvers.euler import Euler
from ..solvers.rk4 import RK4
from ..solvers.semi_implicit import SemiImplicitEuler
from .style import BLUE, GREEN, GREY, ORANGE, new_figure, save, tidy

SCHEMES: dict[str, tuple[type[FixedStep], str, str]] = {
    "explicit Euler, eq. (7)": (Euler, ORANGE, "o"),
    "Runge-Kutta 4": (RK4, BLUE, "s"),
    "semi-implicit Euler, eq. (8)": (SemiImplicitEuler, GREEN, "^"),
}
# no self-loop: on a cycle of even length A has the eigenvalue −1, the worst case of theorem 1
NODES, END, STEPS = (
    24,
    60.0,
    (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 1.0, 1.03, 1.1, 1.2, 1.35, 1.4, 1.45, 1.5, 1.7, 2.0, 2.5, 3.0),
)


def step_errors(steps: tuple[float, ...] = STEPS) -> dict[str, list[float]]:
    """Largest error at t = 60, relative to the largest entry of x(0), for each scheme and step size."""
    path = torch.arange(NODES)
    edges = torch.stack([path, (path + 1) % NODES])
    graph = Graph.from_edge_index(torch.cat([edges, edges.flip(0)], 1), NODES)
    x = torch.randn(NODES, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    attention = ScaledDotProduct(
        4, heads=1, attention_dim=4, start=0.0, normaliser="softmax", over="rows"
    ).double()
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", StabilityWarning)  # what the picture is about
        flow = Diffusion(attention, linear=True).bind(graph, x)
        exact = integrate(flow, x, END).state
        found: dict[str, list[float]] = {}
        for name, (scheme, *_) in SCHEMES.items():
            found[name] = []
            for step in steps:
                try:
                    state = integrate(flow, x, END, scheme(step)).state
                    error = float((state - exact).abs().max() / x.abs().max())
                except NonFiniteError:
                    error = math.inf
                found[name].append(error)
    return found


def plot_stability(path: str | os.PathLike[str], steps: tuple[float, ...] = STEPS) -> Path:
    """The picture: three schemes, error against step size."""
    errors = step_errors(steps)
    figure, axes = new_figure(figsize=(7, 4.3))
    axes.axvspan(1.0, 4.0, color="#f2f2f2", zorder=0)
    axes.axvline(1.0, color=GREY, linestyle="--", linewidth=1.2)
    axes.text(
        0.96,
        4e-15,
        "theorem 1: explicit\nschemes are stable\nfor τ < 1",
        color="#444444",
        fontsize=9,
        ha="right",
    )
    for name, (_, colour, marker) in SCHEMES.items():
        first = name.startswith("explicit")  # lies under the semi-implicit curve for small steps
        how = {"markersize": 9 if first else 5, "markerfacecolor": "white" if first else colour}
        axes.plot(steps, errors[name], color=colour, marker=marker, linewidth=1.6, label=name, **how)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(STEPS[0] * 0.9, STEPS[-1] * 1.1)
    axes.set_ylim(1e-15, 1e5)
    ticks = (0.05, 0.1, 0.2, 0.5, 1, 2, 3)
    axes.set_xticks(ticks, [f"{t:g}" for t in ticks])
    axes.minorticks_off()
    axes.set_xlabel("step size τ")
    axes.set_ylabel("error at t = 60")
    axes.legend(frameon=False, fontsize=9, loc="upper left", bbox_to_anchor=(0.02, 0.98))
    tidy(axes)
    return save(figure, path)
