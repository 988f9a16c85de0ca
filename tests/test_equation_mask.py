"""The attention threshold (equation 12): its three rules, and the last edge of a node."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from graphdiffusion.equation import attention_mask
from graphdiffusion.errors import ArgumentError, DtypeError, ShapeError
from graphdiffusion.graph import Graph
from graphdiffusion.ops import normalise

RULES = ({"threshold": 0.3}, {"keep": 0.4}, {"mass": 0.7}, {"mass": 0.5, "over": "columns"})


def example(n: int, edges: int, seed: int) -> Graph:
    rng = torch.Generator().manual_seed(seed)
    return Graph.from_edge_index(torch.randint(n, (2, edges), generator=rng), n)


def attention(graph: Graph, seed: int, *lead: int, over: str = "rows", ties: bool = False) -> torch.Tensor:
    rng = torch.Generator().manual_seed(seed)
    scores = torch.randn(*lead, graph.num_edges, generator=rng, dtype=torch.float64)
    return normalise(graph, scores.round() if ties else scores, over=over)


def plain(
    graph: Graph, values: np.ndarray, threshold=None, keep=None, mass=None, over="rows"
) -> np.ndarray:
    """One member, one edge at a time."""
    row, col = graph.row.numpy(), graph.col.numpy()
    mask = np.zeros(len(values), dtype=bool)
    if threshold is not None:
        mask |= values > threshold
    elif keep is not None:
        mask[np.argsort(-values, kind="stable")[: round(keep * len(values))]] = True
    else:
        group = row if over == "rows" else col
        for node in range(graph.num_nodes):
            edges = np.flatnonzero(group == node)
            held = 0.0
            for edge in edges[np.argsort(-values[edges], kind="stable")]:
                mask[edge] |= held < mass * values[edges].sum() - 1e-12
                held += values[edge]
    for group in (row, col):
        for node in range(graph.num_nodes):
            edges = np.flatnonzero(group == node)
            mask[edges[np.argmax(values[edges])]] = True
    return mask


@given(
    n=st.integers(1, 15),
    density=st.floats(0.2, 5),
    seed=st.integers(0, 10**6),
    rule=st.sampled_from(RULES),
    ties=st.booleans(),
)
@settings(max_examples=150, deadline=None)
def test_equals_the_plain_rule_for_every_member(n, density, seed, rule, ties):
    graph = example(n, int(n * density) + 1, seed)
    # Ties in the cumulated mass are a matter of the last bit; ties in the values are not.
    ties = ties and "mass" not in rule
    values = attention(graph, seed, 2, 3, over=rule.get("over", "rows"), ties=ties)
    mask = attention_mask(graph, values, **rule)
    assert mask.shape == values.shape and mask.dtype == values.dtype
    for member in np.ndindex(2, 3):
        expected = plain(graph, values[member].numpy(), **rule)
        np.testing.assert_array_equal(mask[member].numpy(), expected)
        torch.testing.assert_close(attention_mask(graph, values[member], **rule), mask[member])


@given(st.integers(0, 10**6), st.sampled_from([{"threshold": 0.3}, {"keep": 0.4}]))
@settings(max_examples=40, deadline=None)
def test_masking_the_masked_changes_nothing(seed, rule):
    graph = example(12, 40, seed)
    values = attention(graph, seed, 3)
    mask = attention_mask(graph, values, **rule)
    torch.testing.assert_close(attention_mask(graph, values * mask, **rule), mask)


@given(st.integers(0, 10**6), st.sampled_from(RULES))
@settings(max_examples=40, deadline=None)
def test_numbering_of_nodes_does_not_matter(seed, rule):
    graph = example(12, 40, seed)
    values = attention(graph, seed, over=rule.get("over", "rows"))
    new = torch.randperm(12, generator=torch.Generator().manual_seed(seed))
    moved = Graph.from_edge_index(new[graph.edge_index], 12)
    field = moved.dense(torch.ones(moved.num_edges, dtype=torch.float64))
    field[new[graph.row.long()], new[graph.col.long()]] = values
    there = attention_mask(moved, field[moved.row.long(), moved.col.long()], **rule)
    here = graph.dense(attention_mask(graph, values, **rule))
    torch.testing.assert_close(moved.dense(there)[new][:, new], here)


@pytest.mark.parametrize("rule", [*RULES, {"threshold": 5.0}, {"keep": 1e-9}, {"mass": 1e-9}])
@pytest.mark.parametrize("over", ["rows", "columns"])
def test_the_rest_can_be_normalised(rule, over):
    graph = example(20, 80, 1)
    mask = attention_mask(graph, attention(graph, 1, 4), **rule)
    again = normalise(graph, attention(graph, 2, 4), mask, over=over)
    total = graph.dense(again).sum(-1 if over == "rows" else -2)
    torch.testing.assert_close(total, torch.ones_like(total))


def test_counts():
    graph = example(200, 4000, 0)
    values = attention(graph, 0, 5)
    assert (
        attention_mask(graph, values, keep=1.0).all() and attention_mask(graph, values, threshold=0.0).all()
    )
    kept = attention_mask(graph, values, keep=0.5).sum(-1)
    half = round(0.5 * graph.num_edges)
    assert (kept >= half).all() and (kept <= half + 2 * graph.num_nodes).all()
    top = values.sort(-1, descending=True).indices[:, :half]
    assert attention_mask(graph, values, keep=0.5).gather(-1, top).all()
    shares = graph.dense(values * attention_mask(graph, values, mass=0.8)).sum(-1)
    assert (shares >= 0.8 - 1e-12).all() and (shares < 1).any()


def test_float32_sums_stay_sharp_on_many_rows():
    """Sums run over all edges; the last rows must not lose digits to the first."""
    graph = example(20000, 200000, 0)
    values = attention(graph, 0)
    same = attention_mask(graph, values.float(), mass=0.9) == attention_mask(graph, values, mass=0.9)
    assert same.double().mean() > 0.9999


def test_nan_member_keeps_its_nodes():
    graph = example(10, 30, 0)
    values = attention(graph, 0, 2)
    values[1] = float("nan")
    for rule in RULES:
        mask = attention_mask(graph, values, **rule)
        assert (graph.dense(mask).sum(-1) > 0).all() and (graph.dense(mask).sum(-2) > 0).all()
        torch.testing.assert_close(mask[0], attention_mask(graph, values[0], **rule))


def test_no_gradient():
    graph = example(10, 30, 0)
    values = attention(graph, 0).requires_grad_()
    assert not attention_mask(graph, values, threshold=0.2).requires_grad


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "exactly one.*none"),
        ({"threshold": 0.1, "keep": 0.5}, "exactly one"),
        ({"threshold": -0.1}, "threshold.*-0.1"),
        ({"threshold": float("nan")}, "threshold.*nan"),
        ({"keep": 0.0}, "keep.*0.0"),
        ({"keep": 1.5}, "keep.*1.5"),
        ({"mass": 0.0}, "mass.*0.0"),
        ({"mass": 0.5, "over": "nodes"}, "over.*'nodes'"),
    ],
)
def test_bad_options(options, words):
    graph = example(5, 10, 0)
    with pytest.raises(ArgumentError, match=words):
        attention_mask(graph, attention(graph, 0), **options)


def test_bad_values():
    graph = example(5, 10, 0)
    with pytest.raises(ShapeError, match=str(graph.num_edges)):
        attention_mask(graph, torch.ones(graph.num_edges + 1), keep=0.5)
    with pytest.raises(DtypeError, match="int64"):
        attention_mask(graph, torch.ones(graph.num_edges, dtype=torch.long), keep=0.5)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("rule", RULES)
def test_inside_a_captured_cuda_graph(rule):
    graph = example(300, 3000, 0)
    over = rule.get("over", "rows")
    first, second = attention(graph, 0, 4, over=over), attention(graph, 1, 4, over=over)
    there, values = graph.to("cuda"), first.cuda()
    torch.testing.assert_close(
        attention_mask(there, values, **rule).cpu(), attention_mask(graph, first, **rule)
    )
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        mask = attention_mask(there, values, **rule)
    values.copy_(second)
    captured.replay()
    torch.testing.assert_close(mask.cpu(), attention_mask(graph, second, **rule))
