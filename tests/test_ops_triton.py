"""The Triton kernels against the torch backend, on the CPU through Triton's interpreter.

The interpreter must be chosen before Triton is first imported. So this file has two faces: a plain run
starts a second pytest on this very file with ``TRITON_INTERPRET=1``, and reports each test of it here.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from itertools import product
from pathlib import Path

import pytest
import torch
from ops_table import CELLS, CHECKS, OPERATORS
from torch import Tensor

from graphdiffusion import ops
from graphdiffusion.graph import Graph
from graphdiffusion.ops import torch as torch_backend
from graphdiffusion.ops.backends import backend
from graphdiffusion.ops.functions import transposed

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
HAS_TRITON = importlib.util.find_spec("triton") is not None
ROUNDING = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 2e-2}


def graph_with_hubs(n: int = 13, seed: int = 0) -> Graph:
    """Node 0 hears everybody, everybody hears node 1, and some nodes hear themselves alone."""
    random = torch.Generator().manual_seed(seed)
    some = torch.randint(2, n - 3, (2, n), generator=random)
    everybody = torch.arange(n - 3)
    hub, crowd = torch.zeros_like(everybody), torch.ones_like(everybody)
    edges = torch.cat([some, torch.stack([everybody, hub]), torch.stack([crowd, everybody])], dim=1)
    return Graph.from_edge_index(edges, num_nodes=n)


def close(a: Tensor, b: Tensor, tolerance: float | None = None) -> None:
    tolerance = tolerance or ROUNDING[a.dtype]
    a, b = a.detach().double(), b.detach().double()
    error = (a - b).norm() / b.norm().clamp(min=1e-30)
    assert a.shape == b.shape
    assert float(error) < tolerance


if not INTERPRETED:

    def _interpreted_tests() -> list[str]:
        guarded = [node for node in ast.parse(Path(__file__).read_text()).body if isinstance(node, ast.If)]
        inside = [node for part in guarded for node in part.orelse if isinstance(node, ast.FunctionDef)]
        return [node.name for node in inside if node.name.startswith("test_")]

    @pytest.fixture(scope="module")
    def verdicts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
        """Name of each interpreted test → the messages of its failures."""
        report = tmp_path_factory.mktemp("interpreted") / "report.xml"
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", f"--junitxml={report}"]
        env = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
        run = subprocess.run([*command, __file__], env=env, capture_output=True, text=True)
        if not report.exists():
            pytest.fail(f"the interpreted tests did not run:\n{run.stdout}\n{run.stderr}")
        found: dict[str, list[str]] = {}
        for case in ET.parse(report).iter("testcase"):
            name = str(case.get("name")).split("[")[0]
            broken = [*case.iter("failure"), *case.iter("error")]
            found.setdefault(name, []).extend(f"{case.get('name')}: {b.text}" for b in broken)
        return found

    @pytest.mark.skipif(torch.cuda.is_available(), reason="tests/gpu runs the kernels on the device")
    @pytest.mark.skipif(not HAS_TRITON, reason="Triton is not installed")
    @pytest.mark.parametrize("name", _interpreted_tests())
    def test_interpreted(verdicts: dict[str, list[str]], name: str) -> None:
        assert name in verdicts, "the interpreted run did not report this test"
        assert not verdicts[name], "\n".join(verdicts[name])

    @pytest.mark.skipif(not HAS_TRITON, reason="Triton is not installed")
    @pytest.mark.parametrize("over", ["rows", "columns"])
    @pytest.mark.parametrize(("short", "chunk"), [(2, 4), (1, 1), (32, 512), (8, 3)])
    def test_plan_covers_every_edge_once(
        monkeypatch: pytest.MonkeyPatch, over: str, short: int, chunk: int
    ) -> None:
        from graphdiffusion.ops.triton import plan as triton_plan

        monkeypatch.setattr(triton_plan, "SHORT", short)
        monkeypatch.setattr(triton_plan, "CHUNK", chunk)
        graph = graph_with_hubs()
        work = triton_plan.plan(graph, over)
        assert work is triton_plan.plan(graph, over)
        pointer = graph.rowptr if over == "rows" else graph.colptr
        own = graph.row if over == "rows" else graph.col[graph.perm]
        covered = []
        for node, start, length in zip(work.node, work.start, work.length, strict=True):
            assert 0 < length <= chunk
            span = torch.arange(int(start), int(start + length))
            assert bool((own[span] == node).all())
            covered.append(span)
        assert torch.equal(torch.cat(covered).sort().values, torch.arange(graph.num_edges))
        for s, node in enumerate(work.split_node):
            pieces = slice(int(work.split_slot[s]), int(work.split_slot[s + 1]))
            assert bool((work.node[pieces] == node).all())
            assert int(work.length[pieces].sum()) == int(pointer[node + 1] - pointer[node])
        assert bool((work.length[work.num_split : work.num_long] > short).all())
        tail = work.length[work.num_long :]
        assert bool((tail[1:] <= tail[:-1]).all())

    def test_cpu_tensors_get_the_torch_backend() -> None:
        assert backend(torch.zeros(1)) is torch_backend

else:
    triton_backend = pytest.importorskip("graphdiffusion.ops.triton")
    from graphdiffusion.ops.dense import affines, together
    from graphdiffusion.ops.triton import attention_edges
    from graphdiffusion.ops.triton import plan as triton_plan
    from graphdiffusion.ops.triton.products import SpmmTiling
    from graphdiffusion.ops.verbs import _flat_heads
    from graphdiffusion.solvers.series import power_series

    pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy's, of lanes masked out

    @pytest.fixture(autouse=True)
    def cut_rows(monkeypatch: pytest.MonkeyPatch) -> None:
        """Rows of 3 edges are long and rows of 5 are cut, so that a small graph takes every path."""
        monkeypatch.setattr(triton_plan, "SHORT", 2)
        monkeypatch.setattr(triton_plan, "CHUNK", 4)

    def draw(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 1) -> Tensor:
        return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(
            dtype
        )

    @pytest.mark.parametrize("transpose", [False, True])
    @pytest.mark.parametrize("add", [False, True])
    @pytest.mark.parametrize(
        ("members", "d", "dtype"),
        [
            (1, 1, torch.float64),
            (3, 5, torch.float64),
            (1, 16, torch.float32),
            (2, 80, torch.float32),
            (2, 20, torch.bfloat16),
        ],
    )
    def test_spmm(members: int, d: int, dtype: torch.dtype, transpose: bool, add: bool) -> None:
        graph = graph_with_hubs()
        n = graph.num_nodes
        edge_dtype = torch.float32 if dtype == torch.bfloat16 else dtype
        values = draw(members, graph.num_edges, dtype=edge_dtype)
        x = draw(members, n, 2 * d, dtype=dtype, seed=2)[..., :d]  # rows with gaps between them
        term = (draw(members, dtype=edge_dtype, seed=3), draw(members, n, d, dtype=dtype, seed=4))
        tiling = SpmmTiling(width=16, rows=8, edges=2)
        pattern, entries = transposed(graph, values) if transpose else (graph, values)
        out = triton_backend.spmm(pattern, entries, x, term if add else None, tiling=tiling)
        exact = torch_backend.spmm(
            pattern, entries.double(), x.double(), tuple(t.double() for t in term) if add else None
        )
        assert out.dtype == dtype
        close(out, exact)
        if not add:
            close(triton_backend.spmm(pattern, entries, x, minus=x), exact - x.double())

    @pytest.mark.parametrize("sums", [1, 2, 5])
    @pytest.mark.parametrize("count", [1, 3, 8, 11])
    def test_combine_and_dots(count: int, sums: int) -> None:
        """Of members with one number more than a program of the kernels takes."""
        shape = (683, 3)
        states = [draw(3, *shape, seed=k) for k in range(count)]
        c = draw(sums, count, 3, seed=20)
        start = draw(sums, 3, *shape, seed=21)
        close(triton_backend.combine(c, states), torch_backend.combine(c, states))
        close(triton_backend.combine(c, states, start), torch_backend.combine(c, states, start))
        close(triton_backend.dots(start.unbind(), states), torch_backend.dots(start.unbind(), states))

    @pytest.mark.parametrize("count", [1, 8, 11])
    def test_sums_of_rounded_states(count: int) -> None:
        """bfloat16 states beside float32 coefficients and gradients: sums are float32."""
        states = [draw(3, 9, 5, dtype=torch.bfloat16, seed=k) for k in range(count)]
        c = draw(2, count, 3, dtype=torch.float32, seed=20)
        fields = [draw(3, 9, 5, dtype=torch.float32, seed=21 + k) for k in range(2)]
        exact, right = [s.double() for s in states], [f.double() for f in fields]
        for found, expected in (
            (triton_backend.combine(c, states), torch_backend.combine(c.double(), exact)),
            (triton_backend.dots(fields, states), torch_backend.dots(right, exact)),
        ):
            assert found.dtype == torch.float32
            close(found, expected)
        graph = graph_with_hubs()
        q = draw(2, graph.num_nodes, 6, dtype=torch.float32)
        k = draw(2, graph.num_nodes, 6, dtype=torch.bfloat16, seed=2)
        scores = triton_backend.sddmm(graph, q, k)
        assert scores.dtype == torch.float32
        close(scores, torch_backend.sddmm(graph, q.double(), k.double()))

    @pytest.mark.parametrize(
        ("checkpoint", "outputs", "rounded"),
        [(False, 1, False), (True, 3, False), (False, 3, True), (True, 1, True)],
    )
    def test_power_series(checkpoint: bool, outputs: int, rounded: bool) -> None:
        """Sums of powers, also of bfloat16 powers, and their gradients, as on stock torch."""
        graph = graph_with_hubs()
        values = draw(2, graph.num_edges, dtype=torch.float32).div(8).requires_grad_()
        x = draw(2, graph.num_nodes, 6, dtype=torch.float32, seed=2).requires_grad_()
        c = draw(outputs, 2, 1, 1, 10, dtype=torch.float32, seed=3).requires_grad_()
        results = []
        for name in ("triton", "torch"):
            with ops.use_backend(name):
                out = torch.stack(power_series(graph, values, x, c, c, checkpoint, rounded)[-2:])
                results.append([out, *torch.autograd.grad(out.square().sum(), [values, x, c])])
        for found, right in zip(*results, strict=True):
            assert found.dtype == torch.float32
            close(found, right.double(), 1e-2 if rounded else None)  # the interpreter cuts off bits

    @pytest.mark.parametrize("wants_c", [False, True])
    @pytest.mark.parametrize("wanted", [[False] * 3, [True, False, True], [True] * 3, [True, False] * 5])
    def test_combine_backward(wanted: list[bool], wants_c: bool) -> None:
        states = [draw(3, 700, 5, seed=k) for k in range(len(wanted))]
        c, grad = draw(len(wanted), 3, seed=20), draw(3, 700, 5, seed=21)
        d_c, d_states = triton_backend.combine_backward(c, states, grad, wanted, wants_c)
        exact_c, exact = torch_backend.combine_backward(c, states, grad, wanted, wants_c)
        assert (d_c is None) == (exact_c is None) == (not wants_c)
        if d_c is not None:
            close(d_c, exact_c)
        assert [s is not None for s in d_states] == wanted
        for found, right in zip(d_states, exact, strict=True):
            if found is not None:
                close(found, right)

    SIZES = [(1, 5, 3, 2), (3, 150, 80, 7), (2, 70, 20, 130)]

    @pytest.mark.parametrize(
        ("members", "n", "i", "o", "maps"),
        [*((*sizes, maps) for sizes in SIZES for maps in (1, 2, 3)), (2, 4200, 6, 9, 3)],
    )
    def test_affine(members: int, n: int, i: int, o: int, maps: int) -> None:
        """Rows with gaps, weights of every member, and a bias; against float64."""
        x = draw(members, n, 2 * i, dtype=torch.float32)[..., :i].requires_grad_()
        pairs = []
        for k in range(maps):
            weight = draw(members, o, i, dtype=torch.float32, seed=2 + k).requires_grad_()
            bias = draw(members, o, dtype=torch.float32, seed=9 + k).requires_grad_() if k != 1 else None
            pairs.append((weight, bias))
        leaves = [x, *(t for pair in pairs for t in pair if t is not None)]
        with ops.use_backend("triton"):
            out = affines(x, pairs)
            grads = [draw(*y.shape, dtype=torch.float32, seed=30 + k) for k, y in enumerate(out)]
            found = torch.autograd.grad(out, leaves, grads)
        twins = [t.detach().double().requires_grad_() for t in leaves]
        left = iter(twins[1:])
        same = [(next(left), None if b is None else next(left)) for _, b in pairs]
        with ops.use_backend("torch"):
            exact = affines(twins[0], same)
            right = torch.autograd.grad(exact, twins, [g.double() for g in grads])
        for a, b in zip([*out, *found], [*exact, *right], strict=True):
            close(a, b, 1e-6)

    @pytest.mark.parametrize("bits", [0x7FFFFFFF, 0x7FC00000, 0x7F800000])  # CUDA's NaN, another, infinity
    def test_affine_hides_nothing(bits: int) -> None:
        bad = torch.tensor(bits, dtype=torch.int32).view(torch.float32)
        x, w = torch.ones(1, 3, 4), torch.ones(1, 2, 4)
        x[0, 1, 2] = bad
        out = triton_backend.affine(x, w, None)
        assert out[0, 1].isfinite().logical_not().all() and out[0, [0, 2]].eq(4).all()
        assert not triton_backend.affine(torch.ones(1, 3, 4), w * bad, None).isfinite().any()

    def test_affine_twice_differentiable() -> None:
        x, w = draw(2, 5, 4, dtype=torch.float32), draw(2, 3, 4, dtype=torch.float32, seed=2)

        def second(backend: str, dtype: torch.dtype) -> Tensor:
            a, b = x.to(dtype).requires_grad_(), w.to(dtype).requires_grad_()
            with ops.use_backend(backend):
                (first,) = torch.autograd.grad(
                    affines(a, [(b, None)])[0].pow(3).sum(), a, create_graph=True
                )
                return torch.autograd.grad(first.pow(2).sum(), b)[0]

        close(second("triton", torch.float32), second("torch", torch.float64), 1e-5)

    @pytest.mark.parametrize(
        ("members", "d", "dtype"),
        [(1, 1, torch.float64), (3, 5, torch.float64), (2, 80, torch.float32), (1, 16, torch.bfloat16)],
    )
    def test_sddmm(members: int, d: int, dtype: torch.dtype) -> None:
        graph = graph_with_hubs()
        q, k = (draw(members, graph.num_nodes, d, dtype=dtype, seed=s) for s in (1, 2))
        exact = torch_backend.sddmm(graph, q.double(), k.double())
        out = triton_backend.sddmm(graph, q, k)
        close(out, exact)
        before = draw(*out.shape, dtype=out.dtype, seed=3)
        sums = before.clone()
        assert triton_backend.sddmm(graph, q, k, sums) is sums
        close(sums, before.double() + exact)

    @pytest.mark.parametrize("over", ["rows", "columns"])
    @pytest.mark.parametrize(("members", "dtype"), [(1, torch.float64), (3, torch.float32)])
    def test_groups(members: int, dtype: torch.dtype, over: str) -> None:
        graph = graph_with_hubs()
        values = draw(members, graph.num_edges, dtype=dtype)
        nodes = draw(members, graph.num_nodes, dtype=dtype)
        for name, field in (("group_sum", values), ("group_max", values), ("spread", nodes)):
            exact = getattr(torch_backend, name)(graph, field.double(), over)
            close(getattr(triton_backend, name)(graph, field, over), exact)

    @pytest.mark.parametrize(
        ("members", "d", "dtype"), [(1, 1, torch.float64), (3, 5, torch.float32), (2, 70, torch.float32)]
    )
    def test_pooling(members: int, d: int, dtype: torch.dtype) -> None:
        """With ties, an empty row, more edges than are taken at a time, and NaN, which no maximum hides."""
        graph = graph_with_hubs().neighbours
        x, z = (draw(members, graph.rows, d, dtype=dtype, seed=s).mul(2).round() for s in (1, 2))
        x[0, 4, 0] = torch.nan
        y = torch_backend.pool(graph, x)
        assert bool(y[0].isnan().any()) and 0 in graph.rowptr.diff()
        assert torch.equal(triton_backend.pool(graph, x).nan_to_num(99), y.nan_to_num(99))
        for pattern, own, other in ((graph, y, x), (graph.transposed, x, y)):
            exact = torch_backend.match(pattern, own, other, z)
            assert torch.equal(triton_backend.match(pattern, own, other, z), exact)  # sums of whole numbers
        wide = x.mT.contiguous().mT  # another layout
        assert torch.equal(triton_backend.pool(graph, wide).nan_to_num(99), y.nan_to_num(99))

    @pytest.mark.parametrize("over", ["rows", "columns"])
    @pytest.mark.parametrize("kind", ["softmax", "squareplus"])
    @pytest.mark.parametrize("weighted", ["no", "each", "shared"])
    @pytest.mark.parametrize(("members", "dtype"), [(1, torch.float32), (2, torch.float64)])
    def test_normalise(members: int, dtype: torch.dtype, weighted: str, kind: str, over: str) -> None:
        graph = graph_with_hubs()
        scores = 3 * draw(members, graph.num_edges, dtype=dtype)
        weight = None if weighted == "no" else weights(graph, members if weighted == "each" else 1, dtype)
        weight = weight if weight is None else weight.expand(members, -1)
        values = triton_backend.normalise(graph, scores, weight, kind, over)
        wide = None if weight is None else weight.double()
        exact = torch_backend.normalise(graph, scores.double(), wide, kind, over)
        close(values, exact)
        grad = draw(members, graph.num_edges, dtype=dtype, seed=3)
        d_scores = triton_backend.normalise_backward(graph, grad, values, scores, kind, over)
        close(
            d_scores,
            torch_backend.normalise_backward(graph, grad.double(), exact, scores.double(), kind, over),
            1e-4 if dtype == torch.float32 else None,
        )

    def weights(graph: Graph, members: int, dtype: torch.dtype = torch.float64) -> Tensor:
        """Weights with zeros, but no row or column of zeros alone: self-loops and hubs weigh something."""
        weight = draw(members, graph.num_edges, dtype=dtype, seed=7).abs()
        kept = (graph.row == graph.col) | (graph.row == 0) | (graph.col == 1)
        return torch.where(kept | (weight > 0.6), weight, torch.zeros_like(weight))

    def nodes_with_heads(graph: Graph, members: int, heads: int, dk: int, seed: int) -> Tensor:
        """(members, heads, n, dk), as a view of what a linear map makes: heads side by side."""
        flat = draw(members, graph.num_nodes, heads * dk, seed=seed)
        return flat.unflatten(-1, (heads, dk)).transpose(1, 2).requires_grad_()

    def both_backends(
        graph: Graph, q: Tensor, k: Tensor, x: Tensor, weight: Tensor | None, **how: str
    ) -> None:
        """Compare the step and its gradients, and the attention and its gradients."""
        found = []
        grad = draw(*x.shape, seed=5)
        for name in ("triton", "torch"):
            with ops.use_backend(name):
                out = ops.diffuse(graph, q, k, x, weight, **how)
                step = torch.autograd.grad(out, (q, k, x), grad)
                values = ops.attention(graph, q, k, weight, **how)
                edges = torch.autograd.grad(values, (q, k), values.detach().square())
                found.append((out, values, *step, *edges))
        for ours, theirs in zip(*found, strict=True):
            close(ours, theirs)

    STEPS = list(
        product(
            ["rows", "columns"], ["softmax", "squareplus"], ["identity", "leaky_relu", "exp"], [False, True]
        )
    )

    # all cases with few edges at once; every fifth one, in which each choice occurs, with many too
    @pytest.mark.parametrize(
        ("over", "kind", "activation", "weighted", "at_once"),
        [(*own, 2) for own in STEPS] + [(*own, 8) for own in STEPS[::5]],
    )
    def test_step(
        at_once: int, activation: str, kind: str, over: str, weighted: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(attention_edges, "LONG_EDGES", at_once)
        graph = graph_with_hubs()
        q, k = (nodes_with_heads(graph, 1, 2, 2, seed) for seed in (1, 2))
        x = draw(1, graph.num_nodes, 3, seed=3).requires_grad_()
        weight = weights(graph, 1) if weighted else None
        both_backends(graph, q, k, x, weight, activation=activation, kind=kind, over=over)

    @pytest.mark.parametrize(("heads", "dk", "d", "members"), [(1, 16, 5, 3), (3, 7, 16, 1), (2, 1, 1, 2)])
    def test_step_shapes(heads: int, dk: int, d: int, members: int) -> None:
        graph = graph_with_hubs()
        q, k = (nodes_with_heads(graph, members, heads, dk, seed) for seed in (1, 2))
        x = draw(members, graph.num_nodes, d, seed=3).requires_grad_()
        both_backends(graph, q, k, x, weights(graph, 1)[0], kind="softmax", over="rows")

    def test_step_without_members_and_with_shared_keys() -> None:
        graph = graph_with_hubs()
        q = nodes_with_heads(graph, 1, 2, 3, seed=1).detach()[0].requires_grad_()
        k = draw(1, graph.num_nodes, 3, seed=2).requires_grad_()
        x = draw(graph.num_nodes, 2, seed=3).requires_grad_()
        both_backends(graph, q, k, x, None)

    def test_step_in_single_and_half_precision() -> None:
        graph = graph_with_hubs()
        q, k = (nodes_with_heads(graph, 1, 2, 4, seed).detach() for seed in (1, 2))
        x = draw(1, graph.num_nodes, 4, seed=3)
        exact = ops.diffuse(graph, q, k, x)
        for dtype in (torch.float32, torch.bfloat16):
            inputs = [t.clone().requires_grad_() for t in (q.float(), k.float(), x.to(dtype))]
            with ops.use_backend("triton"):
                out = ops.diffuse(graph, *inputs)
                out.sum().backward()
            assert out.dtype == dtype
            close(out, exact)
            assert all(t.grad is not None and t.grad.dtype == t.dtype for t in inputs)

    @pytest.mark.parametrize("kind", ["softmax", "squareplus"])
    def test_step_without_a_gradient_keeps_no_statistics(kind: str) -> None:
        graph = Graph.from_edge_index(torch.tensor([[0, 1, 2, 3, 4, 5, 0], [1, 2, 3, 4, 5, 0, 3]]), 7)
        q, k = (nodes_with_heads(graph, 2, 2, 3, seed).detach() for seed in (1, 2))
        values, total, _ = triton_backend.attend(graph, q, k, None, "identity", kind, "rows", keep=False)
        close(values, ops.attention(graph, q, k, kind=kind))
        assert total.numel() == 0

    @pytest.mark.parametrize("kind", ["softmax", "squareplus"])
    @pytest.mark.parametrize("over", ["rows", "columns"])
    def test_statistics_are_kept_for_a_gradient_alone(
        over: str, kind: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked = []
        attend = triton_backend.attend

        def spy(*args: object) -> object:
            asked.append(args[-1])
            return attend(*args)

        monkeypatch.setattr(triton_backend, "attend", spy)
        graph = graph_with_hubs()  # where groups are cut, they meet in the statistics all the same
        q, k = (nodes_with_heads(graph, 1, 2, 3, seed) for seed in (1, 2))
        x = draw(1, graph.num_nodes, 2, seed=3)
        how = {"kind": kind, "over": over}
        with torch.no_grad():
            exact = ops.diffuse(graph, q, k, x, **how), ops.attention(graph, q, k, **how)
            with ops.use_backend("triton"):
                found = ops.diffuse(graph, q, k, x, **how), ops.attention(graph, q, k, **how)
        for ours, theirs in zip(found, exact, strict=True):
            close(ours, theirs)
        with ops.use_backend("triton"):
            ops.diffuse(graph, q, k, x)
            ops.attention(graph, q.detach(), k.detach())
        assert asked == [False, False, True, False]

    @pytest.mark.parametrize("over", ["rows", "columns"])
    def test_gradient_of_saturated_scores_in_single_precision(over: str) -> None:
        """One edge of a group has all the weight: large terms must not be left to cancel."""
        graph = graph_with_hubs()
        q, k = (2 * nodes_with_heads(graph, 1, 1, 4, seed).detach() for seed in (1, 2))
        grad = draw(1, graph.num_edges, seed=3)
        found = []
        for name, dtype in (("triton", torch.float32), ("torch", torch.float64)):
            both = [t.to(dtype).requires_grad_() for t in (q, k)]
            with ops.use_backend(name):
                values = ops.attention(graph, *both, activation="exp", over=over)
                found.append(torch.autograd.grad(values, both, grad.to(dtype)))
        for ours, theirs in zip(*found, strict=True):
            close(ours, theirs, 1e-4)

    def test_one_matrix_for_all_stays_one_when_it_is_transposed() -> None:
        graph = graph_with_hubs()
        pattern, entries = transposed(graph, draw(1, graph.num_edges).expand(3, -1))
        assert entries.stride(0) == 0
        x = draw(3, graph.num_nodes, 2)
        exact = ops.propagate(graph, draw(1, graph.num_edges), x, transpose=True)
        close(triton_backend.spmm(pattern, entries, x), exact)

    def test_queries_keys_and_steptogether() -> None:
        """Their gradients lie side by side, and are taken by the linear map as one."""
        graph = graph_with_hubs()
        x = draw(2, graph.num_nodes, 5, seed=1)
        maps = [draw(2, 6, 5, seed=2), draw(2, 6, seed=3), draw(2, 6, 5, seed=4), draw(2, 6, seed=5)]
        grad = draw(2, graph.num_nodes, 5, seed=6)
        found = []
        for name, dtype in (("triton", torch.float32), ("torch", torch.float64)):
            y, wq, bq, wk, bk = leaves = [t.to(dtype).requires_grad_() for t in (x, *maps)]
            with ops.use_backend(name):
                both = affines(y, [(wq, bq), (wk, bk)])
                q, k = (t.unflatten(-1, (2, 3)).transpose(1, 2) for t in both)
                out = ops.diffuse(graph, q, k, y, kind="squareplus", over="columns")
                found.append((out, *torch.autograd.grad(out, leaves, grad.to(dtype))))
        for ours, theirs in zip(*found, strict=True):
            close(ours, theirs)

    def test_parts_side_by_side_are_not_copied() -> None:
        whole = draw(2, 3, 8)
        with torch.no_grad():
            assert together(whole.split([2, 6], 2), 2).data_ptr() == whole.data_ptr()
            assert torch.equal(together(whole.split([2, 6], 2), 2), whole)
            for parts in (whole.chunk(2, 2)[::-1], [whole[..., :2], whole[..., 4:]], whole.chunk(2, 2)[:1]):
                assert torch.equal(together(parts, 2), torch.cat(list(parts), 2))
        halves = [half.clone().requires_grad_() for half in whole.chunk(2, 2)]
        slopes = torch.autograd.grad(together(halves, 2).square().sum(), halves)
        assert all(torch.equal(slope, 2 * half) for slope, half in zip(slopes, halves, strict=True))

    def test_views_of_heads_are_not_copied() -> None:
        graph = graph_with_hubs()
        q, k = (nodes_with_heads(graph, 2, 2, 3, seed) for seed in (1, 2))
        flat_q, flat_k, _, _ = _flat_heads(q, k, None)
        assert flat_q.data_ptr() == q.data_ptr() and flat_k.data_ptr() == k.data_ptr()

    def test_second_derivatives() -> None:
        graph = graph_with_hubs(n=7)
        q, k = (nodes_with_heads(graph, 1, 2, 2, seed) for seed in (1, 2))
        x = draw(1, graph.num_nodes, 2, seed=3).requires_grad_()
        found = []
        for name in ("triton", "torch"):
            with ops.use_backend(name):
                out = ops.diffuse(graph, q, k, x, kind="squareplus")
                slopes = torch.autograd.grad(out.square().sum(), (q, x), create_graph=True)
                bend = sum(s.square().sum() for s in slopes)
                found.append(torch.autograd.grad(bend, (q, k, x)))
        for ours, theirs in zip(*found, strict=True):
            close(ours, theirs)

    def test_verbs_differentiate_through_the_kernels() -> None:
        graph = graph_with_hubs()
        values = draw(1, graph.num_edges).requires_grad_()
        x = draw(1, graph.num_nodes, 3, seed=2).requires_grad_()
        found = []
        for name in ("triton", "torch"):
            with ops.use_backend(name):
                a = ops.normalise(graph, values, over="columns")
                y = ops.propagate(graph, a, x) * ops.group_sum(graph, a, "rows").unsqueeze(-1)
                found.append(torch.autograd.grad(y.square().sum(), (values, x)))
        for ours, theirs in zip(*found, strict=True):
            close(ours, theirs)

    # The interpreter is slow, and the rules of the other operators do not depend on the kernels.
    # Finite differences add nothing to backward, jacobians and hessian, which compare with a formula.
    NEVER, SLOW, OWN_RULES = "finite differences", "hessian", ("attention", "affine")
    FEW = ("backward", "double backward", "vmap")  # of diffuse, whose rules are those of its parts
    TAKEN = [
        (row, check)
        for row, check in CELLS
        if check != NEVER
        and (check != SLOW or row in OWN_RULES)
        and (check in FEW or row != "diffuse")
        and (check == "backward" or not ("symmetric" in row or "weighted" in row or row == "pool"))
    ]

    @pytest.mark.parametrize(("operator", "check"), TAKEN)
    def test_table(operator: str, check: str) -> None:
        with ops.use_backend("triton"):
            CHECKS[check](OPERATORS[operator], "triton")
