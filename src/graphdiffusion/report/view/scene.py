"""What is shown of the graph of a run: the course of one model, and the details of each node."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...ensemble.folder import FITS, holds_choice
from ...ensemble.result import crossed_runs, load_ensemble
from ...errors import ConfigError
from ...graph import Graph
from ...nn.trajectory import ModelTrajectory, last_state
from ...training.runs import Run
from ...training.summary import counted
from ..nodes import framed, moments, principal
from ..page.report import shown_run
from .layout import layout
from .reach import Reach, reach_of

PARTS = ("train", "val", "test")


@dataclass(frozen=True, eq=False)
class Scene:
    """What is shown.

    Attributes:
        run: The run of the model.
        member: Its number there.
        times: ``(m,)``; of a model without an integral the number 0 alone.
        answers: Probabilities or numbers at these times, ``(m, n, outputs)``; ``(1, n, outputs)``, at the
            end alone, where the model cannot be read out before.
        plane: The two principal components of the states, ``(m, n, 2)`` in [0, 1].
        explained: Share of the variance that they show.
        edges: A at these times, ``(m, E)`` in the order of the graph; ``(1, E)`` where it is constant.
        attention: Whether these are attentions; else weights of the graph.
        places: Of the nodes, ``(n, 2)`` in [0, 1].
        reach: Shares of the last state by distance; ``None`` where they are not known.
    """

    run: Run
    member: int
    times: list[float]
    answers: NDArray[np.floating]
    plane: NDArray[np.float64]
    explained: float
    edges: NDArray[np.float32]
    attention: bool
    places: NDArray[np.float64]
    reach: Reach | None

    @property
    def graph(self) -> Graph:
        return self.run.problem.graph

    @property
    def name(self) -> str:
        """Which training it is."""
        return training_name(self.run, self.member)

    @property
    def ids(self) -> Sequence[Any]:
        return self.run.data.get("node_ids") or range(self.graph.num_nodes)

    @property
    def task(self) -> str:
        return self.run.task.name

    @cached_property
    def truth(self) -> NDArray[Any]:
        """Classes ``(n,)`` with -1, or numbers or labels ``(n, outputs)`` with NaN where not known."""
        y = self.run.problem.task.y.cpu().numpy()
        return y if self.task == "classification" else y.reshape(len(y), -1).astype(float)

    @cached_property
    def parts(self) -> NDArray[np.uint8]:
        """Of each node: 1 + its place in ``PARTS``, and 0 for nodes in none of them."""
        found = np.zeros(self.graph.num_nodes, np.uint8)
        split = self.run.split(self.member)
        for k, part in enumerate(PARTS):
            found[getattr(split, part).cpu().numpy()] = k + 1
        return found

    @cached_property
    def ends(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Of each edge the node i of the row, and the node j of the column, ``(E,)``."""
        row, col = (v.cpu().numpy().astype(np.int64) for v in (self.graph.row, self.graph.col))
        return row, col

    @cached_property
    def pairs(self) -> Pairs:
        return Pairs.of(*self.ends, self.graph.num_nodes, np.abs(self.edges).max(0))

    def detail(self, node: int) -> dict[str, Any]:
        """What is said of a chosen node.

        Returns:
            ``answers`` ``(m, outputs)``; ``own``, its edge to itself at all times, or ``None``;
            ``neighbours``, of each its number, a_ij and a_ji at all times (``None`` without such an edge);
            ``shares`` by distance, or ``None``.
        """
        row, col = self.ends
        to, by = np.flatnonzero(row == node), np.flatnonzero(col == node)
        neighbours = {int(col[e]): self._along(int(e)) for e in to}
        given = {int(row[e]): self._along(int(e)) for e in by}
        own = neighbours.get(node)
        near = sorted((neighbours.keys() | given.keys()) - {node})
        shares = None if self.reach is None else self.reach.shares(np.array([node]))[0]
        return {
            "answers": _short(self.answers[:, node]),
            "own": own,
            "neighbours": [[k, neighbours.get(k), given.get(k)] for k in near],
            "shares": None if shares is None else _short(shares),
        }

    def _along(self, edge: int) -> list[float]:
        return _short(self.edges[:, edge])


@dataclass(frozen=True, eq=False)
class Pairs:
    """Neighbours, each pair once, the strongest first.

    Attributes:
        first: The smaller number of each pair, ``(p,)``.
        second: The larger one.
        there: The edge with the first as its row; -1: none.
        back: The edge with the second as its row; -1: none.
        loops: The edge of each node to itself, ``(n,)``; -1: none.
    """

    first: NDArray[np.int64]
    second: NDArray[np.int64]
    there: NDArray[np.int64]
    back: NDArray[np.int64]
    loops: NDArray[np.int64]

    @classmethod
    def of(
        cls, row: NDArray[np.int64], col: NDArray[np.int64], nodes: int, strength: NDArray[np.float32]
    ) -> Pairs:
        edge = np.flatnonzero(row != col)
        u, v = row[edge], col[edge]
        key, place = np.unique(np.minimum(u, v) * nodes + np.maximum(u, v), return_inverse=True)
        there, back = np.full(len(key), -1), np.full(len(key), -1)
        up = u < v
        there[place[up]], back[place[~up]] = edge[up], edge[~up]
        loops = np.full(nodes, -1)
        own = np.flatnonzero(row == col)
        loops[row[own]] = own
        each = np.zeros(len(key), np.float32)
        np.maximum.at(each, place, strength[edge])
        order = np.argsort(-each, kind="stable")
        first, second = np.divmod(key[order], max(nodes, 1))
        return cls(first, second, there[order], back[order], loops)


def read_scene(
    folder: str | os.PathLike[str],
    root: str | os.PathLike[str] | None = None,
    member: int | None = None,
    note: Callable[[str], None] = lambda text: None,
) -> Scene:
    """What is shown of a finished training.

    Args:
        folder: Of a run, or of an automatic choice.
        root: Folder with raw data files, as in :func:`~graphdiffusion.data.load_data`.
        member: Number of a model, as of :attr:`Ensemble.members`; by default the one that a report shows.
        note: Called with what took time.
    """
    run, number = shown_model(Path(folder), root, member)
    begun = time.perf_counter()
    found = run.trajectory(moments(run), number)
    if found.logits is None:
        answers = run.predict(member=number)[None]
    else:
        answers = run.answers(found.logits, number)
    edges, attention = _edges(run, number, found)
    plane, explained = principal(found.states.float().cpu().numpy())
    reach = reach_of(found, edges if attention else None)
    took = f"{time.perf_counter() - begun:.1f} s"
    told = f"{run.config.title}, {training_name(run, number)}, at {counted(len(found.times), 'time')}"
    note(f"{told}: {took}")
    begun = time.perf_counter()
    graph = run.problem.graph
    places = layout(graph.edge_index.cpu().numpy(), graph.num_nodes)
    note(f"layout of {graph.num_nodes:,} nodes: {time.perf_counter() - begun:.1f} s")
    return Scene(
        run=run,
        member=number,
        times=[float(t) for t in found.times],
        answers=answers.cpu().numpy(),
        plane=framed(plane),
        explained=explained,
        edges=edges.cpu().float().numpy(),
        attention=attention,
        places=places,
        reach=reach,
    )


def shown_model(
    folder: Path, root: str | os.PathLike[str] | None = None, member: int | None = None
) -> tuple[Run, int]:
    """The run of the model that is shown, and its number there."""
    ensemble = load_ensemble(folder, root)
    if member is None:
        chosen = crossed_runs(folder, root) if holds_choice(folder) else (ensemble.runs, [1.0])
        run = shown_run(*chosen)
        return run, run.best
    if not 0 <= member < len(ensemble.members):
        raise ConfigError(
            f"{folder} has the members 0 to {len(ensemble.members) - 1}, and no member {member}."
        )
    return ensemble.members[member]


def training_name(run: Run, member: int) -> str:
    """Which training a model comes from: its number in its run, and of a choice the name of the run."""
    place = f"{run.folder.name}, " if run.folder.parent.name == FITS else ""
    count = len(run.results)
    if count == 1:
        return f"{place}one training"
    best = member == run.best and any(result.val is not None for result in run.results)
    return f"{place}member {member}, " + (
        f"the best of {count} by validation" if best else f"one of {count}"
    )


@torch.no_grad()
def _edges(run: Run, member: int, found: ModelTrajectory) -> tuple[Tensor, bool]:
    """A at all times, or once where it is constant, and whether it is an attention.

    Of a model whose layers have attention, such as GAT, that of the last one, the mean of its heads; of one
    without attention the weights of the graph.
    """
    flow, graph = found.flow, run.problem.graph
    if flow is not None and found.solution is not None and found.solution.states is not None:
        states = found.solution.states
        first = flow.attention(found.times[0].to(states.dtype), states[0])
        if first is not None:
            if flow.context.attention is not None:
                return first[None], True
            each = zip(found.times.to(states.dtype), states, strict=True)
            return torch.stack([flow.attention(t, x).cpu() for t, x in each]), True  # type: ignore[union-attr]
    model = run.model(member)
    layers = getattr(model, "layers", None)
    if layers and hasattr(layers[-1], "weights"):
        given, _ = last_state(model, run.problem.x, graph)
        return layers[-1].weights(given, graph).mean(-2)[None], True
    weight = torch.ones(graph.num_edges) if graph.weight is None else graph.weight
    return weight[None].float(), False


def _short(values: NDArray[Any]) -> Any:
    """Numbers with six digits, in lists."""
    rounded = np.array([float(f"{v:.6g}") for v in np.ravel(values)]).reshape(np.shape(values))
    return rounded.tolist()
