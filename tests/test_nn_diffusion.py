"""The layer: inside PyG, saved and loaded, on other graphs, in every variant, with every option."""

from __future__ import annotations

import warnings

import pytest
import torch
from conftest import make_graph, normal
from torch import nn
from torch_geometric.nn import GCNConv, Sequential

from graphdiffusion.diffusivity import DIFFUSIVITIES, Cosine
from graphdiffusion.errors import ArgumentError, DtypeError, NonFiniteError
from graphdiffusion.nn import GraphDiffusion
from graphdiffusion.nn.diffusion import SHORTEST
from graphdiffusion.nn.modules import BatchNorm
from graphdiffusion.solvers import RK4, Adjoint, DormandPrince, Euler, Exponential, SemiImplicitEuler

VARIANTS = ("linear", "nonlinear", "nonlinear-rewired")


def features(channels: int, n: int = 9, seed: int = 0) -> torch.Tensor:
    return normal(n, channels, seed=seed, dtype=torch.float32)


def edges(name: str = "random") -> torch.Tensor:
    return make_graph(name).edge_index


def shaken(module: nn.Module, seed: int = 0) -> nn.Module:
    """Away from the constant start, where attention is uniform."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in module.parameters():
            p.add_(0.3 * torch.randn(p.shape, generator=generator))
    return module


@pytest.mark.parametrize("variant", VARIANTS)
def test_in_a_plain_sequential_saved_and_loaded(variant, tmp_path):
    def build(seed: int) -> nn.Module:
        torch.manual_seed(seed)
        return Sequential(
            "x, edge_index, edge_weight",
            [
                (GCNConv(5, 8), "x, edge_index, edge_weight -> x"),
                nn.ReLU(),
                (
                    GraphDiffusion(8, time=2.0, variant=variant, heads=2, attention_dim=8),
                    "x, edge_index -> x",
                ),
                (nn.Dropout(0.5), "x -> x"),
                nn.Linear(8, 3),
            ],
        )

    model = shaken(build(0)).eval()
    x, edge_index = features(5), edges()
    weight = torch.rand(edge_index.shape[1])
    out = model(x, edge_index, weight)
    assert out.shape == (9, 3)
    torch.save(model.state_dict(), tmp_path / "model.pt")
    other = build(1).eval()
    assert not torch.equal(other(x, edge_index, weight), out)
    other.load_state_dict(torch.load(tmp_path / "model.pt", weights_only=True))
    assert torch.equal(other(x, edge_index, weight), out)

    model.train()
    model(x, edge_index, weight).square().sum().backward()
    for name, p in model.named_parameters():
        assert p.grad is not None and bool(torch.isfinite(p.grad).all()) and bool(p.grad.any()), name


def test_returns_attention_and_trajectory():
    layer = shaken(GraphDiffusion(4, time=3.0, heads=2, attention_dim=8, over="rows", normaliser="softmax"))
    x, edge_index = features(4), edges()
    plain = layer(x, edge_index)
    out, (index, attention) = layer(x, edge_index, return_attention_weights=True)
    assert torch.equal(out, plain) and index.shape == (2, attention.numel())
    sums = torch.zeros(9).index_add(0, index[1], attention)
    torch.testing.assert_close(sums, torch.ones(9))
    out, trajectory = layer(x, edge_index, return_trajectory=True, at=[1.0, 3.0])
    assert trajectory.solution.states.shape == (2, 9, 4)
    torch.testing.assert_close(trajectory.solution.states[1], out)
    assert trajectory.solution.stats.evaluations > 0 and Exponential.accepts(trajectory.flow)
    both = layer(x, edge_index, return_attention_weights=True, return_trajectory=True)
    assert len(both) == 3


def test_columns_sum_to_one():
    layer = shaken(GraphDiffusion(4, over="columns", normaliser="squareplus", heads=2, attention_dim=8))
    _, (index, attention) = layer(features(4), edges("directed"), return_attention_weights=True)
    torch.testing.assert_close(torch.zeros(9).index_add(0, index[0], attention), torch.ones(9))


@pytest.mark.parametrize("variant", VARIANTS)
def test_inductive(variant):
    """One layer on graphs of different sizes; two graphs side by side behave like each alone."""
    layer = shaken(
        GraphDiffusion(4, 2.0, variant=variant, heads=2, attention_dim=8, solver=Euler(0.25), keep=1.0)
    )
    x, edge_index = features(4), edges()
    y, other = features(4, 8, seed=1), edges("star")
    together = layer(torch.cat([x, y]), torch.cat([edge_index, other + 9], 1))
    torch.testing.assert_close(together[:9], layer(x, edge_index))
    torch.testing.assert_close(together[9:], layer(y, other))


def test_edge_weights_count_only_if_asked_for():
    x, edge_index = features(4), edges()
    weight = torch.rand(edge_index.shape[1]) + 0.1
    plain, weighted = (
        GraphDiffusion(4, heads=2, attention_dim=8, reweight=r, self_loops=None) for r in (False, True)
    )
    weighted.load_state_dict(plain.state_dict())
    assert torch.equal(plain(x, edge_index, weight), plain(x, edge_index))
    assert not torch.allclose(weighted(x, edge_index, weight), weighted(x, edge_index))


@pytest.mark.parametrize(
    "gradient", ["backprop", "checkpoint", "adjoint", Adjoint(DormandPrince(1e-6, 1e-8))]
)
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_gradient_in_every_variant(variant, gradient):
    solver = Exponential() if variant == "linear" else DormandPrince(1e-6, 1e-8)
    how = {"heads": 2, "attention_dim": 8, "learn_time": True, "solver": solver}
    layer = shaken(GraphDiffusion(4, 2.0, variant=variant, gradient=gradient, **how))
    reference = GraphDiffusion(4, 2.0, variant=variant, **how)
    reference.load_state_dict(layer.state_dict())
    for one in (layer, reference):
        one(features(4), edges()).square().sum().backward()
    for (name, p), q in zip(layer.named_parameters(), reference.parameters(), strict=True):
        assert bool(p.grad.any()), name
        torch.testing.assert_close(p.grad, q.grad, rtol=2e-3, atol=2e-4)


@pytest.mark.parametrize("name", DIFFUSIVITIES.names())
@pytest.mark.parametrize("variant", ["linear", "nonlinear"])
def test_every_diffusivity(variant, name):
    how = {} if name == "laplacian" else {"heads": 2, "attention_dim": 8}
    layer = GraphDiffusion(4, 2.0, variant=variant, diffusivity=name, **how)
    out = shaken(layer)(features(4), edges())
    assert out.shape == (9, 4) and bool(torch.isfinite(out).all())


def test_solvers_agree():
    x, edge_index = features(4), edges()
    states = []
    for solver in (None, DormandPrince(1e-7, 1e-8), Euler(0.001), SemiImplicitEuler(0.001)):
        torch.manual_seed(0)
        layer = shaken(GraphDiffusion(4, 2.0, heads=2, attention_dim=8, solver=solver))
        states.append(layer(x, edge_index).detach())
    for state in states[1:]:
        torch.testing.assert_close(state, states[0], rtol=5e-3, atol=5e-3)


def test_a_diffusivity_of_ones_own_and_paper_reading():
    layer = GraphDiffusion(4, diffusivity=Cosine(4, 2, 8, over="rows"), alpha=1.0, terms="")
    assert layer.equation.alpha().item() == 1 and not layer.equation.alpha.raw.requires_grad
    x = features(4)
    out = layer(x, edges())
    assert bool(
        (out.amax(0) <= x.amax(0) + 1e-6).all() and (out.amin(0) >= x.amin(0) - 1e-6).all()
    )  # eq. 3


@pytest.mark.parametrize("diffusivity", ["scaled-dot", "laplacian"])
def test_edge_weights_count_unless_switched_off(diffusivity: str) -> None:
    x, weight = features(4), torch.linspace(0.1, 3.0, edges().shape[1])
    layers = [GraphDiffusion(4, diffusivity=diffusivity, reweight=r) for r in (True, False)]
    moved = [(layer(x, edges(), weight) - layer(x, edges())).abs().max() for layer in layers]
    assert moved[0] > 1e-3 and moved[1] == 0


@pytest.mark.parametrize("variant", ["linear", "nonlinear"])
@pytest.mark.parametrize("rule", [{"keep": 0.5}, {"threshold": 0.3}, {"mass": 0.6}])
def test_every_rule_leaves_out_edges_of_every_variant(variant: str, rule: dict[str, float]) -> None:
    torch.manual_seed(0)
    layer = GraphDiffusion(4, variant=variant, solver=None if variant == "linear" else RK4(0.5), **rule)
    for projection in (layer.equation.diffusivity.query, layer.equation.diffusivity.key):
        torch.nn.init.normal_(projection.weight)
    _, (_, attention) = layer(features(4), edges(), return_attention_weights=True)
    assert 9 <= int((attention > 0).sum()) < attention.numel()


def test_rules_exclude_one_another_and_have_bounds() -> None:
    with pytest.raises(ArgumentError, match="at most one"):
        GraphDiffusion(4, keep=0.5, mass=0.5)
    with pytest.raises(ArgumentError, match=r"threshold must be between 0 and 1, got 1\.5"):
        GraphDiffusion(4, threshold=1.5)


def test_a_learnt_time_stays_positive() -> None:
    layer = GraphDiffusion(4, time=0.5, learn_time=True)
    with torch.no_grad():
        layer.time.fill_(-3.0)
    assert float(layer.span) == pytest.approx(SHORTEST)
    assert torch.isfinite(layer(features(4), edges())).all()


def test_a_wrong_dtype_and_a_lone_at_are_named() -> None:
    with pytest.raises(DtypeError, match=r"torch\.float64"):
        GraphDiffusion(4)(features(4).double(), edges())
    with pytest.raises(ArgumentError, match="return_trajectory"):
        GraphDiffusion(4)(features(4), edges(), at=[1.0])


def test_batch_norm_like_torch():
    ours, theirs = BatchNorm(8), nn.BatchNorm1d(8)
    for seed in range(3):
        x = features(8, seed=seed) * 3 + 1
        torch.testing.assert_close(ours(x), theirs(x))
    torch.testing.assert_close(ours.running_var, theirs.running_var)
    ours.eval(), theirs.eval()
    torch.testing.assert_close(ours(x), theirs(x))


def test_reset_gives_what_building_gave():
    for name in DIFFUSIVITIES.names():
        how = {} if name == "laplacian" else {"heads": 2, "attention_dim": 8}
        torch.manual_seed(3)
        fresh = GraphDiffusion(4, diffusivity=name, learn_time=True, theta_terms=1, **how)
        other = shaken(GraphDiffusion(4, diffusivity=name, learn_time=True, **how))
        torch.manual_seed(3)
        other.reset_parameters()
        for key, value in fresh.state_dict().items():
            assert torch.equal(other.state_dict()[key], value), (name, key)


def test_repr():
    layer = GraphDiffusion(16, 4.0, variant="nonlinear", solver=Euler(0.5))
    assert "16, T=4, nonlinear, solver=Euler(step_size=0.5)" in repr(layer)


def test_wrong_arguments():
    for how, words in (
        ({"variant": "cubic"}, "variant must be one of"),
        ({"time": -1.0}, "time must be at least 0, got -1.0"),
        ({"time": float("nan")}, "time must be finite, got nan"),
        ({"keep": 1.5}, "keep must be between 0 and 1, got 1.5"),
        ({"diffusivity": "dot"}, "diffusivity must be one of"),
        ({"heads": 3, "attention_dim": 8}, "multiple of heads"),
    ):
        with pytest.raises(ArgumentError, match=words):
            GraphDiffusion(4, **how)
    with pytest.raises(NonFiniteError):
        GraphDiffusion(4)(features(4) * float("nan"), edges())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        GraphDiffusion(4, 3.0, variant="nonlinear", solver=Euler(1.0))(features(4), edges())  # α = ½
