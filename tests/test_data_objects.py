"""Graphs of other libraries and arrays: the same `Data` as from files."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from graphdiffusion.data import check_data, from_igraph, from_networkx, read_graph
from graphdiffusion.errors import DataError


def dense(x: torch.Tensor) -> list:
    return (x if x.layout == torch.strided else x.to_dense()).tolist()


def networkx_graph(directed: bool = False):
    nx = pytest.importorskip("networkx")
    graph = (nx.DiGraph if directed else nx.Graph)()
    graph.add_node("b", age=1, place=(0.5, 2.0), team="red", part="train", name="Bob")
    graph.add_node("a", age=2.5, place=(1.5, 3.0), team="blue", part="test", name="Ann")
    graph.add_node(3, age=4, place=np.array([0, 1]), name="C")
    graph.add_edge("a", "b", weight=2)
    graph.add_edge("b", 3, weight=0.5)
    return graph


def igraph_graph(directed: bool = False):
    igraph = pytest.importorskip("igraph")
    graph = igraph.Graph([(1, 0), (0, 2)], directed=directed)
    graph.vs["name"] = ["b", "a", "3"]
    graph.vs["age"] = [1, 2.5, 4]
    graph.vs["place"] = [(0.5, 2.0), (1.5, 3.0), (0, 1)]
    graph.vs["team"] = ["red", "blue", None]
    graph.vs["part"] = ["train", "test", None]
    graph.es["weight"] = [2, 0.5]
    return graph


READERS = {"networkx": (from_networkx, networkx_graph), "igraph": (from_igraph, igraph_graph)}


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("library", READERS)
def test_graphs_of_other_libraries(library, directed):
    read, make = READERS[library]
    data = read(make(directed), "team", split="part")
    assert check_data(data) is data
    assert data.node_ids == ["b", "a", "3"]
    edges = {
        (i, j): w for (i, j), w in zip(data.edge_index.T.tolist(), data.edge_weight.tolist(), strict=True)
    }
    if directed:  # networkx lists the edges of b first
        assert edges == {(1, 0): 2, (0, 2): 0.5}
    else:
        assert edges == {(0, 1): 2, (1, 0): 2, (0, 2): 0.5, (2, 0): 0.5}
    assert data.feature_names == ["age", "place_0", "place_1"]
    assert dense(data.x) == [[1, 0.5, 2], [2.5, 1.5, 3], [4, 0, 1]]
    assert data.class_names == ["blue", "red"] and data.y.tolist() == [1, 0, -1]
    assert data.train_mask.tolist() == [True, False, False]
    assert data.test_mask.tolist() == [False, True, False]
    if library == "networkx":
        assert any("'name' is left out" in note for note in data.notes)


@pytest.mark.parametrize("library", READERS)
def test_targets_and_chosen_features(library):
    read, make = READERS[library]
    data = read(make(), "age", features=["place"])
    assert data.task == "regression" and data.y.flatten().tolist() == [1, 2.5, 4]
    assert data.feature_names == ["place_0", "place_1"]
    assert read(make(), "age", task="classification").class_names == ["1", "2.5", "4"]


@pytest.mark.parametrize("library", READERS)
def test_refusals(library):
    read, make = READERS[library]
    for arguments, message in (
        ({"label": "colour"}, "no node has the attribute 'colour'; there are: 'age', 'place'"),
        ({"features": ["team"]}, "the attribute 'team' is not a finite number at every node"),
        ({"split": "part"}, "there is no label"),
        ({"label": "part", "split": "team"}, "the graph, node 'b': unknown split 'red'"),
    ):
        with pytest.raises(DataError, match=message):
            read(make(), **arguments)


def test_networkx_graphs_of_other_kinds():
    nx = pytest.importorskip("networkx")
    data = from_networkx(nx.karate_club_graph(), "club")
    assert data.num_nodes == 34 and data.edge_index.size(1) == 2 * 78
    assert torch.equal(data.x.to_dense(), torch.eye(34))
    assert data.class_names == ["Mr. Hi", "Officer"]
    many = nx.MultiGraph([(0, 1), (0, 1), (1, 1)])
    assert from_networkx(many).edge_index.tolist() == [[0, 1], [1, 0]]
    alone = nx.Graph()
    alone.add_nodes_from(range(3))
    assert from_networkx(alone).edge_index.shape == (2, 0)
    with pytest.raises(DataError, match="has no nodes"):
        from_networkx(nx.Graph())
    with pytest.raises(DataError, match="both written '1'"):
        from_networkx(nx.Graph([(1, "1")]))
    half = nx.Graph([(0, 1), (1, 2)])
    half[0][1]["weight"] = 2
    with pytest.raises(DataError, match="edge '1' to '2' has no weight"):
        from_networkx(half)
    half[1][2]["weight"] = -1
    with pytest.raises(DataError, match="edge '1' to '2': the weight -1 is not a positive"):
        from_networkx(half)
    half[1][2]["weight"] = "much"
    with pytest.raises(DataError, match="must be numbers"):
        from_networkx(half)
    assert from_networkx(half, weight="cost").get("edge_weight") is None


def test_arrays():
    """An edge index and a matrix of weights give the same graph; the user's matrix stays as it is."""
    edges, x = np.array([[0, 1, 3], [1, 2, 0]]), np.arange(10.0).reshape(5, 2)
    y = np.array([0, 1, -1, 0, 1])
    matrix = sp.coo_matrix((np.ones(4, np.int8), ([0, 0, 1, 3], [1, 1, 2, 0])), shape=(5, 5)).tocsr()
    matrix.data[:] = 1
    before = matrix.copy()
    for source in (edges, torch.from_numpy(edges)):
        data = read_graph(source, x, y)
        assert data.num_nodes == 5 and data.y.tolist() == y.tolist()
        assert dense(data.x) == x.tolist()
    weighted = read_graph(sp.csr_matrix(matrix) * 2.5, sp.csr_matrix(x), y)
    assert torch.equal(weighted.edge_index, data.edge_index)
    assert weighted.edge_weight.unique().tolist() == [2.5]
    assert (matrix != before).nnz == 0
    lonely = read_graph(matrix)
    assert lonely.num_nodes == 5 and lonely.node_ids == ["0", "1", "2", "3", "4"]
    for arguments, message in (
        ((edges.T,), r"edges must be integers of shape \(2, E\)"),
        (([[0, 1], [1, 2]],), r"edges must be a path, a DataFrame or an array .*it is a list"),
        ((edges, torch.eye(5).to_sparse_csr()), "features must be a path, a DataFrame or an array"),
        ((edges, x[:3]), "edge 2: node '3' has no row in features"),
        ((matrix, x[:4]), "node '4' has no row in features"),
        ((edges, x, y[:, None, None]), "labels: y must be numbers"),
        ((edges, x, np.zeros(6, int)), "labels, node 5: node '5' has no row in features"),
        ((sp.csr_matrix(np.ones((2, 3))),), "must be square"),
        ((sp.csr_matrix(np.ones((2, 2)) * 1j),), "must hold numbers"),
        ((edges, {"a": 1}), "features must be a path"),
    ):
        with pytest.raises(DataError, match=message):
            read_graph(*arguments)
