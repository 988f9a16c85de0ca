"""Edge weights, rules of rewiring and a learnt T in the layer; small graphs of one's own in training."""

from __future__ import annotations

import pytest
import torch
from torch_geometric.data import Data

from graphdiffusion.errors import ArgumentError, DtypeError
from graphdiffusion.nn import GRAND, GraphDiffusion
from graphdiffusion.nn.diffusion import SHORTEST
from graphdiffusion.solvers import RK4
from graphdiffusion.training import Config, Population, Trainer, load_problem, protocol

EDGES = torch.tensor([[0, 1, 2, 3, 4, 0, 2], [1, 2, 3, 4, 0, 2, 4]])
BOTH = torch.cat([EDGES, EDGES.flip(0)], 1)


def features(channels: int = 4) -> torch.Tensor:
    return torch.randn(5, channels, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("diffusivity", ["scaled-dot", "laplacian"])
def test_edge_weights_count_unless_told_otherwise(diffusivity: str) -> None:
    x, weight = features(), torch.linspace(0.1, 3.0, BOTH.shape[1])
    layers = [GraphDiffusion(4, diffusivity=diffusivity, reweight=r) for r in (True, False)]
    moved = [(layer(x, BOTH, weight) - layer(x, BOTH)).abs().max() for layer in layers]
    assert moved[0] > 1e-3 and moved[1] == 0


@pytest.mark.parametrize("variant", ["linear", "nonlinear"])
@pytest.mark.parametrize("rule", [{"keep": 0.5}, {"threshold": 0.3}, {"mass": 0.6}])
def test_every_rule_leaves_out_edges_of_every_variant(variant: str, rule: dict[str, float]) -> None:
    torch.manual_seed(0)
    layer = GraphDiffusion(4, variant=variant, solver=None if variant == "linear" else RK4(0.5), **rule)
    for projection in (layer.equation.diffusivity.query, layer.equation.diffusivity.key):
        torch.nn.init.normal_(projection.weight)
    _, (_, attention) = layer(features(), BOTH, return_attention_weights=True)
    assert 5 <= int((attention > 0).sum()) < attention.numel()


def test_rules_exclude_one_another_and_have_bounds() -> None:
    with pytest.raises(ArgumentError, match="at most one"):
        GraphDiffusion(4, keep=0.5, mass=0.5)
    with pytest.raises(ArgumentError, match="threshold must lie in"):
        GraphDiffusion(4, threshold=1.5)


def test_a_learnt_time_stays_positive() -> None:
    layer = GraphDiffusion(4, time=0.5, learn_time=True)
    with torch.no_grad():
        layer.time.fill_(-3.0)
    assert float(layer.span) == pytest.approx(SHORTEST)
    assert torch.isfinite(layer(features(), BOTH)).all()


def test_a_wrong_dtype_and_a_lone_at_are_named() -> None:
    with pytest.raises(DtypeError, match=r"torch\.float64"):
        GraphDiffusion(4)(features().double(), BOTH)
    with pytest.raises(DtypeError, match=r"torch\.float64"):
        GRAND(4, 8, 2)(features().double(), BOTH)
    with pytest.raises(ArgumentError, match="return_trajectory"):
        GraphDiffusion(4)(features(), BOTH, at=[1.0])


def test_batch_norm_takes_a_batch() -> None:
    model = GRAND(4, 8, 2, batch_norm=True)
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
    population = Population(problem, config, protocol(config))
    assert population.train.sum(1).tolist() == [15, 15]  # half of the smallest class, of each of three
    assert bool(population.val.any(1).all()) and bool(population.test.any(1).all())
    assert len(Trainer(problem, config, protocol(config)).run()) == 2


def test_a_member_out_of_patience_changes_no_more() -> None:
    config = Config(data="mine", hidden=8, attention_dim=8, epochs=9, splits=1, patience=1)
    problem = load_problem(config, small_graph())
    population = Population(problem, config, protocol(config))
    alone = Trainer(problem, config, protocol(config)).run()[0]
    for _ in range(config.epochs):  # nobody asks whether it has finished
        population.step()
    assert int(population.best_epoch) == alone.best_epoch
