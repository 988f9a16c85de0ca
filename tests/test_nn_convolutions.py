"""Residual GCN, GraphSAGE, MoNet and GAT on rewired graphs: against PyG, over members, and their cost."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import D, make_graph, normal
from test_cli_basics import write_graph
from torch import Tensor, nn
from torch.autograd import gradcheck
from torch.func import functional_call
from torch_geometric.nn import GCNConv, GMMConv, SAGEConv
from torch_geometric.utils import degree

from graphdiffusion import GCN, Graph, configs
from graphdiffusion.nn import GAT, MODELS, SAGE, Model, MoNet
from graphdiffusion.nn.modules import as_features
from graphdiffusion.training import Config, Member, Population, Trainer, load_problem, protocol

N = 14  # the last two nodes are isolated
MODEL_OPTIONS: dict[str, dict[str, Any]] = {
    "gcn-residual": {"model": "gcn", "layers": 4, "residual": True},
    "sage-mean": {"model": "sage"},
    "sage-max": {"model": "sage", "aggregator": "max"},
    "monet": {"model": "monet", "kernels": 2},
}


def directed() -> Tensor:
    """Edges without self-loops: some nodes send only, some receive only, two do neither."""
    random = torch.Generator().manual_seed(0)
    edges = torch.unique(torch.randint(12, (2, 40), generator=random), dim=1)
    edges = edges[:, (edges[0] != edges[1]) & (edges[0] != 3) & (edges[1] != 5)]
    assert {*range(N)} - {*edges[0].tolist()} >= {3, 12, 13} and {3, 5} & {*edges.flatten().tolist()} == {
        3,
        5,
    }
    return edges


def make(name: str, in_channels: int, out_channels: int, **more: Any) -> Model:
    options = {**MODEL_OPTIONS[name], **more}
    return MODELS[options.pop("model")](in_channels, out_channels, **options)


@pytest.fixture
def toy(tmp_path) -> Path:
    return write_graph(tmp_path / "toy")


def same(ours: Sequence[Tensor], theirs: Sequence[Tensor]) -> None:
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


def slopes(out: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
    return torch.autograd.grad(out.sin().sum(), tensors)


def scattered(model: nn.Module) -> Any:
    """Random parameters in float64: no bias is 0, no width 1."""
    model.to(D)
    with torch.no_grad():
        for k, p in enumerate(model.parameters()):
            p.add_(0.3 * normal(*p.shape, seed=k))
    return model.eval()


@pytest.mark.parametrize("weighted", [False, True])
def test_residual_gcn_is_that_of_its_paper(weighted: bool) -> None:
    """Results and gradients, with PyG's convolutions."""
    edges = directed()
    weight = torch.linspace(0.2, 2, edges.shape[1], dtype=D) if weighted else None
    model = scattered(GCN(5, 3, hidden=7, layers=4, residual=True))
    theirs = [GCNConv(a, b).double() for a, b in ((5, 7), (7, 7), (7, 7), (7, 3))]
    for ours, layer in zip(model.layers, theirs, strict=True):
        layer.load_state_dict({"lin.weight": ours.linear.weight, "bias": ours.bias})
    x = normal(N, 5).requires_grad_()
    state = theirs[0](x, edges, weight).relu()
    for layer in theirs[1:3]:
        state = layer(state, edges, weight).relu() + state
    state = theirs[3](state, edges, weight)
    found = model(x, edges, weight)
    same([found], [state])
    parameters = [p for ours in model.layers for p in (ours.linear.weight, ours.bias)]
    exact = [p for layer in theirs for p in (layer.lin.weight, layer.bias)]
    same(slopes(found, x, *parameters), slopes(state, x, *exact))


def test_a_residual_connection_needs_two_hidden_layers() -> None:
    short, long = (GCN(5, 3, layers=layers, residual=True) for layers in (2, 3))
    assert "residual has no effect" in short.warnings()[0] and not long.warnings()
    plain = GCN(5, 3)
    plain.load_state_dict(short.state_dict())
    x, edges = normal(N, 5, dtype=torch.float32), directed()
    assert torch.equal(plain.eval()(x, edges), short.eval()(x, edges))


@pytest.mark.parametrize("loops", [False, True])
@pytest.mark.parametrize("width", [7, 5])
@pytest.mark.parametrize("aggregator", ["mean", "max"])
def test_sage_is_that_of_pyg(aggregator: str, width: int, loops: bool) -> None:
    """Results and gradients. Self-loops and edge weights do not count; two nodes are isolated."""
    edges, x = directed(), normal(N, width).requires_grad_()
    model = scattered(SAGE(width, 3, hidden=7, layers=3, aggregator=aggregator))
    project = aggregator == "max"
    state, parameters, exact = x, [], []
    for place, ours in enumerate(model.layers):
        inputs, outputs = (7 if place else width), (7 if place < 2 else 3)
        # PyG projects to as many channels as there are: elsewhere the projection stands before its layer
        within = project and inputs == 7
        layer = SAGEConv(
            (7, inputs) if project else inputs, outputs, aggr=aggregator, project=within
        ).double()
        own = {
            "lin_l.weight": ours.others.weight,
            "lin_l.bias": ours.own.bias,
            "lin_r.weight": ours.own.weight,
        }
        mine = [ours.others.weight, ours.own.bias, ours.own.weight]
        right = [layer.lin_l.weight, layer.lin_l.bias, layer.lin_r.weight]
        before = None
        if project:
            mine += [ours.pool.weight, ours.pool.bias]
            before = layer.lin if within else nn.Linear(inputs, 7).double()
            before.load_state_dict(ours.pool.state_dict())
            right += [before.weight, before.bias]
        layer.load_state_dict(own, strict=False)
        state = state.relu() if place else state
        pair = (state if within or not project else before(state).relu(), state)
        state = layer(pair, edges)
        parameters += mine
        exact += right
    given, weight = edges, None
    if loops:
        given = torch.cat([edges, torch.arange(0, N, 2).expand(2, -1)], 1)
        weight = torch.linspace(0.2, 2, given.shape[1])
    found = model(x, given, weight)
    same([found], [state])
    same(slopes(found, x, *parameters), slopes(state, x, *exact))
    graph = Graph.from_edge_index(given, N, weight, self_loops=2.0)
    assert torch.equal(model.run(x, graph, prepared=model.prepare(graph)).logits, model(x, graph))


@pytest.mark.parametrize("kernels", [1, 3])
def test_monet_is_that_of_pyg(kernels: int) -> None:
    """Results and gradients, the coordinates included. Self-loops and edge weights do not count."""
    edges, x = directed(), normal(N, 5).requires_grad_()
    model = scattered(MoNet(5, 3, hidden=7, layers=2, kernels=kernels))
    root = degree(edges[1], N, dtype=D).clamp(min=1).rsqrt()
    ends = torch.stack([root[edges[1]], root[edges[0]]], 1)
    state, parameters, exact = x, [], []
    for place, ours in enumerate(model.layers):
        layer = GMMConv(7 if place else 5, 3 if place else 7, dim=2, kernel_size=kernels).double()
        own = {"g": ours.others.weight.mT, "mu": ours.centre, "sigma": ours.width, "bias": ours.bias}
        layer.load_state_dict({**own, "root.weight": ours.own.weight})
        map_ = nn.Linear(2, 2).double()
        map_.load_state_dict(ours.coordinates.state_dict())
        state = layer(state.relu() if place else state, edges, map_(ends).tanh())
        parameters += [ours.others.weight, ours.centre, ours.width, ours.bias, ours.own.weight]
        parameters += [ours.coordinates.weight, ours.coordinates.bias]
        exact += [layer.g, layer.mu, layer.sigma, layer.bias, layer.root.weight, map_.weight, map_.bias]
    loops = torch.cat([edges, torch.arange(0, N, 2).expand(2, -1)], 1)
    found = model(x, loops, torch.linspace(0.2, 2, loops.shape[1]))
    same([found], [state])
    ours, theirs = slopes(found, x, *parameters), slopes(state, x, *exact)
    same(
        ours, [slope.mT if p.shape != slope.shape else slope for slope, p in zip(theirs, ours, strict=True)]
    )
    graph = Graph.from_edge_index(edges, N, self_loops=1.0)
    assert torch.equal(model.run(x, graph, prepared=model.prepare(graph)).logits, model(x, graph))


def test_kernels_do_not_decay() -> None:
    model = MoNet(5, 3)
    decaying = {name for name, _ in model.named_parameters() if model.decay(name)}
    maps = ("own.weight", "others.weight", "bias")
    assert decaying == {f"layers.{k}.{name}" for k in range(2) for name in maps}


@pytest.mark.parametrize("name", MODEL_OPTIONS)
def test_derivatives(name: str) -> None:
    """Float64 against differences, in training, on a graph with an isolated node."""
    edges = torch.tensor([[0, 1, 2, 0, 3, 1], [1, 2, 0, 2, 3, 3]])
    model = scattered(make(name, 2, 2, hidden=2, layers=3, dropout=0.3)).train()
    graph = Graph.from_edge_index(edges, 5, self_loops=1.0)
    names, key = [n for n, _ in model.named_parameters()], torch.tensor(11)

    def out(x: Tensor, *values: Tensor) -> Tensor:
        state = dict(zip(names, values, strict=True))
        return functional_call(_Run(model), {f"model.{n}": v for n, v in state.items()}, (x, graph, key))

    inputs = [normal(5, 2), *(p.detach() for p in model.parameters())]
    assert gradcheck(out, [t.clone().requires_grad_() for t in inputs])


class _Run(nn.Module):
    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor, graph: Graph, key: Tensor) -> Tensor:
        return self.model.run(x, graph, key=key).logits


@pytest.mark.parametrize("name", MODEL_OPTIONS)
def test_sparse_features(name: str) -> None:
    x = normal(N, 6)
    x, edges = x * (x > 0.3), directed()
    model = scattered(make(name, 6, 3, hidden=4))
    found = [model(given, edges) for given in (x.to_sparse_csr(), x)]
    same(found[:1], found[1:])
    same(*(slopes(out, *model.parameters()) for out in found))


@pytest.mark.parametrize("name", MODEL_OPTIONS)
def test_members_alone_and_together(name: str, toy: Path) -> None:
    """As many members as nodes (60), each with its own dropout rate."""
    config = Config(data=str(toy), hidden=8, per_class=4, **MODEL_OPTIONS[name])
    assert "dropout" in config.per_member and config.row == name
    problem = load_problem(config)
    members = [Member(k, k, k, {"dropout": k / 100}) for k in range(60)]
    together = Population(problem, config, members)
    for _ in range(2):
        together.step()
    for k in (0, 59):
        alone = Population(problem, config.replace(dropout=k / 100), [Member(k, k, k)])
        for _ in range(2):
            alone.step()
        torch.testing.assert_close(together.loss[k], alone.loss[0])
        for key, value in alone.parameters.items():
            torch.testing.assert_close(together.parameters[key][k], value[0], rtol=1e-5, atol=1e-6)


TITLES = {
    "gcn": "GCN", "gcn-residual": "GCN-residual", "sage-mean": "GraphSAGE-mean",
    "sage-max": "GraphSAGE-max", "monet": "MoNet", "gat": "GAT", "gat-rewired": "GAT-ppr",
}  # fmt: skip


def test_rows_and_titles() -> None:
    others = {
        "gcn": {"model": "gcn"},
        "gat": {"model": "gat"},
        "gat-rewired": {"model": "gat", "rewire": "ppr"},
    }
    made = {row: Config(**options) for row, options in {**MODEL_OPTIONS, **others}.items()}
    assert {row: (config.row, config.title) for row, config in made.items()} == {
        row: (row, TITLES[row]) for row in made
    }
    # a row without settings of its own takes those of the model
    wanted = {
        "gat-rewired": "own-gat-rewired",
        "gcn-residual": "own-gcn",
        "gcn": "own-gcn",
        "nonlinear": "own-nonlinear",
        "none": None,
    }
    assert {row: configs.find_preset("mine", row) for row in wanted} == wanted


def test_gat_on_a_rewired_graph(toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its attention is that of the weights of PageRank, on the edges that are kept."""
    monkeypatch.setenv("GRAND_CACHE", str(tmp_path / "cache"))
    config = Config(
        data=str(toy), model="gat", rewire="ppr", rewire_k=6, hidden=4, heads=2, per_class=4, splits=2,
        epochs=12, rate=0.02, optimiser="adam", dropout=0.2,
    )  # fmt: skip
    problem = load_problem(config)
    plain = load_problem(config.replace(rewire="none"))
    assert problem.graph.weight is not None and plain.graph.weight is None
    # six edges enter a node, beside the self-loop that every node is given
    assert (
        set(problem.graph.rowptr.diff().tolist()) <= {6, 7}
        and problem.graph.num_edges > plain.graph.num_edges
    )
    results = Trainer(problem, config, protocol(config, problem.data)).run()
    assert min(result.test for result in results) > 0.6  # one of three classes
    model = GAT(problem.in_channels, 3).eval()
    bare = Graph.from_edge_index(problem.graph.edge_index, problem.graph.num_nodes)
    assert not torch.allclose(model(problem.x, problem.graph), model(problem.x, bare))


@pytest.mark.parametrize("layers", [2, 8])
@pytest.mark.parametrize("name", MODEL_OPTIONS)
def test_memory_and_work(name: str, layers: int) -> None:
    """What is kept for the backward pass is less than the estimate, and not by much."""
    for nodes, edges in ((400, 1000), (60, 3000)):
        random = torch.Generator().manual_seed(0)
        graph = Graph.from_edge_index(
            torch.randint(nodes, (2, edges), generator=random), nodes, self_loops=1.0
        )
        x = torch.rand(nodes, 20, generator=random)
        model = make(name, 20, 3, hidden=16, layers=layers)
        kept: dict[int, Tensor] = {}

        def pack(tensor: Tensor, kept: dict[int, Tensor] = kept) -> Tensor:
            if tensor.layout == torch.strided:
                kept[tensor.untyped_storage().data_ptr()] = tensor
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            model.run(as_features(x), graph, key=torch.tensor([3]))
        held = sum(t.untyped_storage().nbytes() for t in kept.values())
        weights = sum(p.numel() for p in model.parameters())
        said = (
            model.memory(nodes, graph.num_edges, x.numel()) - 24 * weights
        )  # gradients, moments, best state
        assert held < said < 8 * held
        # half of the features are half of the work of the first maps, whatever there is to do besides
        first = model.work(nodes, edges, x.numel()) - model.work(nodes, edges, x.numel() // 2)
        assert 16 <= 2 * first / x.numel() <= 16 * (MODEL_OPTIONS[name].get("kernels", 1) + 1)
        assert model.work(nodes, 2 * edges, x.numel()) > model.work(nodes, edges, x.numel()) > 0


def test_edges_between_different_nodes() -> None:
    graph = make_graph("loops")
    found = graph.neighbours
    assert found is graph.with_weight(torch.ones(graph.num_edges)).neighbours
    assert found.num_edges == int((graph.row != graph.col).sum()) == 8
    assert not bool((found.row == found.col).any()) and found.rowptr.diff().tolist() == [2, 2, 2, 2, 0]
    assert repr(found) == "Pattern(5 × 5, 8 entries, cpu)"
