"""Construction, merging, closing loops, the stored transpose, and every refusal."""

from __future__ import annotations

import dataclasses

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
import torch
from conftest import D, both_ways, graphs
from hypothesis import given
from torch_geometric.data import Data

from graphdiffusion.errors import DtypeError, GraphError, ShapeError
from graphdiffusion.graph import Graph, Pattern


def matrix(graph: Graph) -> np.ndarray:
    """Weights as a dense matrix: entry (i, j) is the edge j → i."""
    weight = torch.ones(graph.num_edges) if graph.weight is None else graph.weight
    return graph.dense(weight).numpy()


def test_direction_and_order() -> None:
    graph = Graph.from_edge_index(torch.tensor([[2, 0, 1], [0, 1, 2]]))
    assert graph.num_nodes == 3 and graph.num_edges == 3 and graph.weight is None
    assert np.array_equal(matrix(graph), [[0, 0, 1], [1, 0, 0], [0, 1, 0]])  # row: target, column: source
    assert graph.edge_index.tolist() == [[2, 0, 1], [0, 1, 2]]
    assert not graph.is_symmetric


def test_all_constructors_agree() -> None:
    edges = torch.tensor([[0, 1, 2, 2], [1, 2, 0, 1]])
    weight = torch.tensor([1.0, 2.0, 3.0, 4.0])
    want = matrix(Graph.from_edge_index(edges, 3, weight))
    data = Data(edge_index=edges, edge_weight=weight, num_nodes=3)
    scipy = sp.coo_array((weight.numpy(), edges.numpy()), shape=(3, 3))
    network = nx.DiGraph()
    network.add_nodes_from(range(3))
    network.add_weighted_edges_from(zip(*edges.tolist(), weight.tolist(), strict=True))
    assert np.array_equal(matrix(Graph.from_data(data)), want)
    for form in (scipy, scipy.tocsr(), scipy.tocsc(), sp.csr_matrix(scipy)):
        assert np.array_equal(matrix(Graph.from_scipy(form)), want)
    assert np.array_equal(matrix(Graph.from_networkx(network)), want)


def test_networkx_undirected_with_names_and_missing_weights() -> None:
    network = nx.Graph()
    network.add_edge("a", "b", weight=2.0)
    network.add_edge("b", "c")
    network.add_edge("c", "c", weight=5.0)
    graph = Graph.from_networkx(network)
    assert np.array_equal(matrix(graph), [[0, 2, 0], [2, 0, 1], [0, 1, 5]])
    assert graph.is_symmetric
    assert Graph.from_networkx(nx.path_graph(3)).weight is None


def test_scipy_integers_become_floats() -> None:
    graph = Graph.from_scipy(sp.csr_array(np.array([[0, 2], [3, 0]])))
    assert graph.weight is not None and graph.weight.dtype == torch.get_default_dtype()
    assert np.array_equal(matrix(graph), [[0, 3], [2, 0]])


def test_duplicates_merge_and_weights_add_up() -> None:
    edges = torch.tensor([[0, 0, 0, 1], [1, 1, 1, 0]])
    assert Graph.from_edge_index(edges).num_edges == 2
    assert Graph.from_edge_index(edges).weight is None
    weighted = Graph.from_edge_index(edges, edge_weight=torch.tensor([1.0, 2.0, 4.0, 1.0]))
    assert np.array_equal(matrix(weighted), [[0, 1], [7, 0]])
    # without weights an edge weighs 1 however often it occurs, also when the loops weigh something else
    assert np.array_equal(matrix(Graph.from_edge_index(edges, self_loops=2.0)), [[2, 1], [1, 2]])


def test_zero_weight_is_no_edge() -> None:
    edges, weight = torch.tensor([[0, 1, 0], [1, 0, 0]]), torch.tensor([1.0, 1.0, 0.0])
    assert np.array_equal(matrix(Graph.from_edge_index(edges, edge_weight=weight)), [[0, 1], [1, 0]])


@pytest.mark.parametrize(
    ("self_loops", "diagonal"),
    [(None, [2.0, 0.0]), (0.0, [0.0, 0.0]), (1.0, [1.0, 1.0]), (0.5, [0.5, 0.5])],
)
def test_self_loops(self_loops: float | None, diagonal: list[float]) -> None:
    edges = torch.tensor([[0, 1, 0], [1, 0, 0]])
    graph = Graph.from_edge_index(edges, 2, torch.tensor([1.0, 1.0, 2.0]), self_loops)
    assert np.diag(matrix(graph)).tolist() == diagonal


def test_every_row_and_column_is_closed() -> None:
    # 0 → 1 → 2: a source, a node between, a sink; 3 stands alone
    edges = torch.tensor([[0, 1], [1, 2]])
    for graph in (Graph.from_edge_index(edges, 4), Graph.from_edge_index(edges, 4, self_loops=0.0)):
        assert np.diag(matrix(graph)).tolist() == [1, 0, 1, 1]


def test_no_edges_at_all() -> None:
    graph = Graph.from_edge_index(torch.zeros(2, 0, dtype=torch.long), 3)
    assert np.array_equal(matrix(graph), np.eye(3))
    assert graph.is_symmetric


@given(graphs())
def test_stored_arrays(graph: Graph) -> None:
    n, row, col = graph.num_nodes, graph.row.long(), graph.col.long()
    key = row * n + col
    assert bool((key.diff() > 0).all())  # sorted by row then column, no duplicates
    assert graph.rowptr.tolist() == [int((row < i).sum()) for i in range(n + 1)]
    assert graph.colptr.tolist() == [int((col < i).sum()) for i in range(n + 1)]
    transposed = col[graph.perm.long()] * n + row[graph.perm.long()]
    assert bool((transposed.diff() > 0).all())
    assert torch.equal(graph.transposed_row.long(), row[graph.perm.long()])
    other = graph.transposed
    exact = Pattern.indices(col[graph.perm.long()], row[graph.perm.long()], n, n)
    assert all(torch.equal(getattr(other, k), exact[k]) for k in ("row", "col", "rowptr", "perm", "colptr"))
    assert bool((graph.rowptr.diff() > 0).all()) and bool((graph.colptr.diff() > 0).all())
    values = torch.arange(1.0, graph.num_edges + 1)
    assert torch.equal(graph.dense(values)[row, col], values)
    assert torch.count_nonzero(graph.dense(values)) == graph.num_edges
    full = matrix(graph)
    assert graph.is_symmetric == (np.array_equal(full != 0, full.T != 0) and np.allclose(full, full.T))


def test_dense_takes_members() -> None:
    graph = Graph.from_edge_index(both_ways([(0, 1), (1, 2)]))
    values = torch.rand(2, 3, graph.num_edges, dtype=D)
    assert torch.equal(graph.dense(values)[1, 2], graph.dense(values[1, 2]))


def test_immutable_and_unaliased() -> None:
    edges, weight = both_ways([(0, 1), (1, 2)]), torch.ones(4)
    graph = Graph.from_edge_index(edges, edge_weight=weight)
    before = matrix(graph)
    edges.zero_()
    weight.zero_()
    assert np.array_equal(matrix(graph), before)
    with pytest.raises(dataclasses.FrozenInstanceError):
        graph.row = graph.col  # type: ignore[misc]


def test_to_and_with_weight() -> None:
    graph = Graph.from_edge_index(both_ways([(0, 1)]), edge_weight=torch.tensor([1.0, 1.0]))
    assert graph.to("cpu") is graph
    moved = graph.to("meta")
    assert moved.device.type == "meta" and moved.num_nodes == 2
    assert moved.weight is not None and moved.weight.device.type == "meta"
    other = graph.with_weight(torch.tensor([3.0, 4.0]))
    assert np.array_equal(matrix(other), [[0, 3], [4, 0]]) and matrix(graph)[0, 1] == 1
    assert graph.with_weight(None).weight is None
    with pytest.raises(ShapeError, match=r"\(2,\).*got \(3,\)"):
        graph.with_weight(torch.ones(3))
    assert "2 nodes, 2 edges, weighted" in repr(graph)


@pytest.mark.parametrize(
    ("edges", "options", "error", "says"),
    [
        ([[0], [1]], {}, DtypeError, "list"),
        (torch.zeros(3, 2, dtype=torch.long), {}, ShapeError, r"\(3, 2\)"),
        (torch.zeros(2, 2), {}, DtypeError, "float32"),
        (torch.zeros(2, 2, dtype=torch.bool), {}, DtypeError, "bool"),
        (torch.zeros(2, 0, dtype=torch.long), {}, GraphError, "num_nodes=0"),
        (torch.tensor([[0], [5]]), {"num_nodes": 3}, GraphError, "node 5.*num_nodes=3"),
        (torch.tensor([[0], [-2]]), {"num_nodes": 3}, GraphError, "-2"),
        (torch.tensor([[0], [1]]), {"num_nodes": -1}, GraphError, "num_nodes=-1"),
        (torch.tensor([[0], [1]]), {"edge_weight": torch.ones(2)}, ShapeError, r"\(2,\)"),
        (
            torch.tensor([[0], [1]]),
            {"edge_weight": torch.ones(1, dtype=torch.long)},
            DtypeError,
            "int64",
        ),
        (torch.tensor([[0], [1]]), {"edge_weight": torch.tensor([-3.0])}, GraphError, r"\[0\] is -3"),
        (torch.tensor([[0], [1]]), {"edge_weight": torch.tensor([float("nan")])}, GraphError, "nan"),
        (torch.tensor([[0], [1]]), {"self_loops": -1.0}, GraphError, "-1"),
        (torch.tensor([[0], [1]]), {"self_loops": float("nan")}, GraphError, "nan"),
    ],
)
def test_refusals(edges: object, options: dict, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        Graph.from_edge_index(edges, **options)  # type: ignore[arg-type]


def test_refusals_of_other_forms() -> None:
    with pytest.raises(GraphError, match="edge_index is None"):
        Graph.from_data(Data(x=torch.ones(2, 1)))
    with pytest.raises(ShapeError, match=r"\(2, 3\)"):
        Graph.from_scipy(sp.csr_array((2, 3)))
    with pytest.raises(GraphError, match="num_nodes=0"):
        Graph.from_networkx(nx.Graph())
