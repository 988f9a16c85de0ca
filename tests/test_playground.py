"""The playground: numbers against dense formulas, verdicts against spectra, the page in a browser."""

from __future__ import annotations

import base64
import io
import json
import urllib.error
import urllib.request
from dataclasses import replace

import matplotlib.image
import numpy as np
import pytest
import scipy.integrate
import scipy.linalg
from test_page import Reader

from graphdiffusion.cli import main
from graphdiffusion.errors import ArgumentError, ConfigError, GraphDiffusionError
from graphdiffusion.report.page.server import PageServer
from graphdiffusion.report.playground import page, scenes, simulate, write_playground
from graphdiffusion.report.playground.experiment import SCHEMES, Experiment
from graphdiffusion.report.playground.formula import formulas
from graphdiffusion.report.playground.graphs import GRAPHS, draw_graph
from graphdiffusion.report.playground.measured import happening, packed
from graphdiffusion.report.playground.scenes import SCENES, experiment_of
from graphdiffusion.report.playground.theory import general_limit, step_limit

RESULT = simulate.simulate
STEPS = 100
NONLINEAR = ("rk4", "semi-implicit", "trapezoid", "exponential", "exponential-midpoint", "dopri5")
SEEN = {scene.name: scene for scene in SCENES}


def made(graph: str, size: int, values=None, **given) -> Experiment:
    own = experiment_of(draw_graph(graph, size), scenes.settings(given))
    if values is None:
        values = np.random.default_rng(1).uniform(-1, 1, own.nodes)
    return replace(own, values=tuple(float(v) for v in values))


def dense(experiment: Experiment, x: np.ndarray) -> np.ndarray:
    """A written out with loops, from the formulas that the page shows."""
    n = experiment.nodes
    edge = np.zeros((n, n), dtype=bool)
    for a, b in experiment.edges:  # from a to b: b listens to a
        edge[b, a] = True
        edge[a, b] |= not experiment.directed
    edge |= np.eye(n, dtype=bool) & experiment.loops
    w = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            if edge[i, j]:
                s, width = experiment.strength, experiment.width
                score = {
                    "laplacian": 0.0,
                    "exponential": s * np.exp(-((x[i] - x[j]) ** 2) / (2 * width**2)),
                    "scaled-dot": s * x[i] * x[j],
                }[experiment.diffusivity]
                w[i, j] = np.exp(score)
    rows, columns = w.sum(1, keepdims=True), w.sum(0, keepdims=True)
    return {"rows": w / rows, "columns": w / columns, "symmetric": w / np.sqrt(rows * columns)}[
        experiment.over
    ]


@pytest.mark.parametrize(
    ("diffusivity", "over", "beta"),
    [
        ("laplacian", "rows", 0.0),
        ("laplacian", "columns", 0.3),
        ("exponential", "rows", 0.3),
        ("exponential", "symmetric", -0.2),
        ("scaled-dot", "columns", 0.0),
    ],
)
def test_linear_numbers(diffusivity, over, beta):
    """The closed form against the exponential of a matrix, schemes against their formulas."""
    given = {
        "diffusivity": diffusivity,
        "over": over,
        "beta": beta,
        "alpha": 0.7,
        "time": 6.0,
        "loops": True,
    }
    own = made("communities", 12, **given, strength=2.0, width=0.4, step=0.5)
    x, n = np.array(own.values), own.nodes
    m = 0.7 * (dense(own, x) - np.eye(n))
    whole = np.block([[m, beta * np.eye(n)], [np.zeros((n, 2 * n))]])  # the source is a state that stays
    eye = np.eye(n)

    def forward(y):
        return m @ y + beta * x

    def rk4(y):
        a = forward(y)
        b = forward(y + 0.25 * a)
        c = forward(y + 0.25 * b)
        return y + 0.5 / 6 * (a + 2 * b + 2 * c + forward(y + 0.5 * c))

    steps = {
        "exponential": None,
        "euler": lambda y: y + 0.5 * forward(y),
        "rk4": rk4,
        "semi-implicit": lambda y: np.linalg.solve(eye - 0.5 * m, y + 0.5 * beta * x),
        "trapezoid": lambda y: np.linalg.solve(eye - 0.25 * m, y + 0.25 * (forward(y) + beta * x)),
    }
    for scheme, step in steps.items():
        found = RESULT(replace(own, scheme=scheme))
        exact = np.stack([(scipy.linalg.expm(t * whole) @ np.r_[x, x])[:n] for t in found.times])
        np.testing.assert_allclose(found.exact, exact, atol=1e-12)
        if step is None:
            np.testing.assert_allclose(found.states, exact, atol=1e-12)
            continue
        assert len(found.times) == 13 and found.step == 0.5
        y = x
        for k in range(13):
            np.testing.assert_allclose(found.states[k], y, atol=1e-8)
            y = step(y)


def test_nonlinear_numbers():
    own = made("communities", 14, diffusivity="exponential", linear=False, strength=5.0, time=4.0, step=0.8)
    found = RESULT(own)
    y = np.array(own.values)
    for k in range(6):
        np.testing.assert_allclose(found.states[k], y, atol=1e-12)
        y = y + 0.8 * (dense(own, y) - np.eye(own.nodes)) @ y

    def forward(t, y):
        return (dense(own, y) - np.eye(own.nodes)) @ y

    exact = scipy.integrate.solve_ivp(
        forward, (0, 4), own.values, t_eval=found.times, rtol=1e-9, atol=1e-11
    )
    np.testing.assert_allclose(found.exact, exact.y.T, atol=1e-6)
    a = dense(own, found.states[-1])
    strongest = [max(a[i, j], a[j, i]) for i, j in found.pairs]
    np.testing.assert_allclose(found.attention[-1], strongest, atol=1e-12)
    assert {tuple(pair) for pair in found.pairs} == {tuple(sorted(pair)) for pair in own.edges}


def test_what_the_page_gets():
    """Arrays, charts and facts are those of the states."""
    own = made("path", 9, time=5.0, step=0.5)
    found = RESULT(own)
    sent = json.loads(json.dumps(packed(found), allow_nan=False))
    states = np.frombuffer(base64.b64decode(sent["states"]), "<f4").reshape(found.states.shape)
    np.testing.assert_allclose(states, found.states, atol=1e-6)
    energy = [0.5 * sum((y[a] - y[b]) ** 2 for a, b in own.edges) for y in found.states]
    np.testing.assert_allclose(sent["charts"]["energy"], energy, rtol=1e-6)
    degrees = np.array([1, *[2] * 7, 1])
    np.testing.assert_allclose(sent["charts"]["mass"], found.states @ degrees / 16, rtol=1e-6)
    np.testing.assert_allclose(
        sent["charts"]["error"], np.abs(found.states - found.exact).max(1), rtol=1e-6
    )
    facts = dict(sent["facts"])
    half = np.log(2) / (1 - np.cos(np.pi / 8))  # the eigenvalues of a path are cos(πk/8) − 1
    assert facts["slowest mode"] == f"halves in t = {half:.3g}"
    assert facts["eigenvalues of A − I"] == "from −2 to 0" and facts["Σ dᵢxᵢ / Σ dᵢ"].startswith(
        "conserved"
    )
    assert facts["explicit Euler (7)"] == "10 steps of τ = 0.5"


@pytest.mark.parametrize(
    ("scheme", "graph", "size", "loops"),
    [
        ("euler", "cycle", 8, False),
        ("heun", "cycle", 8, False),
        ("rk4", "cycle", 8, False),
        ("adams-bashforth", "cycle", 8, False),
        ("euler", "one-way", 7, False),
        ("rk4", "one-way", 7, False),
        ("euler", "complete", 5, True),
        ("adams-bashforth", "star", 5, True),
    ],
)
def test_verdicts_and_spectra(scheme, graph, size, loops):
    """Below the limit of this graph all modes decay, beyond it one grows."""
    own = made(graph, size, scheme=scheme, loops=loops, alpha=2.0)
    x = np.array(own.values)
    spectrum = np.linalg.eigvals(dense(own, x) - np.eye(size)).astype(complex)
    limit = step_limit(scheme, spectrum) / 2.0  # τ, at α = 2
    if graph == "cycle":
        expected = {"euler": 1.0, "heun": 1.0, "rk4": 1.3926, "adams-bashforth": 0.15}[scheme]
        assert limit == pytest.approx(expected / 2, rel=1e-4)
    if scheme == "euler":
        radius = [max(abs(1 + 2 * limit * f * z) for z in spectrum) for f in (0.999, 1.001)]
        assert radius[0] <= 1 + 1e-9 < radius[1]
    assert limit >= general_limit(scheme) / 2 * (1 - 1e-6)
    for share, kind in ((0.9, "stable"), (1.3, "unstable")):
        found = RESULT(replace(own, step=limit * share, time=limit * share * STEPS))
        told = packed(found)
        assert told["theory"]["kind"] == kind, told["theory"]
        count = len(found.times)
        size_at = [np.ptp(found.states[k - 8 : k], axis=1).max() for k in (count // 2, count)]
        assert size_at[1] < 0.9 * size_at[0] if kind == "stable" else size_at[1] > 2 * size_at[0]
        assert f"τ < {limit:.4g}" in dict(told["facts"])["limit, this graph"]


def test_at_the_limit():
    told = packed(RESULT(made("cycle", 8, step=1.0)))
    assert told["theory"]["kind"] == "limit" and "neither grows nor decays" in told["theory"]["sentence"]
    # a graph may take longer steps than theorem 1 allows
    told = packed(RESULT(made("complete", 5, step=1.5)))
    assert told["theory"]["kind"] == "stable" and "τα < 1 is safe (theorem 1)" in told["theory"]["sentence"]
    # where A follows x, theorem 1 holds for Euler; the limits of others are those of a fixed A
    kernel = {"diffusivity": "exponential", "linear": False, "step": 0.5, "time": 1.0}
    for scheme, said in (("euler", "Yes, on every graph (theorem 1)"), ("rk4", "With A held fixed: yes")):
        told = packed(RESULT(made("cycle", 6, scheme=scheme, **kernel)))
        assert told["theory"]["sentence"].startswith(said)


@pytest.mark.parametrize("over", ["rows", "columns", "symmetric"])
def test_bounds(over):
    """What theory bounds is kept below the limit and exceeded beyond it."""
    for step, kind in ((0.9, "stayed"), (1.4, "left")):
        found = RESULT(made("star", 7, over=over, step=step, time=8 * step))
        assert happening(found)[0] in (kind, "blown")
        assert (found.bound.excess.max() <= 1e-12) == (kind == "stayed")
    assert all(packed(found)["charts"]["mass"])


def test_every_scheme_runs():
    for scheme in SCHEMES:
        for linear in (True, False) if scheme in NONLINEAR else (True,):
            given = {"scheme": scheme, "linear": linear, "diffusivity": "exponential", "time": 1.0}
            if scheme == "exponential" and not linear:
                with pytest.raises(ArgumentError, match="closed form is that of the linear equation"):
                    made("star", 5, **given)
                continue
            told = packed(RESULT(made("star", 4, step=0.25, **given)))
            assert told["happened"]["kind"] == "stayed", (scheme, told["happened"])
            assert told["charts"]["error"][-1] < 0.1
            assert all(told["formulas"].values())


def test_a_state_that_leaves_the_numbers():
    """What is beyond 10³⁰ is cut off, and said."""
    found = RESULT(made("cycle", 6, step=2.0, time=200.0))
    kind, sentence = happening(found)
    assert kind == "blown" and f"beyond 10³⁰ at t = {found.lost:.4g}" in sentence
    assert np.abs(found.states).max() < 1e30 and found.times[-1] < found.lost < 200
    json.dumps(packed(found), allow_nan=False)
    # a scheme that gives up says so
    told = happening(RESULT(made("cycle", 6, scheme="adams-moulton", step=1.4, time=14.0)))
    assert told[0] == "failed" and "the corrector of AdamsMoulton4 still changed" in told[1]


def test_odd_graphs():
    """One node, no edges, two parts, edges that occur twice, a one-way path."""
    twice = [(0, 1), (1, 0), (2, 3), (2, 2)]
    odd = ((1, [], False), (3, [], False), (4, twice, False), (3, [(0, 1), (1, 2)], True))
    for nodes, edges, directed in odd:
        own = Experiment.read(
            {
                "nodes": nodes,
                "edges": [list(e) for e in edges],
                "values": [1.0] * nodes,
                "directed": directed,
            }
        )
        told = packed(RESULT(own))
        assert told["happened"]["kind"] == "stayed" and told["charts"]["error"][-1] < 1e-12


def test_a_symmetric_matrix_of_a_one_way_graph():
    """Its largest eigenvalue is less than 1, so that everything decays."""
    edges = [[0, 1], [0, 2], [1, 0], [1, 2], [2, 0]]
    own = Experiment.read(GOOD | {"edges": edges, "directed": True, "over": "symmetric"})
    real = np.linalg.eigvals(dense(own, np.array(own.values)) - np.eye(3)).real
    told = dict(packed(RESULT(own))["facts"])["eigenvalues of A − I"].replace("−", "-")
    assert told.startswith(f"from {real.min():.4g} to {real.max():.4g}") and real.max() < -0.01


def test_equal_values_stay():
    found = RESULT(made("cycle", 6, np.full(6, 1000.1), step=0.03, time=30.0))
    assert happening(found)[0] == "stayed" and dict(packed(found)["facts"])[found.bound.name] == "kept"


def test_the_clock(monkeypatch):
    monkeypatch.setattr(simulate, "PATIENCE", -1.0)
    with pytest.raises(ArgumentError, match="takes longer than"):
        RESULT(made("cycle", 6))


def test_formulas():
    lines = formulas(made("cycle", 6, scheme="rk4", beta=-0.5, alpha=2.0), 0.5)
    assert lines["equation"] == ["dx/dt = α (A − I) x + β x(0)"]
    assert lines["numbers"] == ["dx/dt = 2 (A − I) x − 0.5 x(0)"]
    assert lines["scheme"] == [
        "k₁ = f(x)", "k₂ = f(x + τ/2 k₁)", "k₃ = f(x + τ/2 k₂)", "k₄ = f(x + τ k₃)",
        "x⁺ = x + τ/6 k₁ + τ/3 k₂ + τ/3 k₃ + τ/6 k₄",
    ]  # fmt: skip
    lines = formulas(made("cycle", 6, scheme="adams-bashforth"), 0.5)["scheme"]
    assert lines[0] == "x⁺ = x + 55τ/24 f − 59τ/24 f₋₁ + 37τ/24 f₋₂ − 3τ/8 f₋₃"
    lines = formulas(made("cycle", 6, alpha=0.5), 3.0)["scheme"]
    assert lines[1].strip() == "= −0.5 x + 1.5 A x, with τα = 1.5"
    lines = formulas(made("cycle", 6, scheme="semi-implicit", alpha=0.5, beta=0.1), 4.0)["scheme"]
    assert lines == [
        "x⁺ = x + τα (A − I) x⁺ + τβ x(0)",
        "a linear system: (I − 2 (A − I)) x⁺ = x + 0.4 x(0)",
    ]


@pytest.fixture(scope="module")
def shown():
    """Every scene, integrated."""
    return {name: RESULT(scene.experiment) for name, scene in SEEN.items()}


def test_scenes_show_what_they_say(shown):
    kinds = {name: happening(result)[0] for name, result in shown.items()}
    assert kinds == dict.fromkeys(SEEN, "stayed") | {"beyond": "blown"}
    assert len(SEEN) == 8 and all(2 <= scene.text.count(". ") + 1 <= 4 for scene in SCENES)
    x = {name: result.states for name, result in shown.items()}
    assert x["heat"].sum(1) == pytest.approx(np.ones(61)) and x["heat"][-1].max() < 0.2
    leaves = x["star"][0, 1:].mean()
    assert x["star"][-1] == pytest.approx(np.full(13, 0.5 * x["star"][0, 0] + 0.5 * leaves), abs=5e-3)
    side = x["communities"][0] > 0
    apart = RESULT(
        replace(SEEN["communities"].experiment, diffusivity="laplacian", linear=True, time=150.0)
    )
    for states, least, most in ((x["communities"], 1.7, 3.0), (apart.states, 0.0, 0.1)):
        assert least <= states[-1][side].mean() - states[-1][~side].mean() <= most
    assert max(x["communities"][-1][side].std(), x["communities"][-1][~side].std()) < 0.1
    image = shown["image"]
    clean = np.round(image.states[0] * 4)  # flat parts, roughly
    blurred = RESULT(replace(SEEN["image"].experiment, diffusivity="laplacian", linear=True)).states[-1]
    across = [(a, b) for a, b in image.experiment.edges if abs(clean[a] - clean[b]) >= 2]
    jumps = [
        np.mean([abs(y[a] - y[b]) for a, b in across]) for y in (image.states[0], x["image"][-1], blurred)
    ]
    assert jumps[1] > 0.8 * jumps[0] and jumps[2] < 0.5 * jumps[0]
    growth = np.abs(x["beyond"][-1]).max() / np.abs(x["beyond"][-2]).max()
    assert growth == pytest.approx(1.2, abs=0.03)
    assert shown["implicit"].step == 5.0
    forgotten = RESULT(replace(SEEN["source"].experiment, beta=0.0)).states[-1]
    assert np.ptp(x["source"][-1]) > 2 * np.ptp(forgotten)
    first, last = (packed(shown["oversmoothing"])["charts"]["energy"][k] for k in (0, -1))
    assert last < 1e-3 * first


def test_graphs_and_examples():
    for name, kind in GRAPHS.items():
        for size in (kind.least, kind.size, kind.most):
            drawing = draw_graph(name, size)
            own = experiment_of(drawing, scenes.settings({}))
            assert own.nodes == (size**2 if name == "grid" else size) <= 400
            assert (
                len(drawing.places) == own.nodes
                and 0 <= np.min(drawing.places) <= np.max(drawing.places) <= 1
            )
            told = {"nodes": own.nodes, "values": list(own.values), "directed": own.directed}
            assert Experiment.read({**told, "edges": [list(e) for e in own.edges]}) == own
    limits = [general_limit(scheme) for scheme in scenes.EXPORTED]
    for limit in limits:  # every scheme with a limit is shown below and beyond it
        assert limit is None or min(scenes.STEPS) < limit < max(scenes.STEPS)
    for name, size in (
        ("cycle", 2),
        ("cycle", 10**9),
        ("cycle", 3.0),
        ("cycle", True),
        ("cube", 3),
        (None, 3),
    ):
        with pytest.raises(ConfigError, match="got"):
            draw_graph(name, size)


GOOD = {"nodes": 3, "edges": [[0, 1], [1, 2]], "values": [0, 1, 2.5]}
BAD = [
    ([], "must be an object"),
    (None, "must be an object"),
    ({"nodes": 3}, "must have edges, values"),
    (GOOD | {"colour": 1}, "no setting 'colour'"),
    (GOOD | {"nodes": 0}, "1 to 400 nodes, got 0"),
    (GOOD | {"nodes": 401}, "got 401"),
    (GOOD | {"nodes": 10**30}, "1 to 400 nodes"),
    (GOOD | {"nodes": True}, "got True"),
    (GOOD | {"nodes": "3"}, "got '3'"),
    (GOOD | {"edges": [[0, 3]]}, "nodes from 0 to 2, got [0, 3]"),
    (GOOD | {"edges": [[0, -1]]}, "got [0, -1]"),
    (GOOD | {"edges": [[0, 1.0]]}, "got [0, 1.0]"),
    (GOOD | {"edges": [[0]]}, "got [0]"),
    (GOOD | {"edges": "01"}, "at most 4,000 pairs"),
    (GOOD | {"edges": [[0, 1]] * 4001}, "got 4,001"),
    (GOOD | {"values": [0, 1]}, "a list of 3 numbers"),
    (GOOD | {"values": [0, 1, None]}, "got nothing"),
    (GOOD | {"values": [0, 1, float("inf")]}, "got inf"),
    (GOOD | {"values": [0, 1, float("nan")]}, "got nan"),
    (GOOD | {"values": [0, 1, 1e4]}, "from -1000 to 1000"),
    (GOOD | {"values": [0, 1, 10**400]}, "a number from"),
    (GOOD | {"alpha": "1"}, "alpha must be a number from 0.01 to 10, got '1'"),
    (GOOD | {"alpha": float("nan")}, "got nan"),
    (GOOD | {"time": 1e9}, "time must be a number"),
    (GOOD | {"step": 0}, "step must be a number"),
    (GOOD | {"step": 0.001, "time": 200}, "take τ ≥ 0.1"),
    (GOOD | {"scheme": "leapfrog"}, "scheme must be one of euler"),
    (GOOD | {"scheme": ["euler"]}, "scheme must be one of"),
    (GOOD | {"scheme": "__class__" * 100}, "..."),
    (GOOD | {"linear": 1}, "linear must be true or false, got 1"),
    (GOOD | {"over": None}, "over must be one of"),
    (GOOD | {"scheme": "exponential", "linear": False}, "the closed form"),
]


@pytest.mark.parametrize(("content", "said"), BAD)
def test_bad_experiments(content, said):
    with pytest.raises(GraphDiffusionError) as caught:
        Experiment.read(content)
    message = str(caught.value)
    assert said in message and message.endswith(".") and len(message) < 300


@pytest.fixture(scope="module")
def server():
    own = PageServer(page.routes()).start()
    yield own
    own.close()


def ask(server, path, content):
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    request = urllib.request.Request(server.url + path, body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=20) as reply:
            return reply.status, json.loads(reply.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def test_server(server):
    status, found = ask(server, "simulate", GOOD | {"step": 0.5, "time": 2.0})
    own = Experiment.read(GOOD | {"step": 0.5, "time": 2.0})
    assert status == 200 and found == json.loads(json.dumps(packed(RESULT(own))))
    assert ask(server, "graph", {"name": "star", "size": 9})[1] == json.loads(
        json.dumps(draw_graph("star", 9).packed())
    )
    for path, content, said in (
        ("simulate", GOOD | {"scheme": "leapfrog"}, "scheme must be one of"),
        ("simulate", json.dumps(GOOD).replace("2.5", "1e999").encode(), "got inf"),
        ("simulate", json.dumps(GOOD).replace("2.5", "NaN").encode(), "not JSON"),
        ("graph", {"name": "star"}, "by name and size"),
        ("graph", {"name": "star", "size": 10**6}, "from 3 to 100"),
    ):
        status, found = ask(server, path, content)
        assert status == 400 and said in found["error"], found


def test_command(tmp_path, monkeypatch, capsys):
    heard = []
    monkeypatch.setattr(
        "graphdiffusion.report.playground.serve_playground",
        lambda port, browser, said: (heard.append((port, browser)), said("http://127.0.0.1:1/")),
    )
    assert main(["demo"]) == 0 and main(["demo", "--port", "8000", "--no-open"]) == 0
    assert heard == [(0, True), (8000, False)]
    assert "Playground: http://127.0.0.1:1/" in capsys.readouterr().out
    for given, said in (
        (["--port", "70000"], "'--port'"),
        (["--port", "1", "--out", "x.html"], "give one of them"),
        (["--out", "x.html", "superpixels"], "behind it"),
        (["--out", str(tmp_path)], "is a folder"),
        (["--draw"], "no such option --draw"),
    ):
        assert main(["demo", *given]) == 2, given
        assert said in capsys.readouterr().err


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """The file, with a few of its examples."""
    path = tmp_path_factory.mktemp("file") / "playground.html"
    with pytest.MonkeyPatch.context() as patch:
        for module in (scenes, page):
            patch.setattr(module, "GRAPHS", {"cycle": GRAPHS["cycle"], "star": GRAPHS["star"]})
            patch.setattr(module, "EXPORTED", ("euler", "semi-implicit", "exponential"))
            patch.setattr(module, "STEPS", (1.1, 3.0))
        patch.setattr(scenes, "EXPORT_TIME", 9.0)
        assert main(["demo", "--out", str(path)]) == 0
    return path


def test_the_file(exported):
    text = exported.read_text()
    reader = Reader(text)
    data = json.loads(reader.scripts[0])
    assert len(data["scenes"]) == 8 and len(data["examples"]) == 2 * (2 * 2 + 1)
    # all of it has less than 5 MB: its examples grow with their nodes, and none has more frames than this
    whole = [own for _, _, own in scenes.examples()]
    longest = next(own for own in whole if own.nodes == 144 and own.step == 0.1)
    each = len(json.dumps(packed(RESULT(longest, scenes.FRAMES)))) / 144
    assert len(whole) == 168 and len(text) + each * sum(own.nodes for own in whole) < 5_000_000
    own = experiment_of(GRAPHS["cycle"].make(24), scenes.settings({"step": 1.1, "time": 9.0}))
    assert data["examples"]["cycle euler 1.1"] == json.loads(json.dumps(packed(RESULT(own, scenes.FRAMES))))
    for tag, attributes in reader.tags:
        assert tag not in ("img", "iframe", "object", "embed")
        for name, value in attributes.items():
            assert not name.startswith("on")
            if name in ("src", "href"):
                assert value == "data:,"
    rules = next(a["content"] for tag, a in reader.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert "default-src 'none'" in str(rules) and "connect-src" not in str(rules)
    with pytest.raises(ConfigError, match="is a folder"):
        write_playground(exported.parent)


class Tab:
    """A page in the browser that keeps what it said and asked for."""

    def __init__(self, browser, url: str, width: int, scheme: str) -> None:
        self.context = browser.new_context(viewport={"width": width, "height": 850}, color_scheme=scheme)
        self.tab, self.said, self.asked = self.context.new_page(), [], []
        self.tab.on("console", lambda message: self.said.append(message.text))
        self.tab.on("pageerror", lambda error: self.said.append(str(error)))
        self.tab.on("request", lambda request: self.asked.append(request.url))
        self.tab.goto(url)
        self.canvas = self.tab.locator("#graph-canvas")
        self.rest()

    def rest(self) -> None:
        self.tab.wait_for_selector("#graph-canvas[data-waiting=false]")

    def pixels(self) -> str:
        return self.tab.evaluate("document.getElementById('graph-canvas').toDataURL()")

    def choose(self, menu: str, value: str) -> None:
        self.tab.select_option(menu, value)
        self.rest()

    def type(self, name: str, value: str) -> None:
        self.tab.fill(name, value)
        self.rest()

    def told(self, name: str) -> str:
        return self.tab.locator(f"#{name}").inner_text()

    def kind(self, name: str) -> str:
        return self.tab.locator(f"#{name}-box").get_attribute("data-kind")

    def count(self, what: str) -> int:
        return int(self.canvas.get_attribute(f"data-{what}"))

    def close(self, url: str) -> None:
        assert self.tab.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        assert self.said == []
        assert all(own.startswith((url, "data:")) for own in self.asked), self.asked
        self.context.close()


def slide(own: Tab) -> None:
    """Slider by keyboard, then play and pause."""
    last = own.canvas.get_attribute("data-frame")
    after = own.pixels()
    own.tab.locator("#time-slider").focus()
    own.tab.keyboard.press("Home")
    assert own.canvas.get_attribute("data-frame") == "0" and own.told("time-value") == "t = 0"
    assert own.pixels() != after
    own.tab.keyboard.press("End")
    assert own.canvas.get_attribute("data-frame") == last and own.pixels() == after
    play = own.tab.locator("#play")
    play.click()
    own.tab.wait_for_timeout(300)
    play.click()
    stopped = int(own.canvas.get_attribute("data-frame"))
    assert 0 < stopped < int(last) and play.inner_text() == "Play"
    own.tab.wait_for_timeout(100)
    assert int(own.canvas.get_attribute("data-frame")) == stopped


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")], ids=["desktop", "phone"])
def test_in_a_browser(browser, server, width, scheme):
    own = Tab(browser, server.url, width, scheme)
    tab = own.tab
    assert own.kind("theory") == "stable" and own.kind("happened") == "stayed"
    assert SEEN["heat"].text == own.told("scene-text")
    slide(own)
    before = own.pixels()
    own.choose("#scene", "beyond")  # a blow-up is shown as such
    assert own.kind("theory") == "unstable" and own.kind("happened") == "blown"
    assert own.told("happened").startswith("It blew up") and own.pixels() != before
    assert "logarithmic" in own.told("range-title")
    if width < 1000:
        own.close(server.url)
        return
    own.type("#step", "0.88")
    assert own.kind("theory") == "stable" and own.kind("happened") == "stayed"
    assert "0.12 x + 0.88 A x" in own.told("formulas")
    own.type("#step", "")
    assert own.told("error") == "τ, step must be a number from 0.001 to 200." and not own.kind("theory")
    own.choose("#scheme", "dopri5")  # has no τ
    assert not tab.locator("#step").is_visible() and tab.locator("#tolerance").is_visible()
    assert not tab.locator("#error").is_visible() and own.kind("theory") == "adaptive"
    own.choose("#scheme", "semi-implicit")
    own.type("#step", "0.01")  # a sentence of the server
    assert "and 2,000 are the most here" in own.told("error")
    assert "400 (Bad Request)" in own.said.pop()  # of the browser itself
    own.type("#step", "3")
    assert not tab.locator("#error").is_visible() and own.kind("theory") == "stable"
    own.choose("#graph", "star")
    assert own.count("nodes") == 13 and tab.locator("#scene").input_value() == ""
    own.type("#size", "6")
    tab.keyboard.press("Tab")
    own.tab.wait_for_selector("#graph-canvas[data-nodes='6'][data-waiting=false]")
    assert "6 nodes, 5 edges" in own.told("facts")
    assert not tab.locator("#image").is_visible()
    own.choose("#graph", "grid")
    picture = np.zeros((16, 16, 3))
    picture[:, 8:] = 1.0  # dark on the left, bright on the right
    file = io.BytesIO()
    matplotlib.image.imsave(file, picture, format="png")
    for name, content in (("image.png", file.getvalue()), ("text.png", b"no image")):
        tab.set_input_files("#image", {"name": name, "mimeType": "image/png", "buffer": content})
        tab.wait_for_timeout(100)
        own.rest()
    assert own.told("error").startswith("This file cannot be read as an image")
    tab.locator("#time-slider").focus()
    tab.keyboard.press("Home")
    assert own.told("range-now") == "0 to 1"
    assert own.told("energy-now") == "8"  # 16 edges from 0 to 1 cross the middle
    own.close(server.url)


def test_draw_in_a_browser(browser, server):
    own = Tab(browser, server.url, 1280, "light")
    tab = own.tab

    def press(name: str) -> None:
        tab.locator(f"[data-key={name}]").click()
        own.rest()

    own.choose("#scheme", "exponential")
    tab.locator("summary").click()
    press("clear")
    assert (own.count("nodes"), own.count("edges")) == (1, 0)  # one node in the middle
    box = own.canvas.bounding_box()
    spot = {"x": box["width"] * 0.8, "y": box["height"] * 0.3}
    before = own.pixels()
    own.canvas.click(position=spot)
    own.rest()
    assert own.count("nodes") == 2 and own.pixels() != before
    before, box = own.pixels(), own.canvas.bounding_box()
    tab.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    tab.mouse.down()
    tab.mouse.move(box["x"] + spot["x"], box["y"] + spot["y"], steps=4)
    tab.mouse.up()
    own.rest()
    assert own.count("edges") == 1 and own.pixels() != before
    assert "2 nodes, 1 edges" in own.told("facts")
    tab.locator("[data-tool=paint]").click()
    tab.fill("#brush", "-3")
    own.canvas.click(position=spot)
    own.rest()
    assert own.told("range-now") == "−3 to 1"
    press("add-node")  # the same by keyboard
    tab.fill("#key-from", "2")
    tab.fill("#key-to", "0")
    press("add-edge")
    assert (own.count("nodes"), own.count("edges")) == (3, 2)
    tab.fill("#key-value", "7")
    press("set-value")
    assert own.told("range-now") == "−3 to 7"
    press("remove-edge")
    assert own.count("edges") == 1
    tab.fill("#key-from", "9")
    press("remove-node")
    assert own.told("error") == "Nodes are numbered from 0 to 2, got 9." and own.count("nodes") == 3
    tab.locator("[data-tool=look]").click()
    own.canvas.focus()
    tab.keyboard.press("Escape")
    tab.keyboard.press("ArrowRight")
    assert own.told("about").startswith("node 0: x = ") and "neighbours 1" in own.told("about")
    tab.keyboard.press("Delete")
    own.rest()
    assert (own.count("nodes"), own.count("edges")) == (2, 0)
    tab.locator("[data-tool=delete]").click()
    own.canvas.click(position=spot)
    own.rest()
    assert own.count("nodes") == 1
    own.close(server.url)


def test_the_file_in_a_browser(browser, exported):
    own = Tab(browser, exported.as_uri(), 1280, "dark")
    tab = own.tab
    slide(own)
    assert tab.locator("#file-note").is_visible() and "run grand demo" in own.told("file-note")
    assert not tab.locator("#tools").is_visible() and tab.locator("#alpha").is_disabled()
    own.choose("#scene", "beyond")
    assert own.kind("happened") == "blown"
    before = own.pixels()
    own.choose("#graph", "star")
    own.choose("#scheme", "euler")
    own.choose("#step", "3")
    assert own.kind("theory") == "unstable" and own.pixels() != before
    own.choose("#scheme", "semi-implicit")
    assert own.kind("theory") == "stable" and own.count("nodes") == 13
    own.choose("#scheme", "exponential")
    assert not tab.locator("#step").is_visible() and own.kind("happened") == "stayed"
    own.close(exported.as_uri())
