"""Guided scenes for a lesson, and the examples that an exported page holds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from .experiment import Experiment, settings
from .graphs import GRAPHS, Drawing, draw_graph


@dataclass(frozen=True)
class Scene:
    """A setting with a few sentences about what to look at.

    Attributes:
        graph, size: As of :func:`~graphdiffusion.report.playground.graphs.draw_graph`.
        given: Settings that differ from the defaults.
    """

    name: str
    title: str
    text: str
    graph: str
    size: int
    given: dict[str, Any] = field(default_factory=dict)

    @property
    def drawing(self) -> Drawing:
        return draw_graph(self.graph, self.size)

    @property
    def experiment(self) -> Experiment:
        return experiment_of(self.drawing, settings(self.given))


def experiment_of(drawing: Drawing, given: dict[str, Any]) -> Experiment:
    """A graph as it is drawn with settings."""
    pairs, values = tuple(drawing.edges), tuple(drawing.values)
    made = Experiment(len(values), pairs, values, directed=drawing.directed, **given)
    made.check()
    return made


KERNEL = {"diffusivity": "exponential", "linear": False}

SCENES = (
    Scene(
        "heat",
        "Heat spreads on a cycle",
        "One node is hot. Each node moves towards the mean of its two neighbours, and after a while the "
        "profile is a bell that gets flatter. The total heat stays what it was: look at the mass.",
        "cycle",
        24,
        {"scheme": "rk4", "step": 0.5, "time": 30.0},
    ),
    Scene(
        "star",
        "The star averages",
        "All ways lead through the hub, and after a few units of time all nodes agree. They agree on half "
        "of the hub's value plus half of the mean of the leaves: each node counts by its degree.",
        "star",
        13,
        {"scheme": "rk4", "step": 0.1, "time": 6.0},
    ),
    Scene(
        "communities",
        "Two communities stay apart",
        "Values of −1 and 1 with noise. The kernel gives most weight to neighbours with a like value: "
        "noise inside a community goes, and the bridges between them fade. Set A to the constant "
        "Laplacian, and they mix.",
        "communities",
        30,
        {**KERNEL, "strength": 9.0, "width": 0.6, "scheme": "rk4", "step": 0.5, "time": 30.0},
    ),
    Scene(
        "image",
        "An image: edges survive",
        "Pixels are nodes, and noise lies on the image. Where two neighbours differ much the kernel stops "
        "diffusion, as Perona and Malik's does: flat parts get smooth and contours stay. With the constant "
        "Laplacian everything blurs.",
        "grid",
        16,
        {**KERNEL, "strength": 9.0, "width": 0.15, "scheme": "semi-implicit", "step": 0.5, "time": 12.0},
    ),
    Scene(
        "beyond",
        "Explicit Euler beyond the limit",
        "Theorem 1 allows τα < 1, and here τα = 1.1. On a cycle of even length one mode alternates from "
        "node to node, and each step multiplies it by 1 − 2·1.1 = −1.2. Set τ to 0.9 to see it decay.",
        "cycle",
        24,
        {"scheme": "euler", "step": 1.1, "time": 44.0},
    ),
    Scene(
        "implicit",
        "Implicit Euler: no step too long",
        "The same cycle with τα = 5, five times the limit of explicit Euler. Each step solves a linear "
        "system that sees the whole graph, and no value leaves the range (theorem 2). Stable is not exact: "
        "compare with the dashed lines.",
        "cycle",
        24,
        {"scheme": "semi-implicit", "step": 5.0, "time": 50.0},
    ),
    Scene(
        "source",
        "A source keeps it from forgetting",
        "With β = 0.3 every node is fed with its own first value. The mean grows like 1 + βt, and "
        "differences no longer vanish: they end where diffusion and source balance. Set β to 0, and the "
        "tree forgets where the heat was.",
        "tree",
        31,
        {"beta": 0.3, "scheme": "rk4", "step": 0.25, "time": 15.0},
    ),
    Scene(
        "oversmoothing",
        "Oversmoothing",
        "A large T is a deep network. Without a source all nodes of a connected graph end at one value: "
        "the two communities can no longer be told apart, and the Dirichlet energy falls towards 0.",
        "communities",
        30,
        {"scheme": "exponential", "time": 150.0},
    ),
)

# what an exported page holds of each graph besides the scenes
EXPORTED = ("euler", "rk4", "adams-bashforth", "semi-implicit", "trapezoid", "exponential")
STEPS = (0.1, 0.9, 1.1, 3.0)  # below and beyond the limits: 0.15, 1, 1.39
FRAMES = 40
EXPORT_TIME = 15.0


def examples() -> Iterator[tuple[str, Drawing, Experiment]]:
    """Name of the graph, graph and experiment of every example."""
    for name, kind in GRAPHS.items():
        drawing = kind.make(12 if name == "grid" else kind.size)
        for scheme in EXPORTED:
            for step in STEPS if scheme != "exponential" else STEPS[:1]:
                given = {"scheme": scheme, "step": step, "time": EXPORT_TIME}
                yield name, drawing, experiment_of(drawing, settings(given))
