"""Small graphs, random equations and hypothesis strategies that the tests share."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from typing import Any

import fuzz
import hypothesis.strategies as st
import pytest
import torch
from hypothesis import settings
from torch import Tensor, nn

from graphdiffusion.diffusivity import (
    Bahdanau,
    ConstantLaplacian,
    Cosine,
    Diffusivity,
    ExponentialKernel,
    Pearson,
    ScaledDotProduct,
)
from graphdiffusion.equation import Coefficient, Diffusion, Source
from graphdiffusion.graph import Graph

settings.register_profile("graphdiffusion", deadline=None, derandomize=True, max_examples=25)
settings.load_profile("graphdiffusion")
torch.set_num_threads(1)  # the graphs here are too small to share out

D = torch.float64


@pytest.fixture(autouse=True)
def no_reports(request, monkeypatch):
    """Trainings write no report, which takes longer than they do, unless a test is marked ``pages``."""
    if request.node.get_closest_marker("pages") is None:
        monkeypatch.setattr("graphdiffusion.report.page.write_report", lambda *given, **how: None)


@pytest.fixture(scope="module")
def browser():
    """Chromium for the tests of pages; where it is required and missing, they fail."""
    chromium = shutil.which("chromium")
    if chromium is None and os.environ.get("GRAND_TEST_BROWSER") != "required":
        pytest.skip("chromium is not installed")
    from playwright.sync_api import sync_playwright

    quiet = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
             "--disable-background-networking", "--disable-component-update",
             "--enable-unsafe-swiftshader"]  # fmt: skip
    with sync_playwright() as driver:
        own = driver.chromium.launch(executable_path=chromium or "chromium", args=quiet)
        yield own
        own.close()


# files with tests that share something dear, by how their names begin: each group runs in one process
SHARED = ("test_parts", "test_ops_triton", "test_playground", "test_view", "test_page", "test_ensemble")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Tests go to processes one by one, and those of a group together.

    The mark ``xdist_group`` does the same, but pytest-xdist 3.8 does not find it under pytest 9.2.
    """
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            name = nodeid.partition("::")[0].rpartition("/")[2]
            return next((group for group in SHARED if name.startswith(group)), nodeid)

    return Scheduling(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """A report carries the damage that its test counted, from a worker process to the main one."""
    report = yield
    if fuzz.cases:
        report.user_properties.append(("damage", dict(fuzz.cases)))
        fuzz.cases.clear()
    return report


def pytest_terminal_summary(terminalreporter):
    total: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            for key, counted in getattr(report, "user_properties", []):
                if key == "damage":
                    total.update(counted)
    if total:
        terminalreporter.write_line(fuzz.summary(total))


def both_ways(pairs: list[tuple[int, int]]) -> Tensor:
    edges = torch.tensor(pairs).t()
    return torch.cat([edges, edges.flip(0)], dim=1)


def make_graph(name: str) -> Graph:
    generator = torch.Generator().manual_seed(7)
    if name == "random":
        edges = torch.randint(0, 9, (2, 14), generator=generator)
        return Graph.from_edge_index(torch.cat([edges, edges.flip(0)], 1), 9, self_loops=1.0)
    if name == "directed":  # with weights, duplicates, and nodes that need a closing loop
        edges = torch.randint(0, 8, (2, 17), generator=generator)
        return Graph.from_edge_index(edges, 9, torch.rand(17, generator=generator, dtype=D) + 0.1)
    if name == "disconnected":
        return Graph.from_edge_index(both_ways([(0, 1), (1, 2), (3, 4), (4, 5), (3, 5)]), 8)
    if name == "star":
        return Graph.from_edge_index(both_ways([(0, k) for k in range(1, 8)]))
    if name == "path":
        return Graph.from_edge_index(both_ways([(k, k + 1) for k in range(7)]))
    return Graph.from_edge_index(both_ways([(0, 1), (1, 2), (2, 3), (3, 0)]), 5, self_loops=0.5)


GRAPHS = ("random", "directed", "disconnected", "star", "path", "loops")


@pytest.fixture(params=GRAPHS)
def graph(request: pytest.FixtureRequest) -> Graph:
    return make_graph(request.param)


@pytest.fixture
def small() -> Graph:
    return make_graph("random")


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = D) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


@st.composite
def graphs(draw: st.DrawFn, undirected: bool | None = None) -> Graph:
    """Graphs of 2 to 8 nodes: any edges, duplicates, isolated nodes, with or without weights and loops."""
    n = draw(st.integers(2, 8))
    node = st.integers(0, n - 1)
    pairs = draw(st.lists(st.tuples(node, node), max_size=20))
    edges = torch.tensor(pairs, dtype=torch.long).reshape(-1, 2).t()
    weight = None
    if draw(st.booleans()):
        weight = torch.rand(len(pairs), generator=torch.Generator().manual_seed(n), dtype=D) + 0.1
    if draw(st.booleans()) if undirected is None else undirected:
        edges = torch.cat([edges, edges.flip(0)], 1)
        weight = None if weight is None else weight.repeat(2)
    return Graph.from_edge_index(edges, n, weight, draw(st.sampled_from([None, 0.0, 1.0, 2.5])))


seeds = st.integers(0, 10_000)

DIFFUSIVITIES: dict[str, Any] = {
    "dot/dim": lambda *a, **k: ScaledDotProduct(*a, scale="dim", **k),
    "dot/sqrt": lambda *a, **k: ScaledDotProduct(*a, scale="sqrt", **k),
    "bahdanau": Bahdanau,
    "cosine": Cosine,
    "pearson": Pearson,
    "kernel": ExponentialKernel,
    "constant": lambda *a, **k: ConstantLaplacian(
        **{name: v for name, v in k.items() if name in ("over", "reweight")}
    ),
}
PAPER: dict[str, Any] = {"normaliser": "softmax", "over": "rows", "reweight": False}
LEARNT = tuple(name for name in DIFFUSIVITIES if name != "constant")


def scatter_parameters(module: nn.Module, seed: int = 0, scale: float = 0.5) -> Any:
    """Random parameters in float64, so that nothing hides behind the constant initialisation."""
    generator = torch.Generator().manual_seed(seed)
    module.to(D)
    with torch.no_grad():
        for p in module.parameters():
            p.add_(scale * torch.randn(p.shape, generator=generator, dtype=D))
    return module


def make_diffusivity(name: str, channels: int = 3, seed: int = 0, **how: Any) -> Diffusivity:
    with torch.random.fork_rng():
        torch.manual_seed(seed)  # biases start at random
        built = DIFFUSIVITIES[name](channels, heads=2, attention_dim=6, **PAPER | how)
    return scatter_parameters(built, seed)


def make_equation(
    name: str = "dot/sqrt",
    *,
    linear: bool = False,
    source: bool = True,
    alpha: float | Coefficient | None = None,
    seed: int = 0,
    **how: Any,
) -> Diffusion:
    """An equation with everything learnt: attention, α and (if asked for) β."""
    return Diffusion(
        make_diffusivity(name, seed=seed, **how),
        linear=linear,
        alpha=Coefficient(0.7) if alpha is None else alpha,
        terms=[Source(0.3, detach_source=False)] if source else [],
    ).to(D)
