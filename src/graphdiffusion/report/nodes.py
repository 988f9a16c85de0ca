"""The nodes of a trained model as they diffuse: places in the plane, energy and separation along t."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.manifold import TSNE
from sklearn.neighbors import NearestNeighbors
from torch import Tensor

from ..experiments.depth import relative_energy
from ..graph import Graph
from ..nn.trajectory import ModelTrajectory
from ..training.runs import Run

FRAMES, FEWEST = 21, 2
MEMORY = 1 << 28  # bytes of states; with more there are fewer frames
NODES = 3000  # that are shown
ANCHORS, ITERATIONS, NEIGHBOURS = 800, 500, 8


@dataclass(frozen=True, eq=False)
class Course:
    """What is shown of a trajectory.

    Attributes:
        times: ``(m,)``.
        nodes: The nodes that are shown, ``(k,)``, all of them or a sample.
        places: By the name of the embedding the places of these nodes, ``(m, k, 2)`` in [0, 1].
        predicted: Class that is read out at each time, ``(m, k)``; ``None`` where there are no classes.
        energy: Dirichlet energy over its size, ``(m,)``.
        separation: Share of the variance of labelled nodes that lies between classes, ``(m,)``; likewise.
        explained: Share of the variance that the two principal components show.
        steps: What the integral cost, as :class:`~graphdiffusion.solvers.Stats`; ``None`` without one.
    """

    times: list[float]
    nodes: NDArray[np.int64]
    places: dict[str, NDArray[np.float64]]
    predicted: NDArray[np.int64] | None
    energy: list[float]
    separation: list[float] | None
    explained: float
    steps: Any


def course(run: Run, member: int | None = None, seed: int = 0) -> Course:
    """The course of the nodes through the model of a member of a run, by default the best."""
    found = run.trajectory(moments(run), member)
    return summarised(found, run.problem.graph, _classes(run), seed)


def moments(run: Run) -> list[float]:
    """The fractions of T that are shown: fewer where states are large."""
    width = max(run.config.to_dict().get("hidden", 64), 1)
    room = MEMORY // (4 * run.problem.num_nodes * width)
    frames = min(FRAMES, max(FEWEST, room))
    return [k / (frames - 1) for k in range(frames)]


def _classes(run: Run) -> Tensor | None:
    """Class of each node, -1 where it is not known."""
    return run.problem.y.cpu() if run.task.name == "classification" else None


def summarised(found: ModelTrajectory, graph: Graph, y: Tensor | None, seed: int = 0) -> Course:
    """What is shown of a trajectory, for nodes of the classes y."""
    generator = np.random.default_rng(seed)
    states = found.states.float().cpu()
    count = states.shape[1]
    nodes = np.sort(generator.permutation(count)[:NODES])
    shown = states[:, torch.from_numpy(nodes)].double().numpy()
    plane, explained = principal(shown)
    graph = graph.to(torch.device("cpu"))
    logits = None if found.logits is None or y is None else found.logits.argmax(-1).cpu()
    return Course(
        times=[float(t) for t in found.times],
        nodes=nodes,
        places={"PCA": framed(plane), "t-SNE": framed(neighbour_map(shown, generator))},
        predicted=None if logits is None else logits[:, torch.from_numpy(nodes)].numpy(),
        energy=[relative_energy(graph, x) for x in states],
        separation=None if y is None else [separation(x, y) for x in states],
        explained=explained,
        steps=None if found.solution is None else found.solution.stats,
    )


def principal(states: NDArray[np.floating]) -> tuple[NDArray[np.float64], float]:
    """States ``(m, k, d)`` in the plane of the two directions in which all of them together vary most.

    Also the share of their variance that the plane shows. Directions have the sign that makes their
    largest entry positive, so that the same states give the same picture.
    """
    # frame by frame: all states in float64 would take as much memory again
    mean = np.mean([at.mean(0, dtype=np.float64) for at in states], axis=0)
    products = [(at - mean).T @ (at - mean) for at in states]
    values, vectors = np.linalg.eigh(np.sum(products, axis=0))
    basis = vectors[:, ::-1][:, :2]
    basis = basis * np.where(basis[np.abs(basis).argmax(0), range(basis.shape[1])] < 0, -1.0, 1.0)
    plane = np.stack([(at - mean) @ basis for at in states])
    if plane.shape[-1] < 2:  # a single channel
        plane = np.concatenate([plane, np.zeros_like(plane)], -1)
    total = max(float(values.clip(0).sum()), np.finfo(float).tiny)
    return plane, float(values[::-1][:2].clip(0).sum()) / total


def neighbour_map(states: NDArray[np.float64], generator: np.random.Generator) -> NDArray[np.float64]:
    """States ``(m, k, d)`` in the plane by one map for all times, from t-SNE of some of them.

    t-SNE places points, and gives no map. So a sample of nodes at several times is placed once; every
    state then lies at the mean of its nearest neighbours in the sample, weighted by 1/distance². Directions
    are compared: states are scaled to length one, as their size changes with t.
    """
    frames, count, _ = states.shape
    unit = states / np.maximum(np.linalg.norm(states, axis=-1, keepdims=True), 1e-12)
    moments = np.unique(np.linspace(0, frames - 1, min(frames, 4)).round().astype(int))
    some = generator.permutation(count)[: max(ANCHORS // len(moments), 1)]
    anchors = np.unique(unit[np.ix_(moments, some)].reshape(-1, states.shape[-1]), axis=0)
    if len(anchors) < 4:  # too few to place
        return np.repeat(principal(unit)[0][-1:], frames, 0)
    placed = TSNE(
        2, init="pca", perplexity=min(30.0, (len(anchors) - 1) / 3), max_iter=ITERATIONS, random_state=0
    ).fit_transform(anchors.astype(np.float32))
    near = NearestNeighbors(n_neighbors=min(NEIGHBOURS, len(anchors))).fit(anchors)
    distance, index = near.kneighbors(unit.reshape(-1, states.shape[-1]))
    weight = 1 / (distance**2 + 1e-9)
    mean = (placed[index] * weight[..., None]).sum(1) / weight.sum(1, keepdims=True)
    return mean.reshape(frames, count, 2)


def separation(x: Tensor, y: Tensor) -> float:
    """Share of the variance of the labelled nodes that lies between the means of their classes."""
    x, y = x[y >= 0].double(), y[y >= 0]
    total = float((x - x.mean(0)).square().sum())
    classes, sizes = y.unique(return_counts=True)
    means = torch.stack([x[y == k].mean(0) for k in classes])
    between = float((sizes[:, None] * (means - x.mean(0)).square()).sum())
    return between / total if total > 0 else 0.0


def framed(places: NDArray[np.float64]) -> NDArray[np.float64]:
    """Places in the unit square, with the same scale for both axes and all times.

    Distances from the middle are kept but for the outermost places, which are drawn in towards the rest, so
    that a few hubs do not leave all other nodes in one dot.
    """
    flat = places.reshape(-1, 2)
    middle = np.median(flat, axis=0)
    size = max(float(np.quantile(np.abs(flat - middle), 0.98)), 1e-12)
    u = (places - middle) / (1.25 * size)
    return 0.5 + 0.5 * u / (1 + np.abs(u) ** 4) ** 0.25
