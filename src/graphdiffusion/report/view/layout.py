"""Places for the nodes of a graph: forces on ever finer graphs, with far nodes summed up on a grid."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import fft, sparse
from scipy.spatial import cKDTree

Floats = NDArray[np.float64]

COARSEST = 60  # nodes of the smallest graph
FEWEST, MOST = 60, 400  # steps on large and on small graphs
GRAVITY = 0.15  # towards the middle
FAR = 8.0  # length from which the pull of an edge hardly grows
NEAREST, APART = 6, 25  # nodes that are kept apart from each other, and steps of that


def layout(edge_index: NDArray[np.int64], nodes: int, seed: int = 0) -> Floats:
    """Places ``(n, 2)`` in the unit square: edges attract, and all nodes repel each other.

    The graph is made smaller by joining neighbours, again and again. The smallest one is laid out first,
    and its places are where the next one starts. The pull of a long edge hardly grows with its length, so
    that communities separate (as in Noack's LinLog model). The same graph and seed give the same places.

    Args:
        edge_index: ``(2, E)``; directions, weights and self-loops do not matter.
        nodes: Their number.
        seed: Of the first places, and of the order in which neighbours are joined.
    """
    if nodes < 2:
        return np.full((nodes, 2), 0.5)
    generator = np.random.default_rng(seed)
    graph = _simple(edge_index, nodes)
    mass: Floats = np.ones(nodes)
    levels: list[tuple[sparse.csr_array, Floats]] = [(graph, mass)]
    groups: list[NDArray[np.int64]] = []
    while len(mass) > COARSEST:
        group = _groups(graph, mass, generator)
        count = int(group.max()) + 1
        if count > 0.95 * len(mass):  # hardly smaller: most nodes have no edges
            break
        onto = sparse.csr_array(
            (np.ones(len(mass)), (group, np.arange(len(mass)))), shape=(count, len(mass))
        )
        graph, mass = _without_loops(onto @ graph @ onto.T), onto @ mass
        levels.append((graph, mass))
        groups.append(group)
    places = generator.normal(size=(len(mass), 2)) * np.sqrt(nodes)
    places = _settled(*levels[-1], places)
    for (graph, mass), (_, above), group in zip(
        levels[-2::-1], levels[:0:-1], reversed(groups), strict=True
    ):
        scattered = 0.3 * np.sqrt(above[group])[:, None] * generator.normal(size=(len(mass), 2))
        places = _settled(graph, mass, places[group] + scattered)
    return _framed(_apart(places, generator))


def _simple(edge_index: NDArray[np.int64], nodes: int) -> sparse.csr_array:
    """The matrix with a one for every pair of neighbours."""
    row, col = edge_index
    once = sparse.coo_array((np.ones(len(row)), (row, col)), shape=(nodes, nodes)).tocsr()
    graph = _without_loops(once + once.T)
    graph.data[:] = 1.0
    return graph


def _without_loops(graph: sparse.csr_array) -> sparse.csr_array:
    found = graph.tocoo()
    kept = found.row != found.col
    return sparse.coo_array((found.data[kept], (found.row[kept], found.col[kept])), graph.shape).tocsr()


def _groups(graph: sparse.csr_array, mass: Floats, generator: np.random.Generator) -> NDArray[np.int64]:
    """A number for each node: the two nodes of a pair share one, and nodes that are left over join one."""
    count, edges = len(mass), graph.tocoo()
    noise = generator.random(count)
    # heavy edges between light nodes first; the same for both directions of an edge
    key = edges.data / (mass[edges.row] * mass[edges.col])
    key = key * (1 + 0.2 * (noise[edges.row] + noise[edges.col]))
    order = np.argsort(key, kind="stable")
    row, col = edges.row[order], edges.col[order]
    numbers, group = np.arange(count), np.full(count, -1)
    for _ in range(4):
        free = (group[row] < 0) & (group[col] < 0)
        best = np.full(count, -1)
        best[row[free]] = col[free]  # the last one stays, which is the first choice
        pair = np.flatnonzero((best >= 0) & (best[best] == numbers) & (numbers < best))
        group[pair] = group[best[pair]] = pair
    best = np.full(count, -1)
    best[row] = col
    left = np.flatnonzero((group < 0) & (best >= 0))
    group[left] = group[best[left]]
    group = np.where(group < 0, numbers, group)  # nodes without edges, or whose choice is left over, too
    return np.unique(group, return_inverse=True)[1]


def _settled(graph: sparse.csr_array, mass: Floats, places: Floats) -> Floats:
    """Places after steps along the forces, of which the longest allowed becomes shorter and shorter."""
    count, total = len(mass), mass.sum()
    steps = int(np.clip(MOST * (300 / count) ** 0.3, FEWEST, MOST))
    row = np.repeat(np.arange(count), np.diff(graph.indptr))
    pulling, wide = graph.copy(), mass[:, None]
    for step in range(steps):
        if step % 3 == 0:  # lengths change slowly
            small = places.astype(np.float32)
            length = np.hypot(*(small[row] - small[graph.indices]).T)
            pulling.data = graph.data / (1 + length / FAR)
            pull = np.bincount(row, pulling.data, count)[:, None]
        middle = (places * wide).sum(0) / total
        force = pulling @ places - pull * places + wide * repulsion(places, mass)
        move = (force - GRAVITY * wide * (places - middle)) / (pull + GRAVITY * wide)
        longest = 0.25 * np.sqrt(total) * (1 - step / steps) ** 1.5 + 0.02 * np.sqrt(wide)
        size = np.maximum(np.linalg.norm(move, axis=1, keepdims=True), 1e-9)
        places = places + 0.8 * move * np.minimum(1, longest / size)
    return places


def repulsion(places: Floats, charge: Floats) -> Floats:
    """Σ_j charge_j (p_i − p_j) / |p_i − p_j|² for all nodes i, ``(n, 2)``.

    Charges are spread to the corners of the cells of a grid; the sum over all pairs of corners is a
    convolution. Between nodes of one cell the force is weaker than it should be.
    """
    side = int(2 ** np.clip(np.round(np.log2(1.4 * np.sqrt(len(places)))), 5, 10))
    low, high = places.min(0), places.max(0)
    cell = max(float((high - low).max()), 1e-9) / (side - 2)
    at = (places - low) / cell + 0.5
    corner = at.astype(np.int64)
    (x, y), (u, v) = corner.T, (at - corner).T
    weights = [(1 - u) * (1 - v), (1 - u) * v, u * (1 - v), u * v]
    index = [x * side + y + k for k in (0, 1, side, side + 1)]
    spread = np.concatenate([w * charge for w in weights])
    density = np.bincount(np.concatenate(index), spread, side * side).reshape(side, side)
    spectrum = fft.rfft2(density.astype(np.float32), (2 * side, 2 * side))
    out = np.empty_like(places)
    for axis, kernel in enumerate(_kernels(side)):
        field = fft.irfft2(spectrum * kernel, (2 * side, 2 * side))[:side, :side].ravel()
        out[:, axis] = sum(w * field[k] for w, k in zip(weights, index, strict=True))
    return out / cell


@lru_cache(maxsize=8)
def _kernels(side: int) -> tuple[NDArray[np.complex64], NDArray[np.complex64]]:
    """The transforms of x / (x² + y²) and y / (x² + y²), in cells."""
    line = fft.fftfreq(2 * side, 1 / (2 * side))
    square = line[:, None] ** 2 + line**2
    square[0, 0] = 1
    first = (line[:, None] / square).astype(np.float32)
    return fft.rfft2(first), fft.rfft2(first.T)


def _apart(places: Floats, generator: np.random.Generator) -> Floats:
    """Places moved so that near ones do not cover each other."""
    near = min(NEAREST, len(places) - 1) + 1
    size = np.quantile(np.abs(places - np.median(places, axis=0)), 0.95)
    wanted = max(2.2 * float(size) / np.sqrt(len(places)), 1e-9)  # if nodes filled a square evenly
    # nodes with the same neighbours may have the same place
    places = places + 0.01 * wanted * generator.normal(size=places.shape)
    for _ in range(APART):
        _, index = cKDTree(places).query(places, near)
        away = places[:, None] - places[index[:, 1:]]
        distance = np.maximum(np.linalg.norm(away, axis=-1, keepdims=True), 1e-9 * wanted)
        places = places + 0.25 * (away / distance * np.maximum(wanted - distance, 0)).sum(1)
    return places


def _framed(places: Floats) -> Floats:
    """Places in the unit square, with one scale for both axes; the outermost ones are drawn in."""
    centred = places - np.median(places, axis=0)
    length = np.maximum(np.linalg.norm(centred, axis=1, keepdims=True), 1e-12)
    size = max(float(np.quantile(length, 0.9)), 1e-12)
    beyond = np.maximum(length / size, 1)
    drawn = centred * (1 + np.log(beyond)) / beyond
    low, high = drawn.min(0), drawn.max(0)
    return 0.5 + (drawn - (low + high) / 2) / max(float((high - low).max()), 1e-12)
