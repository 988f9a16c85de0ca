"""The small graphs of the playground, each with places in the plane and values to start from."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ...errors import ConfigError
from ..diffusion import communities

Edges = list[tuple[int, int]]


@dataclass(frozen=True)
class Drawing:
    """A graph as it is drawn.

    Attributes:
        edges: Pairs of nodes; both ways unless ``directed``, then from the first to the second.
        places: Of the nodes, in the unit square: to the right and down.
        values: x(0).
        side: Of a grid of pixels; 0 for other graphs.
    """

    edges: Edges
    places: list[tuple[float, float]]
    values: list[float]
    directed: bool = False
    side: int = 0

    def packed(self) -> dict[str, Any]:
        """For the script of the page."""
        return asdict(self) | {"places": [[round(x, 4), round(y, 4)] for x, y in self.places]}


@dataclass(frozen=True)
class Kind:
    """A family of graphs.

    Attributes:
        size: The number that is offered first, and what it counts.
        least, most: Its ends.
    """

    title: str
    make: Callable[[int], Drawing]
    size: int
    least: int
    most: int
    counts: str = "nodes"


def _ring(count: int, start: float = -0.25) -> list[tuple[float, float]]:
    turns = [2 * math.pi * (start + k / count) for k in range(count)]
    return [(0.5 + 0.45 * math.cos(t), 0.5 + 0.45 * math.sin(t)) for t in turns]


def _hot(count: int, at: int = 0) -> list[float]:
    return [float(k == at) for k in range(count)]


def _random(count: int, seed: int = 0) -> list[float]:
    return [round(v, 2) for v in np.random.default_rng(seed).uniform(0, 1, count).tolist()]


def cycle(size: int) -> Drawing:
    return Drawing([(k, (k + 1) % size) for k in range(size)], _ring(size), _hot(size))


def one_way(size: int) -> Drawing:
    """A cycle in which each node has the one before it as its neighbour: its eigenvalues fill a circle."""
    own = cycle(size)
    return Drawing(own.edges, own.places, own.values, directed=True)


def path(size: int) -> Drawing:
    """A step from 1 to 0 in the middle, drawn as a wave so that there is room."""
    places = [
        (0.04 + 0.92 * k / (size - 1), 0.5 + 0.18 * math.sin(4 * math.pi * k / (size - 1)))
        for k in range(size)
    ]
    return Drawing(
        [(k, k + 1) for k in range(size - 1)], places, [float(k < size // 2) for k in range(size)]
    )


def star(size: int) -> Drawing:
    """The hub is node 0."""
    places = [(0.5, 0.5), *_ring(size - 1)]
    return Drawing([(0, k) for k in range(1, size)], places, [0.0, *_random(size - 1)])


def tree(size: int) -> Drawing:
    """A binary tree; the root is hot."""
    edges = [((k - 1) // 2, k) for k in range(1, size)]
    rows = math.floor(math.log2(size))
    places = []
    for k in range(size):
        row = math.floor(math.log2(k + 1))
        place = (k + 1 - 2**row + 0.5) / 2**row
        places.append((0.03 + 0.94 * place, 0.06 + 0.88 * row / max(rows, 1)))
    return Drawing(edges, places, _hot(size))


def complete(size: int) -> Drawing:
    return Drawing([(j, k) for k in range(size) for j in range(k)], _ring(size), _random(size, 1))


def two_communities(size: int) -> Drawing:
    """Two dense groups with three bridges; values −1 and 1 with noise."""
    half = size // 2
    graph, place, group = communities((half, size - half), 4, 3, 1)
    once = graph.row < graph.col
    ends = zip(graph.row[once].tolist(), graph.col[once].tolist(), strict=True)
    low, high = place.min(0).values, place.max(0).values
    spots = 0.04 + 0.92 * (place - low) / (high - low)
    noise = np.random.default_rng(2).normal(0, 0.45, size)
    values = [round(2 * g - 1 + e, 2) for g, e in zip(group.tolist(), noise, strict=True)]
    return Drawing(list(ends), [tuple(p) for p in spots.tolist()], values)


def grid(side: int) -> Drawing:
    """An image on a grid: a disc and a square on a dark ground, with noise."""
    rows, columns = np.mgrid[0:side, 0:side] / (side - 1)
    image = 0.15 + 0.1 * columns
    image[(rows - 0.35) ** 2 + (columns - 0.34) ** 2 < 0.24**2] = 0.95
    image[(rows > 0.52) & (rows < 0.9) & (columns > 0.55) & (columns < 0.9)] = 0.6
    image += np.random.default_rng(0).normal(0, 0.07, image.shape)
    edges = [(k, k + 1) for k in range(side * side) if (k + 1) % side]
    edges += [(k, k + side) for k in range(side * (side - 1))]
    apart = 1 / side
    places = [((k % side + 0.5) * apart, (k // side + 0.5) * apart) for k in range(side * side)]
    return Drawing(edges, places, np.round(image, 3).flatten().tolist(), side=side)


GRAPHS: dict[str, Kind] = {
    "cycle": Kind("cycle", cycle, 24, 3, 100),
    "one-way": Kind("one-way cycle", one_way, 24, 3, 100),
    "path": Kind("path", path, 20, 2, 100),
    "star": Kind("star", star, 13, 3, 100),
    "tree": Kind("binary tree", tree, 31, 3, 127),
    "complete": Kind("complete graph", complete, 10, 3, 60),
    "communities": Kind("two communities", two_communities, 30, 12, 100),
    "grid": Kind("grid with an image", grid, 16, 4, 20, "side"),
}


def draw_graph(name: Any, size: Any) -> Drawing:
    """A graph by name and size, as a request gives them."""
    if not isinstance(name, str) or name not in GRAPHS:
        raise ConfigError(f"the graph must be one of {', '.join(GRAPHS)}, got {str(name)[:40]!r}.")
    own = GRAPHS[name]
    if isinstance(size, bool) or not isinstance(size, int) or not own.least <= size <= own.most:
        raise ConfigError(
            f"the size of a {own.title} must be a whole number from {own.least} to {own.most}, "
            f"got {str(size)[:40]}."
        )
    return own.make(size)
