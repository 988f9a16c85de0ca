"""How the layer is built from names and options, and how it behaves inside PyG and torch."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from conftest import D, make_diffusivity, make_graph, normal, scatter_parameters
from torch import Tensor, nn
from torch_geometric.explain import Explainer, GNNExplainer
from torch_geometric.nn import HeteroConv, to_hetero

from graphdiffusion.diffusivity import DIFFUSIVITIES, Bahdanau, Cosine, Diffusivity
from graphdiffusion.equation import TERMS, Context, Diffusion, Source, Term
from graphdiffusion.errors import ArgumentError, DtypeError, ShapeError
from graphdiffusion.nn import GraphDiffusion
from graphdiffusion.solvers import RK4, SOLVERS, Adjoint, DormandPrince, Exponential

EDGES = make_graph("random").edge_index
SMALL: dict[str, Any] = {"heads": 2, "attention_dim": 8}


def test_options_of_the_named_classes() -> None:
    layer = GraphDiffusion(
        4, diffusivity="bahdanau", solver="adams-moulton", step_size=0.25, max_iterations=7, **SMALL
    )
    assert (
        isinstance(layer.equation.diffusivity, Bahdanau) and layer.equation.diffusivity.project.heads == 2
    )
    assert layer.solver.step_size == 0.25 and layer.solver.max_iterations == 7
    layer = GraphDiffusion(
        4, variant="nonlinear", rtol=1e-5, detach_source=True, gradient="adjoint", adjoint_rtol=1e-6
    )
    assert isinstance(layer.solver, DormandPrince) and float(layer.solver.rtol) == 1e-5
    assert layer.equation.terms[0].detach_source and isinstance(layer.gradient, Adjoint)
    assert float(layer.gradient.solver.rtol) == 1e-6


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"headz": 2}, r"no option 'headz'\. Did you mean 'heads'"),
        ({"step_size": 0.5}, "no option 'step_size'"),  # the closed form has no steps
        ({"diffusivity": "laplacian", "heads": 2}, "no option 'heads'"),
        ({"diffusivity": "cosine", "scale": "dim"}, "no option 'scale'"),
        ({"terms": "", "detach_source": True}, "no option 'detach_source'"),
        ({"heads": 2.5}, r"heads must be a whole number, got 2\.5"),
        ({"heads": 0}, "heads must be at least 1, got 0"),
        ({"normaliser": "softmix"}, "normaliser must be one of softmax, .*Did you mean 'softmax'"),
        ({"over": "edges"}, "over must be one of rows, columns, symmetric, got 'edges'"),
        ({"alpha": 2.0}, r"alpha must be greater than 0 and at most 1, got 2\.0"),
        ({"theta_terms": 0}, "theta_terms must be at least 1, got 0"),
        ({"coefficients": "edge"}, "coefficients must be one of scalar, channel, got 'edge'"),
        ({"diffusivity": "bahdanou"}, "diffusivity must be one of .*Did you mean 'bahdanau'"),
        ({"solver": "rk5"}, "solver must be one of .*got 'rk5'.*Did you mean 'rk4'"),
        ({"terms": "source,sauce"}, "terms must be names out of .*got 'sauce'.*Did you mean 'source'"),
        ({"equation": "diffusoin"}, "equation must be one of .*Did you mean 'diffusion'"),
        ({"gradient": "magic"}, "gradient must be one of backprop, checkpoint, adjoint, got 'magic'"),
    ],
)
def test_a_wrong_option_is_named(how: dict[str, Any], says: str) -> None:
    with pytest.raises(ArgumentError, match=says):
        GraphDiffusion(4, **how)


@pytest.mark.parametrize(
    "how",
    [
        {"diffusivity": Cosine(4, 2, 8), "heads": 2},
        {"solver": RK4(0.5), "step_size": 0.5},
        {"terms": [Source(0.1)], "detach_source": True},
        {"equation": Diffusion(Cosine(4, 2, 8)), "heads": 2},
    ],
    ids=lambda how: next(iter(how)),
)
def test_an_object_has_its_options_already(how: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError, match=f"no option '{list(how)[1]}'"):
        GraphDiffusion(4, **how)
    how.pop(list(how)[1])
    layer = GraphDiffusion(4, 2.0, **how)
    assert layer(normal(9, 4, dtype=torch.float32), EDGES).shape == (9, 4)


def test_objects_are_used_as_they_are() -> None:
    attention, solver, source = Cosine(4, 2, 8), RK4(0.5), Source(0.25)
    layer = GraphDiffusion(4, diffusivity=attention, solver=solver, terms=[source])
    assert layer.equation.diffusivity is attention and layer.solver is solver
    assert layer.equation.terms[0] is source
    equation = Diffusion(attention, linear=True)
    layer = GraphDiffusion(4, equation=equation)
    assert layer.equation is equation and isinstance(layer.solver, Exponential)
    for how in ({"alpha": 0.25}, {"variant": "nonlinear"}, {"diffusivity": attention}, {"terms": ""}):
        with pytest.raises(ArgumentError, match=f"has its own {next(iter(how))}: leave"):
            GraphDiffusion(4, equation=equation, **how)  # type: ignore[arg-type]


def test_a_registered_class_is_known_by_name_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    for registry in (DIFFUSIVITIES, TERMS, SOLVERS):
        registry.names()
        monkeypatch.setattr(registry, "_classes", dict(registry._classes))

    @DIFFUSIVITIES.register("uniform")
    class Uniform(Diffusivity):
        """Every edge of a row counts the same.

        Args:
            weight: Of every edge before the normaliser.
        """

        def __init__(self, *, strength: float = 1.0, **how: Any) -> None:
            super().__init__(**how)
            self.strength = strength

        def forward(self, graph: Any, x: Tensor, mask: Any = None, t: Any = None) -> Tensor:
            degree = graph.rowptr.diff().to(x.dtype)
            return self.strength / degree[graph.row.long()]

    @TERMS.register("drain")
    class Drain(Term):
        """−ρx."""

        def __init__(self, rho: float = 0.5) -> None:
            super().__init__()
            self.rho = rho

        def forward(self, context: Context) -> tuple[Tensor, Tensor]:
            return context.x.new_full((1, 1), -self.rho), context.x

    layer = GraphDiffusion(
        4, 1.0, diffusivity="uniform", terms="source,drain", rho=0.25, solver="rk4", step_size=0.1
    )
    assert isinstance(layer.equation.diffusivity, Uniform) and layer.equation.terms[1].rho == 0.25
    assert bool(torch.isfinite(layer(normal(9, 4, dtype=torch.float32), EDGES)).all())
    with pytest.raises(ArgumentError, match="there is a term 'drain' already"):
        TERMS.register("drain")(Source)


class Net(nn.Module):
    def __init__(self, layer: nn.Module, channels: int = 4) -> None:
        super().__init__()
        self.layer, self.head = layer, nn.Linear(channels, 3)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.head(self.layer(x, edge_index))


@pytest.mark.parametrize("dtype", [torch.float32, D])
@pytest.mark.parametrize("variant", ["linear", "nonlinear"])
@pytest.mark.parametrize("gradient", ["backprop", "adjoint"])
def test_gnn_explainer(variant: Any, dtype: torch.dtype, gradient: Any) -> None:
    """Its edge masks multiply the edges; the self-loops of the layer's own are not explained."""
    torch.manual_seed(0)
    layer = GraphDiffusion(
        4, 1.0, variant=variant, solver="rk4", step_size=0.25, gradient=gradient, **SMALL
    )
    net = Net(scatter_parameters(layer)).to(dtype).eval()
    explainer = Explainer(
        net,
        GNNExplainer(epochs=3),
        explanation_type="model",
        edge_mask_type="object",
        model_config={"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"},
    )
    x = normal(9, 4, dtype=dtype)
    found = explainer(x, EDGES, index=3).edge_mask
    assert found.shape == (EDGES.shape[1],) and bool(torch.isfinite(found).all())
    loops = EDGES[0] == EDGES[1]
    assert float(found[~loops].max()) > 0
    assert not layer.explain  # PyG leaves the layer as it was
    assert torch.equal(net(x, EDGES), net(x, EDGES))


def test_an_edge_mask_is_a_weight() -> None:
    """Of 1 it changes nothing, of 0 it removes the edge, and its gradient is that of an edge weight."""
    torch.manual_seed(0)
    layer = scatter_parameters(GraphDiffusion(4, 1.0, variant="nonlinear", solver=RK4(0.25), **SMALL))
    x = normal(9, 4)
    plain = layer(x, EDGES)
    loops = EDGES[0] == EDGES[1]

    def masked(mask: Tensor) -> Tensor:
        layer.explain, layer._edge_mask, layer._apply_sigmoid = True, mask, False
        try:
            return layer(x, EDGES)
        finally:
            layer.explain, layer._edge_mask, layer._apply_sigmoid = False, None, True

    torch.testing.assert_close(masked(torch.ones(EDGES.shape[1], dtype=D)), plain)
    mask = torch.rand(EDGES.shape[1], dtype=D, generator=torch.Generator().manual_seed(0)) + 0.1
    torch.testing.assert_close(masked(mask), layer(x, EDGES, mask))
    one = torch.ones(EDGES.shape[1], dtype=D)
    dropped = int((~loops).nonzero()[0])
    one[dropped] = 0.0
    keep = torch.arange(EDGES.shape[1]) != dropped
    torch.testing.assert_close(masked(one), layer(x, EDGES[:, keep]))
    layer.explain, layer._edge_mask = True, one
    with pytest.raises(ArgumentError, match="needs an edge_index, got a Graph"):
        layer(x, make_graph("random"))


@pytest.mark.parametrize("variant", ["linear", "nonlinear"])
def test_autocast_keeps_the_precision_of_the_layer(variant: Any) -> None:
    torch.manual_seed(0)
    layer = GraphDiffusion(4, 2.0, variant=variant, **SMALL)
    first = nn.Linear(5, 4)
    x = normal(9, 5, dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        hidden = first(x)
        assert hidden.dtype == torch.bfloat16
        out = layer(hidden, EDGES)
        out.square().sum().backward()
    assert out.dtype == torch.float32
    torch.testing.assert_close(out, layer(hidden.float(), EDGES), rtol=1e-6, atol=1e-6)
    assert first.weight.grad is not None and bool(first.weight.grad.any())
    with pytest.raises(DtypeError, match="bfloat16"):  # outside autocast nothing is converted
        layer(hidden, EDGES)


def test_a_wrong_width_names_both() -> None:
    layer = GraphDiffusion(4, **SMALL)
    for x, says in (
        (normal(9, 6, dtype=torch.float32), r"x must have 4 channels, .*got 6"),
        (normal(4, dtype=torch.float32), r"\(\.\.\., n, channels\), got .*\[4\]"),
        (None, "got NoneType"),
    ):
        with pytest.raises(ShapeError, match=says):
            layer(x, EDGES)


def test_two_sets_of_nodes_are_refused() -> None:
    layer = GraphDiffusion(4, **SMALL)
    x, y = normal(9, 4, dtype=torch.float32), normal(7, 4, dtype=torch.float32)
    with pytest.raises(ArgumentError, match=r"one set of nodes.*\(9, 4\) and \(7, 4\).*to_homogeneous"):
        layer((x, y), EDGES)
    torch.testing.assert_close(layer((x, x), EDGES), layer(x, EDGES))  # as HeteroConv calls it on one kind
    kinds, one, two = {"a": x, "b": y}, ("a", "to", "a"), ("a", "to", "b")
    torch.testing.assert_close(HeteroConv({one: layer})(kinds, {one: EDGES})["a"], layer(x, EDGES))
    with pytest.raises(ArgumentError, match="one set of nodes"):
        HeteroConv({two: layer})(kinds, {two: EDGES % 7})


def test_to_hetero_is_refused_with_a_sentence() -> None:
    net = Net(GraphDiffusion(4, **SMALL))
    metadata = (["a", "b"], [("a", "to", "b"), ("b", "to", "a"), ("a", "to", "a")])
    x = {"a": normal(9, 4, dtype=torch.float32), "b": normal(9, 4, seed=1, dtype=torch.float32)}
    edges = dict.fromkeys(metadata[1], EDGES)
    with pytest.raises(ArgumentError, match="one set of nodes"):
        to_hetero(net, metadata)(x, edges)


def test_a_capacity_shares_all_tensors() -> None:
    layer = GraphDiffusion(4, 2.0, solver="rk4", step_size=0.5, learn_time=True, **SMALL)
    other = layer.with_capacity((9,))
    assert other.solver.max_steps == 9 and layer.solver.max_steps is None
    assert all(a is b for a, b in zip(layer.parameters(), other.parameters(), strict=True))
    x = normal(9, 4, dtype=torch.float32)
    assert torch.equal(layer(x, EDGES), other(x, EDGES, check=False))


def test_no_warning_in_plain_use() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        layer = GraphDiffusion(4, 2.0, diffusivity=make_diffusivity("cosine", channels=4).float())
        layer(normal(9, 4, dtype=torch.float32), EDGES).sum().backward()
