"""Edge weights, rules of rewiring and a learnt T in the layer; small graphs of one's own in training."""

from __future__ import annotations

import torch
from torch_geometric.data import Data

from graphdiffusion.nn import GRAND
from graphdiffusion.training import Config, Population, Trainer, load_problem, protocol

EDGES = torch.tensor([[0, 1, 2, 3, 4, 0, 2], [1, 2, 3, 4, 0, 2, 4]])
BOTH = torch.cat([EDGES, EDGES.flip(0)], 1)


def features(channels: int = 4) -> torch.Tensor:
    return torch.randn(5, channels, generator=torch.Generator().manual_seed(0))


def test_batch_norm_takes_a_batch() -> None:
    model = GRAND(4, 2, hidden=8, batch_norm=True)
    assert model(torch.randn(3, 5, 4), BOTH).shape == (3, 5, 2)
    assert model.norm.running_mean.shape == (8,)


def small_graph() -> Data:
    generator = torch.Generator().manual_seed(1)
    y = torch.arange(30) % 3
    edges = torch.randint(30, (2, 80), generator=generator)
    x = torch.randn(30, 5, generator=generator) + y[:, None]
    return Data(x=x, edge_index=torch.cat([edges, edges.flip(0)], 1), y=y)


def test_a_small_graph_of_ones_own_trains_with_the_defaults() -> None:
    config = Config(data="mine", hidden=8, attention_dim=8, epochs=2, splits=2)
    problem = load_problem(config, small_graph())
    population = Population(problem, config, protocol(config, problem.data))
    assert population.train.sum(1).tolist() == [18, 18]  # three of five folds
    assert population.val.sum(1).tolist() == population.test.sum(1).tolist() == [6, 6]
    assert len(Trainer(problem, config, protocol(config, problem.data)).run()) == 2
    config = config.replace(split="random")
    population = Population(problem, config, protocol(config, problem.data))
    assert population.train.sum(1).tolist() == [15, 15]  # half of the smallest class, of each of three
    assert bool(population.val.any(1).all()) and bool(population.test.any(1).all())


def test_a_member_out_of_patience_changes_no_more() -> None:
    config = Config(data="mine", hidden=8, attention_dim=8, epochs=9, splits=1, patience=1)
    problem = load_problem(config, small_graph())
    population = Population(problem, config, protocol(config, problem.data))
    alone = Trainer(problem, config, protocol(config, problem.data)).run()[0]
    for _ in range(config.epochs):  # nobody asks whether it has finished
        population.step()
    assert int(population.best_epoch) == alone.best_epoch
