"""The model: inside PyG, saved and loaded, on other graphs, in every variant."""

from __future__ import annotations

import warnings

import pytest
import torch
from test_nn_diffusion import edges, features, shaken
from torch import nn

from graphdiffusion import GRAND, Euler, GraphDiffusion
from graphdiffusion.diffusivity import DIFFUSIVITIES
from graphdiffusion.errors import ArgumentError, DtypeError, NonFiniteError, ShapeError
from graphdiffusion.graph import Graph
from graphdiffusion.nn import SparseFeatures, as_features
from graphdiffusion.options import options_of


def test_sparse_features_equal_dense_ones():
    model = shaken(GRAND(12, 3, hidden=8, time=2.0, heads=2, attention_dim=8)).eval()
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
    model = shaken(GRAND(5, 3, hidden=8, time=2.0, heads=2, attention_dim=8, **more))
    labels = torch.eye(3)[torch.arange(9) % 3] if "label_channels" in more else None
    output = model.run(features(5), Graph.from_edge_index(edges(), self_loops=1.0), labels=labels)
    assert output.logits.shape == (9, 3) and output.evaluations > 0
    assert model.diffusion.channels == 8 + more.get("augment", 0)
    assert (output.penalty is not None and output.penalty.item() > 0) == ("kinetic" in more)
    (output.logits.square().sum() + (output.penalty or 0)).backward()
    for name, p in model.named_parameters():
        assert p.grad is not None and bool(torch.isfinite(p.grad).all()) and bool(p.grad.any()), name
    if labels is not None:
        model.eval()
        without = model(features(5), edges())
        assert not torch.allclose(model(features(5), edges(), labels=labels), without)


def test_sweep_decodes_along_the_way():
    model = shaken(GRAND(5, 3, hidden=8, time=2.0, heads=2, attention_dim=8)).eval()
    graph = Graph.from_edge_index(edges(), self_loops=1.0)
    swept = model.run(features(5), graph, sweep=[0.5, 1.0, 2.0]).logits
    assert swept.shape == (3, 9, 3)
    torch.testing.assert_close(swept[1], model(features(5), edges()))


def test_dropout_follows_its_key():
    model = GRAND(5, 3, hidden=8, time=2.0, heads=2, attention_dim=8)
    key = torch.tensor(5)
    first, again, other = (model(features(5), edges(), key=k) for k in (key, key, key + 1))
    assert torch.equal(first, again) and not torch.equal(first, other)
    model.eval()
    assert torch.equal(model(features(5), edges(), key=key), model(features(5), edges(), key=key + 1))


def test_batch_norm_like_torch():
    model = GRAND(5, 3, hidden=8, time=2.0, heads=2, attention_dim=8, batch_norm=True)
    torch_norm = nn.BatchNorm1d(8)
    for seed in range(3):
        x = features(8, seed=seed) * 3 + 1
        torch.testing.assert_close(model.norm(x), torch_norm(x))
    torch.testing.assert_close(model.norm.running_var, torch_norm.running_var)
    model.eval(), torch_norm.eval()
    torch.testing.assert_close(model.norm(x), torch_norm(x))


def test_evaluation_leaves_the_generator_alone():
    model = GRAND(5, 3, hidden=8, time=2.0, heads=2, attention_dim=8)
    x, edge_index = features(5), edges()
    for training, draws in ((False, False), (True, True)):
        model.train(training)
        before = torch.get_rng_state()
        model(x, edge_index)
        assert torch.equal(torch.get_rng_state(), before) is not draws


@pytest.mark.parametrize("name", DIFFUSIVITIES.names())
def test_every_part_is_reset_once(name):
    """With the same seed, resetting gives what building gave."""

    def build() -> GRAND:
        own = options_of(DIFFUSIVITIES[name])
        heads = {k: v for k, v in {"heads": 2, "attention_dim": 8}.items() if k in own}
        parts = {"mlp": True, "batch_norm": True, "label_channels": 3}
        return GRAND(5, 3, hidden=8, time=2.0, diffusivity=name, **parts, **heads)

    torch.manual_seed(3)
    fresh = build()
    other = shaken(build())
    torch.manual_seed(3)
    other.reset_parameters()
    for key, value in fresh.state_dict().items():
        assert torch.equal(other.state_dict()[key], value), key


def test_reset_parameters():
    model = GRAND(
        5, 3, hidden=8, time=2.0, heads=2, attention_dim=8, learn_time=True, batch_norm=True, mlp=True
    )
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
    assert "5 → 8" in repr(GRAND(5, 3, hidden=8))


def test_wrong_arguments():
    for how, words in (
        ({"variant": "cubic"}, "variant must be one of"),
        ({"time": -1.0}, "time must be at least 0, got -1.0"),
        ({"time": float("nan")}, "time must be finite"),
        ({"keep": 1.5}, "keep must be between 0 and 1"),
        ({"diffusivity": "dot"}, "diffusivity must be one of"),
        ({"heads": 3, "attention_dim": 8}, "multiple of heads"),
    ):
        with pytest.raises(ArgumentError, match=words):
            GraphDiffusion(4, **how)
    for how in ({"dropout": 1.0}, {"input_dropout": -0.1}):
        with pytest.raises(ArgumentError, match=r"dropout must be between 0 and 0\.999"):
            GRAND(5, 3, hidden=8, **how)
    with pytest.raises(ArgumentError, match="hidden must be at least 1, got 0"):
        GRAND(5, 3, hidden=0)
    with pytest.raises(ArgumentError, match="in_channels must be at least 1, got 0"):
        GRAND(0, 3)
    with pytest.raises(ArgumentError, match=r"has no option 'heds'\. Did you mean 'heads'"):
        GRAND(5, 3, heds=2)
    model = GRAND(5, 3, hidden=8)
    with pytest.raises(ShapeError, match="5 features a node, as the model has, got 4"):
        model(features(4), edges())
    with pytest.raises(DtypeError, match=r"torch\.float32, as the model is, got torch\.float64"):
        model(features(5).double(), edges())
    with pytest.raises(NonFiniteError):
        GraphDiffusion(4)(features(4) * float("nan"), edges())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        GraphDiffusion(4, 3.0, variant="nonlinear", solver=Euler(1.0))(features(4), edges())  # α = ½
