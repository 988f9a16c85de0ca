"""The layer and the model: inside PyG, saved and loaded, on other graphs, in every variant."""

from __future__ import annotations

import warnings

import pytest
import torch
from conftest import make_graph, normal
from torch import nn
from torch_geometric.nn import GCNConv, Sequential

from graphdiffusion import GRAND, DormandPrince, Euler, Exponential, GraphDiffusion, SemiImplicitEuler
from graphdiffusion.diffusivity import Cosine
from graphdiffusion.errors import ArgumentError, NonFiniteError, ShapeError
from graphdiffusion.nn import DIFFUSIVITIES, SparseFeatures, as_features
from graphdiffusion.solvers import Adjoint

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
    layer = shaken(GraphDiffusion(4, time=3.0, heads=2, attention_dim=8))
    x, edge_index = features(4), edges()
    plain = layer(x, edge_index)
    out, (index, attention) = layer(x, edge_index, return_attention_weights=True)
    assert torch.equal(out, plain) and index.shape == (2, attention.numel())
    sums = torch.zeros(9).index_add(0, index[1], attention)
    torch.testing.assert_close(sums, torch.ones(9))
    out, trajectory = layer(x, edge_index, return_trajectory=True, at=[1.0, 3.0])
    assert trajectory.solution.states.shape == (2, 9, 4)
    torch.testing.assert_close(trajectory.solution.states[1], out)
    assert trajectory.solution.stats.evaluations > 0 and trajectory.flow.is_linear
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


def test_sparse_features_equal_dense_ones():
    model = shaken(GRAND(12, 8, 3, 2.0, heads=2, attention_dim=8)).eval()
    dense = features(12) * (torch.rand(9, 12) < 0.3)
    for sparse in (dense.to_sparse_csr(), dense.to_sparse(), as_features(dense.to_sparse())):
        out = model(sparse, edges())
        torch.testing.assert_close(out, model(dense, edges()))
    assert isinstance(as_features(dense.to_sparse()), SparseFeatures) and as_features(dense) is dense

    def gradient(x):
        model.zero_grad()
        model(x, edges()).square().sum().backward()
        return model.encoder.weight.grad.clone()

    torch.testing.assert_close(gradient(dense.to_sparse_csr()), gradient(dense))


@pytest.mark.parametrize(
    "gradient", ["backprop", "checkpoint", "adjoint", Adjoint(DormandPrince(1e-6, 1e-8))]
)
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_gradient_in_every_variant(variant, gradient):
    solver = Exponential() if variant == "linear" else DormandPrince(1e-6, 1e-8)
    how = {"heads": 2, "attention_dim": 8, "source": True, "learn_time": True, "solver": solver}
    layer = shaken(GraphDiffusion(4, 2.0, variant=variant, gradient=gradient, **how))
    reference = GraphDiffusion(4, 2.0, variant=variant, **how)
    reference.load_state_dict(layer.state_dict())
    for one in (layer, reference):
        one(features(4), edges()).square().sum().backward()
    for (name, p), q in zip(layer.named_parameters(), reference.parameters(), strict=True):
        assert bool(p.grad.any()), name
        torch.testing.assert_close(p.grad, q.grad, rtol=2e-3, atol=2e-4)


@pytest.mark.parametrize("name", DIFFUSIVITIES)
@pytest.mark.parametrize("variant", ["linear", "nonlinear"])
def test_every_diffusivity(variant, name):
    layer = GraphDiffusion(4, 2.0, variant=variant, diffusivity=name, heads=2, attention_dim=8)
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
    layer = GraphDiffusion(4, diffusivity=Cosine(4, 2, 8), alpha=None, source=False)
    assert layer.equation.alpha().item() == 1 and not layer.equation.alpha.raw.requires_grad
    x = features(4)
    out = layer(x, edges())
    assert bool(
        (out.amax(0) <= x.amax(0) + 1e-6).all() and (out.amin(0) >= x.amin(0) - 1e-6).all()
    )  # eq. 3


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"augment": 3},
        {"batch_norm": True},
        {"mlp": True},
        {"label_channels": 3},
        {"relu": False},
        {"kinetic": 0.1, "jacobian": 0.1, "variant": "nonlinear"},
        {"augment": 2, "batch_norm": True, "mlp": True, "label_channels": 3, "learn_time": True},
    ],
    ids=lambda more: "+".join(more) or "plain",
)
def test_the_model_and_its_parts(more):
    torch.manual_seed(0)
    model = shaken(GRAND(5, 8, 3, 2.0, heads=2, attention_dim=8, **more))
    labels = torch.eye(3)[torch.arange(9) % 3] if "label_channels" in more else None
    output = model.run(features(5), edges(), labels=labels)
    assert output.logits.shape == (9, 3) and output.stats.evaluations > 0
    assert model.diffusion.channels == 8 + more.get("augment", 0)
    assert (output.penalty.item() > 0) == ("kinetic" in more)
    (output.logits.square().sum() + output.penalty).backward()
    for name, p in model.named_parameters():
        assert p.grad is not None and bool(torch.isfinite(p.grad).all()) and bool(p.grad.any()), name
    if labels is not None:
        model.eval()
        without = model(features(5), edges())
        assert not torch.allclose(model(features(5), edges(), labels=labels), without)


def test_sweep_decodes_along_the_way():
    model = shaken(GRAND(5, 8, 3, 2.0, heads=2, attention_dim=8)).eval()
    swept = model.run(features(5), edges(), sweep=[0.5, 1.0, 2.0]).logits
    assert swept.shape == (3, 9, 3)
    torch.testing.assert_close(swept[1], model(features(5), edges()))


def test_dropout_follows_its_key():
    model = GRAND(5, 8, 3, 2.0, heads=2, attention_dim=8)
    key = torch.tensor(5)
    first, again, other = (model(features(5), edges(), key=k) for k in (key, key, key + 1))
    assert torch.equal(first, again) and not torch.equal(first, other)
    model.eval()
    assert torch.equal(model(features(5), edges(), key=key), model(features(5), edges(), key=key + 1))


def test_batch_norm_like_torch():
    model = GRAND(5, 8, 3, 2.0, heads=2, attention_dim=8, batch_norm=True)
    torch_norm = nn.BatchNorm1d(8)
    for seed in range(3):
        x = features(8, seed=seed) * 3 + 1
        torch.testing.assert_close(model.norm(x), torch_norm(x))
    torch.testing.assert_close(model.norm.running_var, torch_norm.running_var)
    model.eval(), torch_norm.eval()
    torch.testing.assert_close(model.norm(x), torch_norm(x))


def test_evaluation_leaves_the_generator_alone():
    model = GRAND(5, 8, 3, 2.0, heads=2, attention_dim=8)
    x, edge_index = features(5), edges()
    for training, draws in ((False, False), (True, True)):
        model.train(training)
        before = torch.get_rng_state()
        model(x, edge_index)
        assert torch.equal(torch.get_rng_state(), before) is not draws


@pytest.mark.parametrize("name", DIFFUSIVITIES)
def test_every_part_is_reset_once(name):
    """With the same seed, resetting gives what building gave."""

    def build() -> GRAND:
        return GRAND(
            5,
            8,
            3,
            2.0,
            heads=2,
            attention_dim=8,
            diffusivity=name,
            mlp=True,
            batch_norm=True,
            label_channels=3,
        )

    torch.manual_seed(3)
    fresh = build()
    other = shaken(build())
    torch.manual_seed(3)
    other.reset_parameters()
    for key, value in fresh.state_dict().items():
        assert torch.equal(other.state_dict()[key], value), key


def test_reset_parameters():
    model = GRAND(5, 8, 3, 2.0, heads=2, attention_dim=8, learn_time=True, batch_norm=True, mlp=True)
    torch.manual_seed(3)
    model.reset_parameters()
    fresh = {name: p.clone() for name, p in model.state_dict().items()}
    shaken(model)
    model(features(5), edges())
    torch.manual_seed(3)
    model.reset_parameters()
    for name, p in model.state_dict().items():
        assert torch.equal(p, fresh[name]), name


def test_repr():
    layer = GraphDiffusion(16, 4.0, variant="nonlinear", solver=Euler(0.5))
    assert "16, T=4, nonlinear, solver=Euler(step_size=0.5)" in repr(layer)
    assert "5 → 8" in repr(GRAND(5, 8, 3))


def test_wrong_arguments():
    for how, words in (
        ({"variant": "cubic"}, "variant must be one of"),
        ({"time": 0.0}, "time must be positive"),
        ({"time": float("nan")}, "time must be positive"),
        ({"keep": 0.0}, "keep must lie"),
        ({"diffusivity": "dot"}, "diffusivity must be one of"),
        ({"heads": 3, "attention_dim": 8}, "multiple of heads"),
    ):
        with pytest.raises(ArgumentError, match=words):
            GraphDiffusion(4, **how)
    for how in ({"dropout": 1.0}, {"input_dropout": -0.1}):
        with pytest.raises(ArgumentError, match="must lie in"):
            GRAND(5, 8, 3, **how)
    with pytest.raises(ArgumentError, match="hidden_channels"):
        GRAND(5, 0, 3)
    model = GRAND(5, 8, 3)
    with pytest.raises(ShapeError, match="5 features a node"):
        model(features(4), edges())
    with pytest.raises(NonFiniteError):
        GraphDiffusion(4)(features(4) * float("nan"), edges())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        GraphDiffusion(4, 3.0, variant="nonlinear", solver=Euler(1.0))(features(4), edges())  # α = ½
