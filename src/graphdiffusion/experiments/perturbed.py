"""Graphs with false edges: at random, or where PyG's PRBCD attack puts them."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from ..data.structure import tidy_edges
from ..graph import Graph
from ..nn import Model
from ..nn.modules import Features
from ..training.runs import Run

BLOCK, STEPS = 20_000, 60  # pairs of nodes that are looked at together; steps


def with_random_edges(data: Data, share: float, seed: int = 0) -> Data:
    """The graph with random undirected edges, as many as ``share`` times those it has."""
    n, wanted = int(data.num_nodes or 0), round(share * data.edge_index.shape[1] / 2)
    if not wanted:
        return data
    generator = torch.Generator().manual_seed(seed)
    known = {(int(i), int(j)) for i, j in data.edge_index.T.tolist()}
    room = n * (n - 1) // 2 - len(known) // 2
    added: list[tuple[int, int]] = []
    while len(added) < min(wanted, room):
        i, j = torch.randint(0, n, (2,), generator=generator).tolist()
        if i != j and (i, j) not in known:
            known |= {(i, j), (j, i)}
            added.append((i, j))
    return _with_edges(data, torch.cat([data.edge_index, torch.tensor(added).T], 1))


class Victim(nn.Module):
    """A trained model as PRBCD calls it: a function of the weights of the edges.

    With weights of 0 and 1 it is the model on the graph of the edges of weight 1. The features are its own:
    PRBCD reads no more of them than the number of nodes, and sparse ones have another class here.
    """

    def __init__(self, model: Model, x: Features, self_loops: float | None, **more: Any) -> None:
        super().__init__()
        self.model, self.x, self.self_loops, self.more = model, x, self_loops, more

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
        graph = Graph.from_edge_index(edge_index, len(x), edge_weight, self.self_loops)
        # a model that does not read the graph has a gradient of 0, not none
        return self.model(self.x, graph, **self.more) + 0 * edge_weight.sum()


def attacked(
    run: Run, member: int, share: float, *, block: int = BLOCK, steps: int = STEPS, seed: int = 0
) -> Data:
    """The graph of a run after PyG's PRBCD attack on the model of a member.

    An attack at test time (evasion): the model stays as it is. It adds and removes at most ``share`` of the
    undirected edges, so that the test nodes of the member, whose classes it knows, are classified wrongly.

    Args:
        run: The run; its models are differentiable in the weights of the edges.
        member: Which model, and which split.
        share: Of the edges.
        block: Pairs of nodes that are looked at together.
        steps: Of the attack; three quarters of them replace pairs that gained nothing by new ones.
        seed: Of the pairs.
    """
    data, problem = run.data, run.problem
    budget = round(share * data.edge_index.shape[1] / 2)
    if not budget:
        return data
    with warnings.catch_warnings():  # it says that it may change
        warnings.simplefilter("ignore")
        from torch_geometric.contrib.nn import PRBCDAttack
    model = run.model(member).requires_grad_(False)
    victim = Victim(model, problem.x, run.config.self_loops, **run.shown_labels(member))
    pairs = problem.num_nodes * (problem.num_nodes - 1) // 2
    attack = PRBCDAttack(
        victim, block_size=min(block, pairs), epochs=steps, epochs_resampling=3 * steps // 4, log=False
    )
    nodes, x = run.split(member).test.nonzero().flatten(), problem.y.new_empty(problem.num_nodes, 0)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        edges, _ = attack.attack(x, data.edge_index, problem.y, budget, idx_attack=nodes)
    return _with_edges(data, edges)


def _with_edges(data: Data, edges: Tensor) -> Data:
    found = data.clone()
    found.edge_index = tidy_edges(edges.cpu().numpy(), int(data.num_nodes or 0))[0]
    return found
